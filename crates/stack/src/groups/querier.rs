//! Queries of routers, and when they are answered.
//!
//! RFC 3376 5.2 and 7.2.1, RFC 3810 6.2 and 8.2.1.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use slipstack_wire::group_record::RecordKind;
use slipstack_wire::{igmp, mld};

use super::{Entry, Groups, Saying, after};
use crate::config::Role;
use crate::counters::Counter;
use crate::ip::IpMeta;
use crate::link::Cx;
use crate::rng::Rng;
use crate::time::Instant;

/// RFC 3376 8.1, RFC 3810 9.1.
const ROBUSTNESS: u8 = 2;
/// RFC 3376 8.12, RFC 3810 9.12: robustness times query interval, and one response.
const OLD_QUERIER_NS: u64 = 260_000_000_000;

/// State of the routers that ask.
#[derive(Debug, Default)]
pub(super) struct Querier {
    /// Until when one of version 1, and one of version 2, is taken to be there. MLDv1 is the older
    /// of two and lies where version 2 does.
    old_until: [Instant; 2],
    robustness: u8,
    /// When a question about all groups is to be answered.
    general_at: Option<Instant>,
}

impl Querier {
    pub fn robustness(&self) -> u8 {
        match self.robustness {
            0 => ROBUSTNESS,
            said => said,
        }
    }

    pub fn general_at(&self) -> Option<Instant> {
        self.general_at
    }

    /// The older version that is to be spoken, if one is.
    pub fn version(&self, now: Instant) -> Option<u8> {
        let is_there = |until: Instant| now < until;
        match self.old_until.map(is_there) {
            [true, _] => Some(1),
            [_, true] => Some(2),
            _ => None,
        }
    }
}

/// A query of either family. `old`: the version, if it is an older one.
struct Asked {
    old: Option<u8>,
    /// `None`: about all groups.
    group: Option<IpAddr>,
    sources: Vec<IpAddr>,
    response_max_ms: u32,
    robustness: u8,
}

impl Cx<'_> {
    pub(crate) fn on_igmp(&mut self, now: Instant, ip: &IpMeta, bytes: &[u8]) {
        if self.config.role == Role::Engine {
            self.counters.bump(Counter::DropIcmpRole);
            return;
        }
        // RFC 3376 4: they do not leave their link.
        let message = igmp::IgmpMessage::parse(bytes).filter(|_| ip.ttl == 1);
        match message {
            Some(igmp::IgmpMessage::Query(query)) => {
                self.counters.bump(Counter::RxIgmpQueries);
                self.on_query(
                    now,
                    false,
                    Asked {
                        old: (query.version < 3).then_some(query.version),
                        group: (!query.group.is_unspecified()).then_some(query.group.into()),
                        sources: query.sources().map(IpAddr::V4).collect(),
                        response_max_ms: query.response_max_ms,
                        robustness: query.robustness,
                    },
                );
            }
            Some(igmp::IgmpMessage::Report(group)) => self.on_other_member(group.into()),
            Some(igmp::IgmpMessage::Other) => self.counters.bump(Counter::DropIgmpType),
            None => self.counters.bump(Counter::DropIgmpMalformed),
        }
    }

    pub(crate) fn on_mld_query(&mut self, now: Instant, ip: &IpMeta, rest: [u8; 4], body: &[u8]) {
        let is_local = is_of_link(ip);
        match mld::Query::parse(rest, body) {
            Some(_) if self.config.role == Role::Engine => {
                self.counters.bump(Counter::DropIcmpRole);
            }
            // RFC 3810 5.1.14: from a link-local address and with a hop limit of one.
            Some(query) if is_local => {
                self.counters.bump(Counter::RxMldQueries);
                self.on_query(
                    now,
                    true,
                    Asked {
                        old: query.is_v1.then_some(2),
                        group: (!query.group.is_unspecified()).then_some(query.group.into()),
                        sources: query.sources().map(IpAddr::V6).collect(),
                        response_max_ms: query.response_max_ms,
                        robustness: query.robustness,
                    },
                );
            }
            _ => self.counters.bump(Counter::DropMldMalformed),
        }
    }

    pub(crate) fn on_mld_report(&mut self, ip: &IpMeta, body: &[u8]) {
        match body.first_chunk::<16>() {
            Some(_) if self.config.role == Role::Engine => {
                self.counters.bump(Counter::DropIcmpRole);
            }
            // RFC 2710 3: nobody who is not of the link speaks for us.
            Some(group) if is_of_link(ip) => {
                self.on_other_member(Ipv6Addr::from(*group).into());
            }
            _ => self.counters.bump(Counter::DropMldMalformed),
        }
    }

    /// RFC 2236 3, RFC 2710 4: to routers of older versions one member is as good as many.
    fn on_other_member(&mut self, group: IpAddr) {
        self.counters.bump(Counter::RxGroupReports);
        let groups = self.link.groups.as_mut();
        let entry = groups.and_then(|groups| {
            let mut entries = groups.entries.iter_mut();
            entries.find(|entry| entry.group == group)
        });
        if let Some(entry) = entry {
            entry.answer_at = None;
            entry.is_reporter = false;
        }
    }

    fn on_query(&mut self, now: Instant, is_v6: bool, asked: Asked) {
        if self.link.groups.is_none() && asked.old.is_none() {
            return;
        }
        let groups = self.link.groups.get_or_insert_default();
        groups.note_querier(now, is_v6, &asked);
        groups.schedule(now, is_v6, asked, self.rng);
        let at = groups.next_deadline();
        self.link.look_at(at);
    }
}

