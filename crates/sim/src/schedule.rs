//! The programs to run next: those that had an event, and those whose time has come.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use slipstack_stack::{ConnId, Instant};

#[derive(Debug, Default)]
struct OfHost {
    awake: BTreeSet<ConnId>,
    naps: BinaryHeap<Reverse<(Instant, ConnId)>>,
}

#[derive(Debug)]
pub struct Schedule {
    hosts: Vec<OfHost>,
}

impl Schedule {
    pub fn new(hosts: usize) -> Self {
        Self {
            hosts: (0..hosts).map(|_| OfHost::default()).collect(),
        }
    }

    pub fn add_host(&mut self) {
        self.hosts.push(OfHost::default());
    }

    pub fn wake(&mut self, host: usize, conn: ConnId) {
        self.hosts[host].awake.insert(conn);
    }

    /// Wakes it at that time too; a needless run does no harm.
    pub fn sleep(&mut self, host: usize, conn: ConnId, until: Instant) {
        self.hosts[host].naps.push(Reverse((until, conn)));
    }

    pub fn next_nap(&self, host: usize) -> Option<Instant> {
        self.hosts[host].naps.peek().map(|Reverse((at, _))| *at)
    }

    pub fn wake_sleepers(&mut self, host: usize, now: Instant) {
        let OfHost { awake, naps } = &mut self.hosts[host];
        while let Some(Reverse((_, conn))) =
            naps.peek().copied().filter(|Reverse((at, _))| *at <= now)
        {
            naps.pop();
            awake.insert(conn);
        }
    }

    pub fn pop_awake(&mut self, host: usize) -> Option<ConnId> {
        self.hosts[host].awake.pop_first()
    }
}
