//! A child's end of the control socket to the steward of its parent.

use std::io::{IoSlice, IoSliceMut};
use std::iter;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage};
use rustix::process::Pid;
use slipstack_channel::control::read_bytes;
use slipstack_mem::thread::spawn_quiet;
use slipstack_mem::{Guard, Lock, PrivateFd, raised};

use crate::errno::Errno;
use crate::socket::Left;
use crate::socket::borrowed::child_message::{
    ANSWER_HEAD, GIVEN, GIVEN_APART, LEFT, Message, MessageKind, REFUSED, ReadRequest, read_left,
    receive_with_ends,
};
use crate::socket::borrowed::outbox::{Outbox, Subject, look, send_now};

/// Time for which a call that may not block waits for the steward to look.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(100);

/// Time in which an owner begins a call, and for its reply after that.
const CALL_TIMEOUT: Duration = Duration::from_millis(200);
const CALL_GRACE: Duration = Duration::from_millis(50);

/// Time for which a call waits for a connection that it would have for itself: far longer than it
/// takes.
const GIFT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longer than any connection.
const GIFT_MAX: usize = 192 << 10;
/// Longer than any datagram with its prefix.
const LEFT_MAX: usize = 66 << 10;

/// Interval at which it is looked whether another thread has got its answer.
const TURN_LOOK: Duration = Duration::from_micros(100);

/// Looks for the outbox of a process that ends: a thread that has it may wait for a processor.
const LOCK_LOOKS: u32 = 1000;

/// Connections of one message at most: the steward's room is larger.
const IDS_MAX: usize = 4096;

/// The reason why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unheard {
    Gone,
    /// The owner has not answered in time.
    Silent,
}

/// The number of bytes of a message, and the descriptors that have come with it.
pub(crate) type Received = rustix::io::Result<(usize, [Option<OwnedFd>; 2])>;

