//! Exceptions that an engine has looked up, so that a frame for another engine of this machine
//! costs no system call while the keeper changes no exception near its flow.

use super::layout::{self, BUCKETS};
use super::table::Writer;
use super::{EXCEPTIONS_MAX, Flow, Steering};

/// Flows that are remembered, each at a place that its bucket names.
const PLACES: usize = 1024;

/// Bits of a bucket's version that hold the number of its exceptions; all of them may be of one.
const COUNT: u64 = (1 << 20) - 1;
const _: () = assert!((EXCEPTIONS_MAX as u64) < COUNT);

/// Result of a lookup.
#[derive(Clone, Copy, Debug)]
struct Lookup {
    flow: Flow,
    /// The bucket's, before the lookup.
    version: u64,
    slot: Option<u16>,
}

/// The latest lookups of one engine.
#[derive(Debug, Default)]
pub struct RecentFlows {
    /// Empty until the first lookup.
    places: Vec<Option<Lookup>>,
}

impl RecentFlows {
    /// As [`Steering::find_slot`].
    pub fn find_slot(&mut self, steering: &Steering, flow: &Flow) -> u16 {
        if steering.exceptions() == 0 {
            return steering.find_by_port(flow);
        }
        let bucket = steering.bucket(flow.local, flow.remote);
        let version = steering.version(bucket);
        if version & COUNT == 0 {
            return steering.find_by_port(flow);
        }
        if self.places.is_empty() {
            self.places.resize(PLACES, None);
        }
        let place = &mut self.places[usize::from(bucket) % PLACES];
        let slot = match place {
            Some(known) if known.version == version && known.flow == *flow => known.slot,
            _ => {
                let slot = steering.find_exception(flow.proto, flow.local, flow.remote);
                *place = Some(Lookup {
                    flow: *flow,
                    version,
                    slot,
                });
                slot
            }
        };
        slot.unwrap_or_else(|| steering.find_by_port(flow))
    }
}

impl Steering {
    /// Tells engines that what they know of the exceptions of a flow's bucket is out of date. After
    /// the change: a lookup before it has the former version.
    pub(super) fn note_change(&self, table: Writer<'_>, flow: &Flow) {
        self.store_version(table, flow, self.count_near(flow));
    }

    /// Counts an exception that is about to be added. A keeper that ends before it is there leaves
    /// a count that is too high, which costs lookups and loses no flow.
    pub(super) fn count_in(&self, table: Writer<'_>, flow: &Flow) {
        self.store_version(table, flow, self.count_near(flow) + 1);
    }

    /// Counts an exception that is gone.
    pub(super) fn count_out(&self, table: Writer<'_>, flow: &Flow) {
        self.store_version(table, flow, self.count_near(flow).saturating_sub(1));
    }

    /// Returns how many exceptions the flows of this flow's bucket have. Without one there is
    /// nothing to look up.
    pub(super) fn count_near(&self, flow: &Flow) -> u64 {
        self.version(self.bucket(flow.local, flow.remote)) & COUNT
    }

    fn store_version(&self, table: Writer<'_>, flow: &Flow, count: u64) {
        let bucket = self.bucket(flow.local, flow.remote);
        let changes = (self.version(bucket) & !COUNT).wrapping_add(COUNT + 1);
        table.u64(version_at(bucket), changes | (count & COUNT));
    }

    /// Number of changes of the exceptions of a bucket's flows, above their number.
    fn version(&self, bucket: u16) -> u64 {
        self.tables.read().load_u64(version_at(bucket))
    }
}

/// The place of a bucket's version.
fn version_at(bucket: u16) -> usize {
    layout::VERSIONS + 8 * (usize::from(bucket) % BUCKETS)
}
