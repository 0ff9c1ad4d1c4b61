//! Connections of programs that have ended, completed by the keeper.
//!
//! Each has a record for a successor. Its image is updated when segments of its peer have arrived
//! and before anything is sent in reaction; `ConnectionImage::presume_sent` covers data sent since.

use std::net::SocketAddr;

use slipstack_channel::HandoverImage;
use slipstack_channel::control::TimeWaitEntry;
use slipstack_device::{Flow, Transport};
use slipstack_engine::time_wait_of;
use slipstack_mem::Region;
use slipstack_stack::{CloseMode, ConnId, ConnectionImage, Instant, SocketError};

use super::Net;
use super::flows::find_flow;
use super::orphan_table::Orphan;
use crate::orphans::{InheritedConnection, Orphans, Record};
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
    pub fn adopt_time_wait(
        &mut self,
        announced: &TimeWaitEntry,
        now: u64,
    ) -> Result<(), SocketError> {
        let flow = Flow {
            proto: Transport::Tcp,
            local: announced.local,
            remote: announced.remote,
        };
        if self.effects.doomed.contains(&flow) {
            return Err(SocketError::FlowExists);
        }
        let image = time_wait_of(announced);
        self.stack.tcp_adopt_time_wait(Instant(now), &image)
    }

    /// Returns whether a connection that is completed here, or a TIME-WAIT, has the port of `local`
    /// at an address that a socket bound to `local` would share.
    pub fn has_port(&self, local: SocketAddr, is_v6_only: bool) -> bool {
        self.stack.tcp_has_port(local, is_v6_only)
    }

    /// Continues a connection of the former keeper.
    pub fn inherit(
        &mut self,
        inherited_connection: InheritedConnection,
        region: Option<&Region>,
        now: u64,
    ) -> Option<Flow> {
        let carried = region.and_then(|region| {
            let stack = inherited_connection.image.to_bytes().to_vec();
            let bytes = HandoverImage::from_words(stack, inherited_connection.words, region)?;
            let connection = inherited_connection.image.presume_sent();
            let record = |_: &mut Orphans, _| Some(inherited_connection.record);
            self.carry(
                bytes,
                &connection,
                region,
                inherited_connection.key,
                record,
                now,
            )
        });
        if carried.is_none() {
            self.effects
                .orphan_table
                .records
                .remove(inherited_connection.record);
        }
        carried
    }

    /// Sends what a killed program had written just before, as far as the first window goes, and a
    /// reset. That is not the last one: the numbers are not known for certain.
    pub(super) fn send_before_reset(
        &mut self,
        image: HandoverImage,
        connection: &ConnectionImage,
        region: &Region,
        key: RegionKey,
        now: u64,
    ) {
        let record = |_: &mut Orphans, _| None;
        let Some((conn, _)) = self.take_in(image, connection, region, key, record, now) else {
            return;
        };
        let (now, mode) = (Instant(now), CloseMode::Abort);
        self.stack.tcp_push(now, conn, &mut self.effects);
        self.stack
            .tcp_close(now, conn, mode, false, &mut self.effects);
        self.effects.orphan_table.drop_released();
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
        let (conn, flow) = self.take_in(image, connection, region, key, record, now)?;
        self.stack.tcp_close(
            Instant(now),
            conn,
            CloseMode::Orderly,
            false,
            &mut self.effects,
        );
        Some(flow)
    }

    fn take_in(
        &mut self,
        image: HandoverImage,
        connection: &ConnectionImage,
        region: &Region,
        key: RegionKey,
        record: impl FnOnce(&mut Orphans, [u64; 3]) -> Option<Record>,
        now: u64,
    ) -> Option<(ConnId, Flow)> {
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
        let orphan_table = &mut self.effects.orphan_table;
        let orphan = Orphan {
            region: region.clone(),
            key,
            record: record(&mut orphan_table.records, image.words()),
            image,
            flow,
        };
        orphan_table.take_in(conn, orphan);
        Some((conn, flow))
    }

    /// Notes the connection of a frame that was processed.
    pub(super) fn note_heard(&mut self, frame: &[u8]) {
        if self.orphans() > 0
            && let Some(flow) = find_flow(frame)
        {
            self.effects.orphan_table.on_heard(&flow);
        }
    }

    /// Records the changes made by the peers' segments.
    pub(super) fn renew_records(&mut self) {
        let Net { stack, effects, .. } = self;
        let orphan_table = &mut effects.orphan_table;
        for conn in orphan_table.heard.drain(..) {
            let record = orphan_table
                .orphans
                .get(&conn)
                .and_then(|orphan| orphan.record);
            if let (Some(record), Some(image)) = (record, stack.tcp_image(conn)) {
                orphan_table.records.renew(record, &image);
            }
        }
    }

    /// Returns the connections that the former keeper was completing.
    pub fn inherited(&self) -> Vec<InheritedConnection> {
        self.effects.orphan_table.records.inherited()
    }

    /// Connections of ended programs that still have something to deliver.
    pub fn orphans(&self) -> usize {
        self.effects.orphan_table.orphans.len()
    }

    /// Returns whether bytes of a connection in progress are in this region.
    pub fn has_bytes_in(&self, key: &RegionKey) -> bool {
        self.effects.orphan_table.regions.contains_key(key)
    }

    /// Returns regions whose last connection has been completed since the last call.
    pub fn take_settled(&mut self) -> Vec<RegionKey> {
        let orphan_table = &mut self.effects.orphan_table;
        let mut settled = std::mem::take(&mut orphan_table.settled);
        settled.retain(|key| !orphan_table.regions.contains_key(key));
        settled
    }
}
