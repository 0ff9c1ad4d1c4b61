//! Events from an engine to a program: one word each.

use crate::ids::{GENERATION_MASK, SockId};

/// An event of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Something about the socket changed. At most one of these is outstanding per socket; a change
    /// after it was taken raises a new one.
    Changed,
    /// A new connection of this listener; also stands for its first change.
    Accepted { listener: SockId },
    /// The engine has released a closed socket.
    Released,
    /// The engine has taken an unaccepted connection back from this listener and given it to
    /// another one. New connections go there too, until [`crate::Command::Resume`].
    Withdrawn { listener: SockId },
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelEvent {
    pub sock: SockId,
    pub kind: EventKind,
}

const CHANGED: u64 = 1;
const ACCEPTED: u64 = 2;
const RELEASED: u64 = 3;

/// An event in its encoded form; it names the listener only by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RawEvent {
    Changed { sock: SockId },
    Accepted { sock: SockId, listener: u16 },
    Released { sock: SockId },
}

impl RawEvent {
    #[inline]
    pub(crate) fn encode(self) -> u64 {
        let word = |kind: u64, sock: SockId, listener: u16| {
            kind | u64::from(sock.index as u16) << 4
                | u64::from(listener) << 20
                | u64::from(sock.generation & GENERATION_MASK) << 36
        };
        match self {
            RawEvent::Changed { sock } => word(CHANGED, sock, 0),
            RawEvent::Accepted { sock, listener } => word(ACCEPTED, sock, listener),
            RawEvent::Released { sock } => word(RELEASED, sock, 0),
        }
    }

    #[inline]
    pub(crate) fn decode(word: u64) -> Option<RawEvent> {
        let sock = SockId {
            index: u32::from((word >> 4) as u16),
            generation: (word >> 36) as u32,
        };
        Some(match word & 15 {
            CHANGED => RawEvent::Changed { sock },
            ACCEPTED => RawEvent::Accepted {
                sock,
                listener: (word >> 20) as u16,
            },
            RELEASED => RawEvent::Released { sock },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_round_trips() {
        let sock = SockId {
            index: 32_767,
            generation: GENERATION_MASK,
        };
        for event in [
            RawEvent::Changed { sock },
            RawEvent::Accepted {
                sock,
                listener: 16_383,
            },
            RawEvent::Released { sock },
        ] {
            assert_eq!(RawEvent::decode(event.encode()), Some(event));
        }
        assert_eq!(RawEvent::decode(0), None);
    }
}
