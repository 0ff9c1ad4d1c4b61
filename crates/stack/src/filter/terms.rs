//! Conditions of rules that are not sets of the classifier.

use alloc::sync::Arc;
use alloc::vec::Vec;

use slipstack_wire::protocol;

use super::packet::{NO_PORT, Packet};
use super::ranges::{Range, joined, ranges_of};
use super::rule::{Addresses, Numbers, Term, Test};
use super::table::Table;
use slipstack_terms::FilterPart;

/// Addresses in the form in which packets have them.
#[derive(Debug)]
struct Hosts {
    ranges: Vec<Range>,
    tables: Vec<(usize, Option<u32>)>,
}

impl Hosts {
    fn new(given: &Addresses) -> Hosts {
        Hosts {
            ranges: joined(given.nets.iter().flat_map(|net| ranges_of(*net)).collect()),
            tables: given.tables.clone(),
        }
    }

    fn contains(&self, address: u128, tables: &[Arc<Table>]) -> bool {
        let at = self.ranges.partition_point(|(_, high)| *high < address);
        let is_in_net = self.ranges.get(at).is_some_and(|(low, _)| *low <= address);
        is_in_net
            || self.tables.iter().any(|(table, wanted)| {
                let found = tables.get(*table).and_then(|it| it.find(address));
                found.is_some_and(|value| wanted.is_none_or(|wanted| wanted == value))
            })
    }
}

#[derive(Debug)]
enum Check {
    Source(Hosts),
    Destination(Hosts),
    Plain(Test),
}

/// The further conditions of one rule.
#[derive(Debug)]
pub struct Clauses {
    all: Vec<Vec<(bool, Check)>>,
    /// Packets that are equal for the classifier are equal here.
    pub is_of_flow: bool,
}

impl Clauses {
    /// `None`: there are none.
    pub fn new(given: &[Vec<Term>]) -> Option<Clauses> {
        let check = |term: &Term| {
            let check = match &term.test {
                Test::Source(given) => Check::Source(Hosts::new(given)),
                Test::Destination(given) => Check::Destination(Hosts::new(given)),
                other => Check::Plain(other.clone()),
            };
            (term.is_not, check)
        };
        let all: Vec<Vec<_>> = given
            .iter()
            .map(|any| any.iter().map(check).collect())
            .collect();
        let is_of_flow = given.iter().flatten().all(|term| is_of_flow(&term.test));
        (!all.is_empty()).then_some(Clauses { all, is_of_flow })
    }

    pub fn hold(&self, packet: &Packet, tables: &[Arc<Table>]) -> bool {
        self.all.iter().all(|any| {
            any.iter().any(|(is_not, check)| {
                *is_not
                    != match check {
                        Check::Source(hosts) => hosts.contains(packet.src, tables),
                        Check::Destination(hosts) => hosts.contains(packet.dst, tables),
                        Check::Plain(test) => holds(test, packet),
                    }
            })
        })
    }
}

fn is_of_flow(test: &Test) -> bool {
    match test {
        Test::Protocol(_)
        | Test::V6(_)
        | Test::Source(_)
        | Test::Destination(_)
        | Test::SourcePort(_)
        | Test::DestinationPort(_)
        | Test::Direction(_)
        | Test::Link(_)
        | Test::Part(_) => true,
        Test::Flags { .. }
        | Test::IcmpType(_)
        | Test::Icmp6Type(_)
        | Test::Fragment
        | Test::Ttl(_)
        | Test::Len(_) => false,
    }
}

fn holds(test: &Test, packet: &Packet) -> bool {
    let is_tcp = packet.protocol == protocol::TCP && packet.has_ports();
    let is_icmp = |of: u8, types: &Numbers| {
        packet.protocol == of && packet.icmp_type.is_some_and(|it| types.contains(it))
    };
    match test {
        Test::Protocol(number) => packet.protocol == *number,
        Test::V6(is_v6) => packet.is_v6 == *is_v6,
        // Looked at in another form.
        Test::Source(_) | Test::Destination(_) => false,
        Test::SourcePort(ranges) => is_within(ranges, packet.ports.0),
        Test::DestinationPort(ranges) => is_within(ranges, packet.ports.1),
        Test::Direction(direction) => packet.direction == *direction,
        Test::Link(link) => packet.link == *link,
        Test::Part(FilterPart::Established) => packet.is_established(),
        Test::Part(FilterPart::Setup) => packet.is_setup(),
        Test::Flags { set, clear } => {
            is_tcp && packet.flags.0 & set == *set && packet.flags.0 & clear == 0
        }
        Test::IcmpType(types) => is_icmp(protocol::ICMP, types),
        Test::Icmp6Type(types) => is_icmp(protocol::ICMPV6, types),
        Test::Fragment => packet.is_later_fragment,
        Test::Ttl(ranges) => is_within(ranges, packet.ttl.into()),
        Test::Len(ranges) => is_within(ranges, packet.len.min(NO_PORT - 1)),
    }
}

/// A packet without ports has [`NO_PORT`], which is in no range.
fn is_within(ranges: &[(u16, u16)], number: u32) -> bool {
    let mut ranges = ranges.iter();
    ranges.any(|(low, high)| (u32::from(*low)..=u32::from(*high)).contains(&number))
}
