//! Frame formats: what is where in Ethernet, ARP, IPv4, ICMPv4, UDP and TCP, and their checksums.
//!
//! Each format is a plain struct with `parse` (hostile bytes in, `None` or an error out) and
//! `emit`. Nothing here knows state, time or policy.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod fast_open;
pub mod icmpv4;
pub mod ipv4;
mod offload;
pub mod plain;
pub mod tcp;
pub mod tcp_options;
pub mod udp;

pub use offload::{Gso, PartialChecksum, RxChecksum, RxMeta, TxOffload};

/// IP protocol numbers (IANA).
pub mod protocol {
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
}
