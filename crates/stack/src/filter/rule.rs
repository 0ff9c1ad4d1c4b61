//! Rules of a packet filter, as they are given.

use alloc::vec::Vec;
use core::net::IpAddr;

use slipstack_terms::{FilterAction, FilterDirection, FilterKeep, FilterPart};

/// One end of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Networks of either family; none = all addresses.
    pub nets: Vec<(IpAddr, u8)>,
    /// The complement.
    pub is_not: bool,
    /// Ports from and to; none = every packet, also one without ports.
    pub ports: Vec<(u16, u16)>,
    /// Every other port.
    pub is_not_ports: bool,
}

/// Addresses of a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    pub nets: Vec<(IpAddr, u8)>,
    /// Places in the list of tables, each with the value that an address has to have there.
    pub tables: Vec<(usize, Option<u32>)>,
}

/// Numbers below 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers(pub [u64; 4]);

impl Numbers {
    pub fn of(numbers: &[u8]) -> Numbers {
        let mut all = Numbers::default();
        for number in numbers {
            all.0[usize::from(number >> 6)] |= 1 << (number & 63);
        }
        all
    }

    pub fn contains(&self, number: u8) -> bool {
        self.0[usize::from(number >> 6)] >> (number & 63) & 1 != 0
    }
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    Protocol(u8),
    V6(bool),
    Source(Addresses),
    Destination(Addresses),
    SourcePort(Vec<(u16, u16)>),
    DestinationPort(Vec<(u16, u16)>),
    Direction(FilterDirection),
    Link(u16),
    Part(FilterPart),
    /// Flags of a TCP segment that are set, and those that are not.
    Flags {
        set: u8,
        clear: u8,
    },
    IcmpType(Numbers),
    Icmp6Type(Numbers),
    /// A fragment that is not the first.
    Fragment,
    /// TTL, or hop limit.
    Ttl(Vec<(u16, u16)>),
    /// Length of the IP packet.
    Len(Vec<(u16, u16)>),
}

/// A condition, or its contrary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub is_not: bool,
    pub test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRule {
    /// Tells it from all others that there ever were.
    pub id: u64,
    /// Place in the order; several rules may share one.
    pub number: u32,
    /// Whether it is evaluated; otherwise it applies only to flows that it has let in.
    pub is_enabled: bool,
    pub action: FilterAction,
    /// IP protocol number.
    pub protocol: Option<u8>,
    pub is_v6: Option<bool>,
    pub from: End,
    pub to: End,
    pub direction: Option<FilterDirection>,
    /// The link by which the packet arrives or leaves; 0 = the device's own.
    pub link: Option<u16>,
    pub part: Option<FilterPart>,
    /// Further conditions: of each list one has to hold.
    pub clauses: Vec<Vec<Term>>,
    pub state: Option<FilterKeep>,
    /// Matches are logged, so many until the log is reset; 0 = all.
    pub log: Option<u32>,
}
