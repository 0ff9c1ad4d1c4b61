//! Options with which sockets are bound, with Linux's defaults.
//!
//! `tos` is the differentiated services field of RFC 9293 3.9.1.9.

pub use slipstack_terms::{
    CloseMode, Congestion, GroupChange, KeepAlive, MtuDiscovery, MulticastOption, PortRange,
    SocketOption, SocketOptions,
};

/// IP time to live unless the program, or of IPv6 a router, says otherwise (Linux, RFC 1700).
pub const DEFAULT_TTL: u8 = 64;

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
    /// Such sockets divide their senders by the flow's hash; otherwise the last one gets all.
    pub reuse_port: bool,
    /// On [::]: IPv4 is not taken in.
    pub is_v6_only: bool,
    /// Those of TCP have no effect.
    pub socket: SocketOptions,
}
