//! The plain form of a connection that goes to an engine of another process. It may come from
//! anywhere: lengths and addresses are checked here, the image by the stack.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use slipstack_channel::{Reason, State, UrgentAhead};
use slipstack_stack::ConnectionImage;

/// Received bytes that go along at most: as many as the largest ring has.
pub(super) const BYTES_MAX: usize = 1 << slipstack_mem::RING_LOG2_MAX;
/// The first word of a connection that a stack is to adopt.
const MAGIC: u64 = u64::from_le_bytes(*b"slipcon2");
/// The first word of one that has ended.
const MAGIC_ENDED: u64 = u64::from_le_bytes(*b"slipend2");

/// Bits of a socket's state that hold wherever it is.
const CARRIED: [State; 7] = [
    State::CONNECTED,
    State::BOUND,
    State::FIN,
    State::RDHUP,
    State::SHUT,
    State::HUP,
    State::CLOSED,
];

/// A connection on its way.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(super) place: Whereabouts,
    pub(super) state: State,
    /// The error that ended it.
    pub(super) reason: Option<Reason>,
    pub(super) urgent: UrgentAhead,
    /// Received, and not read.
    pub(super) bytes: Vec<u8>,
}

/// The place of a connection on its way.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// In transit between two stacks.
    Transit(Box<ConnectionImage>),
    /// No stack's any more, because it has ended: local, remote.
    Nowhere(SocketAddr, SocketAddr),
}

impl Carried {
    /// Returns the bits of its state that hold wherever it is.
    pub(super) fn bits(&self) -> State {
        let bits = CARRIED.into_iter();
        let bits = bits.filter(|bit| self.state.contains(*bit));
        bits.fold(State::NONE, |all, bit| all | bit)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let bits = (0..)
            .zip(CARRIED)
            .filter(|(_, bit)| self.state.contains(*bit));
        let bits: u64 = bits.map(|(at, _)| 1 << at).sum();
        let mut all = Vec::with_capacity(16 + ConnectionImage::LEN + self.bytes.len());
        match &self.place {
            Whereabouts::Transit(image) => {
                all.extend(MAGIC.to_le_bytes());
                all.extend(bits.to_le_bytes());
                all.extend(image.to_bytes());
            }
            Whereabouts::Nowhere(local, remote) => {
                all.extend(MAGIC_ENDED.to_le_bytes());
                all.extend(bits.to_le_bytes());
                all.push(self.reason.map_or(0, Reason::code));
                put_addr(&mut all, *local);
                put_addr(&mut all, *remote);
            }
        }
        all.extend(self.urgent.to_bytes());
        all.extend(&self.bytes);
        all
    }

    /// Returns `None` if these are no connection's bytes.
    pub(super) fn from_bytes(all: &[u8]) -> Option<Carried> {
        let (magic, rest) = all.split_first_chunk()?;
        let (bits, rest) = rest.split_first_chunk()?;
        let bits = u64::from_le_bytes(*bits);
        let state = (0..).zip(CARRIED).filter(|(at, _)| bits >> at & 1 == 1);
        let state = state.fold(State::NONE, |all, (_, bit)| all | bit);
        let is_ended = state.contains(State::CLOSED);
        let (place, reason, rest) = match u64::from_le_bytes(*magic) {
            MAGIC if !is_ended => {
                let (image, rest) = rest.split_first_chunk()?;
                let image = ConnectionImage::from_bytes(image);
                (Whereabouts::Transit(Box::new(image)), None, rest)
            }
            MAGIC_ENDED if is_ended => {
                let ([reason], rest) = rest.split_first_chunk()?;
                let (local, rest) = split_addr(rest)?;
                let (remote, rest) = split_addr(rest)?;
                let reason = match reason {
                    0 => None,
                    code => Some(Reason::from_code(*code)?),
                };
                (Whereabouts::Nowhere(local, remote), reason, rest)
            }
            _ => return None,
        };
        let (urgent, bytes) = UrgentAhead::split(rest)?;
        (bytes.len() <= BYTES_MAX).then(|| Carried {
            place,
            state,
            reason,
            urgent,
            bytes: bytes.to_vec(),
        })
    }

    /// Returns the connection with these bytes before those that were not read. `None`: so many
    /// have not come.
    pub(crate) fn after(&self, mut unread: Vec<u8>) -> Option<Box<Carried>> {
        let count = unread.len() as u64;
        let place = match &self.place {
            Whereabouts::Transit(image) => {
                Whereabouts::Transit(Box::new(image.with_unread(count)?))
            }
            Whereabouts::Nowhere(..) => return None,
        };
        // A new mark makes a former urgent byte one of the stream, unless it is the next one to be
        // read (Linux: tcp_check_urg).
        let urgent = UrgentAhead {
            mark: self.urgent.mark.map(|(at, byte)| (at + count, byte)),
            skips_first: self.urgent.skips_first && count == 0,
        };
        unread.extend_from_slice(&self.bytes);
        Some(Box::new(Carried {
            place,
            state: self.state,
            reason: self.reason,
            urgent,
            bytes: unread,
        }))
    }

