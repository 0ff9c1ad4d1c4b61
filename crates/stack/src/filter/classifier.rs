//! The classifier: from a packet's properties to the first rule that it satisfies.

use super::packet::{NO_PORT, Packet};
use super::ranges::{Range, Ranges, RuleSet, joined, others, ranges_of};
use super::rule::{End, FilterRule};
use alloc::vec::Vec;
use slipstack_terms::{FilterAction, FilterDirection, FilterPart};

/// Direction, family, established, setup: the two-valued properties.
const KINDS: usize = 16;

#[derive(Debug)]
pub struct Classifier {
    src: Ranges,
    dst: Ranges,
    src_port: Ranges,
    dst_port: Ranges,
    protocol: Ranges,
    link: Ranges,
    kinds: Vec<RuleSet>,
}

impl Classifier {
    pub fn new(rules: &[FilterRule]) -> Classifier {
        let count = rules.len();
        let one = |value: Option<u128>| value.map_or((0, u128::MAX), |it| (it, it));
        let kinds = (0..KINDS).map(|kind| {
            let mut set = RuleSet::new(count);
            for (at, rule) in rules.iter().enumerate() {
                set.set(at, is_of_kind(rule, kind));
            }
            set
        });
        Classifier {
            src: Ranges::new(count, |at| match is_looked_at(&rules[at]) {
                true => addresses(&rules[at].from),
                false => Vec::new(),
            }),
            dst: Ranges::new(count, |at| addresses(&rules[at].to)),
            src_port: Ranges::new(count, |at| ports(&rules[at].from)),
            dst_port: Ranges::new(count, |at| ports(&rules[at].to)),
            protocol: Ranges::new(count, |at| {
                alloc::vec![one(rules[at].protocol.map(u128::from))]
            }),
            link: Ranges::new(count, |at| alloc::vec![one(rules[at].link.map(u128::from))]),
            kinds: kinds.collect(),
        }
    }

    /// The rules that a packet satisfies.
    pub fn matching(&self, packet: &Packet) -> Matching<'_> {
        Matching {
            sets: [
                self.src.find(packet.src),
                self.dst.find(packet.dst),
                self.src_port.find(packet.ports.0.into()),
                self.dst_port.find(packet.ports.1.into()),
                self.protocol.find(packet.protocol.into()),
                self.link.find(packet.link.into()),
                &self.kinds[packet.kind()],
            ],
        }
    }
}

/// Rules that are in all of the sets.
pub struct Matching<'a> {
    sets: [&'a RuleSet; 7],
}

impl Matching<'_> {
    /// The first from `from` on.
    pub fn first(&self, from: usize) -> Option<usize> {
        let (word, bit) = (from / 64, from % 64);
        if word >= u64::BITS as usize {
            return None;
        }
        let sets = &self.sets;
        let mut left = sets.iter().fold(!0 << word, |all, set| all & set.summary);
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            let begin = if at == word { !0 << bit } else { !0 };
            let found = sets.iter().fold(begin, |all, set| all & set.words[at]);
            if found != 0 {
                return Some(at * 64 + found.trailing_zeros() as usize);
            }
        }
        None
    }
}

/// Returns whether packets are held against a rule.
fn is_looked_at(rule: &FilterRule) -> bool {
    rule.is_enabled && rule.action != FilterAction::CheckState
}

fn is_of_kind(rule: &FilterRule, kind: usize) -> bool {
    let is_out = kind & 1 != 0;
    let is_v6 = kind >> 1 & 1 != 0;
    let is_direction = match rule.direction {
        None => true,
        Some(direction) => is_out == (direction == FilterDirection::Out),
    };
    let is_part = match rule.part {
        None => true,
        Some(FilterPart::Established) => kind >> 2 & 1 != 0,
        Some(FilterPart::Setup) => kind >> 3 & 1 != 0,
    };
    is_direction && is_part && rule.is_v6.is_none_or(|wanted| wanted == is_v6)
}

fn addresses(end: &End) -> Vec<Range> {
    if end.nets.is_empty() {
        return alloc::vec![(0, u128::MAX)];
    }
    let ranges = joined(end.nets.iter().flat_map(|net| ranges_of(*net)).collect());
    match end.is_not {
        true => others(&ranges, u128::MAX),
        false => ranges,
    }
}

fn ports(end: &End) -> Vec<Range> {
    if end.ports.is_empty() {
        return alloc::vec![(0, NO_PORT.into())];
    }
    let ranges = end
        .ports
        .iter()
        .map(|(low, high)| ((*low).into(), (*high).into()));
    let ranges = joined(ranges.collect());
    match end.is_not_ports {
        true => others(&ranges, u128::from(NO_PORT) - 1),
        false => ranges,
    }
}
