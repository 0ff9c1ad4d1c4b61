//! Rules that differ only in their source, looked up in one step.

use alloc::vec::Vec;
use core::hash::BuildHasherDefault;

use hashbrown::HashMap;

use super::index::Mixer;
use super::{Query, Rule, bits, mask};

type Sources = HashMap<u128, u32, BuildHasherDefault<Mixer>>;

/// One rule, or several that follow each other.
#[derive(Clone, Debug)]
pub(super) enum Step {
    One(Rule),
    /// Each is for other sources, by prefixes of one length: at most one applies.
    Sources {
        len: u8,
        tables: Sources,
    },
}

impl Step {
    /// The table that is named for a packet.
    pub fn table_for(&self, query: &Query) -> Option<u32> {
        match self {
            Step::One(rule) => rule.applies(query).then_some(rule.table),
            Step::Sources { len, tables } => {
                let source = bits(query.src?) & mask(*len);
                tables.get(&source).copied()
            }
        }
    }

    /// Takes one more rule in; `false`: it is not like these.
    fn take(&mut self, rule: &Rule) -> bool {
        let Step::Sources { len, tables } = self else {
            return false;
        };
        let is_alike = tells_sources(rule) && rule.from.len == *len;
        // Two rules for one source may both apply.
        if !is_alike || tables.contains_key(&rule.from.bits) {
            return false;
        }
        tables.insert(rule.from.bits, rule.table);
        true
    }
}

fn tells_sources(rule: &Rule) -> bool {
    let asks_more = rule.mark.is_some() || rule.tos.is_some();
    !rule.from.is_all() && rule.to.is_all() && !asks_more
}

/// Returns steps that are equivalent to the rules, in their order.
pub(super) fn join(rules: &[Rule]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for rule in rules {
        if steps.last_mut().is_some_and(|last| last.take(rule)) {
            continue;
        }
        steps.push(match tells_sources(rule) {
            true => Step::Sources {
                len: rule.from.len,
                tables: [(rule.from.bits, rule.table)].into_iter().collect(),
            },
            false => Step::One(*rule),
        });
    }
    steps
}
