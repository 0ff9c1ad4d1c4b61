//! Messages in the inboxes of engines and keeper.
//!
//! Each message begins with a header of eight bytes:
//!
//! ```text
//! 0   kind (u8), version (u8)
//! 2   number of the slot that it comes from, of the link that a frame came by, or a port (u16)
//! 4   length of what follows (u32)
//! ```
//!
//! [`InboxMessage::parse`] refuses a message whose kind or version it does not know, or whose
//! length is not what the inbox holds. The reader matches the kinds exhaustively.

use std::net::{IpAddr, Ipv6Addr};

use crate::passing::{Passed, PassingHead};

/// Version of the header and of every body; a reader takes no other.
const VERSION: u8 = 5;
/// Length of the header.
pub const INBOX_HEADER_LEN: usize = 8;
/// Length of the prefix of a stray frame: the header, and the frame's link.
pub const INBOX_STRAY_LEN: usize = INBOX_HEADER_LEN + 2;

const FRAME: u8 = 1;
const STRAY: u8 = 2;
const PASSING: u8 = 3;
const GROUP: u8 = 4;
const NETWORK_CHANGED: u8 = 5;
const INQUIRY: u8 = 6;
const CHOSEN: u8 = 7;
const CHOOSERS: u8 = 8;

/// One message in an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboxMessage<'a> {
    /// An Ethernet frame for the reader's stack, with its link ([`slipstack_wire::LinkId`]).
    Frame { link: u16, frame: &'a [u8] },
    /// A frame with a datagram that the program of a SO_REUSEPORT group has chosen the socket of
    /// this rank for.
    Chosen {
        link: u16,
        rank: u64,
        frame: &'a [u8],
    },
    /// A frame that reached the engine of `slot`, which has no socket for it. Goes to the keeper.
    Stray {
        slot: u16,
        link: u16,
        frame: &'a [u8],
    },
    /// Part of a connection that changes its engine before a program has accepted it.
    Passing(PassingHead, Passed<'a>),
    /// An engine's membership in a multicast group. Goes to the keeper.
    Group(SlotGroup),
    /// The keeper has published a new network, which the engine fetches.
    NetworkChanged,
    /// The BPF programs of a UDP port, or the sockets they choose from, have changed; the engine
    /// fetches them.
    ChoosersChanged { port: u16 },
    /// An operator's inquiry, which the engine fetches.
    Inquiry,
}

/// The membership of one slot's engine in one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotGroup {
    pub slot: u16,
    pub group: IpAddr,
    /// The link on which it is a member.
    pub link: u16,
    /// All sources but the listed ones; else only these.
    pub is_exclude: bool,
    pub sources: Vec<IpAddr>,
}

/// Reason why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxError {
    /// Shorter than a header, or the header gives another length than there is.
    Length,
    Version(u8),
    Kind(u8),
    /// The body is none of its kind.
    Body,
}

impl<'a> InboxMessage<'a> {
    /// Returns the header of a message with a frame of `len` bytes, which follows.
    pub fn frame_header(link: u16, len: usize) -> [u8; INBOX_HEADER_LEN] {
        header(FRAME, link, len)
    }

    /// Passes the message in parts to `push`, frames without a copy.
    #[inline]
    pub fn put(&self, push: impl FnOnce(&[&[u8]]) -> bool) -> bool {
        match self {
            InboxMessage::Frame { link, frame } => {
                push(&[&header(FRAME, *link, frame.len()), frame])
            }
            InboxMessage::Chosen { link, rank, frame } => {
                let rank = rank.to_le_bytes();
                push(&[
                    &header(CHOSEN, *link, rank.len() + frame.len()),
                    &rank,
                    frame,
                ])
            }
            InboxMessage::Stray { slot, link, frame } => {
                let link = link.to_le_bytes();
                push(&[
                    &header(STRAY, *slot, link.len() + frame.len()),
                    &link,
                    frame,
                ])
            }
            InboxMessage::Passing(head, passed) => {
                let body = crate::passing::write(head, *passed);
                push(&[&header(PASSING, 0, body.len()), &body])
            }
            InboxMessage::Group(group) => {
                let body = group.write();
                push(&[&header(GROUP, group.slot, body.len()), &body])
            }
            InboxMessage::NetworkChanged => push(&[&header(NETWORK_CHANGED, 0, 0)]),
            InboxMessage::ChoosersChanged { port } => push(&[&header(CHOOSERS, *port, 0)]),
            InboxMessage::Inquiry => push(&[&header(INQUIRY, 0, 0)]),
        }
    }

