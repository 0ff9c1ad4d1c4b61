//! Connections that change their engine before a program has accepted them, as bodies of inbox
//! messages.
//!
//! A connection on its way is one message or several. Each names the flow, so that the keeper can
//! send it on without understanding the rest.
//!
//! ```text
//! 0   kind (u8), hops (u8), link (u16), 4 bytes of 0
//! 8   tag: which messages belong together (u64)
//! 16  local and remote address (16 bytes each, IPv4 mapped), local and remote port
//! 52  a half-open connection's image; or length of the received bytes (u32), whether a FIN
//!     followed them (u8), urgent data among them (10 bytes), and the connection's image, or the
//!     error that has ended it (u8); or received bytes
//! ```

use std::net::{Ipv6Addr, SocketAddr};

use slipstack_terms::Reason;

use crate::urgent::UrgentAhead;

const KIND_AT: usize = 0;
const HOPS_AT: usize = 1;
const LINK_AT: usize = 2;
const TAG_AT: usize = 8;
const FLOW_AT: usize = 16;
const BODY_AT: usize = 52;

/// Received bytes per message.
pub const PASSED_CHUNK: usize = 1800;
/// Engines that a connection visits at most.
pub const HOPS_MAX: u8 = 16;

/// The body of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed<'a> {
    /// The image of a half-open connection: complete.
    HalfOpen(&'a [u8]),
    /// An open one, of which `len` received bytes follow.
    Open {
        len: u32,
        has_fin: bool,
        urgent: UrgentAhead,
        image: &'a [u8],
    },
    /// One that is in no stack any more, because its peer has reset it or it has failed otherwise.
    Ended {
        len: u32,
        has_fin: bool,
        urgent: UrgentAhead,
        reason: Reason,
    },
    Bytes(&'a [u8]),
}

/// Which connection a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassingHead {
    pub hops: u8,
    /// The link that its listener is bound to, its number plus one; 0 = any.
    pub link: u16,
    pub tag: u64,
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// Builds a message's body.
pub(crate) fn write(head: &PassingHead, passed: Passed<'_>) -> Vec<u8> {
    let kind = match passed {
        Passed::HalfOpen(_) => 1,
        Passed::Open { .. } => 2,
        Passed::Bytes(_) => 3,
        Passed::Ended { .. } => 4,
    };
    let [low, high] = head.link.to_le_bytes();
    let mut out = vec![kind, head.hops, low, high, 0, 0, 0, 0];
    out.extend_from_slice(&head.tag.to_le_bytes());
    for addr in [head.local, head.remote] {
        let ip = match addr {
            SocketAddr::V4(v4) => v4.ip().to_ipv6_mapped(),
            SocketAddr::V6(v6) => *v6.ip(),
        };
        out.extend_from_slice(&ip.octets());
    }
    for addr in [head.local, head.remote] {
        out.extend_from_slice(&addr.port().to_le_bytes());
    }
    match passed {
        Passed::HalfOpen(bytes) | Passed::Bytes(bytes) => out.extend_from_slice(bytes),
        Passed::Open {
            len,
            has_fin,
            urgent,
            image,
        } => {
            out.extend_from_slice(&len.to_le_bytes());
            out.push(u8::from(has_fin));
            out.extend_from_slice(&urgent.to_bytes());
            out.extend_from_slice(image);
        }
        Passed::Ended {
            len,
            has_fin,
            urgent,
            reason,
        } => {
            out.extend_from_slice(&len.to_le_bytes());
            out.push(u8::from(has_fin));
            out.extend_from_slice(&urgent.to_bytes());
            out.push(reason.code());
        }
    }
    out
}

/// Parses a body; returns `None` if it is invalid.
pub(crate) fn read(frame: &[u8]) -> Option<(PassingHead, Passed<'_>)> {
    let body = frame.get(BODY_AT..)?;
    let word = |at: usize| Some(u16::from_le_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let addr = |at: usize, port_at: usize| {
        let octets: [u8; 16] = frame.get(at..at + 16)?.try_into().ok()?;
        let ip = Ipv6Addr::from(octets).to_canonical();
        Some(SocketAddr::new(ip, word(port_at)?))
    };
    let head = PassingHead {
        hops: frame[HOPS_AT],
        link: word(LINK_AT)?,
        tag: u64::from_le_bytes(frame[TAG_AT..FLOW_AT].try_into().ok()?),
        local: addr(FLOW_AT, BODY_AT - 4)?,
        remote: addr(FLOW_AT + 16, BODY_AT - 2)?,
    };
    let passed = match frame[KIND_AT] {
        1 => Passed::HalfOpen(body),
        kind @ (2 | 4) => {
            let (len, rest) = body.split_first_chunk::<4>()?;
            let (&has_fin, rest) = rest.split_first()?;
            let (urgent, rest) = UrgentAhead::split(rest)?;
            let (len, has_fin) = (u32::from_le_bytes(*len), has_fin == 1);
            match (kind, rest) {
                (2, image) => Passed::Open {
                    len,
                    has_fin,
                    urgent,
                    image,
                },
                (_, [reason]) => Passed::Ended {
                    len,
                    has_fin,
                    urgent,
                    reason: Reason::from_code(*reason)?,
                },
                _ => return None,
            }
        }
        3 => Passed::Bytes(body),
        _ => return None,
    };
    Some((head, passed))
}
