//! Moves bytes between a connection and the child's end of a pair.

mod datagrams;
mod ends;
mod last;
mod loans;
mod moving;
mod pieces;
mod resting;

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, retry_on_intr};
use slipstack_channel::Loan;

use crate::lending::lender::Lender;
use crate::lending::pump::ends::HangUp;
use crate::lending::pump::loans::Counts;
use crate::lending::pump::pieces::give_child;
use crate::lending::users_end::UsersEnd;
use crate::socket::borrowed::ReadRequest;
use crate::socket::description::{Decided, Description};
use crate::socket::{How, Stream, StreamError};

/// Bytes that are moved at once, and that wait in one direction at most.
pub(crate) const ROOM: usize = 68 << 10;
/// Rounds in each direction before another pump's turn.
const ROUNDS: usize = 4;

/// One direction of a pump.
#[derive(Debug, Default)]
struct Way {
    /// Read and not passed on yet.
    rest: Vec<u8>,
    /// Bytes of `rest` that have been passed on.
    passed: usize,
    /// Set if the source has ended.
    is_ended: bool,
    /// The end, or that the receiver takes no more, has been passed on.
    is_done: bool,
}

impl Way {
    fn over() -> Way {
        Way {
            is_ended: true,
            is_done: true,
            ..Way::default()
        }
    }

    fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn may_read(&self) -> bool {
        self.is_empty() && !self.is_ended
    }

    /// Passes on the rest with `pass`, which returns how much was taken, or `None` if no more is
    /// ever taken.
    fn pass_rest(&mut self, pass: impl FnOnce(&[u8]) -> Option<usize>) -> Option<usize> {
        let count = pass(&self.rest[self.passed..])?;
        self.passed += count;
        if self.passed == self.rest.len() {
            self.rest = Vec::new();
            self.passed = 0;
        }
        Some(count)
    }

    /// Passes on bytes that were just read and keeps those that are not taken.
    fn pass_fresh(
        &mut self,
        bytes: &[u8],
        pass: impl FnOnce(&[u8]) -> Option<usize>,
    ) -> Option<usize> {
        let count = pass(bytes)?;
        self.rest.extend_from_slice(&bytes[count..]);
        Some(count)
    }

    /// Whether the end is to be passed on now; once.
    fn is_due(&mut self) -> bool {
        let is_due = self.is_empty() && self.is_ended && !self.is_done;
        self.is_done |= is_due;
        is_due
    }
}

/// The known readiness of one side: it is notified when it becomes ready again.
#[derive(Clone, Copy, Debug)]
struct Readiness {
    gives: bool,
    takes: bool,
}

/// The origin of messages about a pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The child, or the one that it descends from; 0 = a user that cannot send requests.
    root: u64,
    /// The pair's name.
    token: u64,
    /// The pair's number of the connection.
    id: u64,
    /// The user of the pair says nothing of reading.
    is_unheard: bool,
}

impl Origin {
    pub(crate) const UNHEARD: Origin = Origin {
        root: 0,
        token: 0,
        id: 0,
        is_unheard: true,
    };

