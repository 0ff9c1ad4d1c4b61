//! One multicast group of an interface: its merged membership, and reports still to be sent.

use alloc::vec::Vec;
use core::net::IpAddr;

use slipstack_wire::group_record::RecordKind;
use slipstack_wire::igmp;

use super::filter::{GroupFilter, SOURCES_MAX};
use crate::ids::UdpId;
use crate::rng::Rng;
use crate::route6::ALL_NODES;
use crate::time::Instant;

/// A party that has joined a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// One of our own addresses: its solicited-node group.
    Address,
    Socket(UdpId),
    /// The engine on a slot.
    Slot(u16),
}

/// A group, its members, and reports still to be sent.
#[derive(Debug)]
pub(super) struct Entry {
    group: IpAddr,
    wants: Vec<(Asker, GroupFilter)>,
    /// The merged filter of all members.
    state: GroupFilter,
    /// Repetitions left of a report of a changed filter mode.
    mode_left: u8,
    /// Reports left for each source.
    sources_left: Vec<(IpAddr, u8)>,
    change_at: Option<Instant>,
    /// Time at which a query is to be answered, and about which sources (none: all).
    answer_at: Option<Instant>,
    asked: Vec<IpAddr>,
    /// With older versions: we were the last to report, so we send the leave.
    is_reporter: bool,
}

impl Entry {
    pub fn new(group: IpAddr) -> Self {
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

    /// Merges the memberships again. Returns whether that changed something. RFC 3376 5.1, RFC 3810
    /// 6.1: a change is reported at once, and repeated.
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

    pub fn is_over(&self) -> bool {
        self.state.is_nothing() && self.change_at.is_none() && self.wants.is_empty()
    }

    pub fn next_deadline(&self) -> Option<Instant> {
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

    pub fn group(&self) -> IpAddr {
        self.group
    }

    pub fn is_v6(&self) -> bool {
        self.group.is_ipv6()
    }

    /// The filter that all askers want together.
    pub fn state(&self) -> &GroupFilter {
        &self.state
    }

    /// Sets an asker's filter.
    pub fn want(&mut self, asker: Asker, filter: GroupFilter, robustness: u8) {
        self.wants.retain(|(of, _)| *of != asker);
        if !filter.is_nothing() {
            self.wants.push((asker, filter));
        }
        self.renew(robustness);
    }

    /// Removes a party.
    pub fn forget(&mut self, asker: Asker, robustness: u8) {
        let before = self.wants.len();
        self.wants.retain(|(of, _)| *of != asker);
        if self.wants.len() != before {
            self.renew(robustness);
        }
    }

    /// Cancels the report of the last change.
    pub fn keep_quiet(&mut self) {
        self.change_at = None;
    }

    /// Reports the whole state as if it were new.
    pub fn announce(&mut self, robustness: u8) {
        self.mode_left = robustness;
        self.change_at = Some(Instant::ZERO);
    }

    /// Returns `true`, once, if there is an unreported change.
    pub fn take_change(&mut self) -> bool {
        self.change_at.take().is_some()
    }

    /// Records which host reported last; returns whether it was this one.
    pub fn set_reporter(&mut self, is_reporter: bool) -> bool {
        core::mem::replace(&mut self.is_reporter, is_reporter)
    }

    /// RFC 2236 3, RFC 2710 4: another member has reported, which answers for us.
    pub fn on_other_member(&mut self) {
        self.answer_at = None;
        self.is_reporter = false;
    }

    /// Drops a pending answer, because the querier uses another version.
    pub fn drop_answer(&mut self) {
        self.answer_at = None;
        self.asked.clear();
    }

    /// Answers about all sources, no later than `at`.
    pub fn answer_by(&mut self, at: Instant) {
        let earlier = self.answer_at.filter(|earlier| *earlier <= at);
        self.answer_at = Some(earlier.unwrap_or(at));
    }

    /// Schedules an answer about these sources (none: all) together with earlier ones.
    pub fn answer_about(&mut self, sources: Vec<IpAddr>, at: Instant) {
        match self.answer_at {
            None => self.asked = sources,
            Some(_) if self.asked.is_empty() || sources.is_empty() => self.asked.clear(),
            Some(_) => {
                for source in sources {
                    if self.asked.len() < SOURCES_MAX && !self.asked.contains(&source) {
                        self.asked.push(source);
                    }
                }
            }
        }
        self.asked.truncate(SOURCES_MAX);
        self.answer_by(at);
    }

    /// RFC 3376 5.2, RFC 3810 6.3: the record of a report of the current state, if one is due.
    pub fn take_answer(&mut self, now: Instant, is_general: bool) -> Option<Saying> {
        let is_due = self.answer_at.is_some_and(|at| at <= now);
        if is_due {
            self.answer_at = None;
        }
        let asked = core::mem::take(&mut self.asked);
        if !self.is_reported() || self.state.is_nothing() || !(is_due || is_general) {
            if !is_due {
                self.asked = asked;
            }
            return None;
        }
        let state = &self.state;
        let (kind, sources) = if is_due && !is_general && !asked.is_empty() {
            let wanted = asked.into_iter().filter(|source| state.allows(*source));
            (RecordKind::IsInclude, wanted.collect::<Vec<_>>())
        } else if state.is_exclude {
            (RecordKind::IsExclude, state.sources.clone())
        } else {
            (RecordKind::IsInclude, state.sources.clone())
        };
        // About sources none of which is wanted there is nothing to say.
        let group = self.group;
        let is_said = kind == RecordKind::IsExclude || !sources.is_empty();
        is_said.then_some(Saying {
            group,
            kind,
            sources,
        })
    }

    /// RFC 3376 5.1, RFC 3810 6.1: returns the records of a report of changes, if one is due; it is
    /// repeated after a random part of `again_ms`. `is_old`: for a querier of an older version, to
    /// which a leave is sent once.
    pub fn take_changes(
        &mut self,
        now: Instant,
        is_old: bool,
        again_ms: u32,
        rng: &mut Rng,
    ) -> Vec<Saying> {
        let mut said = Vec::new();
        if self.change_at.is_none_or(|at| now < at) {
            return said;
        }
        self.say_change(&mut said);
        let is_more = self.mode_left > 0 || !self.sources_left.is_empty();
        let is_more = is_more && !(is_old && self.state.is_nothing());
        if !is_more {
            self.mode_left = 0;
            self.sources_left.clear();
        }
        self.change_at = is_more.then(|| after(now, again_ms, rng));
        if !self.is_reported() {
            said.clear();
        }
        said
    }

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

/// The report due about one group.
pub(super) struct Saying {
    pub group: IpAddr,
    pub kind: RecordKind,
    pub sources: Vec<IpAddr>,
}

/// A moment within the next `ms`.
pub(super) fn after(now: Instant, ms: u32, rng: &mut Rng) -> Instant {
    now.plus_nanos(u64::from(rng.below(ms.max(1)) + 1) * 1_000_000)
}
