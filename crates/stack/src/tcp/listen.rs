//! Listeners and their groups.
//!
//! Several listeners on one address share its connections by a keyed hash of the flow, so that one
//! flow's SYN and its retransmission reach the same listener.

use alloc::vec::Vec;
use core::net::SocketAddr;

use hashbrown::HashTable;

use super::fast_open::FastOpens;
use super::flow::{FlowHasher, FlowKey};
use super::options::Preset;
use super::slab::Slab;
use crate::bound::Bound;
use crate::fib::Choice;
use crate::ids::ListenerId;
use crate::options::{ListenOptions, PortHold};
use crate::time::Instant;

/// SYNs that may wait for their ACK, whatever the backlog: with `listen(fd, 1)` one attacker's SYN
/// would shut out all others.
pub const HALF_OPEN_MIN: u32 = 256;

#[derive(Debug)]
pub struct Listener {
    pub local: SocketAddr,
    /// Addresses at which the listener holds its port.
    pub hold: PortHold,
    pub options: ListenOptions,
    /// Settings that accepted connections begin with.
    pub preset: Preset,
    /// Connections given to the program's queue, and those that it has taken (wrapping).
    pub offered: u32,
    pub taken: u32,
    /// SYN entries that belong here.
    pub half_open: u32,
    pub fast_open: FastOpens,
    /// The program looks elsewhere: others on the address come first.
    pub is_yielding: bool,
}

impl Listener {
    pub fn bound(&self) -> Bound {
        Bound::new(self.local.ip(), self.options.is_v6_only)
    }

    /// The link that it is bound to, as [`crate::fib::Choice::link`].
    fn link(&self) -> u16 {
        self.options.socket.link
    }

    /// `listen(2)`: backlog + 1 connections may wait, as on Linux.
    pub fn is_full(&self) -> bool {
        self.offered.wrapping_sub(self.taken) > self.options.backlog
    }

    /// Half-open connections are bounded by the backlog too, with a floor.
    pub fn is_half_open_full(&self) -> bool {
        self.half_open >= self.options.backlog.max(HALF_OPEN_MIN)
    }
}

/// Listeners with the same address and port.
#[derive(Debug)]
struct Group {
    /// [`Bound::bits`].
    bound: u128,
    port: u16,
    members: Vec<ListenerId>,
    /// ACKs that answer a SYN cookie may come until then.
    cookies_until: Instant,
    /// Number of listeners that yield.
    yielding: u32,
}

#[derive(Debug)]
pub struct Listeners {
    slab: Slab<Listener>,
    groups: HashTable<Group>,
    /// Number of listeners that are bound to a link.
    linked: u32,
}

impl Listeners {
    pub fn new(limit: u32) -> Listeners {
        Listeners {
            slab: Slab::new(limit),
            groups: HashTable::new(),
            linked: 0,
        }
    }

    /// `None`: too many.
    pub fn add(
        &mut self,
        local: SocketAddr,
        hold: PortHold,
        options: ListenOptions,
        preset: Preset,
    ) -> Option<ListenerId> {
        let bound = hold.bound().bits();
        let port = local.port();
        let is_linked = options.socket.link != 0;
        let listener = Listener {
            local,
            hold,
            options,
            preset,
            offered: 0,
            taken: 0,
            half_open: 0,
            fast_open: FastOpens::default(),
            is_yielding: false,
        };
        let (index, generation) = self.slab.insert(listener)?;
        let id = ListenerId { index, generation };
        self.linked += u32::from(is_linked);
        match self
            .groups
            .find_mut(hash(bound, port), |g| g.bound == bound && g.port == port)
        {
            Some(group) => group.members.push(id),
            None => {
                let group = Group {
                    bound,
                    port,
                    members: alloc::vec![id],
                    cookies_until: Instant::ZERO,
                    yielding: 0,
                };
                self.groups
                    .insert_unique(hash(bound, port), group, |g| hash(g.bound, g.port));
            }
        }
        Some(id)
    }

    pub fn remove(&mut self, id: ListenerId) -> Option<Listener> {
        self.slab.find(id.index, id.generation)?;
        self.set_yielding(id, false);
        let listener = self.slab.remove(id.index)?;
        self.linked -= u32::from(listener.link() != 0);
        let (bound, port) = (listener.bound().bits(), listener.local.port());
        let hash = hash(bound, port);
        if let Ok(mut entry) = self
            .groups
            .find_entry(hash, |g| g.bound == bound && g.port == port)
        {
            entry.get_mut().members.retain(|m| *m != id);
            if entry.get().members.is_empty() {
                entry.remove();
            }
        }
        Some(listener)
    }

    pub fn find(&self, id: ListenerId) -> Option<&Listener> {
        self.slab.find(id.index, id.generation)
    }

