//! A child's end of the control socket to the steward of its parent.

use std::io::{IoSlice, IoSliceMut};
use std::iter;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::Pid;
use slipstack_channel::control::read_bytes;
use slipstack_mem::Lock;

use crate::errno::Errno;
use crate::socket::Left;
use crate::socket::borrowed::child_message::{
    ANSWER_HEAD, GIVEN, GIVEN_APART, LEFT, Message, MessageKind, REFUSED, read_left,
    receive_with_ends,
};

/// Time for which a call that may not block waits for the steward to look.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(100);

/// Time for which a call waits for a connection that it would have for itself: far longer than it
/// takes.
const GIFT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longer than any connection.
const GIFT_MAX: usize = 192 << 10;
/// Longer than any datagram with its prefix.
const LEFT_MAX: usize = 66 << 10;

/// Connections of one message at most: the steward's room is larger.
const IDS_MAX: usize = 4096;

/// A child's end.
#[derive(Debug)]
pub(crate) struct Control {
    end: OwnedFd,
    /// Another process than the owner has made it.
    is_branch: bool,
    /// Taken while an answer is awaited.
    turn: Lock<()>,
    /// Datagrams that the owner has left to this process, with the numbers of their sockets.
    left: Lock<Vec<(u64, Left)>>,
}

impl Control {
    pub(crate) fn new(end: OwnedFd) -> Control {
        Control {
            end,
            is_branch: false,
            turn: Lock::new(()),
            left: Lock::default(),
        }
    }

    /// The control socket of a child whose parent has borrowed the connection itself.
    pub(crate) fn branch(end: OwnedFd) -> Control {
        Control {
            is_branch: true,
            ..Control::new(end)
        }
    }

    pub(crate) fn is_branch(&self) -> bool {
        self.is_branch
    }

    /// Returns the owner, if it has made the socket.
    pub(crate) fn owner(&self) -> Option<Pid> {
        if self.is_branch {
            return None;
        }
        let owner = socket_peercred(&self.end).ok()?.pid;
        (owner != rustix::process::getpid()).then_some(owner)
    }

    pub(crate) fn end(&self) -> &OwnedFd {
        &self.end
    }

    pub(crate) fn number(&self) -> i32 {
        self.end.as_raw_fd()
    }

