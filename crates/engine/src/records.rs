//! Half-open connections and TIME-WAIT entries for the keeper: their records while the engine runs,
//! and the transfer of the entries as it ends.

use std::net::SocketAddr;

use slipstack_channel::control::TimeWaitEntry;
use slipstack_stack::{Instant, TimeWaitImage};

use crate::engine::Engine;

/// Most entries that an engine hands over as it ends. The keeper's table has room for four times as
/// many; the peers of those that have waited longest have long been silent.
const TOLD_MAX: usize = 65_536;

impl Engine {
    /// Returns whether a connection, or the TIME-WAIT of one, has the port of `local` at an address
    /// that a socket bound to `local` would share.
    pub fn has_port(&self, local: SocketAddr, is_v6_only: bool) -> bool {
        self.stack.tcp_has_port(local, is_v6_only)
    }

    /// Returns the TIME-WAIT entries, those with most time left first.
    pub fn time_waits(&self, now: Instant) -> Vec<TimeWaitEntry> {
        let images = self.stack.tcp_time_waits(now, TOLD_MAX);
        images.iter().map(entry_of).collect()
    }

    /// Writes changes of both to their records.
    #[inline(never)]
    pub(crate) fn record_changes(&mut self, now: Instant) {
        self.record_half_open();
        self.record_time_waits(now);
    }

    /// Writes changes of half-open connections to their records.
    pub(crate) fn record_half_open(&mut self) {
        let Engine { stack, env, .. } = self;
        stack.tcp_half_open_changes(|place, record| env.flows.record_half_open(place, record));
    }

    fn record_time_waits(&mut self, now: Instant) {
        let Engine { stack, env, .. } = self;
        stack.tcp_time_wait_changes(now, |number, image| {
            let entry = image.as_ref().map(entry_of);
            env.flows.record_time_wait(number, entry.as_ref(), now.0);
        });
    }
}

fn entry_of(image: &TimeWaitImage) -> TimeWaitEntry {
    let TimeWaitImage {
        local,
        remote,
        snd_nxt,
        rcv_nxt,
        window,
        stamps,
        left_ms,
    } = *image;
    TimeWaitEntry {
        local,
        remote,
        snd_nxt,
        rcv_nxt,
        window,
        stamps,
        left_ms,
    }
}

/// Returns an entry of another engine as a stack takes it.
pub fn time_wait_of(entries: &TimeWaitEntry) -> TimeWaitImage {
    let TimeWaitEntry {
        local,
        remote,
        snd_nxt,
        rcv_nxt,
        window,
        stamps,
        left_ms,
    } = *entries;
    TimeWaitImage {
        local,
        remote,
        snd_nxt,
        rcv_nxt,
        window,
        stamps,
        left_ms,
    }
}
