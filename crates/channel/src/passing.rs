//! What engines and the keeper put into inboxes beside plain frames: connections that change their
//! engine before a program has accepted them, and segments that reached the wrong engine.
//!
//! A connection on its way is a few messages that look like frames of an EtherType which nobody else
//! uses there. Each names the flow, so that whoever gets one can send it on without understanding it.
//!
//! ```text
//! 0   12 bytes of 0, EtherType
//! 14  kind, hops
//! 16  tag: which messages belong together (u64)
//! 24  local and remote address (16 bytes each, IPv4 mapped), local and remote port
//! 60  a half-open connection's image; or length of the received bytes (u32), whether a FIN followed
//!     them (u8), and the connection's image; or received bytes
//! ```

use std::net::{Ipv6Addr, SocketAddr};

/// IEEE's local experimental EtherType 1; only engines and the keeper write to inboxes.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const TYPE_AT: usize = 12;
const KIND_AT: usize = 14;
const HOPS_AT: usize = 15;
const TAG_AT: usize = 16;
const FLOW_AT: usize = 24;
const BODY_AT: usize = 60;

/// Received bytes per message.
pub const PASSED_CHUNK: usize = 1800;
/// Engines that a connection visits at most.
pub const HOPS_MAX: u8 = 16;

/// A segment that its engine does not know goes to the keeper with this source and the slot.
const STRAY_SOURCE: [u8; 5] = [0x02, 0x53, 0x53, 0, 0];
const SOURCE_AT: usize = 6;

/// What a message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed<'a> {
    /// The image of a half-open connection: complete.
    HalfOpen(&'a [u8]),
    /// An open one, of which `len` received bytes follow.
    Open {
        len: u32,
        has_fin: bool,
        image: &'a [u8],
    },
    Bytes(&'a [u8]),
}

/// Which connection a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassingHead {
    pub hops: u8,
    pub tag: u64,
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// Whether an inbox's frame is a message.
pub fn is_passing(frame: &[u8]) -> bool {
    frame.get(TYPE_AT..KIND_AT) == Some(&ETHERTYPE)
}

/// Builds a message.
pub fn write_passing(head: &PassingHead, passed: Passed<'_>) -> Vec<u8> {
    let mut out = vec![0; TYPE_AT];
    out.extend_from_slice(&ETHERTYPE);
    let kind = match passed {
        Passed::HalfOpen(_) => 1,
        Passed::Open { .. } => 2,
        Passed::Bytes(_) => 3,
    };
    out.extend_from_slice(&[kind, head.hops]);
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
            image,
        } => {
            out.extend_from_slice(&len.to_le_bytes());
            out.push(u8::from(has_fin));
            out.extend_from_slice(image);
        }
    }
    out
}

/// Takes a message apart; `None` if it is none.
pub fn read_passing(frame: &[u8]) -> Option<(PassingHead, Passed<'_>)> {
    if !is_passing(frame) {
        return None;
    }
    let body = frame.get(BODY_AT..)?;
    let port = |at: usize| Some(u16::from_le_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let addr = |at: usize, port_at: usize| {
        let octets: [u8; 16] = frame.get(at..at + 16)?.try_into().ok()?;
        let ip = Ipv6Addr::from(octets).to_canonical();
        Some(SocketAddr::new(ip, port(port_at)?))
    };
    let head = PassingHead {
        hops: frame[HOPS_AT],
        tag: u64::from_le_bytes(frame[TAG_AT..FLOW_AT].try_into().ok()?),
        local: addr(FLOW_AT, BODY_AT - 4)?,
        remote: addr(FLOW_AT + 16, BODY_AT - 2)?,
    };
    let passed = match frame[KIND_AT] {
        1 => Passed::HalfOpen(body),
        2 => {
            let (len, rest) = body.split_first_chunk::<4>()?;
            let (&has_fin, image) = rest.split_first()?;
            Passed::Open {
                len: u32::from_le_bytes(*len),
                has_fin: has_fin == 1,
                image,
            }
        }
        3 => Passed::Bytes(body),
        _ => return None,
    };
    Some((head, passed))
}

/// The link-layer source of a segment that the engine of `slot` does not know.
pub fn stray_source(slot: u16) -> [u8; 6] {
    let [a, b, c, d, e] = STRAY_SOURCE;
    [a, b, c, d, e, slot as u8]
}

/// The slot whose engine does not know this segment, if it came that way.
pub fn stray_origin(frame: &[u8]) -> Option<u16> {
    let source = frame.get(SOURCE_AT..TYPE_AT)?;
    (source[..5] == STRAY_SOURCE).then(|| u16::from(source[5]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> PassingHead {
        PassingHead {
            hops: 3,
            tag: 0x0102_0304_0506_0708,
            local: "10.0.0.1:80".parse().unwrap(),
            remote: "[2001:db8::1]:4711".parse().unwrap(),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let open = Passed::Open {
            len: 77,
            has_fin: true,
            image: b"image",
        };
        for passed in [Passed::HalfOpen(b"half"), open, Passed::Bytes(b"")] {
            let message = write_passing(&head(), passed);
            assert_eq!(read_passing(&message), Some((head(), passed)));
        }
    }

    #[test]
    fn cut_messages_and_plain_frames_are_none() {
        let open = Passed::Open {
            len: 77,
            has_fin: false,
            image: b"",
        };
        let message = write_passing(&head(), open);
        for len in 0..message.len() {
            assert_eq!(read_passing(&message[..len]), None, "{len}");
        }
        assert_eq!(read_passing(&[0; 100]), None);
    }

    #[test]
    fn the_origin_of_a_stray_is_in_its_source() {
        let mut frame = [0; 14];
        assert_eq!(stray_origin(&frame), None);
        frame[SOURCE_AT..TYPE_AT].copy_from_slice(&stray_source(5));
        assert_eq!(stray_origin(&frame), Some(5));
        assert_eq!(stray_origin(&frame[..10]), None);
    }
}
