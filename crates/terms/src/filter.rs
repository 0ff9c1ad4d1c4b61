//! The packet filter: actions of rules, and conditions without addresses.

use serde::{Deserialize, Serialize};

/// The action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterAction {
    Allow,
    Deny,
    /// The next rules are evaluated.
    Count,
    /// The evaluation continues at the first rule with this number or a greater one.
    SkipTo(u32),
    /// The next rules are evaluated; a rule of the network chooses the routing table of such
    /// packets.
    SetFib(u32),
    /// The sender of a TCP segment gets a RST; other packets are dropped.
    Reset,
    /// The sender gets an ICMP error.
    Unreach(UnreachCode),
    /// Known flows of stateful rules are treated by their rule; for all others the next rules are
    /// evaluated.
    CheckState,
}

/// Codes of ICMP's Destination Unreachable, and their counterparts in ICMPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnreachCode {
    Net,
    Host,
    Port,
    Prohibited,
}

/// The way that a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterDirection {
    In,
    Out,
}

/// Segments of TCP connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterPart {
    /// Segments with ACK or RST.
    Established,
    /// Segments with SYN and without ACK.
    Setup,
}

/// The fields by which flows are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitBy {
    pub source: bool,
    pub source_port: bool,
    pub destination: bool,
    pub destination_port: bool,
}

/// Whether the packets of a rule make their flow known: its other packets, in both directions, are
/// then treated alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterKeep {
    State,
    /// At most so many flows that are alike.
    Limit {
        by: LimitBy,
        max: u32,
    },
}
