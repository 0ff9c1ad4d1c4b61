//! Messages between a child and the steward of its parent, on a SEQPACKET pair of theirs.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use slipstack_mem::{Lock, raised};

use crate::errno::Errno;

/// How long a call that may not block waits for the steward to look.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(100);

/// How long a call waits for a connection that it would have for itself: far longer than it takes.
const GIFT_TIMEOUT: Duration = Duration::from_secs(1);

/// A child's message about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Carries one end of a pair; `amount` is not 0 if nobody will say that it reads.
    Take = 1,
    /// The child wants to read; `amount` is a [`Wish`].
    Read = 2,
    /// As `Read`; the steward answers with a byte when it has passed on what there is.
    ReadNow = 3,
    /// The child has closed it unused.
    GiveBack = 4,
    /// `amount`: 1 = no more is read, 2 = no more is written.
    Shut = 5,
    /// Carries an end for a child of the child, which may use what the child may.
    Branch = 6,
    /// The child would have the connection for itself, and waits for the answer, which names
    /// `token`.
    Want = 7,
    /// It has it, on the engine of slot `amount`.
    Have = 8,
    /// It has no use for it now.
    Leave = 9,
    /// The child has set an option; see [`Message::option`].
    Option = 10,
}

impl Word {
    fn of(byte: u8) -> Option<Word> {
        let all = [
            Word::Take,
            Word::Read,
            Word::ReadNow,
            Word::GiveBack,
            Word::Shut,
            Word::Branch,
            Word::Want,
            Word::Have,
            Word::Leave,
            Word::Option,
        ];
        all.into_iter().find(|word| *word as u8 == byte)
    }
}

/// How many bytes the child wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    None,
    /// As one call would receive: up to so many, at once when there are any.
    Some(u64),
    /// So many, however they come (MSG_WAITALL).
    Whole(u64),
    /// Whatever comes.
    All,
}

const WHOLE: u64 = 1 << 62;

impl Wish {
    /// Returns the wish of a program that waits until there is something.
    pub(crate) fn if_reads(reads: bool) -> Wish {
        if reads { Wish::All } else { Wish::None }
    }

    fn amount(self) -> u64 {
        match self {
            Wish::None => 0,
            Wish::Some(count) => count.min(WHOLE - 1),
            Wish::Whole(count) => count.min(WHOLE - 1) | WHOLE,
            Wish::All => u64::MAX,
        }
    }

    pub(crate) fn of(amount: u64) -> Wish {
        match amount {
            0 => Wish::None,
            u64::MAX => Wish::All,
            amount if amount & WHOLE != 0 => Wish::Whole(amount & !WHOLE),
            amount => Wish::Some(amount),
        }
    }
}

/// One message of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) word: Word,
    /// The description's number in the parent.
    pub(crate) id: u64,
    /// Names the pair, from `Take` on.
    pub(crate) token: u64,
    pub(crate) amount: u64,
}

const LEN: usize = 1 + 3 * 8;

impl Message {
    pub(crate) fn read(word: Word, (id, token): (u64, u64), wish: Wish) -> Message {
        let amount = wish.amount();
        Message {
            word,
            id,
            token,
            amount,
        }
    }

    /// An option of level and name, each of 16 bits, whose value has so many of the eight bytes.
    /// `None`: it is longer.
    pub(crate) fn option(id: u64, (level, name): (i32, i32), value: &[u8]) -> Option<Message> {
        let (level, name) = (u16::try_from(level).ok()?, u16::try_from(name).ok()?);
        let mut amount = [0; 8];
        amount.get_mut(..value.len())?.copy_from_slice(value);
        Some(Message {
            word: Word::Option,
            id,
            token: u64::from(level) | u64::from(name) << 16 | (value.len() as u64) << 32,
            amount: u64::from_le_bytes(amount),
        })
    }

    /// Returns level, name, and value of such an option with its length.
    pub(crate) fn as_option(self) -> ((i32, i32), [u8; 8], usize) {
        let [level, name] = [0, 16].map(|by| (self.token >> by & 0xffff) as i32);
        let len = (self.token >> 32).min(8) as usize;
        ((level, name), self.amount.to_le_bytes(), len)
    }

    fn bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0] = self.word as u8;
        for (place, value) in [self.id, self.token, self.amount].into_iter().enumerate() {
            let at = 1 + place * 8;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8; LEN]) -> Option<Message> {
        let value = |place: usize| {
            let at = 1 + place * 8;
            u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
        };
        Some(Message {
            word: Word::of(bytes[0])?,
            id: value(0),
            token: value(1),
            amount: value(2),
        })
    }
}

/// The result of listening to a child.
pub(crate) enum Heard {
    Message(Message, Option<OwnedFd>),
    /// It makes no sense.
    Noise,
    Nothing,
    /// It has ended or replaced itself.
    End,
}

/// The steward's end, and the child's.
pub(crate) fn control_pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    Ok((raised(ours), raised(theirs)))
}