    /// The whole message in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(|parts| {
            out = parts.concat();
            true
        });
        out
    }

    /// Parses a message.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<InboxMessage<'a>, InboxError> {
        let Some(([kind, version, s0, s1, l0, l1, l2, l3], body)) =
            bytes.split_first_chunk::<INBOX_HEADER_LEN>()
        else {
            return Err(InboxError::Length);
        };
        if *version != VERSION {
            return Err(InboxError::Version(*version));
        }
        if u32::from_le_bytes([*l0, *l1, *l2, *l3]) as usize != body.len() {
            return Err(InboxError::Length);
        }
        let slot = u16::from_le_bytes([*s0, *s1]);
        match *kind {
            FRAME => Ok(InboxMessage::Frame {
                link: slot,
                frame: body,
            }),
            STRAY => match body.split_first_chunk() {
                Some((link, frame)) => Ok(InboxMessage::Stray {
                    slot,
                    link: u16::from_le_bytes(*link),
                    frame,
                }),
                None => Err(InboxError::Body),
            },
            CHOSEN => match body.split_first_chunk() {
                Some((rank, frame)) => Ok(InboxMessage::Chosen {
                    link: slot,
                    rank: u64::from_le_bytes(*rank),
                    frame,
                }),
                None => Err(InboxError::Body),
            },
            PASSING => crate::passing::read(body)
                .map(|(head, passed)| InboxMessage::Passing(head, passed))
                .ok_or(InboxError::Body),
            GROUP => SlotGroup::read(slot, body)
                .map(InboxMessage::Group)
                .ok_or(InboxError::Body),
            NETWORK_CHANGED if body.is_empty() => Ok(InboxMessage::NetworkChanged),
            INQUIRY if body.is_empty() => Ok(InboxMessage::Inquiry),
            CHOOSERS if body.is_empty() => Ok(InboxMessage::ChoosersChanged { port: slot }),
            NETWORK_CHANGED | INQUIRY | CHOOSERS => Err(InboxError::Body),
            other => Err(InboxError::Kind(other)),
        }
    }
}

#[inline]
fn header(kind: u8, slot: u16, len: usize) -> [u8; INBOX_HEADER_LEN] {
    let [s0, s1] = slot.to_le_bytes();
    let [l0, l1, l2, l3] = (len as u32).to_le_bytes();
    [kind, VERSION, s0, s1, l0, l1, l2, l3]
}

impl SlotGroup {
    /// Mode (u8: 1 excludes) and link (u16), then the group and the sources: 16 bytes each, IPv4
    /// mapped.
    fn write(&self) -> Vec<u8> {
        let mut out = vec![u8::from(self.is_exclude)];
        out.extend_from_slice(&self.link.to_le_bytes());
        for ip in std::iter::once(&self.group).chain(&self.sources) {
            let mapped = match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => *v6,
            };
            out.extend_from_slice(&mapped.octets());
        }
        out
    }

    fn read(slot: u16, body: &[u8]) -> Option<SlotGroup> {
        let (&[mode, l0, l1], addresses) = body.split_first_chunk()?;
        let (addresses, rest) = addresses.as_chunks::<16>();
        let mut ips = addresses
            .iter()
            .map(|octets| Ipv6Addr::from(*octets).to_canonical());
        let group = ips.next().filter(|group| group.is_multicast())?;
        let mut sources: Vec<IpAddr> = ips.collect();
        if !rest.is_empty() || sources.iter().any(|ip| ip.is_ipv4() != group.is_ipv4()) {
            return None;
        }
        sources.sort_unstable();
        sources.dedup();
        Some(SlotGroup {
            slot,
            group,
            link: u16::from_le_bytes([l0, l1]),
            is_exclude: mode == 1,
            sources,
        })
    }
}

#[cfg(test)]
mod tests {
    use slipstack_terms::Reason;

    use super::*;
    use crate::urgent::UrgentAhead;

