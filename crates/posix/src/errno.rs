//! Linux error numbers, and the conversion of the stack's reasons to them.
//!
//! No other file of the program's side knows error numbers.

use std::fmt;
use std::io;

use slipstack_channel::{Reason, SocketError};

/// A Linux error number (`errno`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! numbers {
    ($($name:ident),* $(,)?) => {
        impl Errno {
            $(pub const $name: Errno = Errno(libc::$name);)*

            /// The symbolic name, for messages.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(libc::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// The number of a symbolic name.
            #[must_use]
            pub fn named(name: &str) -> Option<Errno> {
                match name {
                    $(stringify!($name) => Some(Errno::$name),)*
                    _ => None,
                }
            }
        }
    };
}

numbers!(
    EPERM,
    ESRCH,
    EINTR,
    EIO,
    EBADF,
    EAGAIN,
    ENOMEM,
    EFAULT,
    EEXIST,
    ENOENT,
    EINVAL,
    EMFILE,
    ENFILE,
    ENOTTY,
    ESPIPE,
    EPIPE,
    ENOSYS,
    EDESTADDRREQ,
    EMSGSIZE,
    EPROTOTYPE,
    ENOPROTOOPT,
    EPROTONOSUPPORT,
    EOPNOTSUPP,
    EAFNOSUPPORT,
    EADDRINUSE,
    EADDRNOTAVAIL,
    ENETDOWN,
    ENETUNREACH,
    ECONNABORTED,
    ECONNRESET,
    ENOBUFS,
    EISCONN,
    ENOTCONN,
    ENOTSOCK,
    ESHUTDOWN,
    ETIMEDOUT,
    ECONNREFUSED,
    EHOSTUNREACH,
    EHOSTDOWN,
    ENONET,
    EALREADY,
    EINPROGRESS,
    EPROTO,
    ELOOP,
    EACCES,
    EDOM,
);

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Errno(error.raw_os_error())
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<Reason> for Errno {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Refused => Errno::ECONNREFUSED,
            Reason::Reset => Errno::ECONNRESET,
            Reason::TimedOut => Errno::ETIMEDOUT,
            Reason::HostUnreachable => Errno::EHOSTUNREACH,
            Reason::NetUnreachable => Errno::ENETUNREACH,
            Reason::Aborted => Errno::ECONNABORTED,
            Reason::ProtocolError => Errno::EPROTO,
            Reason::MessageTooLong => Errno::EMSGSIZE,
            Reason::BrokenPipe => Errno::EPIPE,
            Reason::NetDown => Errno::ENETDOWN,
            Reason::ProtocolUnreachable => Errno::ENOPROTOOPT,
            Reason::HostDown => Errno::EHOSTDOWN,
            Reason::NotOnNet => Errno::ENONET,
            Reason::RouteFailed => Errno::EOPNOTSUPP,
            Reason::Prohibited => Errno::EACCES,
        }
    }
}

impl From<SocketError> for Errno {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::UnknownId => Errno::EBADF,
            SocketError::AddrInUse => Errno::EADDRINUSE,
            // __inet_check_established(): a connect from a port of the program's choice.
            SocketError::AddrNotAvailable | SocketError::FlowExists => Errno::EADDRNOTAVAIL,
            SocketError::FamilyNotSupported => Errno::EAFNOSUPPORT,
            SocketError::InvalidArgument | SocketError::InvalidState | SocketError::BadImage => {
                Errno::EINVAL
            }
            SocketError::DestinationRequired => Errno::EDESTADDRREQ,
            SocketError::AlreadyConnected => Errno::EISCONN,
            SocketError::NotConnected => Errno::ENOTCONN,
            SocketError::MessageTooLong => Errno::EMSGSIZE,
            SocketError::NetUnreachable => Errno::ENETUNREACH,
            SocketError::HostUnreachable => Errno::EHOSTUNREACH,
            SocketError::LimitReached => Errno::ENOBUFS,
            SocketError::NotPermitted => Errno::EACCES,
            SocketError::NetDown => Errno::ENETDOWN,
            SocketError::NotSupported => Errno::EOPNOTSUPP,
        }
    }
}
