//! Options with which sockets are bound, with Linux's defaults.
//!
//! `tos` is the differentiated services field of RFC 9293 3.9.1.9.

use core::net::IpAddr;

pub use slipstack_terms::{
    CloseMode, Congestion, GroupChange, KeepAlive, MtuDiscovery, MulticastOption, PortRange,
    SocketOption, SocketOptions,
};

use crate::bound::Bound;

/// IP time to live unless the program, or for IPv6 a router, sets another one (Linux, RFC 1700).
pub const DEFAULT_TTL: u8 = 64;

/// The addresses and the link at which a socket holds a local port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortHold {
    pub ip: IpAddr,
    /// [::] does not take IPv4 in.
    pub is_v6_only: bool,
    /// The link that the socket is bound to, as [`crate::Choice::link`]; 0 = any.
    pub link: u16,
}

impl PortHold {
    /// At an address of any link.
    pub const fn of(ip: IpAddr) -> PortHold {
        PortHold {
            ip,
            is_v6_only: false,
            link: 0,
        }
    }

    pub(crate) fn bound(&self) -> Bound {
        Bound::new(self.ip, self.is_v6_only)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Established connections that may wait for accept, as `listen(2)` counts them.
    pub backlog: u32,
    /// May share the address with other listeners that say so too.
    pub reuse_port: bool,
    /// On [::]: IPv4 is not taken in.
    pub is_v6_only: bool,
    /// Options that accepted connections inherit.
    pub socket: SocketOptions,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 128,
            reuse_port: false,
            is_v6_only: false,
            socket: SocketOptions::default(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct UdpOptions {
    /// May be bound beside others that say so too.
    pub is_shared: bool,
    /// Sockets that share a port divide its senders by the flow's hash; otherwise the last one gets
    /// all.
    pub reuse_port: bool,
    /// On [::]: IPv4 is not taken in.
    pub is_v6_only: bool,
    /// Options of the socket; those of TCP have no effect.
    pub socket: SocketOptions,
}
