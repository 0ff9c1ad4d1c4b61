//! Connections whose owner was killed while this process might use them.
//!
//! The keeper holds them for a moment. They come here with the next call on them, if no bytes were
//! in the owner or on their way to it.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::RecvFlags;
use slipstack_channel::control::LeftFile;
use slipstack_channel::{LeftBehind, SockId};

use crate::attachment::Attachment;
use crate::process::Process;
use crate::process::lending::borrow::waiting;
use crate::socket::borrowed::Borrowed;
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::options::apply_stream_options;
use crate::socket::{Push, Stream};

/// Time for which the kernel may take to close all descriptors of a process. Others who find a pair
/// hung up, after a reset of the peer's, learn that later.
const CLOSING: Duration = Duration::from_millis(20);
/// Looks of the keeper for an owner that has ended, and their distance.
const LOOKS: u32 = 300;
const PAUSE: Duration = Duration::from_millis(1);

impl Process {
    /// Goes on with a connection whose owner was killed. Returns whether it is here.
    pub(super) fn take_left(&self, socket: &Arc<Description>, it: &Borrowed) -> bool {
        self.take_left_within(socket, it, Duration::ZERO)
    }

    /// As [`Process::take_left`], for a connection whose pair has hung up: the kernel closes the
    /// owner's ends one after the other.
    pub(super) fn take_hung_up(&self, socket: &Arc<Description>, it: &Borrowed) -> bool {
        self.take_left_within(socket, it, CLOSING)
    }

    fn take_left_within(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        patience: Duration,
    ) -> bool {
        // A confined process (seccomp) may not make the system call that shows the end.
        if socket.kind != Kind::Stream || it.is_sent() || !it.awaits_end() || self.is_kept_out() {
            return false;
        }
        // Bytes that another thread reads or writes at this moment would be counted wrongly.
        if it.is_left_to_others() || !it.turns.is_users_alone(self.kernel.thread()) {
            return false;
        }
        let has_ended = it
            .control()
            .is_some_and(|control| control.has_ended(patience));
        has_ended && self.find_left(socket, it)
    }

    #[cold]
    fn find_left(&self, socket: &Arc<Description>, it: &Borrowed) -> bool {
        let (Some(local), Some(remote)) = (it.local, it.remote()) else {
            return false;
        };
        let _coming = it.coming.lock();
        if socket.is_brought() {
            return true;
        }
        let unread = || match it.is_taken() {
            true => u32::try_from(waiting(socket)).unwrap_or(u32::MAX),
            false => 0,
        };
        let take = |is_question| {
            let attach = &self.engines.attach;
            attach.take_left((local, remote), unread(), is_question)
        };
        let told = await_end_of_owner(|| take(true));
        let Some(lost) = told.and_then(|told| lost_bytes(socket, it, &told)) else {
            it.leave_to_others();
            return false;
        };
        let come = |here: (&Arc<Attachment>, SockId)| match take(false) {
            LeftBehind::Here(mut left) => {
                left.unsent.extend(lost);
                self.go_on_here(socket, (*left, it.is_taken()), here)
            }
            LeftBehind::NotYet | LeftBehind::Nothing => None,
        };
        self.come_as(socket, it, come).is_some()
    }

    fn go_on_here(
        &self,
        socket: &Arc<Description>,
        (left, is_taken): (LeftFile, bool),
        (attachment, sock): (&Arc<Attachment>, SockId),
    ) -> Option<()> {
        let mut connection = left.head;
        connection.extend(if is_taken {
            take_unread(socket)
        } else {
            Vec::new()
        });
        connection.extend(left.received);
        if !attachment.carry_in(sock, &connection) {
            return None;
        }
        let stream = Stream::accepted(Arc::clone(attachment), sock);
        if !left.unsent.is_empty() {
            let sent = stream.enqueue(&[IoSlice::new(&left.unsent)], Push::Now);
            sent.ok().filter(|sent| *sent == left.unsent.len())?;
            attachment.commands();
        }
        apply_stream_options(socket, &stream);
        socket.bring(Decided::Stream(stream));
        self.settle_brought(socket);
        Some(())
    }
}

/// Asks until the owner is known to have ended. Returns how far it had moved bytes.
fn await_end_of_owner(ask: impl Fn() -> LeftBehind) -> Option<LeftFile> {
    for _ in 0..LOOKS {
        match ask() {
            LeftBehind::Here(told) => return Some(*told),
            LeftBehind::Nothing => return None,
            LeftBehind::NotYet => std::thread::sleep(PAUSE),
        }
    }
    None
}

/// The bytes that this process has written and the owner has not taken. `None`: there are some, and
/// they are not known.
fn lost_bytes(socket: &Description, it: &Borrowed, told: &LeftFile) -> Option<Vec<u8>> {
    if !it.is_taken() {
        return Some(Vec::new());
    }
    let has_none = || !told.is_taking && !was_unread(socket);
    let lost = it.sent.after(told.taken);
    lost.or_else(|| has_none().then(Vec::new))
}

/// Whether the owner has ended with bytes of this process unread.
fn was_unread(socket: &Description) -> bool {
    let Some(number) = socket.kernel_number() else {
        return true;
    };
    let mut fds = [PollFd::from_borrowed_fd(number.as_fd(), PollFlags::empty())];
    let found = rustix::event::poll(&mut fds, Some(&Timespec::default()));
    // The owner's end is open until the pair hangs up, and may still be closed with bytes unread.
    let events = fds[0].revents();
    found.is_err() || !events.contains(PollFlags::HUP) || events.contains(PollFlags::ERR)
}

/// Takes the bytes that the owner has passed on and the program has not read.
fn take_unread(socket: &Description) -> Vec<u8> {
    let mut bytes = vec![0; waiting(socket) as usize];
    let number = socket.kernel_number().filter(|_| !bytes.is_empty());
    let received =
        number.map(|number| rustix::net::recv(number.as_fd(), &mut bytes[..], RecvFlags::DONTWAIT));
    let count = received.and_then(Result::ok).map_or(0, |(count, _)| count);
    bytes.truncate(count);
    bytes
}
