//! The pump's record of what it has moved, for a process that goes on with the connection if this
//! one is killed.

use std::os::fd::OwnedFd;

use rustix::net::sockopt::socket_peercred;
use slipstack_channel::Loan;

use super::{Pump, give_peer};
use crate::socket::Stream;

impl Pump {
    /// Records the loan to the process that has made the pair. Another process cannot go on with a
    /// connection that several use, or some of whose bytes for the child are here.
    pub(super) fn note_loan(&self, stream: &Stream, as_of_now: impl FnOnce(Loan) -> Loan) {
        let is_heard = self.origins.iter().all(|it| !it.is_unheard);
        let has_rest = !self.to_child.is_empty();
        let is_users = is_heard && !has_rest && self.socket.lent.is_lent_once();
        let loan = self.user.map(|user| Loan::to(user, self.taken));
        stream.set_loan(match (loan, is_users && self.is_whole()) {
            (Some(loan), true) => as_of_now(loan),
            (Some(loan), false) => loan.unsure(),
            (None, _) => Loan::NONE,
        });
    }

    /// As [`Pump::note_loan`], while nothing is being moved.
    pub(super) fn note_rest(&self, stream: &Stream) {
        match self.to_peer.is_empty() {
            true => self.note_loan(stream, |loan| loan),
            false => self.note_loan(stream, Loan::taking),
        }
    }

    /// Passes on bytes that have just been read, or the rest of former ones.
    pub(super) fn pass_to_peer(&mut self, stream: &Stream, fresh: Option<&[u8]>) -> Option<usize> {
        self.note_loan(stream, |loan| loan.taking().unsure());
        let (takes, is_reset) = (&mut self.peers.takes, &mut self.is_reset);
        let mut sent = 0;
        let give = |bytes: &[u8]| {
            let count = give_peer(stream, bytes, takes, is_reset);
            sent = count.unwrap_or(0);
            count
        };
        let passed = match fresh {
            Some(bytes) => self.to_peer.pass_fresh(bytes, give),
            None => self.to_peer.pass_rest(give),
        };
        self.taken += sent as u64;
        self.note_rest(stream);
        passed
    }
}

/// The process that has made a pair, by the steward's end, if it is another one than this: a pair
/// that this process has made is for programs which could not go on with the connection.
pub(super) fn user_of(end: &OwnedFd) -> Option<u32> {
    let user = socket_peercred(end).ok()?.pid;
    let user = user.as_raw_nonzero().get().cast_unsigned();
    (user != std::process::id()).then_some(user)
}