/// The list of ends of pairs that have come to a process, which its forked children close.
pub(crate) trait Ends {
    /// Receives a message without waiting, and lists an end, which is its first descriptor.
    fn receive(&self, from: &OwnedFd, room: &mut [IoSliceMut<'_>]) -> Received;

    /// Closes an end and removes it from the list.
    fn close(&self, end: OwnedFd);
}

/// A list that stays empty, for answers with which no end comes.
pub(crate) struct Unlisted;

impl Ends for Unlisted {
    fn receive(&self, from: &OwnedFd, room: &mut [IoSliceMut<'_>]) -> Received {
        receive_with_ends(from, room)
    }

    fn close(&self, end: OwnedFd) {
        drop(end);
    }
}

/// A child's end.
#[derive(Debug)]
pub(crate) struct Control {
    end: PrivateFd,
    /// Another process than the owner has made it.
    is_branch: bool,
    /// The secret of the owner's heirs; `None`: it is this process's too.
    heirs: Option<u64>,
    /// Taken while an answer is awaited. The questions that a silent owner has.
    turn: Lock<Vec<Message>>,
    /// The owner has not answered in time, and nothing has come from it since: it may be stopped.
    is_silent: AtomicBool,
    outbox: Lock<Outbox>,
    /// Datagrams that the owner has left to this process, with the numbers of their sockets.
    left: Lock<Vec<(u64, Left)>>,
}

impl Control {
    pub(crate) fn new(end: OwnedFd) -> Control {
        Control {
            end: raised(end),
            is_branch: false,
            heirs: None,
            turn: Lock::default(),
            is_silent: AtomicBool::new(false),
            outbox: Lock::default(),
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

    /// The control socket, to an owner with another secret than this process's if there is one.
    pub(crate) fn of_heirs(self, heirs: Option<u64>) -> Control {
        Control { heirs, ..self }
    }

    pub(crate) fn heirs(&self) -> Option<u64> {
        self.heirs
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

    /// Returns the text of the owner's `/proc/PID/stat` from its state on.
    pub(crate) fn owner_stat(&self) -> Option<String> {
        let owner = self.owner()?.as_raw_nonzero();
        behind_name(&std::fs::read(format!("/proc/{owner}/stat")).ok()?)
    }

    /// Whether the owner is known to be stopped, or in a debugger.
    pub(crate) fn is_owner_stopped(&self) -> bool {
        let stat = self.owner_stat();
        stat.is_some_and(|stat| stat.trim_start().starts_with(['T', 't']))
    }

    pub(crate) fn end(&self) -> &OwnedFd {
        &self.end
    }

    pub(crate) fn number(&self) -> i32 {
        self.end.as_raw_fd()
    }

    /// Sends a message, for which the owner has room at some time.
    pub(crate) fn say(&self, message: Message, end: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let ends: Vec<BorrowedFd<'_>> = end.into_iter().collect();
        if !ends.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&ends));
        }
        let bytes = message.bytes();
        self.send(&[IoSlice::new(&bytes)], &mut ancillary)
    }

    /// As [`Control::say`], without waiting.
    ///
    /// # Errors
    /// EAGAIN: there is no room.
    pub(crate) fn say_now(
        &self,
        message: Message,
        end: Option<BorrowedFd<'_>>,
    ) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let ends: Vec<BorrowedFd<'_>> = end.into_iter().collect();
        if !ends.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&ends));
        }
        let sent = self.try_send(&[IoSlice::new(&message.bytes())], &mut ancillary);
        sent.unwrap_or(Err(Errno::EAGAIN))
    }

    fn send(
        &self,
        parts: &[IoSlice<'_>],
        ancillary: &mut SendAncillaryBuffer<'_, '_, '_>,
    ) -> Result<(), Errno> {
        loop {
            if let Some(sent) = self.try_send(parts, ancillary) {
                return sent;
            }
            self.await_room()?;
        }
    }

    /// Sends a message that has no answer, or whose answer is not waited for. If the owner takes
    /// none now, it is kept and sent later, unless another about its subject has replaced it.
    pub(crate) fn deliver(self: &Arc<Self>, parts: &[IoSlice<'_>], subject: Option<Subject>) {
        let mut none = SendAncillaryBuffer::default();
        if self.try_send(parts, &mut none).is_some() {
            return;
        }
        let Some(mut outbox) = look(&self.outbox) else {
            let _ = self.send(parts, &mut none);
            return;
        };
        let bytes = parts.iter().flat_map(|part| part.iter().copied());
        outbox.keep(bytes.collect(), subject);
        if !outbox.has_sender {
            let this = Arc::clone(self);
            let send = move || this.empty_outbox();
            outbox.has_sender = spawn_quiet("slipstack-outbox", send).is_ok();
            if !outbox.has_sender {
                drop(outbox);
                self.empty_outbox();
            }
        }
    }

    /// Waits until all that is kept has been sent, unless a call is here that a signal has
    /// interrupted.
    pub(crate) fn send_kept(&self) {
        let mut outbox = look(&self.outbox);
        for _ in 0..LOCK_LOOKS {
            if outbox.is_some() {
                break;
            }
            std::thread::sleep(TURN_LOOK);
            outbox = look(&self.outbox);
        }
        if outbox.is_some_and(|outbox| outbox.has_sender) {
            self.empty_outbox();
        }
    }

    /// Waits until all that is kept has been sent.
    fn empty_outbox(&self) {
        loop {
            let mut outbox = self.outbox.lock();
            if outbox.flush(&self.end) {
                outbox.has_sender = false;
                return;
            }
            drop(outbox);
            if self.await_room().is_err() {
                self.outbox.lock().has_sender = false;
                return;
            }
        }
    }

    /// Sends a message after those that are kept. `None`: there is no room.
    fn try_send(
        &self,
        parts: &[IoSlice<'_>],
        ancillary: &mut SendAncillaryBuffer<'_, '_, '_>,
    ) -> Option<Result<(), Errno>> {
        // Kept until this one has been sent, so that no kept one comes behind it.
        let mut outbox = look(&self.outbox);
        if outbox.as_mut().is_some_and(|it| !it.flush(&self.end)) {
            return None;
        }
        match send_now(&self.end, parts, Some(ancillary)) {
            Err(rustix::io::Errno::AGAIN) => None,
            sent => Some(sent.map_err(Errno::from)),
        }
    }

    pub(crate) fn await_room(&self) -> Result<(), Errno> {
        let mut fds = [PollFd::new(&self.end, PollFlags::OUT)];
        retry_on_intr(|| rustix::event::poll(&mut fds, None))?;
        Ok(())
    }

    /// Whether the owner has not answered in time, and has said nothing since.
    pub(crate) fn is_silent(&self) -> bool {
        if self.is_silent.load(Ordering::Relaxed)
            && let Some(mut told) = self.turn.try_lock()
        {
            self.keep_left(&mut told);
        }
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Waits for the answers to other threads' questions, if the owner is not silent.
    fn turn_within(&self, limit: Duration) -> Option<Guard<'_, Vec<Message>>> {
        let begun = Instant::now();
        loop {
            if let Some(turn) = look(&self.turn) {
                return Some(turn);
            }
            if self.is_silent.load(Ordering::Relaxed) || begun.elapsed() >= limit {
                return None;
            }
            std::thread::sleep(TURN_LOOK);
        }
    }

    /// Whether the owner has ended, or does within `patience`.
    pub(crate) fn has_ended(&self, patience: Duration) -> bool {
        let mut fds = [PollFd::new(&self.end, PollFlags::empty())];
        let patience = Timespec::try_from(patience).unwrap_or_default();
        let found = rustix::event::poll(&mut fds, Some(&patience));
        found.is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }

    /// Tells the steward of connections that were closed unused.
    pub(crate) fn give_back(self: &Arc<Self>, ids: &[u64]) {
        let head = Message {
            kind: MessageKind::GiveAllBack,
            id: 0,
            token: 0,
            amount: 0,
        };
        let head = head.bytes();
        for ids in ids.chunks(IDS_MAX) {
            let ids: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            self.deliver(&[&head[..], &ids].map(IoSlice::new), None);
        }
    }

    /// Says it and waits, for a while, until the steward has acted on it. A silent owner is not
    /// asked again for the same bytes.
    pub(crate) fn ask(self: &Arc<Self>, message: Message) {
        let bytes = message.bytes();
        let bytes = [IoSlice::new(&bytes)];
        // One for all bytes counts whatever comes after it.
        let is_all = ReadRequest::of(message.amount) == ReadRequest::All;
        let subject = (!is_all).then_some(Subject::Kind(message.id, message.kind));
        let Some(mut told) = self.turn_within(ANSWER_TIMEOUT) else {
            return self.deliver(&bytes, subject);
        };
        // Late replies.
        self.keep_left(&mut told);
        let was_silent = self.is_silent.load(Ordering::Relaxed);
        if subject.is_some() && told.contains(&message) {
            return;
        }
        self.deliver(&bytes, subject);
        if !was_silent {
            let mut fds = [PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN)];
            let timeout = Timespec::try_from(ANSWER_TIMEOUT).unwrap_or_default();
            if rustix::event::poll(&mut fds, Some(&timeout)) != Ok(0) {
                return;
            }
            self.is_silent.store(true, Ordering::Relaxed);
        }
        told.push(message);
    }

    /// Asks for a connection ([`MessageKind::Want`](super::child_message::MessageKind::Want)),
    /// which comes with the steward's end of its pair. `None`: it stays, or the steward has no
    /// time.
    pub(crate) fn ask_for(
        &self,
        message: Message,
        ends: &dyn Ends,
    ) -> Option<(Vec<u8>, Option<OwnedFd>)> {
        if self.is_silent() {
            return None;
        }
        let mut told = self.turn_within(GIFT_TIMEOUT)?;
        let (bytes, mut none) = (message.bytes(), SendAncillaryBuffer::default());
        self.try_send(&[IoSlice::new(&bytes)], &mut none)?.ok()?;
        let limit = Some(GIFT_TIMEOUT);
        self.hear_answer(&mut told, (message.token, GIFT_MAX), limit, ends)
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
        let mut told = self.turn.lock();
        let mut none = SendAncillaryBuffer::default();
        let head = message.bytes();
        let parts = after_head(&head, request);
        while let Err(error) = self.send(&parts, &mut none) {
            if error != Errno::EINTR {
                return None;
            }
        }
        self.hear(&mut told, message, result_max, None)
    }

    /// As [`Control::call`], of a call that the owner does not make any more once this has returned
    /// [`Unheard::Silent`]: the message names the time until which it may.
    pub(crate) fn call_in_time(
        &self,
        now_ns: impl FnOnce() -> u64,
        message: Message,
        request: &[IoSlice<'_>],
        result_max: usize,
    ) -> Result<Vec<u8>, Unheard> {
        let mut told = self.turn_within(CALL_TIMEOUT).ok_or(Unheard::Silent)?;
        let limit_ns = CALL_TIMEOUT.as_nanos() as u64;
        let message = Message {
            amount: now_ns().saturating_add(limit_ns),
            ..message
        };
        let head = message.bytes();
        let mut none = SendAncillaryBuffer::default();
        match self.try_send(&after_head(&head, request), &mut none) {
            Some(Ok(())) => {}
            Some(Err(_)) => return Err(Unheard::Gone),
            None => {
                self.is_silent.store(true, Ordering::Relaxed);
                return Err(Unheard::Silent);
            }
        }
        let limit = Some(CALL_TIMEOUT + CALL_GRACE);
        let result = self.hear(&mut told, message, result_max, limit);
        result.ok_or_else(|| match self.is_silent.load(Ordering::Relaxed) {
            true => Unheard::Silent,
            false => Unheard::Gone,
        })
    }

    /// As [`Control::call`], of a question that the kernel answers at once: an owner that is
    /// stopped does not hold it up for long, and not again as long as it is silent.
    pub(crate) fn call_briefly(
        &self,
        message: Message,
        request: &[IoSlice<'_>],
        result_max: usize,
    ) -> Option<Vec<u8>> {
        if self.is_silent() {
            return None;
        }
        let mut told = self.turn_within(ANSWER_TIMEOUT)?;
        self.keep_left(&mut told);
        let head = message.bytes();
        let mut none = SendAncillaryBuffer::default();
        let sent = self.try_send(&after_head(&head, request), &mut none);
        sent?.ok()?;
        self.hear(&mut told, message, result_max, Some(ANSWER_TIMEOUT))
    }

    /// As [`Control::call_briefly`], of a call that must not be lost: the owner makes it before
    /// anything that is said later, but perhaps after this has returned (`None`). Of those about
    /// one subject it makes the last one.
    pub(crate) fn call_surely(
        self: &Arc<Self>,
        message: Message,
        request: &[IoSlice<'_>],
        subject: Subject,
        result_max: usize,
    ) -> Option<Vec<u8>> {
        let is_silent = self.is_silent();
        let turn = self.turn_within(ANSWER_TIMEOUT).filter(|_| !is_silent);
        let head = message.bytes();
        self.deliver(&after_head(&head, request), Some(subject));
        let mut told = turn?;
        self.hear(&mut told, message, result_max, Some(ANSWER_TIMEOUT))
    }

    fn hear(
        &self,
        told: &mut Vec<Message>,
        message: Message,
        result_max: usize,
        limit: Option<Duration>,
    ) -> Option<Vec<u8>> {
        let which = (message.token, ANSWER_HEAD + result_max);
        let answer = self.hear_answer(told, which, limit, &Unlisted);
        answer.map(|(result, _)| result)
    }

    /// Takes the datagrams that the owner has left of socket `id`. Those that come behind the
    /// question of another thread, which an owner that is stopped does not answer, are not waited
    /// for.
    pub(crate) fn take_left(&self, id: u64) -> Vec<Left> {
        if let Some(mut told) = self.turn_within(CALL_TIMEOUT + CALL_GRACE) {
            self.keep_left(&mut told);
        }
        let mut left = self.left.lock();
        left.extract_if(.., |(of, _)| *of == id)
            .map(|(_, it)| it)
            .collect()
    }

    /// Reads the messages that have come, and keeps the datagrams among them. Usually there are
    /// none, so no room is made before one is seen: a child that has just begun has no memory yet.
    fn keep_left(&self, told: &mut Vec<Message>) {
        let seen = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let mut room = Vec::new();
        while let Ok((len, _)) = rustix::net::recv(&self.end, &mut [0; 1], seen) {
            self.end_silence(told);
            if len == 0 {
                return;
            }
            room.resize(LEFT_MAX, 0);
            match rustix::net::recv(&self.end, &mut room[..], RecvFlags::DONTWAIT) {
                Ok((len, _)) => self.left.lock().extend(read_left(&room[..len])),
                Err(_) => return,
            }
        }
    }

    /// Something has come from the owner.
    fn end_silence(&self, told: &mut Vec<Message>) {
        self.is_silent.store(false, Ordering::Relaxed);
        told.clear();
    }

    fn hear_answer(
        &self,
        told: &mut Vec<Message>,
        (token, max): (u64, usize),
        limit: Option<Duration>,
        ends: &dyn Ends,
    ) -> Option<(Vec<u8>, Option<OwnedFd>)> {
        let begun = Instant::now();
        let mut answer = vec![0; max];
        loop {
            let left = limit.map(|limit| limit.checked_sub(begun.elapsed()));
            if left == Some(None) {
                self.is_silent.store(true, Ordering::Relaxed);
                return None;
            }
            let left = left.flatten();
            let mut fds = [PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN)];
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let _ = rustix::event::poll(&mut fds, timeout.as_ref());
            let place = &mut [IoSliceMut::new(&mut answer)];
            let (len, [pair, file]) = match ends.receive(&self.end, place) {
                Ok((0, came)) => {
                    came.into_iter().flatten().for_each(|it| ends.close(it));
                    return None;
                }
                Ok(received) => {
                    self.end_silence(told);
                    received
                }
                // Behind ECONNRESET, of an owner that has ended with unread messages, come answers.
                Err(
                    rustix::io::Errno::AGAIN
                    | rustix::io::Errno::INTR
                    | rustix::io::Errno::CONNRESET,
                ) => continue,
                Err(_) => return None,
            };
            let is_it = len >= ANSWER_HEAD && answer[1..ANSWER_HEAD] == token.to_le_bytes();
            let (is_answer, given) = match answer[0] {
                GIVEN if is_it => (true, Some(answer[ANSWER_HEAD..len].to_vec())),
                GIVEN_APART if is_it => (true, file.and_then(|file| read_bytes(file).ok())),
                kind => (kind == REFUSED && is_it, None),
            };
            if let Some(given) = given {
                return Some((given, pair));
            }
            // Nobody waits any more for the pair of an earlier request's reply.
            pair.into_iter().for_each(|pair| ends.close(pair));
            if is_answer {
                return None;
            }
            if answer[0] == LEFT {
                self.left.lock().extend(read_left(&answer[..len]));
            }
        }
    }
}

/// Returns what follows the name of a process, which may have any bytes.
fn behind_name(stat: &[u8]) -> Option<String> {
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    Some(String::from_utf8_lossy(&stat[name_ends + 1..]).into_owned())
}

fn after_head<'a>(head: &'a [u8], request: &'a [IoSlice<'_>]) -> Vec<IoSlice<'a>> {
    let request = request.iter().map(|part| &**part);
    iter::once(head).chain(request).map(IoSlice::new).collect()
}

#[cfg(test)]
mod tests;
