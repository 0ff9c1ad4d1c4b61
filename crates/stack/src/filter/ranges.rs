//! Sets of rules by ranges of a value.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::packet::value;

/// The first of IPv4's addresses among all, in their mapped form.
pub const V4: u128 = 0xffff << 32;
const V4_LAST: u128 = V4 | 0xffff_ffff;

/// Rules as bits, with one bit for each word of them that says whether it is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSet {
    pub summary: u64,
    pub words: Vec<u64>,
}

impl RuleSet {
    pub fn new(rules: usize) -> RuleSet {
        RuleSet {
            summary: 0,
            words: alloc::vec![0; rules.div_ceil(64)],
        }
    }

    pub fn set(&mut self, rule: usize, is_on: bool) {
        let (word, bit) = (rule / 64, 1 << (rule % 64));
        if is_on {
            self.words[word] |= bit;
        } else {
            self.words[word] &= !bit;
        }
        let summary = 1 << word;
        match self.words[word] {
            0 => self.summary &= !summary,
            _ => self.summary |= summary,
        }
    }
}

/// A range of values, both ends included.
pub type Range = (u128, u128);

/// The addresses of a network. None of IPv6 has those of IPv4.
pub fn ranges_of((ip, len): (IpAddr, u8)) -> Vec<Range> {
    let width = if ip.is_ipv4() { 32 } else { 128 };
    let host_bits = width - u32::from(len).min(width);
    let hosts = match host_bits {
        128 => u128::MAX,
        bits => (1 << bits) - 1,
    };
    let low = value(ip) & !hosts;
    let high = low | hosts;
    let is_around = ip.is_ipv6() && low <= V4 && high >= V4_LAST && len < 96;
    match is_around {
        true => [(low, V4 - 1), (V4_LAST + 1, high)]
            .into_iter()
            .filter(|(low, high)| low <= high)
            .collect(),
        false => alloc::vec![(low, high)],
    }
}

/// Sorts ranges and joins those that touch.
pub fn joined(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut out: Vec<Range> = Vec::new();
    for (low, high) in ranges {
        match out.last_mut() {
            Some((_, end)) if low <= end.saturating_add(1) => *end = (*end).max(high),
            _ => out.push((low, high)),
        }
    }
    out
}

/// Returns the values in none of the ranges, which are joined, up to `max`.
pub fn others(ranges: &[Range], max: u128) -> Vec<Range> {
    let mut out = Vec::new();
    let mut next = Some(0);
    for (low, high) in ranges {
        if let Some(from) = next
            && from < *low
        {
            out.push((from, low - 1));
        }
        next = high.checked_add(1);
    }
    if let Some(from) = next.filter(|from| *from <= max) {
        out.push((from, max));
    }
    out
}

/// For every value the rules with a range that contains it.
#[derive(Debug)]
pub struct Ranges {
    /// Number from which each set holds; the first is 0.
    starts: Vec<u128>,
    sets: Vec<RuleSet>,
}

impl Ranges {
    /// `of` gives the joined ranges of a rule.
    pub fn new(rules: usize, of: impl Fn(usize) -> Vec<Range>) -> Ranges {
        let mut changes: Vec<(u128, usize, bool)> = Vec::new();
        for rule in 0..rules {
            for (low, high) in of(rule) {
                changes.push((low, rule, true));
                if let Some(after) = high.checked_add(1) {
                    changes.push((after, rule, false));
                }
            }
        }
        // An end of a rule comes before its beginning at the same place; joined ranges have none
        // such.
        changes.sort_unstable();
        let mut set = RuleSet::new(rules);
        let (mut starts, mut sets) = (Vec::new(), Vec::new());
        let mut at = 0;
        let mut left = changes.into_iter().peekable();
        loop {
            while let Some((_, rule, is_on)) = left.next_if(|(place, ..)| *place == at) {
                set.set(rule, is_on);
            }
            starts.push(at);
            sets.push(set.clone());
            match left.peek() {
                Some((place, ..)) => at = *place,
                None => return Ranges { starts, sets },
            }
        }
    }

    #[inline]
    pub fn find(&self, value: u128) -> &RuleSet {
        let at = match self.starts.len() {
            1 => 0,
            _ => self.starts.partition_point(|start| *start <= value) - 1,
        };
        &self.sets[at]
    }
}