    pub fn find_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.slab.find_mut(id.index, id.generation)
    }

    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// All that may have opened a flow.
    pub fn ids_of(&self, key: &FlowKey) -> Vec<ListenerId> {
        let groups = self.groups_of(key);
        groups
            .flat_map(|group| group.members.iter().copied())
            .collect()
    }

    /// Returns the listener for a new flow on a link (`None`: on any): the exact address before the
    /// family's wildcard, and that before the wildcard of both.
    pub fn choose(
        &self,
        key: &FlowKey,
        link: Option<u16>,
        hasher: &FlowHasher,
    ) -> Option<ListenerId> {
        if self.linked > 0 {
            return self.choose_on_link(key, link, hasher);
        }
        let group = self.group_of(key)?;
        match group.members[..] {
            [] => None,
            [one] => Some(one),
            ref many if group.yielding == 0 => {
                let at = (u128::from(hasher.spread(key)) * many.len() as u128) >> 64;
                many.get(at as usize).copied()
            }
            ref many => self.choose_accepting(many, hasher.spread(key)),
        }
    }

    /// Returns whether there is a listener at the address of a flow, of whichever link.
    pub fn has_any(&self, key: &FlowKey) -> bool {
        self.group_of(key).is_some()
    }

    /// As on Linux, of equal addresses those that are bound to the link come first.
    #[cold]
    fn choose_on_link(
        &self,
        key: &FlowKey,
        link: Option<u16>,
        hasher: &FlowHasher,
    ) -> Option<ListenerId> {
        let admits = |id: &ListenerId| {
            let listener = self.find(*id)?;
            let is_bound = listener.link() != 0;
            let is_meant =
                !is_bound || link.is_none_or(|it| listener.link() == Choice::link_of(it));
            is_meant.then_some((*id, is_bound))
        };
        for group in self.groups_of(key) {
            let admitting: Vec<(ListenerId, bool)> =
                group.members.iter().filter_map(admits).collect();
            let has_bound = admitting.iter().any(|(_, is_bound)| *is_bound);
            let best = admitting
                .iter()
                .filter(|(_, is_bound)| *is_bound == has_bound);
            let best: Vec<ListenerId> = best.map(|(id, _)| *id).collect();
            if !best.is_empty() {
                return self.choose_accepting(&best, hasher.spread(key));
            }
        }
        None
    }

    /// A listener's options have another link.
    pub fn set_link(&mut self, before: u16, after: u16) {
        self.linked -= u32::from(before != 0);
        self.linked += u32::from(after != 0);
    }

    /// One of those that do not yield, if there is one.
    #[cold]
    fn choose_accepting(&self, many: &[ListenerId], spread: u64) -> Option<ListenerId> {
        let is_keen = |id: &&ListenerId| self.find(**id).is_some_and(|l| !l.is_yielding);
        let keen = many.iter().filter(is_keen).count();
        if keen == 0 {
            let at = (u128::from(spread) * many.len() as u128) >> 64;
            return many.get(at as usize).copied();
        }
        let at = (u128::from(spread) * keen as u128) >> 64;
        many.iter().filter(is_keen).nth(at as usize).copied()
    }

    /// Puts a listener behind the others of its address, or among them again.
    pub fn set_yielding(&mut self, id: ListenerId, is_yielding: bool) {
        let Some(listener) = self.slab.find_mut(id.index, id.generation) else {
            return;
        };
        if listener.is_yielding == is_yielding {
            return;
        }
        listener.is_yielding = is_yielding;
        let (bound, port) = (listener.bound().bits(), listener.local.port());
        let hash = hash(bound, port);
        let group = self
            .groups
            .find_mut(hash, |g| g.bound == bound && g.port == port);
        if let Some(group) = group {
            if is_yielding {
                group.yielding += 1;
            } else {
                group.yielding -= 1;
            }
        }
    }

    /// A SYN cookie was sent to this flow, good until then.
    pub fn expect_cookies(&mut self, key: &FlowKey, until: Instant) {
        let Some((bound, port)) = self.group_of(key).map(|group| (group.bound, group.port)) else {
            return;
        };
        let hash = hash(bound, port);
        if let Some(group) = self
            .groups
            .find_mut(hash, |g| g.bound == bound && g.port == port)
        {
            group.cookies_until = until;
        }
    }

    /// Returns whether this flow's listener has sent SYN cookies that may still be answered.
    pub fn expects_cookies(&self, key: &FlowKey, now: Instant) -> bool {
        self.group_of(key)
            .is_some_and(|group| now < group.cookies_until)
    }

    fn group_of(&self, key: &FlowKey) -> Option<&Group> {
        let port = key.local_port;
        self.find_group(key.local_bits(), port)
            .or_else(|| self.find_group(Bound::all_like(key.local_ip()).bits(), port))
            .or_else(|| self.find_group(Bound::All.bits(), port))
    }

    /// All groups that a flow may belong to, the nearest first.
    fn groups_of(&self, key: &FlowKey) -> impl Iterator<Item = &Group> {
        let family = Bound::all_like(key.local_ip()).bits();
        let bounds = [key.local_bits(), family, Bound::All.bits()];
        let port = key.local_port;
        bounds
            .into_iter()
            .filter_map(move |bound| self.find_group(bound, port))
    }

    fn find_group(&self, bound: u128, port: u16) -> Option<&Group> {
        self.groups
            .find(hash(bound, port), |g| g.bound == bound && g.port == port)
    }
}

/// Only this machine's programs put something into the table, so that its hash needs no secret.
fn hash(bound: u128, port: u16) -> u64 {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (low, high) = (bound as u64, (bound >> 64) as u64);
    let sum = low ^ high.rotate_left(32) ^ u64::from(port);
    let product = u128::from(sum) * u128::from(SPREAD);
    (product >> 64) as u64 ^ product as u64
}
