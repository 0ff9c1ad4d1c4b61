//! The window that an algorithm changes, and the ACKs that it is called for.

use crate::time::Instant;

/// No window is larger: four bytes a value and never an overflow.
pub const WINDOW_MAX: u32 = 1 << 30;
/// Ten segments: the assumption of a model before it has measured anything (RFC 6928).
pub const INITIAL_BYTES: u32 = 14_600;

/// The congestion window and the slow start threshold, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub cwnd: u32,
    pub ssthresh: u32,
    pub mss: u32,
}

impl Window {
    #[inline]
    pub fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    pub fn grow(&mut self, bytes: u32) {
        self.cwnd = self.cwnd.saturating_add(bytes).min(WINDOW_MAX);
    }
}

/// An ACK that may grow the window.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    pub now: Instant,
    /// Newly delivered.
    pub bytes: u32,
    /// Round-trip time measured by this ACK; 0 = none.
    pub rtt_ns: u64,
    pub srtt_ns: u64,
    pub una: u64,
    pub nxt: u64,
    /// SND.UNA and the bytes SACKed beyond it.
    pub delivered: u64,
    /// Largest super-frame that leaves at once: an ACK for a whole one is no stretch ACK.
    pub burst: u32,
    pub is_after_timeout: bool,
}
