//! Connections of killed programs that other processes may use: they wait here until one of these
//! asks for them.
//!
//! A connection whose user has ended too, or that nobody has asked for in time, ends as others of a
//! killed program do.

use slipstack_channel::control::LeftFile;
use slipstack_channel::{FlowEntry, LeftConnection};
use slipstack_device::Flow;
use slipstack_mem::Region;
use slipstack_mem::process::has_ended;

use crate::directory;
use crate::regions::RegionKey;

/// Time for which a connection waits for its user.
const WAIT_NS: u64 = 2_000_000_000;
/// Interval at which it is looked whether the users live.
const LOOK_NS: u64 = 50_000_000;
/// Connections that wait at most; others end at once.
const WAITING_MAX: usize = 4096;

/// A connection that waits for a process which may use it.
pub(super) struct Lent {
    pub(super) entry: FlowEntry,
    pub(super) left: LeftConnection,
    pub(super) region: Region,
    pub(super) key: RegionKey,
    /// The secret of the killed program's heirs.
    pub(super) heirs: Option<u64>,
}

impl Lent {
    pub(super) fn flow(&self) -> Flow {
        directory::flow_of(&self.entry)
    }

    /// Whether its user is known to have ended.
    fn is_without_user(&self) -> bool {
        self.left.loan.user().is_some_and(has_ended)
    }
}

/// All of them, each with the time at which it ends.
#[derive(Default)]
pub(super) struct AllLent {
    waiting: Vec<(u64, Lent)>,
    looked_at: u64,
}

impl AllLent {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn has_room(&self, more: usize) -> bool {
        self.waiting.len() + more < WAITING_MAX
    }

    pub(super) fn has(&self, flow: &Flow) -> bool {
        self.waiting.iter().any(|(_, lent)| lent.flow() == *flow)
    }

    pub(super) fn add(&mut self, lent: Lent, now: u64) {
        self.waiting.push((now + WAIT_NS, lent));
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.looked_at + LOOK_NS)
    }

    /// `user`: the process that asks for it.
    pub(super) fn find(&self, flow: &Flow, heirs: u64, user: Option<u32>) -> Option<usize> {
        let is_users = |lent: &Lent| {
            let its = lent.left.loan.user();
            lent.heirs == Some(heirs) && (its.is_none() || its == user)
        };
        let is_it = |lent: &Lent| lent.flow() == *flow && is_users(lent);
        self.waiting.iter().position(|(_, lent)| is_it(lent))
    }

    /// Tells how far the bytes of the one at that place have been moved.
    pub(super) fn told(&self, at: usize) -> LeftFile {
        let (_, lent) = &self.waiting[at];
        lent.left.told()
    }

    /// Number of bytes of its ring that the peer has not acknowledged.
    pub(super) fn unsent(&self, at: usize) -> usize {
        let lent = self.waiting.get(at).map(|(_, lent)| lent);
        lent.map_or(0, |lent| lent.left.unsent.to_vec(&lent.region).len())
    }

    /// Takes the one at that place.
    pub(super) fn take(&mut self, at: usize) -> Lent {
        self.waiting.swap_remove(at).1
    }

    pub(super) fn take_all(&mut self) -> Vec<Lent> {
        self.waiting.drain(..).map(|(_, lent)| lent).collect()
    }

    /// Takes those that wait no longer, if it is time to look.
    pub(super) fn take_over_due(&mut self, now: u64) -> Vec<Lent> {
        if self.next_deadline().is_none_or(|due| now < due) {
            return Vec::new();
        }
        self.looked_at = now;
        let is_due = |(until, lent): &mut (u64, Lent)| *until <= now || lent.is_without_user();
        let due = self.waiting.extract_if(.., is_due);
        due.map(|(_, lent)| lent).collect()
    }
}