    fn head() -> PassingHead {
        PassingHead {
            hops: 3,
            link: 0x0102,
            tag: 0x0102_0304_0506_0708,
            local: "10.0.0.1:80".parse().unwrap(),
            remote: "[2001:db8::1]:4711".parse().unwrap(),
        }
    }

    fn group(group: &str, source: &str) -> SlotGroup {
        SlotGroup {
            slot: 5,
            group: group.parse().unwrap(),
            link: 0x1002,
            is_exclude: true,
            sources: vec![source.parse().unwrap()],
        }
    }

    fn one_of_each() -> Vec<InboxMessage<'static>> {
        let open = Passed::Open {
            len: 77,
            has_fin: true,
            urgent: UrgentAhead {
                mark: Some((3, Some(b'!'))),
                skips_first: true,
            },
            image: b"image",
        };
        let ended = Passed::Ended {
            len: 5,
            has_fin: false,
            urgent: UrgentAhead::default(),
            reason: Reason::Reset,
        };
        vec![
            InboxMessage::Frame {
                link: 0x8001,
                frame: b"frame",
            },
            InboxMessage::Stray {
                slot: 300,
                link: 7,
                frame: b"frame",
            },
            InboxMessage::Chosen {
                link: 7,
                rank: 0x0102_0304_0506_0708,
                frame: b"frame",
            },
            InboxMessage::ChoosersChanged { port: 443 },
            InboxMessage::Passing(head(), Passed::HalfOpen(b"half")),
            InboxMessage::Passing(head(), open),
            InboxMessage::Passing(head(), ended),
            InboxMessage::Passing(head(), Passed::Bytes(b"")),
            InboxMessage::Group(group("239.1.2.3", "10.0.0.9")),
            InboxMessage::Group(group("ff0e::7", "fd00::9")),
            InboxMessage::NetworkChanged,
            InboxMessage::Inquiry,
        ]
    }

    #[test]
    fn each_message_is_read_back() {
        for message in one_of_each() {
            assert_eq!(InboxMessage::parse(&message.to_vec()), Ok(message));
        }
    }

    #[test]
    fn cut_and_lengthened_messages_are_refused() {
        for message in one_of_each() {
            let mut whole = message.to_vec();
            for len in 0..whole.len() {
                let cut = InboxMessage::parse(&whole[..len]);
                assert_eq!(cut, Err(InboxError::Length), "{message:?} {len}");
            }
            whole.push(0);
            assert_eq!(InboxMessage::parse(&whole), Err(InboxError::Length));
        }
    }

    #[test]
    fn a_body_that_is_shorter_than_its_kind_is_refused() {
        let empty = |kind: u8| InboxMessage::parse(&header(kind, 0, 0)).err();
        assert_eq!(empty(PASSING), Some(InboxError::Body));
        assert_eq!(empty(GROUP), Some(InboxError::Body));
        assert_eq!(empty(STRAY), Some(InboxError::Body));
        assert_eq!(empty(CHOSEN), Some(InboxError::Body));
        assert_eq!(empty(FRAME), None);
        let mut notice = header(NETWORK_CHANGED, 0, 1).to_vec();
        notice.push(0);
        assert_eq!(InboxMessage::parse(&notice), Err(InboxError::Body));
    }

    #[test]
    fn other_kinds_and_other_versions_are_refused() {
        let mut message = InboxMessage::NetworkChanged.to_vec();
        message[0] = CHOOSERS + 1;
        let unknown = InboxError::Kind(CHOOSERS + 1);
        assert_eq!(InboxMessage::parse(&message), Err(unknown));
        message[1] = VERSION + 1;
        let newer = InboxError::Version(VERSION + 1);
        assert_eq!(InboxMessage::parse(&message), Err(newer));
    }

    #[test]
    fn a_group_has_sources_of_its_own_family() {
        let mixed = InboxMessage::Group(group("239.1.2.3", "fd00::9"));
        assert_eq!(InboxMessage::parse(&mixed.to_vec()), Err(InboxError::Body));
        let unicast = InboxMessage::Group(group("10.0.0.1", "10.0.0.9"));
        assert_eq!(
            InboxMessage::parse(&unicast.to_vec()),
            Err(InboxError::Body)
        );
    }
}
