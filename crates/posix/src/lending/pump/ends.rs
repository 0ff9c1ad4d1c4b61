//! Ends of a pump: the steward's descriptors, and how the user of the pair and the connection see
//! an end.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::net::Shutdown;

use super::{Pump, Way};
use crate::lending::lender::Lender;
use crate::lending::users_end::UsersEnd;
use crate::socket::Stream;
use crate::socket::borrowed::ReadRequest;

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

    /// The peer's end, or its reset, has come after all its bytes.
    pub(super) fn end_reading(&mut self) {
        self.resets_user = self.is_reset && self.users_end.is_some() && !self.is_abandoned;
        let how = match self.is_reset {
            true => Shutdown::Both,
            false => Shutdown::Write,
        };
        // A program that was woken before the reset would see the end.
        if !self.resets_user {
            let _ = rustix::net::shutdown(&self.child, how);
        }
    }

    /// Ends both directions after the peer's reset if none of its bytes is unread: a later write
    /// of the user's is not to be lost, although nobody reads. tcp_reset(): a reset behind a FIN is
    /// no error for a reader, so that its user reads the end as before.
    pub(super) fn note_reset(&mut self, stream: &Stream) {
        if self.to_child.may_read() && stream.is_reset_without_fin() {
            self.is_reset = true;
            self.to_peer = Way::over();
            self.to_child = Way::over();
            self.end_reading();
        }
    }

    /// The child's share is given back; the last one closes the connection.
    pub(crate) fn end(self, lender: &dyn Lender) {
        if !self.resets_user {
            let _ = rustix::net::shutdown(&self.child, Shutdown::Both);
        }
        self.end_here(lender);
    }

    /// The connection has gone elsewhere, and what the pair's users do with it is that one's.
    pub(crate) fn end_here(mut self, lender: &dyn Lender) {
        self.note_moving(false);
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