    /// Returns the ends of a connection whose frames are to go where it is.
    pub(super) fn endpoints(&self) -> Option<(SocketAddr, SocketAddr)> {
        match &self.place {
            Whereabouts::Transit(image) => image.endpoints(),
            Whereabouts::Nowhere(..) => None,
        }
    }
}

fn put_addr(all: &mut Vec<u8>, addr: SocketAddr) {
    let ip = match addr.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    all.extend(ip.octets());
    all.extend(addr.port().to_le_bytes());
}

fn split_addr(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (ip, rest) = bytes.split_first_chunk::<16>()?;
    let (port, rest) = rest.split_first_chunk()?;
    let ip = Ipv6Addr::from(*ip).to_canonical();
    Some((SocketAddr::new(ip, u16::from_le_bytes(*port)), rest))
}

/// Returns the part before the received bytes of a connection that does not come from another
/// engine ([`slipstack_channel::Driver::carry_in`]).
pub fn carried_head(image: ConnectionImage, has_fin: bool) -> Vec<u8> {
    let end = match has_fin {
        true => State::FIN | State::RDHUP,
        false => State::NONE,
    };
    let carried = Carried {
        place: Whereabouts::Transit(Box::new(image)),
        state: State::CONNECTED | State::BOUND | end,
        reason: None,
        urgent: UrgentAhead::default(),
        bytes: Vec::new(),
    };
    carried.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Farther than a mark may be.
    const MARK_MAX: u64 = 1 << 40;

    #[test]
    fn a_connection_that_moves_to_another_process_keeps_its_state() {
        let carried = Carried {
            place: Whereabouts::Transit(image()),
            state: State::CONNECTED | State::FIN,
            reason: None,
            urgent: UrgentAhead {
                mark: Some((MARK_MAX - 1, Some(0xfe))),
                skips_first: true,
            },
            bytes: b"received".to_vec(),
        };
        is_kept(&carried, 16 + ConnectionImage::LEN + 10);
        assert!(Carried::from_bytes(&[0; 1000]).is_none());
    }

    #[test]
    fn a_connection_that_has_ended_keeps_its_ends_its_error_and_its_bytes() {
        let remote = SocketAddr::from((Ipv6Addr::LOCALHOST, 0xabcd));
        for reason in [None, Some(Reason::Reset)] {
            let carried = Carried {
                place: Whereabouts::Nowhere(SocketAddr::from(([10, 0, 0, 1], 80)), remote),
                state: State::CONNECTED | State::FIN | State::HUP | State::CLOSED,
                reason,
                urgent: UrgentAhead {
                    mark: Some((7, None)),
                    skips_first: false,
                },
                bytes: b"received".to_vec(),
            };
            is_kept(&carried, 16 + 1 + 2 * 18 + 10);
        }
    }

    #[test]
    fn a_connection_that_has_ended_without_saying_so_is_refused() {
        let ends = SocketAddr::from(([10, 0, 0, 1], 80));
        let mut carried = Carried {
            place: Whereabouts::Nowhere(ends, ends),
            state: State::CONNECTED,
            reason: None,
            urgent: UrgentAhead::default(),
            bytes: Vec::new(),
        };
        assert!(Carried::from_bytes(&carried.to_bytes()).is_none());
        carried.state = State::CONNECTED | State::CLOSED;
        assert!(Carried::from_bytes(&carried.to_bytes()).is_some());
        carried.urgent.mark = Some((MARK_MAX, None));
        assert!(
            Carried::from_bytes(&carried.to_bytes()).is_none(),
            "too far"
        );
        carried.urgent.mark = None;
        carried.place = Whereabouts::Transit(image());
        assert!(Carried::from_bytes(&carried.to_bytes()).is_none());
    }

    fn image() -> Box<ConnectionImage> {
        Box::new(ConnectionImage::from_bytes(&[7; ConnectionImage::LEN]))
    }

    fn is_kept(carried: &Carried, head: usize) {
        let bytes = carried.to_bytes();
        let came = Carried::from_bytes(&bytes).unwrap();
        assert_eq!(came.place, carried.place);
        assert_eq!((came.state, came.reason), (carried.state, carried.reason));
        assert_eq!(came.urgent, carried.urgent);
        assert_eq!(came.bytes, carried.bytes);
        for len in 0..head {
            assert!(Carried::from_bytes(&bytes[..len]).is_none(), "{len}");
        }
    }
}