    pub(crate) fn say(&self, message: Message, end: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let ends: Vec<BorrowedFd<'_>> = end.into_iter().collect();
        if !ends.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&ends));
        }
        let bytes = message.bytes();
        let bytes = [IoSlice::new(&bytes)];
        rustix::net::sendmsg(&self.end, &bytes, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Whether the owner has ended, or does within `patience`.
    pub(crate) fn has_ended(&self, patience: Duration) -> bool {
        let mut fds = [PollFd::new(&self.end, PollFlags::empty())];
        let patience = Timespec::try_from(patience).unwrap_or_default();
        let found = rustix::event::poll(&mut fds, Some(&patience));
        found.is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }

    /// Tells the steward of connections that were closed unused.
    pub(crate) fn give_back(&self, ids: &[u64]) {
        let head = Message {
            kind: MessageKind::GiveAllBack,
            id: 0,
            token: 0,
            amount: 0,
        };
        let head = head.bytes();
        let mut none = SendAncillaryBuffer::default();
        for ids in ids.chunks(IDS_MAX) {
            let ids: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            let parts = [&head[..], &ids].map(IoSlice::new);
            let _ = rustix::net::sendmsg(&self.end, &parts, &mut none, SendFlags::NOSIGNAL);
        }
    }

    /// Says it and waits, for a while, until the steward has acted on it.
    pub(crate) fn ask(&self, message: Message) -> Result<(), Errno> {
        let _turn = self.turn.lock();
        // Late replies.
        self.keep_left();
        self.say(message, None)?;
        let mut fds = [PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN)];
        let timeout = Timespec::try_from(ANSWER_TIMEOUT).unwrap_or_default();
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
        Ok(())
    }

    /// Asks for a connection ([`MessageKind::Want`](super::child_message::MessageKind::Want)),
    /// which comes with the steward's end of its pair. `None`: it stays, or the steward has no
    /// time.
    pub(crate) fn ask_for(&self, message: Message) -> Option<(Vec<u8>, Option<OwnedFd>)> {
        let _turn = self.turn.lock();
        self.say(message, None).ok()?;
        self.hear_answer(message.token, GIFT_MAX, Some(GIFT_TIMEOUT))
    }

    /// Has the owner make a call
    /// ([`MessageKind::Call`](super::child_message::MessageKind::Call)), whose result has at most
    /// `most` bytes. `None`: the owner is gone.
    pub(crate) fn call(
        &self,
        message: Message,
        request: &[IoSlice<'_>],
        result_max: usize,
    ) -> Option<Vec<u8>> {
        self.call_within(None, message, request, result_max)
    }

    /// As [`Control::call`], of a call that never waits on the kernel: an owner that is stopped
    /// does not hold it up for long.
    pub(crate) fn call_briefly(
        &self,
        message: Message,
        request: &[IoSlice<'_>],
        result_max: usize,
    ) -> Option<Vec<u8>> {
        self.call_within(Some(ANSWER_TIMEOUT), message, request, result_max)
    }

    fn call_within(
        &self,
        limit: Option<Duration>,
        message: Message,
        request: &[IoSlice<'_>],
        result_max: usize,
    ) -> Option<Vec<u8>> {
        let _turn = self.turn.lock();
        let head = message.bytes();
        let parts: Vec<IoSlice<'_>> = iter::once(&head[..])
            .chain(request.iter().map(|part| &**part))
            .map(IoSlice::new)
            .collect();
        let mut none = SendAncillaryBuffer::default();
        let send = || rustix::net::sendmsg(&self.end, &parts, &mut none, SendFlags::NOSIGNAL);
        retry_on_intr(send).ok()?;
        let answer = self.hear_answer(message.token, ANSWER_HEAD + result_max, limit);
        answer.map(|(result, _)| result)
    }

    /// Takes the datagrams that the owner has left of socket `id`.
    pub(crate) fn take_left(&self, id: u64) -> Vec<Left> {
        let _turn = self.turn.lock();
        self.keep_left();
        let mut left = self.left.lock();
        left.extract_if(.., |(of, _)| *of == id)
            .map(|(_, it)| it)
            .collect()
    }

    /// Reads the messages that have come, and keeps the datagrams among them. Usually there are
    /// none, so no room is made before one is seen: a child that has just begun has no memory yet.
    fn keep_left(&self) {
        let seen = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let mut room = Vec::new();
        while let Ok((1.., _)) = rustix::net::recv(&self.end, &mut [0; 1], seen) {
            room.resize(LEFT_MAX, 0);
            match rustix::net::recv(&self.end, &mut room[..], RecvFlags::DONTWAIT) {
                Ok((len, _)) => self.left.lock().extend(read_left(&room[..len])),
                Err(_) => return,
            }
        }
    }

    fn hear_answer(
        &self,
        token: u64,
        max: usize,
        limit: Option<Duration>,
    ) -> Option<(Vec<u8>, Option<OwnedFd>)> {
        let begun = Instant::now();
        let mut answer = vec![0; max];
        loop {
            let left = match limit {
                Some(limit) => Some(limit.checked_sub(begun.elapsed())?),
                None => None,
            };
            let mut fds = [PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN)];
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let _ = rustix::event::poll(&mut fds, timeout.as_ref());
            let place = &mut [IoSliceMut::new(&mut answer)];
            let (len, [pair, file]) = match receive_with_ends(&self.end, place) {
                Ok((0, _)) => return None,
                Ok(received) => received,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => continue,
                Err(_) => return None,
            };
            let is_it = len >= ANSWER_HEAD && answer[1..ANSWER_HEAD] == token.to_le_bytes();
            match answer[0] {
                GIVEN if is_it => {
                    answer.truncate(len);
                    return Some((answer.split_off(ANSWER_HEAD), pair));
                }
                GIVEN_APART if is_it => return Some((read_bytes(file?).ok()?, pair)),
                REFUSED if is_it => return None,
                LEFT => self.left.lock().extend(read_left(&answer[..len])),
                // A reply to an earlier request.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use slipstack_channel::Envelope;

    use super::*;
    use crate::lending::pump::ROOM;
    use crate::socket::borrowed::child_message::{
        Heard, answer, control_pair, give, give_connection, hear, leave,
    };

    #[test]
    fn a_message_arrives_unchanged() {
        let (ours, theirs) = control_pair().unwrap();
        let control = Control::new(theirs);
        let said = Message {
            kind: MessageKind::Shut,
            id: 7,
            token: u64::MAX - 1,
            amount: 2,
        };
        control.say(said, None).unwrap();
        let (told, _end) = control_pair().unwrap();
        control.say(said, Some(told.as_fd())).unwrap();
        assert!(matches!(hear(&ours, &mut []), Heard::Message(it, 0, None) if it == said));
        assert!(matches!(hear(&ours, &mut []), Heard::Message(it, 0, Some(_)) if it == said));
        assert!(matches!(hear(&ours, &mut []), Heard::Nothing));
        rustix::net::send(&control.end, b"what?", SendFlags::empty()).unwrap();
        assert!(matches!(hear(&ours, &mut []), Heard::Noise));
        drop(control);
        assert!(matches!(hear(&ours, &mut []), Heard::End));
    }

    #[test]
    fn datagrams_that_come_before_a_question_are_kept() {
        let (ours, theirs) = control_pair().unwrap();
        let control = Control::new(theirs);
        let from = Some("10.0.0.1:53".parse().unwrap());
        for (id, len) in [(1, 3), (2, 65_000), (1, 0)] {
            let envelope = Envelope {
                peer: from,
                ..Envelope::default()
            };
            assert!(leave(
                &ours,
                id,
                &Left::new(envelope, vec![7; len]).unwrap()
            ));
            answer(&ours);
        }
        control.keep_left();
        assert!(matches!(
            rustix::net::recv(&control.end, &mut [0; 1], RecvFlags::DONTWAIT),
            Err(rustix::io::Errno::AGAIN)
        ));
        let lens = |id| {
            control
                .take_left(id)
                .iter()
                .map(|it| it.bytes.len())
                .collect()
        };
        let (first, second): (Vec<usize>, Vec<usize>) = (lens(1), lens(2));
        assert_eq!((first, second), (vec![3, 0], vec![65_000]));
    }

    #[test]
    fn a_call_waits_for_its_own_result() {
        let (ours, theirs) = control_pair().unwrap();
        let control = Control::new(theirs);
        let message = Message {
            kind: MessageKind::Call,
            id: 1,
            token: 9,
            amount: 0,
        };
        answer(&ours);
        assert!(give(&ours, 8, [&b"late"[..], b""]));
        assert!(give(&ours, 9, [&b"in"[..], b"time"]));
        let result = control.call(message, &[IoSlice::new(b"please")], 100);
        assert_eq!(result, Some(b"intime".to_vec()));
        let mut room = [0; 10];
        assert!(matches!(hear(&ours, &mut room), Heard::Message(it, 6, None) if it == message));
        assert_eq!(&room[..6], b"please");
        drop(ours);
        assert_eq!(control.call(message, &[], 100), None);
    }

    #[test]
    fn many_connections_are_given_back_with_few_messages() {
        let (ours, theirs) = control_pair().unwrap();
        let control = Control::new(theirs);
        let ids: Vec<u64> = (0..IDS_MAX as u64 + 1).map(|id| id << 40 | id).collect();
        control.give_back(&ids);
        let mut room = vec![0; ROOM];
        let mut came = Vec::new();
        for count in [IDS_MAX, 1] {
            let Heard::Message(message, len, None) = hear(&ours, &mut room) else {
                panic!("{} ids have come", came.len());
            };
            assert_eq!((message.kind, len), (MessageKind::GiveAllBack, count * 8));
            came.extend_from_slice(&room[..len]);
        }
        let all: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        assert!(came == all);
        assert!(matches!(hear(&ours, &mut room), Heard::Nothing));
    }

    #[test]
    fn a_connection_image_of_any_length_arrives_with_its_socket() {
        let (ours, theirs) = control_pair().unwrap();
        let control = Control::new(theirs);
        let want = Message {
            kind: MessageKind::Want,
            id: 1,
            token: 9,
            amount: 0,
        };
        for len in [16, 3 << 20] {
            let connection = vec![7; len];
            assert!(give_connection(&ours, 9, &connection, ours.as_fd()));
            let (came, pair) = control.ask_for(want).unwrap();
            assert!(came == connection && pair.is_some(), "{len}");
        }
    }

    #[test]
    fn a_waiting_thread_continues_when_there_is_an_answer() {
        let (ours, theirs) = control_pair().unwrap();
        let control = Control::new(theirs);
        answer(&ours);
        answer(&ours);
        let message = Message {
            kind: MessageKind::ReadNow,
            id: 1,
            token: 1,
            amount: 1,
        };
        std::thread::scope(|scope| {
            let asker = scope.spawn(|| control.ask(message));
            loop {
                if let Heard::Message(..) = hear(&ours, &mut []) {
                    break;
                }
                std::thread::yield_now();
            }
            answer(&ours);
            assert_eq!(asker.join().unwrap(), Ok(()));
        });
    }
}
