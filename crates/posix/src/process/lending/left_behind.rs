//! Connections whose owner was killed while this process might use them.
//!
//! The keeper holds them for a moment. They come here with the next call on them, if it is known
//! which bytes were in the owner, or on their way to it or from it.

use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use slipstack_channel::control::LeftFile;
use slipstack_channel::{LeftBehind, PassedOn, Placement, SockId};

use crate::attachment::Attachment;
use crate::kernel::Kernel;
use crate::process::Process;
use crate::process::lending::borrow::waiting;
use crate::socket::Travelling;
use crate::socket::borrowed::Borrowed;
use crate::socket::borrowed::control::Control;
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::options::apply_stream_options;

/// Time for which the kernel may take to close all descriptors of a process that is seen to end,
/// and of one that cannot be seen: that is waited for once.
const ENDING: Duration = Duration::from_secs(1);
const CLOSING: Duration = Duration::from_millis(20);
/// A flag of a thread in `/proc/PID/stat`: it ends (PF_EXITING).
const EXITING: u32 = 4;
/// Looks of the keeper for an owner that has ended, and their distance.
const LOOKS: u32 = 300;
const PAUSE: Duration = Duration::from_millis(1);
/// Looks for other threads that end their calls on such a connection, as far apart.
const CALL_LOOKS: u32 = 100;

impl Process {
    /// Goes on with a connection whose owner was killed. Returns whether it is here.
    pub(super) fn take_left(&self, socket: &Arc<Description>, it: &Borrowed) -> bool {
        self.take_left_within(socket, it, || Duration::ZERO)
    }

    /// As [`Process::take_left`], for a connection whose pair has hung up: the kernel closes the
    /// owner's ends one after the other.
    pub(super) fn take_hung_up(&self, socket: &Arc<Description>, it: &Borrowed) -> bool {
        self.take_left_within(socket, it, || match it.is_first_hang_up() {
            true => patience_for(it.control().and_then(|control| is_ending(&control))),
            false => Duration::ZERO,
        })
    }

