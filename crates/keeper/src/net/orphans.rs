//! Connections of programs that have ended, completed by the keeper.
//!
//! Each has a record for a successor. Its image is updated when segments of its peer have arrived
//! and before anything is sent in reaction; `ConnectionImage::presume_sent` covers data sent since.

use slipstack_channel::HandoverImage;
use slipstack_channel::control::TimeWaitEntry;
use slipstack_device::{Flow, Transport};
use slipstack_engine::time_wait_of;
use slipstack_mem::Region;
use slipstack_stack::{CloseMode, ConnectionImage, Instant, SocketError};

use super::Net;
use super::care::Orphan;
use super::flows::find_flow;
use crate::orphans::{Heir, Orphans, Record};
use crate::regions::RegionKey;

impl Net {
    /// Takes over a connection whose program has ended in order. Returns `None` if the image is
    /// invalid.
    pub fn adopt(
        &mut self,
        image: HandoverImage,
        region: &Region,
        key: RegionKey,
        now: u64,
    ) -> Option<Flow> {
        let connection = ConnectionImage::from_bytes(image.stack.as_slice().try_into().ok()?);
        let record = |orphans: &mut Orphans, words| orphans.add(key, words, &connection);
        self.carry(image.clone(), &connection, region, key, record, now)
    }

    /// Goes on with the TIME-WAIT of an engine that ends.
    ///
    /// # Errors
    /// It is not sound, there is no room, or its two ends have been used again since.
    pub fn adopt_time_wait(&mut self, told: &TimeWaitEntry, now: u64) -> Result<(), SocketError> {
        let flow = Flow {
            proto: Transport::Tcp,
            local: told.local,
            remote: told.remote,
        };
        if self.effects.doomed.contains(&flow) {
            return Err(SocketError::FlowExists);
        }
        let image = time_wait_of(told);
        self.stack.tcp_adopt_time_wait(Instant(now), &image)
    }

    /// Continues a connection of the former keeper.
    pub fn inherit(&mut self, heir: Heir, region: Option<&Region>, now: u64) -> Option<Flow> {
        let carried = region.and_then(|region| {
            let stack = heir.image.to_bytes().to_vec();
            let bytes = HandoverImage::from_words(stack, heir.words, region)?;
            let connection = heir.image.presume_sent();
            let record = |_: &mut Orphans, _| Some(heir.record);
            self.carry(bytes, &connection, region, heir.key, record, now)
        });
        if carried.is_none() {
            self.effects.care.records.remove(heir.record);
        }
        carried
    }

    fn carry(
        &mut self,
        image: HandoverImage,
        connection: &ConnectionImage,
        region: &Region,
        key: RegionKey,
        record: impl FnOnce(&mut Orphans, [u64; 3]) -> Option<Record>,
        now: u64,
    ) -> Option<Flow> {
        let (local, remote) = connection.endpoints()?;
        let (stack, effects) = (&mut self.stack, &mut self.effects);
        let Ok(conn) = stack.tcp_adopt(Instant(now), connection, effects) else {
            stack.tcp_refuse(Instant(now), connection, effects);
            return None;
        };
        let flow = Flow {
            proto: Transport::Tcp,
            local,
            remote,
        };
        let care = &mut self.effects.care;
        let orphan = Orphan {
            region: region.clone(),
            key,
            record: record(&mut care.records, image.words()),
            image,
            flow,
        };
        care.take_in(conn, orphan);
        self.stack.tcp_close(
            Instant(now),
            conn,
            CloseMode::Orderly,
            false,
            &mut self.effects,
        );
        Some(flow)
    }

    /// Notes the connection of a frame that was processed.
    pub(super) fn note_heard(&mut self, frame: &[u8]) {
        if self.orphans() > 0
            && let Some(flow) = find_flow(frame)
        {
            self.effects.care.on_heard(&flow);
        }
    }

    /// Records the changes made by the peers' segments.
    pub(super) fn renew_records(&mut self) {
        let Net { stack, effects, .. } = self;
        let care = &mut effects.care;
        for conn in care.heard.drain(..) {
            let record = care.orphans.get(&conn).and_then(|orphan| orphan.record);
            if let (Some(record), Some(image)) = (record, stack.tcp_image(conn)) {
                care.records.renew(record, &image);
            }
        }
    }

    /// Returns the connections that the former keeper was completing.
    pub fn heirs(&self) -> Vec<Heir> {
        self.effects.care.records.heirs()
    }

    /// Connections of ended programs that still have something to deliver.
    pub fn orphans(&self) -> usize {
        self.effects.care.orphans.len()
    }

    /// Returns whether bytes of a connection in progress are in this region.
    pub fn has_bytes_in(&self, key: &RegionKey) -> bool {
        self.effects.care.regions.contains_key(key)
    }

    /// Returns regions whose last connection has been completed since the last call.
    pub fn take_settled(&mut self) -> Vec<RegionKey> {
        std::mem::take(&mut self.effects.care.settled)
    }
}
