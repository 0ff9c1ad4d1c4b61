//! Bounds of a connection: where they are kept, and what follows from them.

use super::Bounds;
use crate::config::TcpConfig;
use crate::ids::ConnId;
use crate::tcp::Tcp;
use crate::tcp::connection::Connection;
use crate::tcp::latest::Latest;
use crate::tcp::options::Preset;
use crate::time::nanos;

impl Connection {
    pub fn bounds(&self) -> Bounds {
        self.kept
            .as_deref()
            .map_or(Bounds::default(), |kept| kept.bounds)
    }

    pub fn set_bounds(&mut self, bounds: Bounds) {
        if bounds != self.bounds() {
            self.kept.get_or_insert_default().bounds = bounds;
            let may_be_cut = self.key.is_v4() && !bounds.mtu_discovery.marks_segments();
            self.opts.manner.set_may_be_cut(may_be_cut);
        }
    }

    /// Takes the limits that the connections of its socket begin with. `is_paced`: the configured
    /// value.
    pub fn take_limits(&mut self, preset: &Preset, is_paced: bool) {
        self.limit_rate(preset.rate_max, is_paced);
        self.set_bounds(preset.bounds(self.key.is_v4()));
    }

    pub fn change_bounds(&mut self, change: impl FnOnce(&mut Bounds)) {
        let mut bounds = self.bounds();
        change(&mut bounds);
        self.set_bounds(bounds);
    }

    /// Shortest retransmission timeout beyond the round trip.
    #[inline]
    pub fn rto_min_ns(&self, tcp: &TcpConfig) -> u64 {
        match &self.kept {
            None => nanos(tcp.rto_min),
            Some(kept) => kept.bounds.rto_min_ns(tcp),
        }
    }

    /// Longest retransmission timeout.
    #[inline]
    pub fn rto_max_ns(&self, tcp: &TcpConfig) -> u64 {
        match &self.kept {
            None => nanos(tcp.rto_max),
            Some(kept) => kept.bounds.rto_max_ns(tcp),
        }
    }

    /// Longest delay of an ACK.
    #[inline]
    pub fn ack_delay_max_ns(&self, tcp: &TcpConfig) -> u64 {
        match &self.kept {
            None => nanos(tcp.delayed_ack),
            Some(kept) => kept.bounds.ack_delay_max_ns(tcp),
        }
    }

    /// Returns whether a packet that arrived with this hop limit comes from too far away.
    pub fn is_too_far(&self, hop_limit: u8) -> bool {
        hop_limit < self.bounds().hops_min
    }
}

impl Tcp {
    /// Returns whether the end of the connection's program resets it.
    pub fn resets_at_end(&self, id: ConnId) -> bool {
        let conn = self.conns.find(id.index, id.generation);
        conn.is_some_and(|conn| conn.bounds().resets_at_end && conn.has_end_to_tell())
    }

    /// Lets all segments take the full path, which checks hop limits, from the first socket on that
    /// bounds them.
    pub(in crate::tcp) fn check_hops_for(&mut self, bounds: &[Bounds]) {
        if !self.checks_hops && bounds.iter().any(|it| it.hops_min > 0) {
            self.checks_hops = true;
            self.latest = Latest::default();
        }
    }
}
