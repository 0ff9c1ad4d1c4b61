//! The check of a connection's plain form, which may come from anywhere.

use super::{FIN_QUEUED, FIN_RECEIVED, FIN_SENT, Fields};
use crate::options::Congestion;
use crate::tcp::phase::Phase;
use crate::tcp::seq;
use crate::tcp::sizes::{MSS_MIN, WINDOW_SHIFT_MAX};

/// Farthest distance between two numbers of one direction.
const SPAN_MAX: u64 = 1 << 31;

impl Fields {
    /// Every relation that the rest of the stack relies on.
    pub(super) fn is_sound(&self) -> bool {
        let is_near = |low: u64, high: u64| low <= high && high - low < SPAN_MAX;
        let span = seq::FIRST..(1 << 62);
        let sent_end = self.written.saturating_add(u64::from(self.has(FIN_SENT)));
        let addresses = self.key.local_ip().is_ipv4() == self.key.remote_ip().is_ipv4();
        let numbers = span.contains(&self.una)
            && span.contains(&self.rcv_nxt)
            && is_near(self.una, self.nxt)
            && is_near(self.una, self.written.max(self.una))
            && self.nxt <= sent_end
            && (!self.has(FIN_SENT) || (self.has(FIN_QUEUED) && self.nxt == sent_end))
            && is_near(self.snd_edge.min(self.una), self.snd_edge.max(self.una))
            && is_near(self.rcv_nxt, self.rcv_edge)
            && is_near(self.consumed, self.rcv_nxt)
            && self.consumed >= seq::FIRST
            && self.wl1 < 1 << 62
            && self.wl2 < 1 << 62;
        let fin = if self.has(FIN_RECEIVED) {
            self.fin_at.checked_add(1) == Some(self.rcv_nxt)
        } else {
            self.fin_at == 0 || (self.fin_at >= self.rcv_nxt && self.fin_at <= self.rcv_edge)
        };
        let phase = match self.phase {
            Phase::SynSent | Phase::SynReceived => false,
            Phase::Established => !self.has(FIN_QUEUED) && !self.has(FIN_RECEIVED),
            Phase::CloseWait => !self.has(FIN_QUEUED) && self.has(FIN_RECEIVED),
            Phase::FinWait1 => self.has(FIN_QUEUED) && !self.has(FIN_RECEIVED),
            Phase::FinWait2 => {
                self.has(FIN_SENT) && self.una == self.nxt && !self.has(FIN_RECEIVED)
            }
            Phase::Closing | Phase::LastAck => self.has(FIN_QUEUED) && self.has(FIN_RECEIVED),
        };
        addresses
            && numbers
            && fin
            && phase
            && self.key.local_port != 0
            && self.key.remote_port != 0
            && self.snd_shift <= WINDOW_SHIFT_MAX
            && self.rcv_shift <= WINDOW_SHIFT_MAX
            && self.peer_mss >= MSS_MIN
            && usize::from(self.congestion) < Congestion::ALL.len()
            && self.mtu_discovery().is_some()
    }
}
