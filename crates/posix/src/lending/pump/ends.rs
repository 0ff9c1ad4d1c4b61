//! Ends of a pump: the steward's descriptors, and how the user of the pair and the connection see
//! an end.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::net::Shutdown;

use super::{Pump, Way, has_hung_up};
use crate::lending::lender::Lender;
use crate::lending::users_end::UsersEnd;
use crate::socket::Stream;
use crate::socket::borrowed::ReadRequest;

/// Reads of what a user has written in vain, before the pair is closed: more than a pair holds.
const DRAINS_MAX: usize = 512;

/// An end of a pair that the steward has shut down although its user has not.
///
/// A reset and two ordinary ends look alike at the pair, so that the user asks which it was. The
/// pump stays until it has, says that it has closed its end, or has ended. As the steward's own end
/// is shut down too, what the kernel reports tells nothing of the user any more.
#[derive(Debug, Default)]
pub(super) struct HangUp {
    /// Writes of the user fail.
    refuses: bool,
    /// The steward has shut both directions down, and no user has asked why.
    awaits_question: bool,
    /// Set once those who would ask have gone.
    is_unasked: bool,
}

impl HangUp {
    pub(super) fn awaits_question(&self) -> bool {
        self.awaits_question
    }
}

impl Pump {
    /// The user of the pair has no library, and its end that inode, unless that is 0.
    pub(crate) fn with_end(mut self, inode: u64) -> Pump {
        let user = self.user.filter(|_| inode != 0);
        self.users_end = user.map(|user| UsersEnd { user, inode });
        self
    }

    /// Passes on what there is to a call that does not wait: what comes later is for the next
    /// reader, or for another user of the pair that waits already.
    pub(crate) fn read_now(&mut self, lender: &dyn Lender, request: ReadRequest, room: &mut [u8]) {
        let before = self.request;
        self.read(request);
        self.run(lender, room);
        if self.request != ReadRequest::All {
            self.request = before;
        }
    }