    pub(crate) fn new(root: u64, (id, token): (u64, u64), is_unheard: bool) -> Origin {
        Origin {
            root,
            token,
            id,
            is_unheard,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Pump {
    socket: Arc<Description>,
    /// The steward's own.
    number: i32,
    child: OwnedFd,
    /// The first one, and whoever has come by an end of the pair and says so.
    origins: Vec<Origin>,
    /// Control sockets of processes that came by an end of the pair.
    joining: Vec<OwnedFd>,
    /// The child has no end of the pair any more.
    is_abandoned: bool,
    /// The child's end has been announced: its data is read until then.
    is_ending: bool,
    /// Bytes sent to the child will not be read: the peer gets a reset.
    is_unread: bool,
    /// The peer has reset the connection, or it has timed out.
    is_reset: bool,
    /// Set if the user has no library and is the process that has made the pair.
    users_end: Option<UsersEnd>,
    /// The close of the pair is a reset for its user.
    resets_user: bool,
    hang_up: HangUp,
    /// The child's read request that the steward has not met.
    request: ReadRequest,
    /// The child has announced that it writes no more: its end is more than the end of a process.
    is_shut: bool,
    /// The child has announced that it reads no more.
    has_shut_reading: bool,
    to_child: Way,
    to_peer: Way,
    childs: Readiness,
    peers: Readiness,
    /// The kernel is to report when the child takes more. If that were always requested, it would
    /// report every message that the child reads.
    awaits_room: bool,
    /// The connection is on its way to the child.
    is_paused: bool,
    /// Notifications of datagrams that have been given.
    signs: u64,
    /// Bytes for the peer are in hand.
    is_moving: bool,
    /// The connection counts the pair as one whose users may write.
    is_writer: bool,
    /// Bytes of the pair that are to leave before the end of the direction, once one awaits them.
    last: Option<usize>,
    /// The process that has made the pair, if it is another one.
    user: Option<u32>,
    /// Other processes may have the user's end of the pair: the user has made a child or sent the
    /// end away. It does not become false again, because those may do so too.
    has_others: bool,
    loan: Counts,
}

impl Pump {
    pub(crate) fn new(
        socket: Arc<Description>,
        number: i32,
        child: OwnedFd,
        origin: Origin,
    ) -> Pump {
        let readiness = Readiness {
            gives: true,
            takes: true,
        };
        Pump {
            socket,
            number,
            user: loans::user_of(&child),
            has_others: origin.is_unheard,
            loan: Counts::default(),
            child,
            origins: vec![origin],
            joining: Vec::new(),
            is_abandoned: false,
            is_ending: false,
            is_unread: false,
            is_reset: false,
            users_end: None,
            resets_user: false,
            hang_up: HangUp::default(),
            request: ReadRequest::None,
            is_shut: false,
            has_shut_reading: false,
            to_child: Way::default(),
            to_peer: Way::default(),
            childs: readiness,
            peers: readiness,
            awaits_room: false,
            is_paused: false,
            signs: 0,
            is_moving: false,
            is_writer: false,
            last: None,
        }
    }

    pub(crate) fn is_of(&self, root: u64, token: u64) -> bool {
        let mut origins = self.origins.iter();
        origins.any(|origin| (origin.root, origin.token) == (root, token))
    }

    pub(crate) fn is_roots(&self, root: u64) -> bool {
        self.origins.iter().any(|origin| origin.root == root)
    }

    /// Whether the child that `root` names knows its connection by `id`.
    pub(crate) fn is_named(&self, root: u64, id: u64) -> bool {
        let mut origins = self.origins.iter();
        origins.any(|origin| (origin.root, origin.id) == (root, id))
    }

    /// Whether one alone says that it uses the pair.
    pub(crate) fn has_one_origin(&self) -> bool {
        self.origins.len() == 1
    }

    /// Somebody who has come by an end of the pair says from now on when it reads.
    pub(crate) fn join(&mut self, origin: Origin) {
        self.has_others = true;
        self.origins.retain(|it| !it.is_unheard);
        self.origins.push(origin);
        self.note_asker();
        self.request = ReadRequest::None;
    }

    /// Somebody has the pair too who may say nothing.
    pub(crate) fn pass(&mut self) {
        self.has_others = true;
        self.read_if_nobody_joins();
        if !self.origins.contains(&Origin::UNHEARD) {
            self.origins.push(Origin::UNHEARD);
        }
    }

    /// A child of the user may have the pair, too, and says so if it uses it.
    pub(crate) fn note_branch(&mut self) {
        self.has_others = true;
    }

    /// Removes a user that has ended or closed its end: others that have the pair may have the
    /// connection for themselves.
    pub(crate) fn part(&mut self, root: u64) {
        if self.origins.len() > 1 {
            self.origins.retain(|it| it.root != root);
        }
    }

    pub(crate) fn pause(&mut self, is_on: bool) {
        self.is_paused = is_on;
    }

    pub(crate) fn socket(&self) -> &Arc<Description> {
        &self.socket
    }

    /// Goes on in another process, in which the connection has that description and the steward
    /// that number for it. The former ones belong to the process which this one is a copy of.
    pub(crate) fn go_on_as(&mut self, socket: Arc<Description>, number: i32) {
        std::mem::forget(std::mem::replace(&mut self.socket, socket));
        self.number = number;
        self.is_moving = false;
        self.is_writer = false;
    }

    /// Nobody has looked at either side for a while.
    pub(crate) fn look_again(&mut self) {
        self.on_peer();
        self.on_child(EventFlags::IN | EventFlags::OUT);
    }

    /// Leaves it to the process which this one is a copy of.
    pub(crate) fn leave(self) {
        std::mem::forget(self.socket);
    }

    pub(crate) fn number(&self) -> i32 {
        self.number
    }

    pub(crate) fn child(&self) -> &OwnedFd {
        &self.child
    }

    /// The child wants to read.
    pub(crate) fn read(&mut self, request: ReadRequest) {
        if self.request != ReadRequest::All {
            self.request = request;
        }
    }

    /// The child wants no more until it asks again.
    pub(crate) fn hold(&mut self) {
        self.request = ReadRequest::None;
    }

    /// The child shuts one direction or both down.
    pub(crate) fn shut(&mut self, [reads, writes]: [bool; 2]) {
        self.has_shut_reading |= reads;
        self.is_shut |= writes;
        if let Some(Decided::Stream(stream)) = self.socket.decided()
            && writes
        {
            self.end_for_all(stream);
        }
    }

    /// Whether the steward is to look whether the program has closed its own numbers.
    pub(crate) fn awaits_leaving(&self) -> bool {
        self.origins.iter().all(|it| it.is_unheard) && self.request != ReadRequest::All
    }

    /// Passes on all received data once the program has closed its own numbers.
    pub(crate) fn note_leaving(&mut self, lender: &dyn Lender) {
        if lender.is_left_to_steward(&self.socket) {
            self.request = ReadRequest::All;
        }
    }

    pub(crate) fn on_peer(&mut self) {
        self.peers = Readiness {
            gives: true,
            takes: true,
        };
    }

    pub(crate) fn on_child(&mut self, what: EventFlags) {
        if self.hang_up.awaits_question() {
            return;
        }
        self.childs.gives |= what.contains(EventFlags::IN);
        self.childs.takes |= what.contains(EventFlags::OUT);
        if what.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            self.childs.gives = true;
            self.is_ending = true;
        }
        if what.intersects(EventFlags::HUP | EventFlags::ERR) {
            self.is_abandoned = true;
            self.is_unread |= !self.to_child.is_empty();
            self.to_child = Way::over();
        }
    }

    /// Moves bytes in both directions, and returns whether it stopped because there are many.
    /// `room` has [`ROOM`] bytes. Bytes for the peer leave with the engine's next turn.
    pub(crate) fn run(&mut self, lender: &dyn Lender, room: &mut [u8]) -> bool {
        if self.is_paused {
            return false;
        }
        let socket = Arc::clone(&self.socket);
        let stream = match socket.decided() {
            Some(Decided::Stream(stream)) => stream,
            Some(Decided::Dgram(_)) => {
                self.give_signs();
                return false;
            }
            _ => return false,
        };
        self.note_alone();
        self.refuse_writes(stream);
        for _ in 0..ROUNDS {
            let has_sent = self.feed_peer(stream, lender, room);
            let has_received = self.feed_child(stream, room);
            if !has_sent && !has_received {
                self.note_reset(stream);
                return false;
            }
        }
        true
    }

    /// Moves one piece from the child to the peer. Returns whether there was one.
    fn feed_peer(&mut self, stream: &Stream, lender: &dyn Lender, room: &mut [u8]) -> bool {
        let passed = if !self.to_peer.is_empty() {
            match self.peers.takes {
                true => self.pass_to_peer(stream, None),
                false => Some(0),
            }
        } else if self.to_peer.may_read() && self.childs.gives {
            self.note_loan(stream, Loan::taking);
            self.note_moving(true);
            let room = self.last_of(room);
            let count = self.read_child(lender, room);
            self.note_last_read(count);
            let passed = self.pass_to_peer(stream, Some(&room[..count]));
            passed.map(|_| count)
        } else {
            Some(0)
        };
        if passed.is_none() || self.has_had_last() {
            self.end_writing();
        }
        self.note_moving(!self.to_peer.is_empty());
        // The connection is closed with the last number; this is for a child that still reads.
        if self.to_peer.is_due() && (self.is_shut || !self.is_abandoned) {
            self.end_for_all(stream);
        }
        passed.is_some_and(|count| count > 0)
    }

    /// Feeds the child from the stream.
    fn feed_child(&mut self, stream: &Stream, room: &mut [u8]) -> bool {
        let (child, takes) = (&self.child, &mut self.childs.takes);
        let passed = if !self.to_child.is_empty() {
            match *takes {
                true => {
                    let give = |bytes: &[u8]| give_child(child, bytes, takes);
                    let passed = self.to_child.pass_rest(give);
                    self.loan.note_given(passed);
                    passed
                }
                false => Some(0),
            }
        } else if self.to_child.may_read() && self.peers.gives && self.request != ReadRequest::None
        {
            self.give_more(stream, room)
        } else {
            Some(0)
        };
        if passed.is_none() {
            self.is_unread = true;
            self.to_child = Way::over();
        }
        self.note_rest(stream);
        if self.to_child.is_due() {
            self.end_reading(stream);
        }
        passed.is_some_and(|count| count > 0)
    }

    fn read_child(&mut self, lender: &dyn Lender, room: &mut [u8]) -> usize {
        let mut received = retry_on_intr(|| lender.receive_joining(&self.child, &mut *room));
        while let Ok((0, Some(control))) = received {
            self.joining.push(control);
            received = retry_on_intr(|| lender.receive_joining(&self.child, &mut *room));
        }
        match received {
            Ok((count, Some(control))) => {
                self.joining.push(control);
                count
            }
            // The child has ended, or only its writing: the event that comes next tells.
            Ok((0, None)) if !self.is_abandoned && has_hung_up(&self.child) => {
                self.childs.gives = false;
                0
            }
            Ok((count, None)) => {
                self.to_peer.is_ended = count == 0;
                // A source that gives less than was asked for is empty.
                self.childs.gives = self.is_ending || count == room.len();
                count
            }
            Err(Errno::AGAIN) => {
                self.childs.gives = false;
                0
            }
            Err(error) => {
                // The child has ended and left something unread.
                self.is_unread |= error == Errno::CONNRESET;
                self.to_peer.is_ended = true;
                0
            }
        }
    }

    /// Returns as much of `room` as the child has requested.
    fn asked<'a>(&self, room: &'a mut [u8]) -> &'a mut [u8] {
        let asked = match self.request {
            ReadRequest::All => room.len(),
            ReadRequest::None => 0,
            ReadRequest::Some(count) | ReadRequest::Whole(count) => {
                usize::try_from(count).map_or(room.len(), |count| count.min(room.len()))
            }
        };
        &mut room[..asked]
    }