fn is_of_link(ip: &IpMeta) -> bool {
    ip.ttl == 1 && matches!(ip.src, IpAddr::V6(src) if src.is_unicast_link_local())
}

impl Groups {
    /// RFC 3376 7.2.1, RFC 3810 8.2.1: with the version, everything that was to be said of the
    /// other one ends.
    fn note_querier(&mut self, now: Instant, is_v6: bool, asked: &Asked) {
        let querier = self.querier(is_v6);
        let before = querier.version(now);
        match asked.old {
            Some(version) => {
                let until = now.plus_nanos(OLD_QUERIER_NS);
                querier.old_until[usize::from(version - 1)] = until;
            }
            None => querier.robustness = asked.robustness,
        }
        if querier.version(now) != before {
            querier.general_at = None;
            for entry in &mut self.entries {
                if entry.group.is_ipv6() == is_v6 {
                    entry.answer_at = None;
                    entry.asked.clear();
                }
            }
        }
    }

    /// RFC 3376 5.2, RFC 3810 6.2: the five rules.
    fn schedule(&mut self, now: Instant, is_v6: bool, asked: Asked, rng: &mut Rng) {
        let is_old = self.querier(is_v6).version(now).is_some();
        let at = after(now, asked.response_max_ms, rng);
        let general = self.querier(is_v6).general_at;
        if general.is_some_and(|general| general <= at) {
            return;
        }
        let Some(group) = asked.group else {
            if !is_old {
                self.querier(is_v6).general_at = Some(at);
                return;
            }
            // Older versions answer for each group apart.
            for entry in &mut self.entries {
                if entry.group.is_ipv6() == is_v6 {
                    let at = after(now, asked.response_max_ms, rng);
                    let earlier = entry.answer_at.filter(|earlier| *earlier <= at);
                    entry.answer_at = Some(earlier.unwrap_or(at));
                }
            }
            return;
        };
        let mut entries = self.entries.iter_mut();
        let Some(entry) = entries.find(|entry| entry.group == group) else {
            return;
        };
        match entry.answer_at {
            None => entry.asked = asked.sources,
            Some(_) if entry.asked.is_empty() || asked.sources.is_empty() => entry.asked.clear(),
            Some(_) => {
                for source in asked.sources {
                    if entry.asked.len() < super::SOURCES_MAX && !entry.asked.contains(&source) {
                        entry.asked.push(source);
                    }
                }
            }
        }
        entry.asked.truncate(super::SOURCES_MAX);
        let earlier = entry.answer_at.filter(|earlier| *earlier <= at);
        entry.answer_at = Some(earlier.unwrap_or(at));
    }

    /// RFC 3376 5.2, RFC 3810 6.3: the records of a report of the current state.
    pub(super) fn due_answers(&mut self, now: Instant, is_v6: bool) -> Vec<Saying> {
        let querier = self.querier(is_v6);
        let is_general = querier.general_at.is_some_and(|at| at <= now);
        if is_general {
            querier.general_at = None;
        }
        let mut said = Vec::new();
        let of_family = |entry: &&mut Entry| entry.group.is_ipv6() == is_v6;
        for entry in self.entries.iter_mut().filter(of_family) {
            let is_due = entry.answer_at.is_some_and(|at| at <= now);
            if is_due {
                entry.answer_at = None;
            }
            let asked = core::mem::take(&mut entry.asked);
            if !entry.is_reported() || entry.state.is_nothing() || !(is_due || is_general) {
                if !is_due {
                    entry.asked = asked;
                }
                continue;
            }
            let state = &entry.state;
            let (kind, sources) = if is_due && !is_general && !asked.is_empty() {
                let wanted = asked.into_iter().filter(|source| state.allows(*source));
                (RecordKind::IsInclude, wanted.collect::<Vec<_>>())
            } else if state.is_exclude {
                (RecordKind::IsExclude, state.sources.clone())
            } else {
                (RecordKind::IsInclude, state.sources.clone())
            };
            // About sources none of which is wanted there is nothing to say.
            if kind == RecordKind::IsExclude || !sources.is_empty() {
                said.push(Saying {
                    group: entry.group,
                    kind,
                    sources,
                });
            }
        }
        said
    }
}
