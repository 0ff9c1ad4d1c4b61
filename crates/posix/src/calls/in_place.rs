//! Access to a connection's bytes in its rings, for programs that avoid copies.

use std::sync::Arc;

use slipstack_channel::{KeepError, SockId};

use crate::attachment::Attachment;
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::wait::Plan;
use crate::socket::StreamError;
use crate::socket::description::Decided;

/// Two pieces, the second one empty unless a ring's end is between them.
type Pieces = [libc::iovec; 2];

pub(crate) const NO_BYTES: libc::iovec = libc::iovec {
    iov_base: core::ptr::null_mut(),
    iov_len: 0,
};

/// Received bytes that are kept in place until [`Kept::give_back`], or until their connection is
/// closed.
#[derive(Debug)]
pub struct Kept {
    attachment: Arc<Attachment>,
    sock: SockId,
    at: u64,
    /// Addresses and lengths.
    pieces: [(usize, usize); 2],
}

impl Kept {
    /// Returns their place: two pieces if the ring wraps between them.
    pub fn pieces(&self) -> [libc::iovec; 2] {
        self.pieces.map(|(at, len)| libc::iovec {
            iov_base: core::ptr::with_exposed_provenance_mut(at),
            iov_len: len,
        })
    }

    /// Lets the connection use their room again.
    pub fn give_back(&self) {
        self.attachment
            .program
            .give_segment_back(self.sock, self.at);
    }

    /// Forgets the bytes in a forked child: they are its parent's.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Process {
    /// Returns room for up to `len` bytes in a connection's send ring: less or none if it is full.
    /// Bytes put there are sent by [`Process::commit`].
    pub fn reserve(&self, fd: i32, len: usize) -> Outcome<Pieces> {
        self.let_overdue_leave();
        let socket = self.table.connection(fd)?;
        self.let_overdue_leave_at(&socket);
        let Some(Decided::Stream(stream)) = socket.decided() else {
            return Err(Errno::EOPNOTSUPP.into());
        };
        // A call that sends nothing asks whether something could be sent.
        match stream.may_send() {
            Ok(()) => {}
            Err(StreamError::Wait) => return Err(Errno::EAGAIN.into()),
            Err(StreamError::Errno(error)) => return Err(error.into()),
            Err(StreamError::Pipe) => return Err(Errno::EPIPE.into()),
        }
        self.follow_users(&socket, true)?;
        Ok(stream.reserve(len))
    }

    /// Sends the first `len` bytes of the last [`Process::reserve`].
    pub fn commit(&self, fd: i32, len: usize) -> Outcome<()> {
        let socket = self.table.connection(fd)?;
        let Some(Decided::Stream(stream)) = socket.decided() else {
            return Err(Errno::EOPNOTSUPP.into());
        };
        stream.commit(len);
        stream.attachment().after_push(&*self.kernel, socket.id);
        Ok(())
    }

    /// Returns the unread bytes in place. They may move when the engine runs:
    /// [`Process::consume_in_place`] detects that.
    pub fn look_in_place(&self, fd: i32) -> Outcome<Pieces> {
        let socket = self.table.connection(fd)?;
        let Some(Decided::Stream(stream)) = socket.decided() else {
            return Err(Errno::EOPNOTSUPP.into());
        };
        let found = stream.look_in_place();
        if found[0].iov_len > 0 {
            return Ok(found);
        }
        // The end, or an error, as a read of one byte would return.
        match stream.recv_nothing() {
            Ok(()) if !stream.may_bring_more() => Ok(found),
            Ok(()) | Err(StreamError::Wait) => {
                self.turn_if_idle(stream.attachment());
                let found = stream.look_in_place();
                match found[0].iov_len {
                    0 => Err(Errno::EAGAIN.into()),
                    _ => Ok(found),
                }
            }
            Err(StreamError::Errno(error)) => Err(error.into()),
            Err(StreamError::Pipe) => Err(Errno::EPIPE.into()),
        }
    }

    /// Consumes `len` bytes that were found at `at`.
    ///
    /// # Errors
    /// EAGAIN: they have moved since; the bytes read there may have been others. EINVAL: there are
    /// fewer bytes.
    pub fn consume_in_place(&self, fd: i32, at: usize, len: usize) -> Outcome<()> {
        let socket = self.table.connection(fd)?;
        let Some(Decided::Stream(stream)) = socket.decided() else {
            return Err(Errno::EOPNOTSUPP.into());
        };
        let found = stream.look_in_place();
        if found[0].iov_len + found[1].iov_len < len {
            return Err(Errno::EINVAL.into());
        }
        if len > 0 && found[0].iov_base.addr() != at {
            return Err(Errno::EAGAIN.into());
        }
        stream.consume_in_place(len);
        Ok(())
    }

    /// Returns up to `most` received bytes, kept in place until they are given back by their
    /// position. None at the end of the stream.
    ///
    /// # Errors
    /// EAGAIN: nothing has arrived. ENOBUFS: too many segments of the connection are kept.
    pub fn keep_in_place(&self, fd: i32, most: usize) -> Outcome<(u64, Pieces)> {
        let found = self.look_in_place(fd)?;
        if found[0].iov_len == 0 || most == 0 {
            return Ok((0, [NO_BYTES; 2]));
        }
        let socket = self.table.connection(fd)?;
        let Some(Decided::Stream(stream)) = socket.decided() else {
            return Err(Errno::EOPNOTSUPP.into());
        };
        match stream.keep_in_place(most) {
            Ok(kept) => Ok(kept),
            Err(KeepError::Nothing) => Err(Errno::EAGAIN.into()),
            Err(KeepError::Full) => Err(Errno::ENOBUFS.into()),
        }
    }

    /// As [`Process::keep_in_place`], to be given back without naming the connection. `None` at the
    /// end of the stream. A blocking connection waits for bytes.
    pub fn keep(&self, fd: i32, most: usize) -> Outcome<Option<Kept>> {
        let socket = self.table.connection(fd)?;
        let Some(Decided::Stream(stream)) = socket.decided() else {
            return Err(Errno::EOPNOTSUPP.into());
        };
        let mut found = self.keep_in_place(fd, most);
        while matches!(found, Err(Divert::Errno(Errno::EAGAIN))) && !socket.is_nonblocking() {
            let plan = Plan::of_call(&*self.kernel, &socket, &socket.recv_timeout_ns, &[]);
            let has_come = self.wait(&plan, |_| match stream.recv_nothing() {
                Ok(()) => Ok(Some(())),
                Err(StreamError::Wait) => Ok(None),
                Err(StreamError::Errno(error)) => Err(error.into()),
                Err(StreamError::Pipe) => Err(Errno::EPIPE.into()),
            })?;
            has_come.ok_or(Errno::EAGAIN)?;
            found = self.keep_in_place(fd, most);
        }
        let (at, pieces) = found?;
        let (attachment, sock) = stream.attachment_and_sock();
        let kept = Kept {
            attachment: Arc::clone(attachment),
            sock,
            at,
            pieces: pieces.map(|piece| (piece.iov_base.expose_provenance(), piece.iov_len)),
        };
        Ok((pieces[0].iov_len > 0).then_some(kept))
    }

    /// Takes back the bytes that were given out at a position.
    ///
    /// # Errors
    /// EINVAL: nothing of this connection was given out there.
    pub fn give_back_in_place(&self, fd: i32, at: u64) -> Outcome<()> {
        let socket = self.table.connection(fd)?;
        match socket.decided() {
            Some(Decided::Stream(stream)) if stream.give_back_in_place(at) => Ok(()),
            _ => Err(Errno::EINVAL.into()),
        }
    }
}
