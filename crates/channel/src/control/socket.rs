//! Control connections: sequenced packets with descriptors beside them.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    bind, recvmsg, sendmsg, socket_with, socketpair, sockopt,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slipstack_mem::PrivateFd;
use slipstack_mem::process::{explained, open_file_limit};
use slipstack_netctl::large;

use super::{DESCRIPTORS_MAX, MESSAGE_MAX};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Longest wait for a place in the backlog.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Reason why a message did not get through.
#[derive(Debug)]
pub enum ControlError {
    /// The other side has closed the connection.
    Closed,
    /// Nothing arrived in time.
    TimedOut,
    /// The bytes are no message of this version.
    Malformed,
    TooLong,
    /// The descriptors of a message found no numbers here: too many files are open.
    NoNumbers,
    Io(io::Error),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::Closed => write!(f, "the other side closed the control connection"),
            ControlError::TimedOut => write!(f, "no answer on the control connection in time"),
            ControlError::Malformed => {
                write!(
                    f,
                    "a control message was not understood: both sides must be of one version of \
                     slipstack"
                )
            }
            ControlError::TooLong => write!(f, "a control message is too long"),
            ControlError::NoNumbers => f.write_str(&open_file_limit()),
            ControlError::Io(error) => {
                write!(f, "the control connection failed: {}", explained(error))
            }
        }
    }
}

impl std::error::Error for ControlError {}

impl From<Errno> for ControlError {
    fn from(error: Errno) -> ControlError {
        match error {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => ControlError::Closed,
            Errno::AGAIN => ControlError::TimedOut,
            Errno::MSGSIZE => ControlError::TooLong,
            error => ControlError::Io(error.into()),
        }
    }
}

/// Credentials of the process that made the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub pid: u32,
    pub uid: u32,
}

/// One end of a control connection. All descriptors are close-on-exec.
#[derive(Debug)]
pub struct ControlSocket {
    fd: PrivateFd,
}

/// Connects to a listening control socket. If it does not accept, the error is
/// [`ControlError::TimedOut`].
pub fn connect(path: &Path) -> Result<ControlSocket, ControlError> {
    let fd = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Limits connect() alone: messages are sent without waiting.
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(CONNECT_MAX))?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
    Ok(ControlSocket { fd: fd.into() })
}

