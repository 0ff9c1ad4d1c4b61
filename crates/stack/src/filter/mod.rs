//! A packet filter: rules in order, compiled to a classifier.
//!
//! Without rules a packet pays for one look at an empty place. With rules each property of a packet (addresses, ports,
//! protocol, direction) names the set of rules that it satisfies; the first rule of the intersection decides.

mod classifier;
mod packet;
mod ranges;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::net::IpAddr;

use classifier::Classifier;
pub use packet::Packet;

/// Rules of one filter.
pub const RULES_MAX: usize = 4096;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    In,
    Out,
}

/// Which segments of a TCP connection are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Those with ACK or RST.
    Established,
    /// Those with SYN and without ACK.
    Setup,
}

/// One end of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Networks of either family; none = everybody.
    pub nets: Vec<(IpAddr, u8)>,
    /// Everybody else.
    pub is_not: bool,
    /// Ports from and to; none = every packet, also one without ports.
    pub ports: Vec<(u16, u16)>,
    /// Every other port.
    pub is_not_ports: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Allow,
    Deny,
    /// The next rules are looked at.
    Count,
    /// The next rule that is looked at is the first of this number or a greater one.
    SkipTo(u32),
    /// The sender of a TCP segment gets a RST; what is no TCP is dropped.
    Reset,
    /// The sender gets an ICMP error.
    Unreach(Unreach),
}

/// Codes of ICMP's Destination Unreachable, and their counterparts in ICMPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreach {
    Net,
    Host,
    Port,
    Prohibited,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRule {
    /// Tells it from all others that there ever were.
    pub id: u64,
    /// Its place in the order; several may share one.
    pub number: u32,
    pub action: Action,
    /// IP protocol number.
    pub protocol: Option<u8>,
    pub is_v6: Option<bool>,
    pub from: End,
    pub to: End,
    pub direction: Option<Direction>,
    /// The VLAN that it comes or goes by; 0 = the device's own link.
    pub vlan: Option<u16>,
    pub part: Option<Part>,
}

/// Packets and bytes that a rule has matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Drop,
    Reset,
    Unreach(Unreach),
}

/// Compiled rules with their counts.
#[derive(Debug)]
pub struct Filter {
    ids: Vec<u64>,
    numbers: Vec<u32>,
    actions: Vec<Action>,
    counts: Vec<Count>,
    classifier: Classifier,
}

impl Filter {
    /// Rules in ascending order of their numbers; what is beyond [`RULES_MAX`] is left out.
    pub fn new(rules: &[FilterRule]) -> Filter {
        let rules = &rules[..rules.len().min(RULES_MAX)];
        Filter {
            ids: rules.iter().map(|rule| rule.id).collect(),
            numbers: rules.iter().map(|rule| rule.number).collect(),
            actions: rules.iter().map(|rule| rule.action).collect(),
            counts: rules.iter().map(|_| Count::default()).collect(),
            classifier: Classifier::new(rules),
        }
    }

    /// Keeps the counts of rules that were there before.
    pub fn keep_counts(&mut self, before: &Filter) {
        for (id, count) in self.ids.iter().zip(&mut self.counts) {
            if let Some(at) = before.ids.iter().position(|known| known == id) {
                *count = before.counts[at];
            }
        }
    }

    /// Every rule's count by its id.
    pub fn counts(&self) -> impl Iterator<Item = (u64, Count)> + '_ {
        self.ids.iter().copied().zip(self.counts.iter().copied())
    }

    /// Begins to count anew; for some rules, or with `None` for all.
    pub fn zero(&mut self, ids: Option<&[u64]>) {
        for (id, count) in self.ids.iter().zip(&mut self.counts) {
            if ids.is_none_or(|ids| ids.contains(id)) {
                *count = Count::default();
            }
        }
    }

    /// What the first rule that decides says; without one a packet passes.
    pub fn verdict(&mut self, packet: &Packet) -> Verdict {
        let mut from = 0;
        while let Some(at) = self.classifier.first(packet, from) {
            let count = &mut self.counts[at];
            count.packets += 1;
            count.bytes += u64::from(packet.len);
            from = at + 1;
            match self.actions[at] {
                Action::Allow => return Verdict::Pass,
                Action::Deny => return Verdict::Drop,
                Action::Reset => return Verdict::Reset,
                Action::Unreach(how) => return Verdict::Unreach(how),
                Action::Count => {}
                Action::SkipTo(number) => {
                    let there = self.numbers.partition_point(|known| *known < number);
                    from = from.max(there);
                }
            }
        }
        Verdict::Pass
    }
}
