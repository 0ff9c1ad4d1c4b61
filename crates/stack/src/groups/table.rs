//! All groups of a link, and the state of its queriers.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::entry::{Asker, Entry, Saying, after};
use super::filter::GroupFilter;
use super::querier::{Asked, Querier};
use crate::effects::Effects;
use crate::ip::LinkedGroup;
use crate::rng::Rng;
use crate::time::Instant;

/// Most groups of one interface: a further one is not received.
pub(crate) const GROUPS_MAX: usize = 4096;
/// RFC 3376 8.11, RFC 3810 9.11: within this time a change is repeated.
const UNSOLICITED_MS: u32 = 1000;
/// RFC 2236 8.10, RFC 2710 7.10: the same of older versions.
const UNSOLICITED_OLD_MS: u32 = 10_000;
/// Interval at which an engine repeats its memberships: its keeper may have been replaced.
const REMIND_NS: u64 = 30_000_000_000;

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub(super) struct LinkGroups {
    entries: Vec<Entry>,
    v4: Querier,
    v6: Querier,
    /// Time at which an engine reports everything again.
    remind_at: Option<Instant>,
}

impl LinkGroups {
    /// Returns whether there is a receiver for datagrams to this group.
    pub fn hears(&self, group: IpAddr) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.group() == group && !entry.state().is_nothing())
    }

    /// Sets an asker's filter for a group from now on. Returns `false` if there is no room.
    pub fn want(&mut self, asker: Asker, group: IpAddr, filter: GroupFilter) -> bool {
        let at = match self.entries.iter().position(|entry| entry.group() == group) {
            Some(at) => at,
            None if filter.is_nothing() => return true,
            None if self.entries.len() >= GROUPS_MAX => return false,
            None => {
                self.entries.push(Entry::new(group));
                self.entries.len() - 1
            }
        };
        let robustness = self.querier(group.is_ipv6()).robustness();
        self.entries[at].want(asker, filter, robustness);
        true
    }

    /// Removes a party.
    pub fn forget(&mut self, asker: Asker) {
        let robustness = self.robustness();
        for entry in &mut self.entries {
            entry.forget(asker, robustness[usize::from(entry.is_v6())]);
        }
    }

    /// Sends no report before [`LinkGroups::announce`], except in answer to a query.
    pub fn keep_quiet(&mut self) {
        self.entries.iter_mut().for_each(Entry::keep_quiet);
    }

    /// Reports the whole state as if it were new.
    pub fn announce(&mut self) {
        let robustness = self.robustness();
        for entry in &mut self.entries {
            entry.announce(robustness[usize::from(entry.is_v6())]);
        }
    }

    /// Removes groups without members and without pending reports.
    pub fn drop_unwanted(&mut self) {
        self.entries.retain(|entry| !entry.is_over());
    }

    pub(super) fn find_mut(&mut self, group: IpAddr) -> Option<&mut Entry> {
        let mut entries = self.entries.iter_mut();
        entries.find(|entry| entry.group() == group)
    }

    pub(super) fn querier(&mut self, is_v6: bool) -> &mut Querier {
        if is_v6 { &mut self.v6 } else { &mut self.v4 }
    }

    fn of_family(&mut self, is_v6: bool) -> impl Iterator<Item = &mut Entry> {
        let entries = self.entries.iter_mut();
        entries.filter(move |entry| entry.is_v6() == is_v6)
    }

    fn robustness(&self) -> [u8; 2] {
        [&self.v4, &self.v6].map(|querier| querier.robustness())
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let entries = self.entries.iter().filter_map(Entry::next_deadline).min();
        let general = [self.v4.general_at(), self.v6.general_at(), self.remind_at];
        general.into_iter().flatten().chain(entries).min()
    }

    /// Sends an engine's changes to the keeper, and its whole state from time to time.
    pub(super) fn tell(&mut self, now: Instant, link: u16, fx: &mut impl Effects) {
        let is_time = self.remind_at.is_some_and(|at| at <= now);
        for entry in &mut self.entries {
            if is_time || entry.take_change() {
                let group = entry.group();
                fx.group(LinkedGroup { group, link }, entry.state());
            }
        }
        let is_needed = self.entries.iter().any(|entry| !entry.state().is_nothing());
        self.remind_at = match self.remind_at {
            _ if !is_needed => None,
            Some(at) if !is_time => Some(at),
            _ => Some(now.plus_nanos(REMIND_NS)),
        };
    }

    /// RFC 3376 5.1, RFC 3810 6.1: the records of a state-change report.
    pub(super) fn due_changes(&mut self, now: Instant, is_v6: bool, rng: &mut Rng) -> Vec<Saying> {
        let is_old = self.querier(is_v6).version(now).is_some();
        let again_ms = match is_old {
            true => UNSOLICITED_OLD_MS,
            false => UNSOLICITED_MS,
        };
        self.of_family(is_v6)
            .flat_map(|entry| entry.take_changes(now, is_old, again_ms, rng))
            .collect()
    }

    /// RFC 3376 5.2, RFC 3810 6.3: the records of a report of the current state.
    pub(super) fn due_answers(&mut self, now: Instant, is_v6: bool) -> Vec<Saying> {
        let is_general = self.querier(is_v6).take_general(now);
        self.of_family(is_v6)
            .filter_map(|entry| entry.take_answer(now, is_general))
            .collect()
    }

    /// RFC 3376 7.2.1, RFC 3810 8.2.1: when the version changes, pending reports of the other one
    /// are cancelled.
    pub(super) fn note_querier(&mut self, now: Instant, is_v6: bool, asked: &Asked) {
        if self.querier(is_v6).note(now, asked.old, asked.robustness) {
            self.of_family(is_v6).for_each(Entry::drop_answer);
        }
    }

    /// RFC 3376 5.2, RFC 3810 6.2: the five rules.
    pub(super) fn schedule(&mut self, now: Instant, is_v6: bool, asked: Asked, rng: &mut Rng) {
        let is_old = self.querier(is_v6).version(now).is_some();
        let at = after(now, asked.response_max_ms, rng);
        let general = self.querier(is_v6).general_at();
        if general.is_some_and(|general| general <= at) {
            return;
        }
        match asked.group {
            Some(group) => {
                if let Some(entry) = self.find_mut(group) {
                    entry.answer_about(asked.sources, at);
                }
            }
            None if !is_old => self.querier(is_v6).answer_general(at),
            // Older versions answer for each group separately.
            None => {
                for entry in self.of_family(is_v6) {
                    entry.answer_by(after(now, asked.response_max_ms, rng));
                }
            }
        }
    }
}
