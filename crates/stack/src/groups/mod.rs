//! The groups that this host hears, on behalf of its sockets, of engines, and of its own addresses.
//!
//! IGMPv3 (RFC 3376, RFC 9776) and MLDv2 (RFC 3810, RFC 9777) for hosts, with the older versions
//! that a querier may speak. What each asker wants is merged into what the interface hears; changes
//! of that are reported here, queries are answered in `querier.rs`, and what is said goes out in
//! `report.rs`. An engine says nothing: it tells its keeper ([`crate::Effects::group`]), which
//! does.

mod filter;
mod querier;
mod report;

use alloc::vec::Vec;
use core::net::IpAddr;

use slipstack_wire::group_record::RecordKind;
use slipstack_wire::igmp;

use crate::config::Role;
use crate::effects::Effects;
use crate::ids::UdpId;
use crate::link::Cx;
use crate::rng::Rng;
use crate::route6::ALL_NODES;
use crate::time::Instant;
use querier::Querier;

pub use filter::{GroupFilter, SOURCES_MAX};

/// Groups of one interface at most: a further one is not heard.
pub(crate) const GROUPS_MAX: usize = 4096;
/// RFC 3376 8.11, RFC 3810 9.11: within this time a change is said again.
const UNSOLICITED_MS: u32 = 1000;
/// RFC 2236 8.10, RFC 2710 7.10: the same of older versions.
const UNSOLICITED_OLD_MS: u32 = 10_000;
/// How often an engine repeats what it wants: its keeper may have been replaced.
const REMIND_NS: u64 = 30_000_000_000;

/// On whose behalf a group is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// One of our own addresses: its solicited-node group.
    Address,
    Socket(UdpId),
    /// The engine on a slot.
    Slot(u16),
}

#[derive(Debug)]
struct Entry {
    group: IpAddr,
    wants: Vec<(Asker, GroupFilter)>,
    /// The filter that all of them want together.
    state: GroupFilter,
    /// How often a change of the filter's mode is still to be said.
    mode_left: u8,
    /// Reports left for each source.
    sources_left: Vec<(IpAddr, u8)>,
    change_at: Option<Instant>,
    /// When a query is to be answered, and about which sources (none: all).
    answer_at: Option<Instant>,
    asked: Vec<IpAddr>,
    /// With older versions: we were the last to report, so we send the leave.
    is_reporter: bool,
}

impl Entry {
    fn new(group: IpAddr) -> Self {
        Self {
            group,
            wants: Vec::new(),
            state: GroupFilter::NOTHING,
            mode_left: 0,
            sources_left: Vec::new(),
            change_at: None,
            answer_at: None,
            asked: Vec::new(),
            is_reporter: false,
        }
    }

    /// Merges anew; whether that changed something. RFC 3376 5.1, RFC 3810 6.1: what is new is said
    /// at once, and again.
    fn renew(&mut self, robustness: u8) -> bool {
        let state = GroupFilter::merge(self.wants.iter().map(|(_, filter)| filter));
        if state == self.state {
            return false;
        }
        if state.is_exclude != self.state.is_exclude {
            self.mode_left = robustness;
            self.sources_left.clear();
        } else {
            let both = self.state.sources.iter().chain(&state.sources);
            let is_changed = |source: &&IpAddr| {
                let is_in = |filter: &GroupFilter| filter.sources.binary_search(source).is_ok();
                is_in(&self.state) != is_in(&state)
            };
            for &source in both.filter(is_changed) {
                self.sources_left.retain(|(of, _)| *of != source);
                self.sources_left.push((source, robustness));
            }
        }
        self.state = state;
        self.change_at = Some(Instant::ZERO);
        true
    }

    fn is_over(&self) -> bool {
        self.state.is_nothing() && self.change_at.is_none() && self.wants.is_empty()
    }

    fn next_deadline(&self) -> Option<Instant> {
        [self.change_at, self.answer_at].into_iter().flatten().min()
    }

    /// RFC 3376 5, RFC 3810 6: the all-systems groups, and of IPv6 scopes 0 and 1, are never
    /// reported.
    fn is_reported(&self) -> bool {
        match self.group {
            IpAddr::V4(group) => group != igmp::ALL_SYSTEMS,
            IpAddr::V6(group) => {
                let scope = group.octets()[1] & 0x0f;
                group != ALL_NODES && scope > 1
            }
        }
    }
}

/// All groups of an interface. Made for the first.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    entries: Vec<Entry>,
    v4: Querier,
    v6: Querier,
    /// Time at which an engine reports everything again.
    remind_at: Option<Instant>,
}

