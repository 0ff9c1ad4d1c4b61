//! Messages between a child and the steward of its parent, on their SEQPACKET pair.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendFlags, SocketFlags, SocketType,
};
use slipstack_channel::{ENVELOPE_LEN, Envelope};
use slipstack_mem::raised;

use crate::socket::Left;

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
    /// A call on a datagram socket, or an option of any; a [`Request`](super::requests::Request)
    /// follows.
    Call = 10,
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
            Word::Call,
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

    pub(crate) fn bytes(self) -> [u8; LEN] {
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
    /// With the length of what followed it.
    Message(Message, usize, Option<OwnedFd>),
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

/// Takes one message of a child; what follows it is put into `room`.
pub(crate) fn hear(control: &OwnedFd, room: &mut [u8]) -> Heard {
    let mut bytes = [0; LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut place = [IoSliceMut::new(&mut bytes), IoSliceMut::new(room)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    match rustix::net::recvmsg(control, &mut place, &mut ancillary, flags) {
        Ok(received) if received.bytes > 0 => {
            let end = ancillary.drain().find_map(|part| match part {
                RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                _ => None,
            });
            match (Message::parse(&bytes), received.bytes.checked_sub(LEN)) {
                (Some(message), Some(rest)) => Heard::Message(message, rest, end),
                _ => Heard::Noise,
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

/// The answers to [`Word::Want`] and [`Word::Call`]: a byte, the token, and with the first one the
/// connection or the call's result.
pub(crate) const GIVEN: u8 = 1;
pub(crate) const REFUSED: u8 = 2;
/// Not an answer: a datagram that the owner leaves to a child. The socket's number in place of the
/// token, the envelope and the payload follow.
pub(crate) const LEFT: u8 = 3;
pub(crate) const ANSWER_HEAD: usize = 1 + 8;

/// Sends a connection, or a call's result, to the child that waits for it. `false`: it is too
/// long, or the child is gone.
pub(crate) fn give(control: &OwnedFd, token: u64, parts: [&[u8]; 2]) -> bool {
    let mut head = [GIVEN; ANSWER_HEAD];
    head[1..].copy_from_slice(&token.to_le_bytes());
    let parts = [&head, parts[0], parts[1]].map(IoSlice::new);
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut none = SendAncillaryBuffer::default();
    rustix::net::sendmsg(control, &parts, &mut none, flags).is_ok()
}

/// Leaves a datagram of socket `id` to a child. `false`: it is gone, or has no room.
pub(crate) fn leave(control: &OwnedFd, id: u64, datagram: &Left) -> bool {
    let mut head = [LEFT; ANSWER_HEAD];
    head[1..].copy_from_slice(&id.to_le_bytes());
    let (envelope, bytes) = datagram.parts();
    let envelope = envelope.to_bytes(bytes.len());
    let parts = [&head[..], &envelope, bytes].map(IoSlice::new);
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut none = SendAncillaryBuffer::default();
    rustix::net::sendmsg(control, &parts, &mut none, flags).is_ok()
}

/// Reads what [`leave`] has written.
pub(crate) fn read_left(message: &[u8]) -> Option<(u64, Left)> {
    let (head, rest) = message.split_first_chunk::<ANSWER_HEAD>()?;
    let (envelope, bytes) = rest.split_first_chunk::<ENVELOPE_LEN>()?;
    let id = u64::from_le_bytes(head[1..].try_into().ok()?);
    let (envelope, _) = Envelope::from_bytes(envelope).filter(|_| head[0] == LEFT)?;
    Some((id, Left::new(envelope, bytes.to_vec())?))
}

/// The connection stays where it is.
pub(crate) fn refuse(control: &OwnedFd, token: u64) {
    let mut head = [REFUSED; ANSWER_HEAD];
    head[1..].copy_from_slice(&token.to_le_bytes());
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::send(control, &head, flags);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_read_as_it_was_made() {
        for wish in [Wish::None, Wish::Some(1), Wish::Whole(4096), Wish::All] {
            assert_eq!(Wish::of(wish.amount()), wish);
        }
    }
}
