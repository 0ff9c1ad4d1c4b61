//! Congestion control: the first of the two plug-in points of a connection.
//!
//! RFC 5681. An algorithm decides how the window grows and where it falls to; when that happens is decided by
//! `recovery` and the timers. All values are bytes.

mod cubic;
mod newreno;

use core::time::Duration;

pub use cubic::Cubic;
pub use newreno::NewReno;

use crate::options::Congestion;
use crate::time::Instant;

/// Smallest ssthresh in segments (RFC 5681 4).
const SSTHRESH_MIN_SEGMENTS: u32 = 2;
/// No window is larger: four bytes a value and never an overflow.
const WINDOW_MAX: u32 = 1 << 30;

/// What an algorithm works on.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub cwnd: u32,
    pub ssthresh: u32,
    pub mss: u32,
}

impl Window {
    pub fn is_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    fn grow(&mut self, bytes: u32) {
        self.cwnd = self.cwnd.saturating_add(bytes).min(WINDOW_MAX);
    }
}

#[derive(Clone, Copy, Debug)]
enum Algorithm {
    NewReno(NewReno),
    Cubic(Cubic),
}

/// Congestion state of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Control {
    pub window: Window,
    algorithm: Algorithm,
    /// The window was the limit since the last ACK that could have grown it (RFC 7661 4.1).
    pub is_limited: bool,
}

impl Control {
    pub fn new(kind: Congestion, mss: u32, initial_segments: u32) -> Control {
        Control {
            window: Window {
                cwnd: initial_window(mss, initial_segments),
                ssthresh: WINDOW_MAX,
                mss,
            },
            algorithm: Algorithm::of(kind),
            is_limited: false,
        }
    }

    pub fn kind(&self) -> Congestion {
        match self.algorithm {
            Algorithm::NewReno(_) => Congestion::NewReno,
            Algorithm::Cubic(_) => Congestion::Cubic,
        }
    }

    pub fn set_kind(&mut self, kind: Congestion) {
        if self.kind() != kind {
            self.algorithm = Algorithm::of(kind);
        }
    }

    /// New data was delivered outside of recovery.
    #[inline]
    pub fn on_ack(&mut self, now: Instant, bytes: u32, srtt: Duration) {
        // RFC 7661 4.3: a window that was not used is not validated, so it does not grow.
        if !self.is_limited {
            return;
        }
        let mut bytes = bytes;
        if self.window.is_slow_start() {
            let room = self.window.ssthresh - self.window.cwnd;
            let used = bytes.min(room);
            self.window.grow(used);
            bytes -= used;
            if bytes == 0 {
                return;
            }
        }
        match &mut self.algorithm {
            Algorithm::NewReno(a) => a.on_ack(&mut self.window, bytes),
            Algorithm::Cubic(a) => a.on_ack(&mut self.window, now, bytes, srtt),
        }
    }

    /// Loss was detected: sets ssthresh. The caller moves cwnd (PRR or timeout).
    pub fn on_loss(&mut self, now: Instant, in_flight: u32) {
        let target = match &mut self.algorithm {
            Algorithm::NewReno(a) => a.on_loss(&self.window, in_flight),
            Algorithm::Cubic(a) => a.on_loss(&self.window, now),
        };
        self.window.ssthresh = target.max(SSTHRESH_MIN_SEGMENTS * self.window.mss);
    }

    /// RFC 5681 3.1: the loss window is one segment.
    pub fn on_timeout(&mut self) {
        self.window.cwnd = self.window.mss;
    }

    /// The reduction was spurious.
    pub fn undo(&mut self, cwnd: u32, ssthresh: u32) {
        self.window.cwnd = self.window.cwnd.max(cwnd);
        self.window.ssthresh = ssthresh;
        if let Algorithm::Cubic(a) = &mut self.algorithm {
            a.on_undo();
        }
    }

    /// RFC 5681 4.1: after an idle time of more than one timeout, restart from the initial window.
    pub fn on_idle(&mut self, initial_segments: u32) {
        // RFC 2861: remember three quarters of what the path has carried.
        self.window.ssthresh = self.window.ssthresh.max(self.window.cwnd / 4 * 3);
        self.window.cwnd = self
            .window
            .cwnd
            .min(initial_window(self.window.mss, initial_segments));
        if let Algorithm::Cubic(a) = &mut self.algorithm {
            a.on_idle();
        }
    }

    /// The MSS changed (path MTU): windows keep their bytes.
    pub fn set_mss(&mut self, mss: u32) {
        self.window.mss = mss;
        self.window.cwnd = self.window.cwnd.max(mss);
    }
}

impl Algorithm {
    fn of(kind: Congestion) -> Algorithm {
        match kind {
            Congestion::NewReno => Algorithm::NewReno(NewReno::default()),
            Congestion::Cubic => Algorithm::Cubic(Cubic::default()),
        }
    }
}

/// RFC 6928 2: ten segments, at most 14600 bytes of them unless two segments are larger.
fn initial_window(mss: u32, segments: u32) -> u32 {
    segments.max(1).saturating_mul(mss).min(WINDOW_MAX)
}
