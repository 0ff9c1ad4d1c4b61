//! socket.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::addr::Family;
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::table::NUMBERS_MAX;
use crate::socket::description::{Description, Kind, New};

impl Process {
    /// The bit of `socket`'s type that forces the kernel. The caller removes it before it calls
    /// libc.
    pub const SOCK_KERNEL: i32 = 0x0200_0000;
    /// Returns the type without the two bits, and whether the kernel is requested.
    #[must_use]
    pub const fn split_kind(kind: i32) -> (i32, bool) {
        let wants_kernel = kind & (Self::SOCK_KERNEL | Self::SOCK_STACK) == Self::SOCK_KERNEL;
        (kind & !(Self::SOCK_KERNEL | Self::SOCK_STACK), wants_kernel)
    }

    /// The bit of `socket`'s type that requests only the stack; it takes precedence over the other.
    pub const SOCK_STACK: i32 = 0x0100_0000;

    /// `socket`. With [`Process::SOCK_KERNEL`] in `kind` it makes a kernel socket.
    pub fn socket(&self, domain: i32, kind: i32, protocol: i32) -> Outcome<i32> {
        const KIND: i32 = 0xf;
        const FLAGS: i32 = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let family = match domain {
            libc::AF_INET => Family::V4,
            libc::AF_INET6 => Family::V6,
            _ => return Err(Divert::Kernel),
        };
        let is_alone = kind & Self::SOCK_STACK != 0;
        let (kind, wants_kernel) = Self::split_kind(kind);
        if wants_kernel || kind & !(KIND | FLAGS) != 0 {
            return Err(Divert::Kernel);
        }
        let what = match (kind & KIND, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Kind::Stream,
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => Kind::Dgram,
            (kind, protocol) => {
                let what = format!("of type {kind} and protocol {protocol}");
                self.permit_odd(&what, Errno::EPROTONOSUPPORT)?;
                return Err(Divert::Kernel);
            }
        };
        let number = self.numbers.new_number(kind & libc::SOCK_CLOEXEC != 0)?;
        if number.number() as usize >= NUMBERS_MAX {
            number.close();
            self.permit_odd("with a number this high", Errno::EMFILE)?;
            return Err(Divert::Kernel);
        }
        let socket = Arc::new(Description::new(New {
            id: self.ids.next(),
            family,
            kind: what,
            protocol,
            is_nonblocking: kind & libc::SOCK_NONBLOCK != 0,
        }));
        socket.is_alone.store(is_alone, Ordering::Relaxed);
        self.install(number, &socket);
        Ok(number.number())
    }
}
