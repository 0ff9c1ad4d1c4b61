//! Messages between a child and the steward of its parent, on their SEQPACKET pair.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use slipstack_channel::control::text_file;
use slipstack_channel::{ENVELOPE_LEN, Envelope};
use slipstack_mem::{Descriptor, raised};

use crate::socket::Left;

/// A child's message about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Carries one end of a pair; `amount` is the inode of the other one if its user cannot
    /// announce reads, otherwise 0.
    Take = 1,
    /// The child wants to read; `amount` is a [`ReadRequest`].
    Read = 2,
    /// As `Read`; the steward answers with a byte when it has passed on the present data.
    ReadNow = 3,
    /// The child has closed it unused.
    GiveBack = 4,
    /// `amount`: 1 = no more is read, 2 = no more is written.
    Shut = 5,
    /// Carries an end for a child of the child, which may use the same sockets.
    Branch = 6,
    /// The child would have the connection for itself, and waits for the answer, which names
    /// `token`; for `amount` ms data may be in transit.
    Want = 7,
    /// The child has the connection, on the engine of slot `amount`.
    Have = 8,
    /// The child does not need the connection now.
    Leave = 9,
    /// A call on a datagram socket, or an option of any; a [`Request`](super::requests::Request)
    /// follows. If `amount` is not 0, the call is not begun after that time (nanoseconds).
    Call = 10,
    /// A process that has come by an end of a pair (see [`join`]) names the connection and the
    /// pair.
    Join = 11,
    /// The child passes its end of the pair on to a program that may not be heard; `amount` is not
    /// 0 if that one is to read at once.
    Pass = 12,
    /// The child has closed an end that it has passed on; if `amount` is not 0, it closes one that
    /// has ended, or asks no questions about that.
    Part = 13,
    /// The child wants no more data until it asks again.
    Hold = 14,
    /// The child has closed many unused; their ids follow.
    GiveAllBack = 15,
    /// The child receives from the datagram socket by a part of its own.
    Share = 16,
}

impl MessageKind {
    fn of(byte: u8) -> Option<MessageKind> {
        let all = [
            MessageKind::Take,
            MessageKind::Read,
            MessageKind::ReadNow,
            MessageKind::GiveBack,
            MessageKind::Shut,
            MessageKind::Branch,
            MessageKind::Want,
            MessageKind::Have,
            MessageKind::Leave,
            MessageKind::Call,
            MessageKind::Join,
            MessageKind::Pass,
            MessageKind::Part,
            MessageKind::Hold,
            MessageKind::GiveAllBack,
            MessageKind::Share,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Number of bytes that the child wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadRequest {
    None,
    /// Up to this many bytes, as soon as there are any.
    Some(u64),
    /// Exactly this many bytes (MSG_WAITALL).
    Whole(u64),
    /// All data.
    All,
}

const WHOLE: u64 = 1 << 62;

impl ReadRequest {
    /// Returns the wish of a program that waits for data.
    pub(crate) fn if_reads(reads: bool) -> ReadRequest {
        if reads {
            ReadRequest::All
        } else {
            ReadRequest::None
        }
    }

    fn amount(self) -> u64 {
        match self {
            ReadRequest::None => 0,
            ReadRequest::Some(count) => count.min(WHOLE - 1),
            ReadRequest::Whole(count) => count.min(WHOLE - 1) | WHOLE,
            ReadRequest::All => u64::MAX,
        }
    }

    pub(crate) fn of(amount: u64) -> ReadRequest {
        match amount {
            0 => ReadRequest::None,
            u64::MAX => ReadRequest::All,
            amount if amount & WHOLE != 0 => ReadRequest::Whole(amount & !WHOLE),
            amount => ReadRequest::Some(amount),
        }
    }
}

/// One message of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: MessageKind,
    /// The description's number in the parent.
    pub(crate) id: u64,
    /// Names the pair, from `Take` on.
    pub(crate) token: u64,
    pub(crate) amount: u64,
}

const LEN: usize = 1 + 3 * 8;

impl Message {
    pub(crate) fn read(
        kind: MessageKind,
        (id, token): (u64, u64),
        request: ReadRequest,
    ) -> Message {
        let amount = request.amount();
        Message {
            kind,
            id,
            token,
            amount,
        }
    }

    pub(crate) fn bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0] = self.kind as u8;
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
            kind: MessageKind::of(bytes[0])?,
            id: value(0),
            token: value(1),
            amount: value(2),
        })
    }
}

