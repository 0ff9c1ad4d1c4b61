//! The pump's record of what it has moved, for a process that goes on with the connection if this
//! one is killed.

use std::os::fd::OwnedFd;

use rustix::net::sockopt::socket_peercred;
use slipstack_channel::{Given, Loan};

use super::Pump;
use super::pieces::{give_child, give_peer};
use crate::socket::borrowed::ReadRequest;
use crate::socket::description::Decided;
use crate::socket::{How, Stream};

/// Number of looks at a ring whose bytes another thread takes as they come.
const GIVE_TRIES: usize = 2;

/// Bytes of the child, modulo 2^32.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// In the send ring, or were.
    taken: u32,
    /// Passed on to the child.
    given: u32,
    /// Nothing but the steward uses the connection in this process, now and later.
    is_alone: bool,
}

impl Counts {
    pub(super) fn note_given(&mut self, count: Option<usize>) {
        self.given = self.given.wrapping_add(count.unwrap_or(0) as u32);
    }

    fn loan_to(self, user: u32) -> Loan {
        let loan = Loan::to(user, self.taken, self.given);
        match self.is_alone {
            true => loan.alone(),
            false => loan,
        }
    }
}

impl Pump {
    /// Records the loan to the process that has made the pair. Another process cannot go on with a
    /// connection that several use, or some of whose bytes for the child are here.
    pub(super) fn note_loan(&self, stream: &Stream, as_of_now: impl FnOnce(Loan) -> Loan) {
        // Another thread may lend it once more.
        let _cold = self.socket.cold.lock();
        stream.set_loan(self.loan_now(as_of_now));
    }

    fn loan_now(&self, as_of_now: impl FnOnce(Loan) -> Loan) -> Loan {
        let is_heard = self.origins.iter().all(|it| !it.is_unheard);
        let has_rest = !self.to_child.is_empty();
        let is_users = is_heard && !has_rest;
        // If there are several users, the loan cannot tell which of them still run. Those that have
        // not used the connection have nothing of it.
        let user = self.user.filter(|_| self.socket.lent.users() == 1);
        let has_others = self.has_others || !self.socket.lent.is_lent_once();
        let loan = user.map(|user| match has_others {
            true => self.loan.loan_to(user),
            false => self.loan.loan_to(user).sole(),
        });
        match loan {
            Some(loan) if is_users && self.is_whole() => as_of_now(loan),
            Some(loan) => loan.unsure(),
            None => Loan::to(0, 0, 0).unsure(),
        }
    }

    /// As [`Pump::note_loan`], while nothing is being moved.
    pub(super) fn note_rest(&self, stream: &Stream) {
        match self.to_peer.is_empty() {
            true => self.note_loan(stream, |loan| loan),
            false => self.note_loan(stream, Loan::taking),
        }
    }

    /// As [`Pump::note_rest`], after one that might use the connection has gone or come.
    pub(crate) fn note_user(&self) {
        if let Some(Decided::Stream(stream)) = self.socket.decided()
            && self.socket.lent.users() == 1
            && !self.is_paused
        {
            self.note_rest(stream);
        }
    }

    /// Looks whether the program has closed its own numbers, and no thread waits in a call that it
    /// has begun before: it never gets another one.
    pub(super) fn note_alone(&mut self) {
        if !self.loan.is_alone {
            let has_closed = self.socket.cold.lock().numbers == [self.number];
            self.loan.is_alone = has_closed && self.socket.may_end();
        }
    }

    /// Passes on bytes that the child has requested. Returns how many there were; `None`: the child
    /// takes no more.
    pub(super) fn give_more(&mut self, stream: &Stream, room: &mut [u8]) -> Option<usize> {
        if !self.childs.takes {
            return Some(0);
        }
        if self.asked(room).is_empty() {
            // A request for no bytes: nothing of ours makes one.
            self.request = ReadRequest::None;
            return Some(0);
        }
        for _ in 0..GIVE_TRIES {
            let loan = self.loan_now(|loan| loan);
            let asked = self.asked(room);
            let (child, takes) = (&self.child, &mut self.childs.takes);
            match stream.give_bytes(asked, loan, |bytes| give_child(child, bytes, takes)) {
                Given::Passed(given) => {
                    self.loan.note_given(given);
                    self.note_met(given.unwrap_or(0));
                    return given;
                }
                Given::NotPlain => break,
                // Why there are none is seen without taking a byte that comes just now.
                Given::Empty => {
                    if self.receive(stream, &mut [0], How::Peek(0)) == 0 {
                        return Some(0);
                    }
                }
            }
        }
        self.take_and_give(stream, room)
    }

    /// As [`Pump::give_more`], of urgent bytes: it is not known meanwhile where they are.
    fn take_and_give(&mut self, stream: &Stream, room: &mut [u8]) -> Option<usize> {
        self.note_loan(stream, Loan::unsure);
        let asked = self.asked(room).len();
        let count = self.receive(stream, &mut room[..asked], How::Take);
        self.note_met(count);
        let (child, takes) = (&self.child, &mut self.childs.takes);
        let mut given = 0;
        let give = |bytes: &[u8]| {
            let count = give_child(child, bytes, takes);
            given = count.unwrap_or(0);
            count
        };
        let passed = self.to_child.pass_fresh(&room[..count], give);
        self.loan.note_given(Some(given));
        passed.map(|_| count)
    }

    /// Passes on bytes that have just been read, or the rest of former ones.
    pub(super) fn pass_to_peer(&mut self, stream: &Stream, fresh: Option<&[u8]>) -> Option<usize> {
        self.note_loan(stream, Loan::putting);
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
        self.loan.taken = self.loan.taken.wrapping_add(sent as u32);
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
