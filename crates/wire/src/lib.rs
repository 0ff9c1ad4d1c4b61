//! Frame formats: Ethernet, ARP, IPv4, IPv6, ICMP of both, neighbour discovery, IGMP, MLD, UDP and
//! TCP, and their checksums.
//!
//! Each format is a plain struct with `parse` (hostile bytes in, `None` or an error out) and
//! `emit`. This crate knows no state, time or policy.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod alike;
pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod fast_open;
pub mod flow;
pub mod frame_fragment;
pub mod group_record;
pub mod icmpv4;
pub mod icmpv6;
pub mod igmp;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_extensions;
mod link_id;
pub mod mld;
pub mod ndp;
mod offload;
pub mod plain;
pub mod rss;
pub mod tcp;
pub mod tcp_options;
pub mod udp;
pub mod user_timeout;
pub mod zone;

pub use link_id::LinkId;
pub use offload::{Gso, PartialChecksum, RxChecksum, RxMeta, TxOffload};

/// IP protocol numbers (IANA).
pub mod protocol {
    pub const ICMP: u8 = 1;
    pub const IGMP: u8 = 2;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const ICMPV6: u8 = 58;
}
