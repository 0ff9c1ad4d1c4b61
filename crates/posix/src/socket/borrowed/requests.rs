//! Calls that a child has the steward of its parent make on a socket that lives there, and their
//! results.

use crate::errno::Errno;

/// Bytes of an address and of control messages at most.
pub(crate) const NAME_MAX: usize = 28;
pub(crate) const CONTROL_MAX: usize = 2048;
/// Longest option: a filter of so many instructions of eight bytes.
pub(crate) const OPTION_MAX: usize = 512 * 8;

/// A call's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `name` has the option's value; `numbers` are its level and name.
    SetOption = 1,
    /// `numbers`: flags.
    Send = 2,
    /// `numbers`: flags, and the requested length.
    Receive = 3,
    Connect = 4,
    /// `numbers`: how.
    Shutdown = 5,
    /// SO_ERROR. Of a connection the flags say that no error will come any more, as of the other
    /// calls [of its end](Call::is_of_end).
    TakeError = 6,
    /// Asks for the options that were set.
    Options = 7,
    /// Events of poll(2). `numbers[0]` != 0: what is there is notified once more.
    Readiness = 8,
    /// Bytes that a connection's owner has received and not passed on.
    Unread = 9,
    /// SO_PEEK_OFF.
    PeekOffset = 10,
    /// A write of no bytes on a connection: the length is its error.
    MayWrite = 11,
    /// A read on a connection of which all bytes have been read: the length is its error.
    EndOfReading = 12,
}

impl Call {
    fn of(byte: u8) -> Option<Call> {
        let all = [
            Call::SetOption,
            Call::Send,
            Call::Receive,
            Call::Connect,
            Call::Shutdown,
            Call::TakeError,
            Call::Options,
            Call::Readiness,
            Call::Unread,
            Call::PeekOffset,
            Call::MayWrite,
            Call::EndOfReading,
        ];
        all.into_iter().find(|call| *call as u8 == byte)
    }

    /// Whether it tells a user of a connection how that has ended.
    pub(crate) fn is_of_end(self) -> bool {
        matches!(self, Call::TakeError | Call::MayWrite | Call::EndOfReading)
    }
}

/// A call with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub(crate) call: Call,
    pub(crate) numbers: [i32; 2],
    /// An address, or an option's value.
    pub(crate) name: Option<&'a [u8]>,
    /// Control messages, or room for as many bytes of them.
    pub(crate) control: &'a [u8],
}

const HEAD: usize = 2 + 2 * 2 + 2 * 4;

impl<'a> Request<'a> {
    pub(crate) fn new(call: Call, numbers: [i32; 2]) -> Request<'a> {
        Request {
            call,
            numbers,
            name: None,
            control: &[],
        }
    }

    /// Returns the prefix of name, control messages and data.
    pub(crate) fn head(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[0] = self.call as u8;
        head[1] = u8::from(self.name.is_some());
        let name_len = self.name.map_or(0, <[u8]>::len) as u16;
        head[2..4].copy_from_slice(&name_len.to_le_bytes());
        head[4..6].copy_from_slice(&(self.control.len() as u16).to_le_bytes());
        head[6..10].copy_from_slice(&self.numbers[0].to_le_bytes());
        head[10..].copy_from_slice(&self.numbers[1].to_le_bytes());
        head
    }

    /// Returns the request and the data behind it.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<(Request<'a>, &'a [u8])> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let length = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let number = |at: usize| head[at..at + 4].try_into().map(i32::from_le_bytes).ok();
        let (name, rest) = rest.split_at_checked(length(2))?;
        let (control, data) = rest.split_at_checked(length(4))?;
        let request = Request {
            call: Call::of(head[0])?,
            numbers: [number(6)?, number(10)?],
            name: (head[1] != 0).then_some(name),
            control,
        };
        Some((request, data))
    }
}

/// The result of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    /// 0 = none.
    pub(crate) error: i32,
    pub(crate) len: usize,
    pub(crate) flags: i32,
    pub(crate) name: Option<Vec<u8>>,
    pub(crate) control: Vec<u8>,
    /// The child may take the socket over.
    pub(crate) is_free: bool,
    /// Number of the last notification that is of nothing any more; 0 = none.
    pub(crate) signs: u64,
}

const REPLY_HEAD: usize = 4 + 4 + 4 + 2 + 2 + 1 + 8;
/// Longest result without its data.
pub(crate) const REPLY_MAX: usize = REPLY_HEAD + NAME_MAX + CONTROL_MAX;

impl Reply {
    pub(crate) fn refused(error: Errno) -> Reply {
        Reply {
            error: error.0,
            ..Reply::default()
        }
    }

    pub(crate) fn of_len(len: usize) -> Reply {
        Reply {
            len,
            ..Reply::default()
        }
    }

    /// Returns the prefix of the data.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(REPLY_MAX);
        bytes.extend_from_slice(&self.error.to_le_bytes());
        bytes.extend_from_slice(&(self.len as u32).to_le_bytes());
        bytes.extend_from_slice(&self.flags.to_le_bytes());
        let name = self.name.as_deref().unwrap_or_default();
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(self.control.len() as u16).to_le_bytes());
        bytes.push(u8::from(self.is_free));
        bytes.extend_from_slice(&self.signs.to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&self.control);
        bytes
    }

    /// Returns the result and the data behind it.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Reply, &[u8])> {
        let (head, rest) = bytes.split_at_checked(REPLY_HEAD)?;
        let word = |at: usize| head[at..at + 4].try_into().map(u32::from_le_bytes).ok();
        let length = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let (name, rest) = rest.split_at_checked(length(12))?;
        let (control, data) = rest.split_at_checked(length(14))?;
        let reply = Reply {
            error: word(0)?.cast_signed(),
            len: word(4)? as usize,
            flags: word(8)?.cast_signed(),
            name: (!name.is_empty()).then(|| name.to_vec()),
            control: control.to_vec(),
            is_free: head[16] != 0,
            signs: head[17..].try_into().map(u64::from_le_bytes).ok()?,
        };
        Some((reply, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_and_its_result_are_read_as_they_were_written() {
        let request = Request {
            name: Some(b"name"),
            control: b"control",
            ..Request::new(Call::Send, [libc::MSG_MORE, -1])
        };
        let parts = [&request.head()[..], b"name", b"control", b"data"];
        let bytes = parts.concat();
        assert_eq!(Request::parse(&bytes), Some((request, &b"data"[..])));
        assert_eq!(Request::parse(&bytes[..HEAD + 5]), None);
        let reply = Reply {
            error: libc::EAGAIN,
            len: 70_000,
            flags: libc::MSG_TRUNC,
            name: Some(vec![2; 16]),
            control: vec![7; 300],
            is_free: true,
            signs: u64::MAX - 1,
        };
        let bytes = [&reply.bytes()[..], b"data"].concat();
        assert_eq!(Reply::parse(&bytes), Some((reply, &b"data"[..])));
        assert_eq!(Reply::parse(&bytes[..20]), None);
    }
}