/// The result of listening to a child.
pub(crate) enum Heard {
    /// A message with the length of the data that followed it.
    Message(Message, usize, Option<OwnedFd>),
    /// An invalid message.
    Noise,
    Nothing,
    /// The child has ended or replaced itself.
    End,
}

/// The steward's end, and the child's.
pub(crate) fn control_pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    Ok((raised(ours).unlisted(), raised(theirs).unlisted()))
}

/// Receives one message of a child; the data that follows it is put into `room`.
pub(crate) fn hear(control: &OwnedFd, room: &mut [u8]) -> Heard {
    let mut bytes = [0; LEN];
    let mut place = [IoSliceMut::new(&mut bytes), IoSliceMut::new(room)];
    let received = match receive_with_end(control, &mut place) {
        // The child has ended with unread replies; what it has said comes behind this error.
        Err(rustix::io::Errno::CONNRESET) => receive_with_end(control, &mut place),
        received => received,
    };
    match received {
        Ok((len @ 1.., end)) => match (Message::parse(&bytes), len.checked_sub(LEN)) {
            (Some(message), Some(rest)) => Heard::Message(message, rest, end),
            _ => Heard::Noise,
        },
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Heard::Nothing,
        _ => Heard::End,
    }
}

/// A byte of a pair which carries a control socket of a process that has come by an end of it, and
/// is no byte of the connection's.
const JOINING: u8 = 0;

/// Sends the steward of the pair which `number` is an end of the other end of a control socket, and
/// returns this one. Fails if the pair has no room.
pub(crate) fn join(number: Descriptor) -> rustix::io::Result<OwnedFd> {
    let (ours, theirs) = control_pair()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let ends = [theirs.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&ends));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let bytes = [IoSlice::new(&[JOINING])];
    rustix::net::sendmsg(number.as_fd(), &bytes, &mut ancillary, flags)?;
    Ok(ours)
}

/// Receives bytes of a pair, or a control socket ([`join`]) behind them, whose byte is not counted.
pub(crate) fn receive_joining(
    end: &OwnedFd,
    room: &mut [u8],
) -> rustix::io::Result<(usize, Option<OwnedFd>)> {
    let (len, control) = receive_with_end(end, &mut [IoSliceMut::new(room)])?;
    let is_control = control.as_ref().is_some_and(|end| {
        rustix::net::sockopt::socket_type(end).is_ok_and(|kind| kind == SocketType::SEQPACKET)
    });
    match is_control {
        true => Ok((len.saturating_sub(1), control)),
        false => Ok((len, None)),
    }
}

/// Receives bytes, and the first descriptor that they carry, without waiting.
fn receive_with_end(
    from: &OwnedFd,
    room: &mut [IoSliceMut<'_>],
) -> rustix::io::Result<(usize, Option<OwnedFd>)> {
    let (len, [end, _]) = receive_with_ends(from, room)?;
    Ok((len, end))
}

/// As [`receive_with_end`]: two descriptors at most.
pub(crate) fn receive_with_ends(
    from: &OwnedFd,
    room: &mut [IoSliceMut<'_>],
) -> rustix::io::Result<(usize, [Option<OwnedFd>; 2])> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(from, room, &mut ancillary, flags)?;
    let ends = ancillary.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut fds) => Some([fds.next(), fds.next()]),
        _ => None,
    });
    Ok((received.bytes, ends.unwrap_or_default()))
}

/// The steward has done what the child waits for.
pub(crate) fn answer(control: &OwnedFd) {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::send(control, &[0], flags);
}