/// Takes one message of a child.
pub(crate) fn hear(control: &OwnedFd) -> Heard {
    let mut bytes = [0; LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut place = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    match rustix::net::recvmsg(control, &mut place, &mut ancillary, flags) {
        Ok(received) if received.bytes > 0 => {
            let end = ancillary.drain().find_map(|part| match part {
                RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                _ => None,
            });
            match Message::parse(&bytes).filter(|_| received.bytes == LEN) {
                Some(message) => Heard::Message(message, end),
                None => Heard::Noise,
            }
        }
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Heard::Nothing,
        _ => Heard::End,
    }
}

/// The steward has done what the child waits for.
pub(crate) fn answer(control: &OwnedFd) {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::send(control, &[0], flags);
}

/// The answers to [`Word::Want`]: a byte, the token, and with the first one the connection.
const GIVEN: u8 = 1;
const REFUSED: u8 = 2;
const ANSWER_HEAD: usize = 1 + 8;
/// Longer than any of them.
const ANSWER_MAX: usize = 192 << 10;

/// Sends a connection to the child that wants it. `false`: it is too long, or the child is gone.
pub(crate) fn give(control: &OwnedFd, token: u64, connection: &[u8]) -> bool {
    let mut head = [GIVEN; ANSWER_HEAD];
    head[1..].copy_from_slice(&token.to_le_bytes());
    let parts = [IoSlice::new(&head), IoSlice::new(connection)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut none = SendAncillaryBuffer::default();
    rustix::net::sendmsg(control, &parts, &mut none, flags).is_ok()
}

/// The connection stays where it is.
pub(crate) fn refuse(control: &OwnedFd, token: u64) {
    let mut head = [REFUSED; ANSWER_HEAD];
    head[1..].copy_from_slice(&token.to_le_bytes());
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::send(control, &head, flags);
}

/// A child's end.
#[derive(Debug)]
pub(crate) struct Control {
    end: OwnedFd,
    /// Taken while an answer is awaited.
    turn: Lock<()>,
}

impl Control {
    pub(crate) fn new(end: OwnedFd) -> Control {
        Control {
            end,
            turn: Lock::new(()),
        }
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

    /// Says it and waits, for a while, until the steward has acted on it.
    pub(crate) fn ask(&self, message: Message) -> Result<(), Errno> {
        let _turn = self.turn.lock();
        let mut answer = [0; 1];
        // Answers that came too late.
        while matches!(
            rustix::net::recv(&self.end, &mut answer, RecvFlags::DONTWAIT),
            Ok((1.., _))
        ) {}
        self.say(message, None)?;
        let mut fds = [PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN)];
        let timeout = Timespec::try_from(ANSWER_TIMEOUT).unwrap_or_default();
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
        Ok(())
    }

    /// Asks for a connection ([`Word::Want`]). `None`: it stays, or the steward has no time.
    pub(crate) fn ask_for(&self, message: Message) -> Option<Vec<u8>> {
        let _turn = self.turn.lock();
        self.say(message, None).ok()?;
        let begun = Instant::now();
        let mut answer = vec![0; ANSWER_MAX];
        loop {
            let left = GIFT_TIMEOUT.checked_sub(begun.elapsed())?;
            let mut fds = [PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN)];
            let timeout = Timespec::try_from(left).ok()?;
            let _ = rustix::event::poll(&mut fds, Some(&timeout));
            let len = match rustix::net::recv(&self.end, &mut answer, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return None,
                Ok((_, len)) => len.min(answer.len()),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => continue,
                Err(_) => return None,
            };
            let is_it = len >= ANSWER_HEAD && answer[1..ANSWER_HEAD] == message.token.to_le_bytes();
            match answer[0] {
                GIVEN if is_it => return Some(answer[ANSWER_HEAD..len].to_vec()),
                REFUSED if is_it => return None,
                // To something that was asked before.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_as_it_was_said() {
        let (ours, theirs) = control_pair().unwrap();
        let control = Control::new(theirs);
        let said = Message {
            word: Word::Shut,
            id: 7,
            token: u64::MAX - 1,
            amount: 2,
        };
        control.say(said, None).unwrap();
        let (told, _end) = control_pair().unwrap();
        control.say(said, Some(told.as_fd())).unwrap();
        assert!(matches!(hear(&ours), Heard::Message(it, None) if it == said));
        assert!(matches!(hear(&ours), Heard::Message(it, Some(_)) if it == said));
        assert!(matches!(hear(&ours), Heard::Nothing));
        rustix::net::send(&control.end, b"what?", SendFlags::empty()).unwrap();
        assert!(matches!(hear(&ours), Heard::Noise));
        drop(control);
        assert!(matches!(hear(&ours), Heard::End));
    }

    #[test]
    fn a_wish_is_read_as_it_was_made() {
        for wish in [Wish::None, Wish::Some(1), Wish::Whole(4096), Wish::All] {
            assert_eq!(Wish::of(wish.amount()), wish);
        }
    }

    #[test]
    fn an_option_is_read_as_it_was_set() {
        let linger = [1, 0, 0, 0, 9, 0, 0, 0];
        let message = Message::option(7, (libc::SOL_SOCKET, libc::SO_LINGER), &linger).unwrap();
        let read = Message::parse(&message.bytes()).unwrap().as_option();
        assert_eq!(read, ((libc::SOL_SOCKET, libc::SO_LINGER), linger, 8));
        let one = Message::option(7, (libc::IPPROTO_TCP, 1), &[1, 0, 0, 0]).unwrap();
        assert_eq!(
            one.as_option(),
            ((libc::IPPROTO_TCP, 1), [1, 0, 0, 0, 0, 0, 0, 0], 4)
        );
        assert_eq!(Message::option(7, (0, 0), &[0; 9]), None);
    }

    #[test]
    fn who_asks_goes_on_when_there_is_an_answer() {
        let (ours, theirs) = control_pair().unwrap();
        let control = Control::new(theirs);
        answer(&ours);
        answer(&ours);
        let message = Message {
            word: Word::ReadNow,
            id: 1,
            token: 1,
            amount: Wish::All.amount(),
        };
        std::thread::scope(|scope| {
            let asker = scope.spawn(|| control.ask(message));
            loop {
                if let Heard::Message(..) = hear(&ours) {
                    break;
                }
                std::thread::yield_now();
            }
            answer(&ours);
            assert_eq!(asker.join().unwrap(), Ok(()));
        });
    }
}