/// Makes a listening control socket. A file of that name is replaced: the caller holds the lock
/// that makes it the only server.
pub fn listen(path: &Path) -> Result<OwnedFd, ControlError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    match rustix::fs::unlink(path) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    bind(&fd, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Two connected ends, for [`super::Request::NewClient`].
pub fn pair() -> Result<(ControlSocket, ControlSocket), ControlError> {
    let (a, b) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok((
        ControlSocket { fd: a.into() },
        ControlSocket { fd: b.into() },
    ))
}

impl ControlSocket {
    /// Takes a connected SOCK_SEQPACKET socket over. Refuses anything else.
    pub fn from_fd(fd: OwnedFd) -> Result<ControlSocket, ControlError> {
        if sockopt::socket_domain(&fd)? != AddressFamily::UNIX
            || sockopt::socket_type(&fd)? != SocketType::SEQPACKET
        {
            return Err(ControlError::Malformed);
        }
        Ok(ControlSocket { fd: fd.into() })
    }

    pub fn into_fd(self) -> OwnedFd {
        self.fd.unlisted()
    }

    /// Returns the process that made the other end.
    pub fn peer(&self) -> Result<Peer, ControlError> {
        let credentials = sockopt::socket_peercred(&self.fd)?;
        Ok(Peer {
            pid: credentials.pid.as_raw_nonzero().get() as u32,
            uid: credentials.uid.as_raw(),
        })
    }

    /// Sends one message; never blocks on a peer that does not read.
    pub fn send<T: Serialize>(
        &self,
        message: &T,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), ControlError> {
        let bytes = serde_json::to_vec(message).map_err(|_| ControlError::Malformed)?;
        if bytes.len() <= MESSAGE_MAX {
            return self.send_packet(&bytes, descriptors);
        }
        let split = large::split(&bytes).map_err(ControlError::Io)?;
        let mut all = descriptors.to_vec();
        all.push(split.file.as_fd());
        self.send_packet(&split.packet, &all)
    }

    fn send_packet(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), ControlError> {
        if descriptors.len() > DESCRIPTORS_MAX {
            return Err(ControlError::TooLong);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors))
        {
            return Err(ControlError::TooLong);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match sendmsg(&self.fd, &[IoSlice::new(bytes)], &mut ancillary, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes one message without waiting; `None` if there is none.
    pub fn try_receive<T: DeserializeOwned>(
        &self,
    ) -> Result<Option<(T, Vec<OwnedFd>)>, ControlError> {
        let mut bytes = vec![0; MESSAGE_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let mut was_reset = false;
        let received = loop {
            match recvmsg(
                &self.fd,
                &mut [IoSliceMut::new(&mut bytes)],
                &mut ancillary,
                flags,
            ) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                // The other side has ended with messages unread; what it has said comes behind.
                Err(Errno::CONNRESET) if !was_reset => was_reset = true,
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        };
        // Taken out first, so that descriptors of refused messages are closed.
        let mut descriptors: Vec<OwnedFd> = ancillary
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(rights) => Some(rights),
                _ => None,
            })
            .flatten()
            .collect();
        if received.bytes == 0 {
            return Err(ControlError::Closed);
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(ControlError::TooLong);
        }
        // scm_detach_fds(): descriptors beyond the limit are cut off. There is room for as many as
        // may be sent.
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(match descriptors.len() {
                DESCRIPTORS_MAX.. => ControlError::TooLong,
                _ => ControlError::NoNumbers,
            });
        }
        let packet = &bytes[..received.bytes];
        let message = match large::announced(packet) {
            None => serde_json::from_slice(packet),
            Some(len) => {
                let file = descriptors.pop().ok_or(ControlError::Malformed)?;
                let bytes = large::join(len, file.as_fd()).map_err(|_| ControlError::Malformed)?;
                serde_json::from_slice(&bytes)
            }
        };
        let message = message.map_err(|_| ControlError::Malformed)?;
        Ok(Some((message, descriptors)))
    }

    /// Waits up to `timeout_ms` for one message.
    pub fn receive<T: DeserializeOwned>(
        &self,
        timeout_ms: u64,
    ) -> Result<(T, Vec<OwnedFd>), ControlError> {
        let mut left_ms = timeout_ms;
        loop {
            if let Some(message) = self.try_receive()? {
                return Ok(message);
            }
            if left_ms == 0 {
                return Err(ControlError::TimedOut);
            }
            // Waits are cut in pieces, so that interruptions do not add up to more than is asked
            // for.
            let piece_ms = left_ms.min(50);
            left_ms -= piece_ms;
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: (piece_ms * 1_000_000) as _,
            };
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns whether the other side has closed. Takes nothing from the connection.
    pub fn is_closed(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        match poll(&mut fds, Some(&now)) {
            Ok(_) => fds[0]
                .revents()
                .intersects(PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR),
            Err(_) => false,
        }
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Reply, Request};
    use super::*;

    #[test]
    fn messages_carry_their_descriptors() {
        let (a, b) = pair().expect("pair");
        a.send(&Request::NewClient, &[a.as_fd(), a.as_fd()])
            .expect("send");
        let (request, fds) = b.receive::<Request>(1000).expect("receive");
        assert_eq!(request, Request::NewClient);
        assert_eq!(fds.len(), 2);
        assert_eq!(b.peer().expect("peer").pid, std::process::id());
    }

    #[test]
    fn malformed_messages_are_refused_and_the_next_one_is_read() {
        let (a, b) = pair().expect("pair");
        a.send(&"no request", &[]).expect("send");
        a.send(&Request::EndSession, &[]).expect("send");
        assert!(matches!(
            b.receive::<Request>(1000),
            Err(ControlError::Malformed)
        ));
        assert_eq!(
            b.receive::<Request>(1000).expect("receive").0,
            Request::EndSession
        );
    }

    #[test]
    fn silence_times_out_and_an_end_is_seen() {
        let (a, b) = pair().expect("pair");
        assert!(matches!(b.receive::<Reply>(1), Err(ControlError::TimedOut)));
        assert!(!b.is_closed());
        drop(a);
        assert!(b.is_closed());
        assert!(matches!(b.receive::<Reply>(1), Err(ControlError::Closed)));
    }

    #[test]
    fn what_was_said_before_an_end_with_messages_unread_is_read() {
        let (a, b) = pair().expect("pair");
        b.send(&Request::NewClient, &[]).expect("send");
        a.send(&Request::EndSession, &[]).expect("send");
        drop(a);
        let (request, _) = b.receive::<Request>(1000).expect("receive");
        assert_eq!(request, Request::EndSession);
        assert!(matches!(b.receive::<Reply>(1), Err(ControlError::Closed)));
    }

    #[test]
    fn other_sockets_are_no_control_connections() {
        let fd = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("socket");
        assert!(ControlSocket::from_fd(fd).is_err());
    }
}
