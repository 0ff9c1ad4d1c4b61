//! Detection of how a borrowed connection has ended.
//!
//! The peer's FIN shuts one direction of the pair down. A reset shuts both down, and so does the
//! end of the owner, with which the connection is gone. Both are also shut after a FIN for a
//! program that has shut down its own direction.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::errno::Errno;
use crate::lending::Lending;
use crate::process::Process;
use crate::socket::borrowed::Borrowed;
use crate::socket::borrowed::control::Control;
use crate::socket::description::{Decided, Description, Kind};

/// Meaning of the end of the stream that libc has found in a read of a borrowed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BorrowedEnd {
    /// The end, or an error that the program has already got.
    End,
    Error(Errno),
    /// The connection has come to this process: the call is to be made again.
    Here,
}

impl Process {
    /// Called when libc has found the end of the stream in a read of number `fd`.
    #[cold]
    pub fn end_of_borrowed(&self, fd: i32) -> BorrowedEnd {
        let Some(socket) = self.table.socket(fd) else {
            return BorrowedEnd::End;
        };
        match socket.decided() {
            Some(Decided::Foreign(it)) if socket.kind == Kind::Stream => {
                let was_reset = self.lending.was_reset(&socket);
                let is_here = match was_reset {
                    true => self.take_hung_up(&socket, it),
                    false => self.take_left(&socket, it),
                };
                if is_here {
                    return BorrowedEnd::Here;
                }
                match it.hears_end() && was_reset {
                    true => BorrowedEnd::Error(Errno::ECONNRESET),
                    false => BorrowedEnd::End,
                }
            }
            Some(Decided::Stream(_)) if socket.is_brought() => BorrowedEnd::Here,
            _ => BorrowedEnd::End,
        }
    }

    /// Called when libc has found a reset in a read of number `fd`: the owner has ended with bytes
    /// of this process unread. Returns whether the connection has come here: the call is to be made
    /// again.
    #[cold]
    pub fn reset_of_borrowed(&self, fd: i32) -> bool {
        let Some(socket) = self.table.socket(fd) else {
            return false;
        };
        match socket.decided() {
            Some(Decided::Foreign(it)) if socket.kind == Kind::Stream => {
                it.note_cut();
                let is_here = self.take_hung_up(&socket, it);
                if !is_here && !self.lending.may_come_yet(it) {
                    // It is told once.
                    it.hears_end();
                }
                is_here
            }
            Some(Decided::Stream(_)) => socket.is_brought(),
            _ => false,
        }
    }

    /// SO_ERROR of a borrowed connection.
    pub(crate) fn take_borrowed_error(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
    ) -> Option<Errno> {
        if socket.kind == Kind::Dgram {
            return self.error_of_borrowed(socket, it);
        }
        let is_due = it.awaits_end() && self.lending.was_reset(socket);
        (is_due && it.hears_end()).then_some(Errno::ECONNRESET)
    }
}

/// Returns whether both directions of the pair are shut down.
fn is_hung_up(socket: &Description) -> bool {
    let Some(number) = socket.kernel_number() else {
        return false;
    };
    let mut fds = [PollFd::from_borrowed_fd(number.as_fd(), PollFlags::empty())];
    let found = rustix::event::poll(&mut fds, Some(&Timespec::default()));
    found.is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

impl Lending {
    /// Whether a connection that has hung up may come here with a later call.
    fn may_come_yet(&self, it: &Borrowed) -> bool {
        // A confined process (seccomp) may not make the system call that would show it.
        let is_kept_out = self.keeps_out.load(Ordering::Relaxed);
        let has_ended = |control: Arc<Control>| control.has_ended(Duration::ZERO);
        !is_kept_out && !it.is_left_to_others() && it.control().is_some_and(has_ended)
    }

    pub(crate) fn was_reset(&self, socket: &Description) -> bool {
        // A confined process (seccomp) may not make the system call that would show it.
        !self.keeps_out.load(Ordering::Relaxed) && is_hung_up(socket)
    }
}
