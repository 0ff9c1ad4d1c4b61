//! Connections of programs that have ended, by id and by flow, and the regions that hold their
//! bytes.

use std::collections::HashMap;

use slipstack_channel::HandoverImage;
use slipstack_device::Flow;
use slipstack_mem::{RawSlice, Region};
use slipstack_stack::ConnId;

use crate::orphans::{Orphans, Record};
use crate::regions::RegionKey;

/// A connection whose program has ended. Its unsent data is in the program's region.
pub(super) struct Orphan {
    pub(super) region: Region,
    pub(super) key: RegionKey,
    pub(super) image: HandoverImage,
    pub(super) flow: Flow,
    pub(super) record: Option<Record>,
}

/// The connections of ended programs that the keeper completes.
pub(super) struct OrphanTable {
    pub(super) orphans: HashMap<ConnId, Orphan>,
    pub(super) by_flow: HashMap<Flow, ConnId>,
    /// Number of connections that have their bytes in a region.
    pub(super) regions: HashMap<RegionKey, usize>,
    /// Regions that are no longer needed.
    pub(super) settled: Vec<RegionKey>,
    pub(super) released: Vec<ConnId>,
    /// Connections whose peers have sent something in this turn.
    pub(super) heard: Vec<ConnId>,
    pub(super) records: Orphans,
}

impl OrphanTable {
    pub(super) fn new(records: Orphans) -> OrphanTable {
        OrphanTable {
            orphans: HashMap::new(),
            by_flow: HashMap::new(),
            regions: HashMap::new(),
            settled: Vec::new(),
            released: Vec::new(),
            heard: Vec::new(),
            records,
        }
    }

    /// Bytes of a connection's stream, if its ring has them.
    pub(super) fn slices(
        &self,
        conn: ConnId,
        offset: u64,
        len: usize,
    ) -> Option<[RawSlice<'_>; 2]> {
        let orphan = self.orphans.get(&conn)?;
        let slices = orphan.image.gather(&orphan.region, offset, len);
        (slices[0].len() + slices[1].len() == len).then_some(slices)
    }

    pub(super) fn has(&self, flow: &Flow) -> bool {
        self.by_flow.contains_key(flow)
    }

    /// A segment of a connection's peer has come.
    pub(super) fn on_heard(&mut self, flow: &Flow) {
        if let Some(conn) = self.by_flow.get(flow)
            && self.heard.last() != Some(conn)
        {
            self.heard.push(*conn);
        }
    }

    /// Frees the ring of a connection that the stack has released.
    pub(super) fn on_released(&mut self, conn: ConnId) {
        if self.orphans.contains_key(&conn) {
            self.released.push(conn);
        }
    }

    pub(super) fn drop_released(&mut self) {
        while let Some(conn) = self.released.pop() {
            let Some(orphan) = self.orphans.remove(&conn) else {
                continue;
            };
            self.by_flow.remove(&orphan.flow);
            if let Some(record) = orphan.record {
                self.records.remove(record);
            }
            let Some(count) = self.regions.get_mut(&orphan.key) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.regions.remove(&orphan.key);
                self.settled.push(orphan.key);
            }
        }
    }

    pub(super) fn take_in(&mut self, conn: ConnId, orphan: Orphan) {
        *self.regions.entry(orphan.key).or_default() += 1;
        self.by_flow.insert(orphan.flow, conn);
        self.orphans.insert(conn, orphan);
    }
}
