//! The packet filter: actions of rules, and conditions without addresses.

use serde::{Deserialize, Serialize};

/// The action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterAction {
    Allow,
    Deny,
    /// The next rules are looked at.
    Count,
    /// The next rule that is looked at is the first of this number or a greater one.
    SkipTo(u32),
    /// The sender of a TCP segment gets a RST; what is no TCP is dropped.
    Reset,
    /// The sender gets an ICMP error.
    Unreach(UnreachCode),
    /// Flows that a rule with a state has let in are treated as that rule says; for all others the
    /// next rules are looked at.
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
    /// Those with ACK or RST.
    Established,
    /// Those with SYN and without ACK.
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

/// A rule whose packets make their flow known: the other packets of it, in both directions, are
/// treated like them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FilterKeep {
    State,
    /// At most so many flows that are alike.
    Limit {
        by: LimitBy,
        max: u32,
    },
}
