//! The flow of a frame or a segment, seen from its host.

use std::net::SocketAddr;

use slipstack_stack::IpMeta;
use slipstack_wire::flow::FrameFlow;
use slipstack_wire::protocol;

/// The keeper's slot.
pub const KEEPER: u16 = 0;
/// Bytes of a stray frame that take one place in an inbox.
pub(super) const STRAY_BYTES_MAX: usize = 1984;
pub(super) const FLAGS_AT: usize = 13;

/// A connection, seen from its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

impl Flow {
    /// Returns the flow of a received TCP frame.
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        let parsed = FrameFlow::parse(frame).filter(|flow| flow.protocol == protocol::TCP)?;
        Some(Self {
            local: parsed.dst,
            remote: parsed.src,
        })
    }

    pub(super) fn of_segment(ip: &IpMeta, segment: &[u8]) -> Option<Self> {
        let port = |at: usize| {
            let bytes = segment.get(at..at + 2)?;
            Some(u16::from_be_bytes(bytes.try_into().ok()?))
        };
        Some(Self {
            local: SocketAddr::new(ip.dst, port(2)?),
            remote: SocketAddr::new(ip.src, port(0)?),
        })
    }
}