impl Groups {
    /// Whether anybody wants datagrams to this group.
    pub fn hears(&self, group: IpAddr) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.group == group && !entry.state.is_nothing())
    }

    /// Sets an asker's filter for a group from now on. Returns `false` if there is no room.
    pub fn want(&mut self, asker: Asker, group: IpAddr, filter: GroupFilter) -> bool {
        let at = match self.entries.iter().position(|entry| entry.group == group) {
            Some(at) => at,
            None if filter.is_nothing() => return true,
            None if self.entries.len() >= GROUPS_MAX => return false,
            None => {
                self.entries.push(Entry::new(group));
                self.entries.len() - 1
            }
        };
        let robustness = self.querier(group.is_ipv6()).robustness();
        let entry = &mut self.entries[at];
        entry.wants.retain(|(of, _)| *of != asker);
        if !filter.is_nothing() {
            entry.wants.push((asker, filter));
        }
        entry.renew(robustness);
        true
    }

    /// An asker is gone.
    pub fn forget(&mut self, asker: Asker) {
        let robustness = [&self.v4, &self.v6].map(|querier| querier.robustness());
        for entry in &mut self.entries {
            let before = entry.wants.len();
            entry.wants.retain(|(of, _)| *of != asker);
            if entry.wants.len() != before {
                entry.renew(robustness[usize::from(entry.group.is_ipv6())]);
            }
        }
    }

    /// Nothing is said before [`Groups::announce`], but in answer.
    pub fn keep_quiet(&mut self) {
        for entry in &mut self.entries {
            entry.change_at = None;
        }
    }

    /// Everything is said as if it were new.
    pub fn announce(&mut self) {
        let robustness = [&self.v4, &self.v6].map(|querier| querier.robustness());
        for entry in &mut self.entries {
            entry.mode_left = robustness[usize::from(entry.group.is_ipv6())];
            entry.change_at = Some(Instant::ZERO);
        }
    }

    fn querier(&mut self, is_v6: bool) -> &mut Querier {
        if is_v6 { &mut self.v6 } else { &mut self.v4 }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let entries = self.entries.iter().filter_map(Entry::next_deadline).min();
        let general = [self.v4.general_at(), self.v6.general_at(), self.remind_at];
        general.into_iter().flatten().chain(entries).min()
    }
}

/// The report due about one group.
struct Saying {
    group: IpAddr,
    kind: RecordKind,
    sources: Vec<IpAddr>,
}

impl Cx<'_> {
    /// See [`Groups::want`]; it is said with the next timers.
    pub(crate) fn want_group(&mut self, asker: Asker, group: IpAddr, filter: GroupFilter) -> bool {
        let groups = self.link.groups.get_or_insert_default();
        let is_taken = groups.want(asker, group, filter);
        self.link.look_at(Some(Instant::ZERO));
        is_taken
    }

    /// Says what is due: changes, and answers to queries.
    #[cold]
    pub(crate) fn on_group_timers(&mut self, now: Instant, fx: &mut impl Effects) {
        let Some(mut groups) = self.link.groups.take() else {
            return;
        };
        if self.config.role == Role::Engine {
            groups.tell(now, fx);
        } else {
            for is_v6 in [false, true] {
                let changes = groups.due_changes(now, is_v6, self.rng);
                self.say_changes(now, is_v6, &mut groups, &changes, fx);
                let answers = groups.due_answers(now, is_v6);
                self.say_answers(now, is_v6, &mut groups, &answers, fx);
            }
        }
        groups.entries.retain(|entry| !entry.is_over());
        self.link.groups = Some(groups);
    }
}

impl Groups {
    /// An engine's part: what has changed goes to the keeper, and everything now and then.
    fn tell(&mut self, now: Instant, fx: &mut impl Effects) {
        let is_time = self.remind_at.is_some_and(|at| at <= now);
        for entry in &mut self.entries {
            if is_time || entry.change_at.take().is_some() {
                fx.group(entry.group, &entry.state);
            }
        }
        let is_needed = self.entries.iter().any(|entry| !entry.state.is_nothing());
        self.remind_at = match self.remind_at {
            _ if !is_needed => None,
            Some(at) if !is_time => Some(at),
            _ => Some(now.plus_nanos(REMIND_NS)),
        };
    }

    /// RFC 3376 5.1, RFC 3810 6.1: the records of a state-change report.
    fn due_changes(&mut self, now: Instant, is_v6: bool, rng: &mut Rng) -> Vec<Saying> {
        let is_old = self.querier(is_v6).version(now).is_some();
        let mut said = Vec::new();
        for entry in &mut self.entries {
            let is_due = entry.change_at.is_some_and(|at| at <= now);
            if entry.group.is_ipv6() != is_v6 || !is_due {
                continue;
            }
            entry.say_change(&mut said);
            let is_more = entry.mode_left > 0 || !entry.sources_left.is_empty();
            // Of an older version a leave is said once.
            let is_more = is_more && !(is_old && entry.state.is_nothing());
            if !is_more {
                entry.mode_left = 0;
                entry.sources_left.clear();
            }
            let spread = if is_old {
                UNSOLICITED_OLD_MS
            } else {
                UNSOLICITED_MS
            };
            entry.change_at = is_more.then(|| after(now, spread, rng));
            if !entry.is_reported() {
                said.retain(|saying| saying.group != entry.group);
            }
        }
        said
    }
}

impl Entry {
    fn say_change(&mut self, said: &mut Vec<Saying>) {
        let mut say = |kind, sources: Vec<IpAddr>| {
            said.push(Saying {
                group: self.group,
                kind,
                sources,
            });
        };
        if self.mode_left > 0 {
            self.mode_left -= 1;
            let kind = if self.state.is_exclude {
                RecordKind::ToExclude
            } else {
                RecordKind::ToInclude
            };
            return say(kind, self.state.sources.clone());
        }
        for kind in [RecordKind::Allow, RecordKind::Block] {
            let is_allow = kind == RecordKind::Allow;
            let sources = self.sources_left.iter().map(|(source, _)| *source);
            let sources: Vec<_> = sources
                .filter(|source| self.state.allows(*source) == is_allow)
                .collect();
            if !sources.is_empty() {
                say(kind, sources);
            }
        }
        for (_, left) in &mut self.sources_left {
            *left -= 1;
        }
        self.sources_left.retain(|(_, left)| *left > 0);
    }
}

/// A moment within the next `ms`.
fn after(now: Instant, ms: u32, rng: &mut Rng) -> Instant {
    now.plus_nanos(u64::from(rng.below(ms.max(1)) + 1) * 1_000_000)
}
