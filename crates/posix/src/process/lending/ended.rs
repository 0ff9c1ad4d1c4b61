//! Detection of how a borrowed connection has ended.
//!
//! The peer's FIN shuts one direction of the pair down. A reset shuts both down, and so does the
//! end of the owner, with which the connection is gone. Both are also shut after a FIN if the own
//! direction has been shut down. So the owner is asked, which has the error too, for whichever
//! process looks first.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::SendFlags;
use slipstack_mem::Descriptor;

use crate::errno::Errno;
use crate::lending::Lending;
use crate::process::Process;
use crate::process::table::Entry;
use crate::socket::borrowed::Borrowed;
use crate::socket::borrowed::child_message::MessageKind;
use crate::socket::borrowed::control::Control;
use crate::socket::borrowed::requests::Call;
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
                match was_reset && !it.knows_end() {
                    true => self.cause_of_end(it),
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

    fn cause_of_end(&self, it: &Borrowed) -> BorrowedEnd {
        let error = match self.ask_of_end(it, Call::EndOfReading) {
            Some(error) => error,
            // With the owner the connection is gone.
            None => it.hears_end().then_some(Errno::ECONNRESET),
        };
        error.map_or(BorrowedEnd::End, BorrowedEnd::Error)
    }

    /// Takes the error that a call on a connection returns where that lives. `None`: there is no
    /// owner any more, or it does not answer in time.
    fn ask_of_end(&self, it: &Borrowed, call: Call) -> Option<Option<Errno>> {
        let reply = self.ask_of_connection(it, call)?;
        // A connection that the steward does not know any more has no error.
        if reply.error != 0 || reply.flags != 0 {
            it.note_end();
        }
        let error = i32::try_from(reply.len).ok().filter(|it| *it != 0);
        Some(error.map(Errno))
    }

    /// Returns the error of a write that would be lost, or that the pair has refused, which may be
    /// another one than EPIPE.
    pub(super) fn error_of_write(&self, it: &Borrowed) -> Option<Errno> {
        match it.knows_end() {
            true => None,
            false => self.ask_of_end(it, Call::MayWrite).flatten(),
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
        if it.knows_end() || it.is_taken() && !self.lending.refuses_writes(socket) {
            return None;
        }
        match self.ask_of_end(it, Call::TakeError) {
            Some(error) => error,
            None => (self.lending.was_reset(socket) && it.hears_end()).then_some(Errno::ECONNRESET),
        }
    }

    /// Adds POLLERR to what the kernel says of borrowed connections whose error nobody has taken.
    pub(crate) fn add_errors(&self, fds: &mut [libc::pollfd]) {
        for fd in fds.iter_mut().filter(|fd| fd.revents & libc::POLLHUP != 0) {
            if let Some(socket) = self.table.socket(fd.fd) {
                fd.revents |= self.untaken_error(&socket);
            }
        }
    }

    /// Whether a borrowed connection has ended in both directions, by the peer's reset or in order.
    pub(crate) fn is_closed_elsewhere(&self, socket: &Description, it: &Borrowed) -> bool {
        let is_over = it.is_taken() && self.lending.was_reset(socket);
        is_over && (self.untaken_error(socket) != 0 || it.knows_end())
    }

    /// Returns POLLERR for a borrowed connection with an error that nobody has taken, otherwise 0.
    pub(crate) fn untaken_error(&self, socket: &Description) -> i16 {
        match socket.decided() {
            Some(Decided::Foreign(it)) if socket.kind == Kind::Stream && !it.knows_end() => {
                let Some(reply) = self.ask_of_connection(it, Call::Readiness) else {
                    return 0;
                };
                let ready = reply.flags as i16;
                let error = ready & libc::POLLERR;
                if reply.error != 0 || ready & libc::POLLHUP != 0 && error == 0 {
                    it.note_end();
                }
                error
            }
            _ => 0,
        }
    }
}

/// Whether the sending direction of the pair that `number` is an end of is shut down.
pub(super) fn takes_nothing(number: Descriptor) -> bool {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    // A write of no bytes leaves nothing in a pair.
    rustix::net::send(number.as_fd(), &[], flags) == Err(rustix::io::Errno::PIPE)
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

    /// Says that the last number of a pair that has hung up is about to be closed: the steward,
    /// which waits for a question about the end, does not see that.
    pub(crate) fn part_from_ended(&self, entry: &Entry) {
        if let Entry::Socket(socket) = entry
            && let Some(Decided::Foreign(it)) = socket.decided()
            && socket.kind == Kind::Stream
            && it.is_taken()
            && !self.keeps_out.load(Ordering::Relaxed)
            && socket.cold.lock().numbers.len() == 1
            && is_hung_up(socket)
        {
            it.say(MessageKind::Part, 1);
        }
    }

    /// Whether a write to the pair would fail.
    pub(super) fn refuses_writes(&self, socket: &Description) -> bool {
        let number = socket.kernel_number();
        // A confined process (seccomp) may not make the system call that would show it.
        !self.keeps_out.load(Ordering::Relaxed) && number.is_some_and(takes_nothing)
    }

    pub(crate) fn was_reset(&self, socket: &Description) -> bool {
        // A confined process (seccomp) may not make the system call that would show it.
        !self.keeps_out.load(Ordering::Relaxed) && is_hung_up(socket)
    }
}