    /// The child has been given that many bytes that it had requested.
    fn note_met(&mut self, count: usize) {
        self.request = match self.request {
            ReadRequest::Some(_) if count > 0 => ReadRequest::None,
            ReadRequest::Whole(left) if left > count as u64 => {
                ReadRequest::Whole(left - count as u64)
            }
            ReadRequest::Whole(_) => ReadRequest::None,
            other => other,
        };
    }

    fn receive(&mut self, stream: &Stream, room: &mut [u8], how: How) -> usize {
        // The process that looks for an error first takes it, as on the kernel: the steward does
        // not.
        match stream.dequeue_as(&mut [IoSliceMut::new(room)], how, Stream::peek_error) {
            Err(StreamError::Wait) => {
                self.peers.gives = false;
                0
            }
            Ok(0) | Err(StreamError::Pipe) => {
                self.to_child.is_ended = true;
                0
            }
            Err(StreamError::Errno(_)) => {
                self.is_reset = true;
                self.to_child.is_ended = true;
                self.to_peer = Way::over();
                0
            }
            Ok(count) => count,
        }
    }

    /// Whether news of the child's room are wanted, if that has changed.
    pub(crate) fn news_of_room(&mut self) -> Option<bool> {
        if self.hang_up.awaits_question() {
            return None;
        }
        let awaits = !self.childs.takes;
        let before = std::mem::replace(&mut self.awaits_room, awaits);
        (before != awaits).then_some(awaits)
    }
}

/// Whether nobody has the other end of the pair any more (or it is shut down in both directions).
pub(crate) fn has_hung_up(end: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(end, PollFlags::empty())];
    let found = rustix::event::poll(&mut fds, Some(&Timespec::default()));
    found.is_ok() && fds[0].revents().contains(PollFlags::HUP)
}