    fn take_left_within(
        &self,
        socket: &Arc<Description>,
        it: &Borrowed,
        patience: impl FnOnce() -> Duration,
    ) -> bool {
        // A confined process (seccomp) may not make the system call that shows the end.
        if socket.kind != Kind::Stream || it.is_sent() || !it.awaits_end() || self.misses_left() {
            return false;
        }
        if it.is_left_to_others() {
            return false;
        }
        let has_ended = it
            .control()
            .is_some_and(|control| control.has_ended(patience()));
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
        // Bytes that another thread reads or writes at this moment would be counted wrongly. Its
        // call ends, because the pair has hung up.
        for _ in 0..CALL_LOOKS {
            if !self.has_other_callers(socket) {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        if self.has_other_callers(socket) {
            return false;
        }
        let attach = &self.engines.attach;
        let (ends, nothing) = ((local, remote), PassedOn::default());
        let of = it.control().and_then(|control| control.heirs());
        let heirs = of.unwrap_or_else(|| attach.heirs());
        let told = await_end_of_owner(|| attach.take_left(ends, heirs, nothing, None));
        let has = passed_on(&*self.kernel, socket, it);
        let told = match told {
            LeftBehind::Here(told) => Some(told),
            // It may be had with a later call.
            LeftBehind::Unasked => return false,
            LeftBehind::Nothing | LeftBehind::NotYet => None,
        };
        let told = told.filter(|told| !told.is_giving || has.given.is_some());
        let Some(lost) = told.and_then(|told| lost_bytes(socket, it, &told)) else {
            it.leave_to_others();
            return false;
        };
        let come = |here: (&Arc<Attachment>, SockId)| {
            // They stay in the pair: if the connection does not come, the program reads them there.
            let unread = copy_unread(&*self.kernel, socket, it, has)?;
            match attach.take_left(ends, heirs, has, Some(&unread)) {
                LeftBehind::Here(left) => self.go_on_here(socket, (*left, unread, lost), here),
                LeftBehind::NotYet | LeftBehind::Nothing | LeftBehind::Unasked => None,
            }
        };
        // Also without a ticker: there is no other engine for it.
        self.come_as(socket, come).is_some()
    }

    /// Takes connections over whose owner was killed during a wait. Returns whether any has come
    /// here: what the kernel has said about it does not hold then.
    pub(crate) fn take_all_hung_up<'a>(
        &self,
        sockets: impl Iterator<Item = &'a Arc<Description>>,
    ) -> bool {
        let mut any = false;
        for socket in sockets {
            if let Some(Decided::Foreign(it)) = socket.decided() {
                any |= socket.kind == Kind::Stream && self.take_hung_up(socket, it);
            }
        }
        any
    }

    fn go_on_here(
        &self,
        socket: &Arc<Description>,
        (mut left, unread, lost): (LeftFile, Vec<u8>, Vec<u8>),
        (attachment, sock): (&Arc<Attachment>, SockId),
    ) -> Option<()> {
        let travelling = match attachment.driver.placement() {
            // An instance has the connection with all that was received.
            Placement::Instance => Travelling::of_killed(left.unsent, lost, left.head),
            Placement::InProcess => {
                left.head.extend(unread);
                left.head.extend(left.received);
                left.unsent.extend(lost);
                Travelling::of_killed(Vec::new(), left.unsent, left.head)
            }
        };
        let stream = travelling.arrive(attachment, sock)?;
        apply_stream_options(socket, &stream);
        let _bringing = self.lending.bringing.lock();
        socket.bring(Decided::Stream(stream));
        self.settle_brought(socket);
        Some(())
    }
}

/// Returns the bytes that the owner has passed on.
fn passed_on(kernel: &dyn Kernel, socket: &Description, it: &Borrowed) -> PassedOn {
    let Some(number) = socket.kernel_number().filter(|_| it.is_taken()) else {
        return PassedOn {
            unread: 0,
            given: (!it.is_taken()).then_some(0),
        };
    };
    let unread = u32::try_from(waiting(socket)).unwrap_or(u32::MAX);
    let read = it.reads.count(kernel, number.number());
    PassedOn {
        unread,
        given: read.map(|read| read.wrapping_add(unread)),
    }
}

/// Returns the time for which the end of the owner is waited for. A peer's reset hangs the pair of
/// a living owner up too, and one whose first thread has ended looks as if it ended while others
/// go on: nobody waits twice for the same connection.
fn patience_for(is_ending: Option<bool>) -> Duration {
    match is_ending {
        Some(true) => ENDING,
        None => CLOSING,
        Some(false) => Duration::ZERO,
    }
}

/// Whether the owner is about to end. `None`: it cannot be seen.
fn is_ending(control: &Control) -> Option<bool> {
    Some(flags_in(&control.owner_stat()?)? & EXITING != 0)
}

/// Returns the flags of a process: the seventh word from its state on.
fn flags_in(stat: &str) -> Option<u32> {
    stat.split_ascii_whitespace().nth(6)?.parse().ok()
}

/// Asks until the owner is known to have ended.
fn await_end_of_owner(ask: impl Fn() -> LeftBehind) -> LeftBehind {
    for _ in 0..LOOKS {
        match ask() {
            LeftBehind::NotYet => std::thread::sleep(PAUSE),
            answer => return answer,
        }
    }
    LeftBehind::NotYet
}

/// The bytes that this process has written and the owner has not taken. `None`: there are some, and
/// they are not known.
fn lost_bytes(socket: &Description, it: &Borrowed, told: &LeftFile) -> Option<Vec<u8>> {
    if !it.is_taken() {
        return Some(Vec::new());
    }
    let has_none = || !told.is_taking && !it.was_cut() && !was_unread(socket);
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

/// Copies the bytes that the owner has passed on and the program has not read. `None`: they are not
/// as many as they were.
fn copy_unread(
    kernel: &dyn Kernel,
    socket: &Description,
    it: &Borrowed,
    has: PassedOn,
) -> Option<Vec<u8>> {
    if has.unread == 0 {
        return Some(Vec::new());
    }
    it.reads.look(kernel, socket.kernel_number()?, has.unread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_living_owner_is_not_waited_for() {
        assert_eq!(patience_for(Some(true)), ENDING);
        assert_eq!(patience_for(None), CLOSING);
        assert_eq!(patience_for(Some(false)), Duration::ZERO);
    }

    #[test]
    fn the_flags_of_a_process_are_found() {
        let stat = " R 1 17 17 0 -1 4194564 12 0 0 0";
        assert_eq!(flags_in(stat), Some(4_194_564));
        assert_ne!(4_194_564 & EXITING, 0);
        assert_eq!(flags_in(" R 1 17"), None);
    }
}