/// The answers to [`MessageKind::Want`] and [`MessageKind::Call`]: a byte, the token, and with
/// the first one the connection or the call's result.
pub(crate) const GIVEN: u8 = 1;
pub(crate) const REFUSED: u8 = 2;
/// Marks a datagram that the owner leaves to a child (not an answer). The socket's number in place
/// of the token, the envelope and the payload follow.
pub(crate) const LEFT: u8 = 3;
/// As [`GIVEN`], with a connection whose bytes are in a file that is the second descriptor.
pub(crate) const GIVEN_APART: u8 = 4;
/// Longest connection that is sent in the answer itself.
const MESSAGE_LEN_MAX: usize = 128 << 10;
pub(crate) const ANSWER_HEAD: usize = 1 + 8;

/// Sends a call's result to the child that waits for it. Returns `false` if it is too long, or the
/// child is gone.
pub(crate) fn give(control: &OwnedFd, token: u64, parts: [&[u8]; 2]) -> bool {
    give_as((GIVEN, token), control, parts, &[])
}

/// Sends a connection to the child that waits for it. `pair` is the end of the pair from which
/// others who have the connection too are served.
pub(crate) fn give_connection(
    control: &OwnedFd,
    token: u64,
    connection: &[u8],
    pair: BorrowedFd<'_>,
) -> bool {
    if connection.len() <= MESSAGE_LEN_MAX {
        return give_as((GIVEN, token), control, [connection, &[]], &[pair]);
    }
    let file = text_file(connection);
    file.is_ok_and(|file| {
        let ends = [pair, file.as_fd()];
        give_as((GIVEN_APART, token), control, [&[], &[]], &ends)
    })
}

fn give_as(
    (kind, token): (u8, u64),
    control: &OwnedFd,
    parts: [&[u8]; 2],
    ends: &[BorrowedFd<'_>],
) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ends.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(ends));
    }
    let mut head = [kind; ANSWER_HEAD];
    head[1..].copy_from_slice(&token.to_le_bytes());
    let parts = [&head, parts[0], parts[1]].map(IoSlice::new);
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(control, &parts, &mut ancillary, flags).is_ok()
}

/// Leaves a datagram of socket `id` to a child. Returns `false` if the child is gone, or has no
/// room.
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

/// Decodes the output of [`leave`].
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
    fn read_requests_round_trip() {
        for request in [
            ReadRequest::None,
            ReadRequest::Some(1),
            ReadRequest::Whole(4096),
            ReadRequest::All,
        ] {
            assert_eq!(ReadRequest::of(request.amount()), request);
        }
    }
    #[test]
    fn a_child_that_ends_without_reading_the_replies_is_heard() {
        let (stewards, childs) = control_pair().unwrap();
        let message = Message::read(MessageKind::Read, (1, 2), ReadRequest::Some(3));
        rustix::net::send(&childs, &message.bytes(), SendFlags::empty()).unwrap();
        answer(&stewards);
        drop(childs);
        let mut room = [0; 64];
        let heard = hear(&stewards, &mut room);
        assert!(matches!(heard, Heard::Message(it, 0, None) if it == message));
        assert!(matches!(hear(&stewards, &mut room), Heard::End));
    }

    #[test]
    fn a_control_socket_is_read_after_the_bytes_sent_before_it() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let (stewards, users) =
            rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::send(&users, b"before", SendFlags::empty()).unwrap();
        let number = Descriptor::give(users);
        let ours = join(number).unwrap();
        rustix::net::send(number.as_fd(), b"after", SendFlags::empty()).unwrap();
        let mut room = [0; 64];
        let (len, control) = receive_joining(&stewards, &mut room).unwrap();
        assert_eq!(&room[..len], b"before");
        answer(&control.unwrap());
        assert_eq!(
            rustix::net::recv(&ours, &mut room[..], RecvFlags::DONTWAIT)
                .unwrap()
                .1,
            1
        );
        let (len, control) = receive_joining(&stewards, &mut room).unwrap();
        assert!(control.is_none());
        assert_eq!(&room[..len], b"after");
        number.close();
        assert!(matches!(
            receive_joining(&stewards, &mut room),
            Ok((0, None))
        ));
    }
}