    /// Takes the control sockets that have come by the pair.
    pub(crate) fn take_joining(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.joining)
    }

    /// The steward's descriptors.
    pub(crate) fn ends(&self) -> impl Iterator<Item = RawFd> {
        let joining = self.joining.iter();
        joining.chain([&self.child]).map(AsRawFd::as_raw_fd)
    }

    /// Whether there is nothing more to move. A connection on its way to the child may come back.
    pub(crate) fn is_over(&self) -> bool {
        let is_done = self.to_peer.is_done && self.to_child.is_done;
        is_done && !self.is_paused && !self.hang_up.awaits_question()
    }

    /// Whether all users of the pair ask when they find an end: none that may come by the pair is
    /// awaited, which could not announce itself any more.
    pub(super) fn is_heard(&self) -> bool {
        self.origins.iter().all(|it| !it.is_unheard)
    }

    /// Whether a user of the pair asks when it finds an end.
    fn may_be_asked(&self) -> bool {
        self.origins.iter().any(|it| !it.is_unheard)
    }

    /// The connection's sending direction ends for all its users.
    pub(super) fn end_for_all(&self, stream: &Stream) {
        // What others have written before goes before it: the steward looks for it.
        let _ = stream.shut_behind_others(false);
        if !self.socket.lent.is_lent_once() {
            // Other pumps refuse writes from now on.
            self.socket.notify(stream.readiness());
        }
    }

    /// Lets writes fail once another process has shut the sending direction down, or the peer has
    /// reset the connection.
    pub(super) fn refuse_writes(&mut self, stream: &Stream) {
        let passes_last = !self.is_shut && self.passes_last(stream);
        let is_over = || match self.is_heard() {
            true => stream.has_error() || stream.sends_no_more(),
            // A user that cannot announce itself any more learns all by the pair.
            false => stream.is_reset_behind_fin(),
        };
        if !self.to_peer.is_done && !self.is_shut && !passes_last && is_over() {
            self.end_writing();
        }
        let may_write = !self.to_peer.is_done && self.last.is_none();
        self.note_writer(may_write && self.is_heard());
    }

    /// Stops writing: the peer takes nothing more. Its own data is still to be read.
    pub(super) fn end_writing(&mut self) {
        self.to_peer = Way::over();
        if !self.is_heard() {
            self.request = ReadRequest::All;
        }
        let has_user = !has_hung_up(&self.child);
        let _ = rustix::net::shutdown(&self.child, Shutdown::Read);
        self.refuse(has_user);
    }

    /// Writes of users fail from now on. `has_user`: there was one before.
    pub(super) fn refuse(&mut self, has_user: bool) {
        self.hang_up.refuses = true;
        self.note_hang_up(has_user);
    }

    /// Somebody has come by the pair who asks.
    pub(super) fn note_asker(&mut self) {
        self.hang_up.is_unasked = false;
        self.users_end = None;
    }

    /// Somebody has the pair who cannot announce itself, because it is half closed.
    pub(super) fn read_if_nobody_joins(&mut self) {
        if self.hang_up.refuses {
            self.request = ReadRequest::All;
        }
    }

    /// Waits for a question if the steward has shut both directions down.
    fn note_hang_up(&mut self, has_user: bool) {
        let is_stewards = self.hang_up.refuses && self.to_child.is_done;
        let has_user = has_user && !self.hang_up.is_unasked;
        if is_stewards && has_user && !self.resets_user && self.may_be_asked() {
            self.hang_up.awaits_question = true;
        }
    }

    /// A user has been told how the connection has ended. It asks again if an error is left.
    pub(crate) fn note_question(&mut self, stream: &Stream) {
        self.hang_up.awaits_question &= stream.has_error();
    }

    /// No user of `root` has the pair any more. Returns whether the pump has waited for a question
    /// that nobody asks any more.
    pub(crate) fn note_gone(&mut self, root: u64) -> bool {
        let mut origins = self.origins.iter();
        let is_last = origins.all(|it| it.root == root || it.is_unheard);
        self.hang_up.is_unasked |= is_last;
        is_last && std::mem::take(&mut self.hang_up.awaits_question)
    }

    /// The peer's end, or its reset, has come after all its bytes.
    pub(super) fn end_reading(&mut self, stream: &Stream) {
        let is_told = self.is_reset && stream.has_error();
        self.resets_user = is_told && self.users_end.is_some() && !self.is_abandoned;
        let how = match self.is_reset {
            true => Shutdown::Both,
            false => Shutdown::Write,
        };
        let has_user = !has_hung_up(&self.child);
        // A program that was woken before the reset would see the end.
        if !self.resets_user {
            let _ = rustix::net::shutdown(&self.child, how);
        }
        match self.may_be_asked() {
            true => {
                self.hang_up.refuses |= self.is_reset;
                self.note_hang_up(has_user);
            }
            // It is told by the pair itself.
            false if self.is_reset => _ = stream.take_error(),
            false => {}
        }
    }

    /// Ends both directions after the peer's reset if none of its bytes is unread, although nobody
    /// reads. tcp_reset(): a reset behind a FIN is no error for a reader, which finds the end.
    pub(super) fn note_reset(&mut self, stream: &Stream) {
        let has_known_user = self.is_heard() || self.users_end.is_some();
        if has_known_user && self.to_child.may_read() && stream.is_reset_without_fin() {
            self.is_reset = true;
            self.to_peer = Way::over();
            self.to_child = Way::over();
            self.end_reading(stream);
        }
    }

    /// The child's share is given back; the last one closes the connection.
    pub(crate) fn end(self, lender: &dyn Lender) {
        if !self.resets_user {
            let _ = rustix::net::shutdown(&self.child, Shutdown::Both);
        }
        if self.hang_up.refuses {
            self.drain(lender);
        }
        self.end_here(lender);
    }

    /// Takes what the user has written before its writes were refused: if it were closed with bytes
    /// unread, the pair would report another reset.
    fn drain(&self, lender: &dyn Lender) {
        let mut room = [0; 4096];
        for _ in 0..DRAINS_MAX {
            match lender.receive_joining(&self.child, &mut room) {
                Ok((_, Some(control))) => lender.close_noted(control),
                Ok((1.., None)) => {}
                Ok((0, None)) | Err(_) => return,
            }
        }
    }

    /// The connection has gone elsewhere, and what the pair's users do with it is that one's.
    pub(crate) fn end_here(mut self, lender: &dyn Lender) {
        self.note_moving(false);
        self.note_writer(false);
        if self.is_unread {
            self.socket.lent.leave_unread();
        }
        lender.note_pump_ended();
        lender.close_steward_number(self.number);
        lender.take_back(&self.socket);
        let users_end = self.users_end.filter(|_| self.resets_user);
        lender.close_pair(self.child, users_end);
        let joining = self.joining.into_iter();
        joining.for_each(|control| lender.close_noted(control));
    }
}
