//! Outgoing packets: the protocol's request, and its result.

use core::net::IpAddr;

use slipstack_wire::{ethernet, ipv4, ipv6};

use crate::effects::Payload;
use crate::error::Reason;
use crate::fib::{Choice, Query};

/// Longest transport header (TCP with 40 bytes of options).
pub const L4_HEADER_MAX: usize = 60;
/// Longest header of a frame that we send, over IPv6.
pub const HEADER_MAX: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + L4_HEADER_MAX;

/// The network header of a packet to send.
#[derive(Clone, Copy, Debug)]
pub struct OutPacket {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub protocol: u8,
    /// Source and destination; zero if there are none.
    pub ports: (u16, u16),
    pub tos: u8,
    pub ttl: u8,
    pub dont_fragment: bool,
    /// The choice of the socket that sends it.
    pub choice: Choice,
}

impl OutPacket {
    /// Returns the route query for it.
    pub fn query(&self) -> Query {
        const ECN: u8 = 3;
        let src = (!self.src.is_unspecified()).then_some(self.src);
        Query {
            tos: self.tos & !ECN,
            ..Query::between(src, self.dst)
                .by(self.choice)
                .carrying(self.protocol, self.ports)
        }
    }

    /// Bytes of the network header.
    pub const fn header_len(&self) -> usize {
        match self.dst {
            IpAddr::V4(_) => ipv4::HEADER_LEN,
            IpAddr::V6(_) => ipv6::HEADER_LEN,
        }
    }
}

/// A transport header and its payload.
#[derive(Clone, Copy, Debug)]
pub struct OutSegment<'a> {
    /// At most [`L4_HEADER_MAX`] bytes; a checksum field that is left to the device is zero.
    pub header: &'a [u8],
    pub payload: Payload<'a>,
    /// Offset of the partial checksum in `header`; `None` = the header is complete.
    pub checksum_at: Option<u16>,
    /// Cut the payload into segments of this size.
    pub gso_mss: Option<u16>,
}

impl OutSegment<'_> {
    /// The number of packets that the device makes of it.
    pub fn packets(&self) -> u16 {
        let len = self.payload.len();
        let count = self
            .gso_mss
            .map_or(1, |mss| len.div_ceil(mss.max(1).into()));
        count.clamp(1, u16::MAX.into()) as u16
    }
}

/// The result of sending a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Sent,
    /// Held until the neighbour is resolved.
    Held,
    /// Dropped; counted.
    Unreachable(Reason),
}

/// The limits of the way to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Largest IP packet in bytes, as far as is known.
    pub mtu: u16,
    /// Largest TCP payload of a super-frame, 0 = none.
    pub tso_max: u32,
    /// The destination is one of our own addresses.
    pub local: bool,
}
