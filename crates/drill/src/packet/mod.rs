//! Packets as a script writes them, and as they are on the wire.
//!
//! A script counts sequence numbers from 0 on both sides and has no ports. A [`Flow`] converts
//! between the two forms.

mod bytes;
mod compare;
mod ip;
mod options;
mod text;

use std::net::IpAddr;

use slipstack_wire::tcp::TcpFlags;

pub use bytes::{LiveBody, LivePacket, build, is_of_the_link, read};
pub use compare::compare;

/// One packet of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketSpec {
    /// `None`: not specified.
    pub ecn: Option<Ecn>,
    pub body: PacketBody,
}

/// The ECN field of the IP header (RFC 3168 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    NotCapable,
    Capable0,
    Capable1,
    Congested,
    /// Either of the capable ones.
    Any,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketBody {
    Tcp(TcpSpec),
    Udp(u16),
    Icmp(IcmpSpec),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSpec {
    pub flags: TcpFlags,
    pub seq: u32,
    pub len: u16,
    pub ack: Option<u32>,
    pub window: Option<u16>,
    pub urgent: Option<u16>,
    /// `None`: any.
    pub options: Option<Vec<TcpOption>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpOption {
    End,
    Nop,
    Mss(u16),
    WindowScale(u8),
    SackPermitted,
    Sack(Vec<(u32, u32)>),
    Timestamps {
        value: u32,
        echo: u32,
    },
    /// Granularity and value (RFC 5482 3.3).
    UserTimeout(u16),
    /// The cookie; empty requests one.
    FastOpen(Vec<u8>),
    /// `TFO_COOKIE`: the cookie that the stack gave first, which no script can know.
    OurCookie,
    Unknown(u8, Vec<u8>),
}

/// A destination unreachable message that quotes a segment or a datagram of ours. The code is
/// IPv4's, and is translated for IPv6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcmpSpec {
    pub code: u8,
    pub mtu: u16,
    /// The error quotes a datagram of UDP.
    pub is_udp: bool,
    pub seq: u32,
    pub len: u16,
}

/// The connection that a script's packets belong to.
#[derive(Clone, Debug)]
pub struct Flow {
    pub local: (IpAddr, u16),
    pub remote: (IpAddr, u16),
    /// Our sequence numbers on the wire, less those of the script.
    pub local_offset: u32,
    /// Offset of our timestamps, once one has been seen.
    pub timestamp_offset: Option<u32>,
    /// The number of the peer's SYN, the origin of later ones, and of another SYN that may still be
    /// accepted.
    pub remote_isn: Option<u32>,
    pub remote_candidate: Option<u32>,
    /// Our first sequence number is known.
    pub is_synchronised: bool,
    /// The cookie that [`TcpOption::OurCookie`] refers to.
    pub cookie: Vec<u8>,
}

/// The peer's sequence numbers on the wire, less those of the script: they wrap early.
pub const REMOTE_OFFSET: u32 = 0xffff_f000;

impl Flow {
    pub fn new(local: (IpAddr, u16), remote: (IpAddr, u16)) -> Self {
        Self {
            local,
            remote,
            local_offset: 0,
            timestamp_offset: None,
            remote_isn: None,
            remote_candidate: None,
            is_synchronised: false,
            cookie: Vec::new(),
        }
    }

    /// Makes the next connection's flow; the stack's cookies stay valid.
    #[must_use]
    pub fn with_cookie_of(mut self, before: Option<&Flow>) -> Self {
        self.cookie = before.map_or_else(Vec::new, |flow| flow.cookie.clone());
        self
    }

    /// Begins a new connection of the same ends (RFC 6191); our next SYN has its number.
    pub fn begin_again(&mut self) {
        self.is_synchronised = false;
    }

    /// A SYN of the peer's arrives.
    pub fn on_remote_syn(&mut self, seq: u32) {
        self.remote_isn.get_or_insert(seq);
        self.remote_candidate = Some(seq);
    }

    /// Returns the offset between the peer's numbers on the wire and in the script, which count
    /// from its SYN as packetdrill's do.
    pub fn remote_offset(&self) -> u32 {
        REMOTE_OFFSET.wrapping_add(self.remote_isn.unwrap_or(0))
    }
}
