//! Rules: conditions on a packet, and the table or the refusal for packets that meet them. Rules
//! that differ only in their source are looked up in one step.

use alloc::vec::Vec;
use core::hash::BuildHasherDefault;

use hashbrown::HashMap;
use slipstack_network::RuleAction;
use slipstack_terms::CarriedRange;

use super::index::Mixer;
use super::{Entry, Prefix, Query, Target, bits, mask};

type Sources = HashMap<u128, u32, BuildHasherDefault<Mixer>>;

/// Which packets a rule is for, and the table that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub priority: u32,
    pub from: Prefix,
    pub to: Prefix,
    /// Value and mask.
    pub mark: Option<(u32, u32)>,
    pub tos: Option<u8>,
    pub carried: CarriedRange,
    /// Origin of packets, as in a choice.
    pub input: Option<u16>,
    /// The link that the sender is bound to, as in a choice.
    pub output: Option<u16>,
    /// The rule is for the packets that the conditions do not describe.
    pub is_not: bool,
    pub action: RuleAction,
    pub table: u32,
}

impl Rule {
    /// For all packets.
    pub const fn new(priority: u32, table: u32) -> Rule {
        Rule {
            priority,
            from: Prefix::ALL,
            to: Prefix::ALL,
            mark: None,
            tos: None,
            carried: CarriedRange::ALL,
            input: None,
            output: None,
            is_not: false,
            action: RuleAction::Lookup,
            table,
        }
    }

    /// Returns whether it selects by more than addresses.
    pub fn asks_more(&self) -> bool {
        self.mark.is_some()
            || self.tos.is_some()
            || self.asks_carried()
            || self.input.is_some()
            || self.output.is_some()
            || self.is_not
            || self.action != RuleAction::Lookup
    }

    /// Returns whether it selects by protocol or ports.
    pub(super) fn asks_carried(&self) -> bool {
        !self.carried.is_all()
    }

    pub(super) fn applies(&self, query: &Query) -> bool {
        self.describes(query) != self.is_not
    }

    fn describes(&self, query: &Query) -> bool {
        // A sender that has no address yet is in no network.
        let src = query.src.map(bits);
        (self.from.is_all() || src.is_some_and(|src| self.from.contains(src)))
            && self.to.contains(bits(query.dst))
            && self
                .mark
                .is_none_or(|(value, mask)| query.choice.mark & mask == value & mask)
            && self.tos.is_none_or(|tos| tos == query.tos)
            && self.carried.contains(query.carried)
            && self.input.is_none_or(|input| input == query.choice.input)
            && self.output.is_none_or(|link| link == query.choice.link)
    }

    /// The entry that stands for its refusal.
    pub(super) const fn refusal(&self) -> Option<&'static Entry> {
        const fn refused(action: RuleAction) -> Entry {
            Entry::new(Prefix::ALL, Target::Refused(action))
        }
        const UNREACHABLE: &Entry = &refused(RuleAction::Unreachable);
        const PROHIBIT: &Entry = &refused(RuleAction::Prohibit);
        const BLACKHOLE: &Entry = &refused(RuleAction::Blackhole);
        match self.action {
            RuleAction::Lookup => None,
            RuleAction::Unreachable => Some(UNREACHABLE),
            RuleAction::Prohibit => Some(PROHIBIT),
            RuleAction::Blackhole => Some(BLACKHOLE),
        }
    }
}

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
    /// The single rule that is for a packet.
    pub fn rule_for(&self, query: &Query) -> Option<&Rule> {
        match self {
            Step::One(rule) => Some(rule).filter(|rule| rule.applies(query)),
            Step::Sources { .. } => None,
        }
    }

    /// The table that one of several rules names for a packet.
    pub fn table_for(&self, query: &Query) -> Option<u32> {
        match self {
            Step::One(_) => None,
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
    !rule.from.is_all() && rule.to.is_all() && !rule.asks_more()
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
