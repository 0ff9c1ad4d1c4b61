//! TIME-WAIT entries that continue in another stack when their own ends.
//!
//! The adopting stack checks every value, because an image may be hostile.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::SocketAddr;

use super::{TimeWait, UNIT_SHIFT, unit};
use crate::error::SocketError;
use crate::network_layer::Cx;
use crate::tcp::Tcp;
use crate::tcp::flow::{FlowKey, FlowState};
use crate::time::{Instant, nanos};

/// An entry in TIME-WAIT as plain numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeWaitImage {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub snd_nxt: u32,
    pub rcv_nxt: u32,
    /// As in the header of a segment.
    pub window: u16,
    /// TS.Recent and the offset of our own timestamps, if the two sides had agreed on them.
    pub stamps: Option<(u32, u32)>,
    /// Until it is over.
    pub left_ms: u32,
}

impl TimeWaitImage {
    fn key(&self) -> Option<FlowKey> {
        let (local, remote) = (self.local, self.remote);
        let key = FlowKey::new(local.ip(), local.port(), remote.ip(), remote.port());
        let ip = key.remote_ip();
        let is_sound = key.local_ip().is_ipv4() == ip.is_ipv4()
            && local.port() != 0
            && remote.port() != 0
            && !ip.is_unspecified()
            && !ip.is_multicast();
        is_sound.then_some(key)
    }
}

impl TimeWait {
    fn image(&self, now: Instant) -> TimeWaitImage {
        let left_ns = u64::try_from(self.units_left(now)).unwrap_or(0) << UNIT_SHIFT;
        TimeWaitImage {
            local: self.key.local(),
            remote: self.key.remote(),
            snd_nxt: self.snd_nxt,
            rcv_nxt: self.rcv_nxt,
            window: self.window,
            stamps: self
                .has_timestamps
                .then_some((self.ts_recent, self.ts_offset)),
            left_ms: u32::try_from(left_ns / 1_000_000).unwrap_or(u32::MAX),
        }
    }

    fn adopted(key: FlowKey, image: &TimeWaitImage, until: Instant) -> TimeWait {
        let (ts_recent, ts_offset) = image.stamps.unwrap_or_default();
        TimeWait {
            key,
            snd_nxt: image.snd_nxt,
            rcv_nxt: image.rcv_nxt,
            ts_recent,
            ts_offset,
            expires: unit(until),
            window: image.window,
            has_timestamps: image.stamps.is_some(),
            is_owed: false,
        }
    }
}

impl Tcp {
    /// Returns at most `most` entries that have time left, those with most of it first: their peers
    /// are likeliest to send again.
    pub fn time_wait_images(&self, now: Instant, most: usize) -> Vec<TimeWaitImage> {
        let entries = &self.time_waits.entries;
        let mut found: Vec<(Reverse<i32>, u32)> = entries
            .iter()
            .map(|(index, entry)| (Reverse(entry.units_left(now)), index))
            .filter(|(left, _)| left.0 > 0)
            .collect();
        found.sort_unstable();
        let chosen = found.iter().take(most);
        chosen
            .filter_map(|(_, index)| Some(entries.at(*index)?.image(now)))
            .collect()
    }

    /// From now on [`Tcp::time_wait_changes`] has something to tell.
    pub fn note_time_waits(&mut self) {
        self.time_waits.note_changes();
    }

    /// Whether half-open connections or these entries have changes to tell.
    #[inline]
    pub fn has_changes(&self) -> bool {
        self.syns.has_changes() || self.time_waits.has_changes()
    }

    /// Tells each place of the table that has changed, with its entry if it is in use.
    #[inline]
    pub fn time_wait_changes(
        &mut self,
        now: Instant,
        mut tell: impl FnMut(u32, Option<TimeWaitImage>),
    ) {
        while let Some(index) = self.time_waits.next_change() {
            let entry = self.time_waits.entries.at(index);
            tell(index, entry.map(|it| it.image(now)));
        }
    }

    /// Takes over an entry of another stack of this address. If two have the same ends the later
    /// one stays; a newer connection between the ends is preferred to both.
    pub fn adopt_time_wait(
        &mut self,
        now: Instant,
        image: &TimeWaitImage,
        cx: &Cx<'_>,
    ) -> Result<(), SocketError> {
        let key = image.key().ok_or(SocketError::BadImage)?;
        let left = u64::from(image.left_ms) * 1_000_000;
        let until = now.plus_nanos(left.min(nanos(cx.config.tcp.time_wait)));
        let entry = TimeWait::adopted(key, image, until);
        if entry.units_left(now) <= 0 {
            return Err(SocketError::BadImage);
        }
        if !cx.net.is_own(key.local_ip()) {
            return Err(SocketError::AddrNotAvailable);
        }
        let (local, remote) = (key.local_ip(), key.remote_ip());
        if cx.net.find_path(now, Some(local), remote).is_none() {
            return Err(SocketError::NetUnreachable);
        }
        let hash = self.hasher.table(&key);
        match self.find_place(&key, hash) {
            None => {}
            Some(FlowState::TimeWait(index)) if self.is_earlier(index, &entry, now) => {
                self.drop_time_wait(index, hash);
            }
            Some(_) => return Err(SocketError::FlowExists),
        }
        let index = self
            .time_waits
            .insert_adopted(entry, until)
            .ok_or(SocketError::LimitReached)?;
        self.demux.insert(hash, FlowState::TimeWait(index));
        Ok(())
    }

    fn is_earlier(&self, index: u32, than: &TimeWait, now: Instant) -> bool {
        let known = self.time_waits.entries.at(index);
        known.is_some_and(|known| known.units_left(now) < than.units_left(now))
    }

    /// A later connection has had the two ends since, or an operator wants it so. Returns whether
    /// there was one.
    pub fn forget_time_wait(&mut self, local: SocketAddr, remote: SocketAddr) -> bool {
        let key = FlowKey::new(local.ip(), local.port(), remote.ip(), remote.port());
        let hash = self.hasher.table(&key);
        let Some(FlowState::TimeWait(index)) = self.find_place(&key, hash) else {
            return false;
        };
        self.drop_time_wait(index, hash);
        true
    }
}
