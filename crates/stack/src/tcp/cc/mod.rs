//! Congestion control: the first of the two plug-in points of a connection.
//!
//! RFC 5681. An algorithm decides how the window grows and to what it is reduced; `recovery` and
//! the timers decide when. Window-based algorithms (NewReno, CUBIC, DCTCP) are called for ACKs
//! outside of recovery; one that builds a model (BBR) is called for every delivery and sets cwnd
//! and the pacing rate by itself. All values are bytes.
//!
//! Congestion control that RFC 9293 3.8.2 requires of every sender.

mod bbr;
mod cubic;
mod dctcp;
mod hystart;
mod newreno;
mod window;

use alloc::boxed::Box;

pub use newreno::NewReno;
pub use window::{Ack, WINDOW_MAX, Window};

use bbr::Bbr;
use cubic::Cubic;
use dctcp::Dctcp;
use hystart::{HyStart, Verdict};

use super::delivery::Sample;
use super::seq::Outstanding;
use crate::options::Congestion;
use crate::time::Instant;

/// Smallest ssthresh in segments (RFC 5681 3.1).
const SSTHRESH_MIN_SEGMENTS: u32 = 2;
/// RFC 3465 2.2 and 2.3: slow start grows by at most L segments an ACK, one after a timeout.
const ABC_L: u32 = 2;
/// RFC 9406 4.3: L of HyStart++ without pacing.
const HYSTART_L: u32 = 8;
/// Pacing rates over cwnd / srtt in percent, as Linux's `tcp_pacing_ss_ratio` and
/// `tcp_pacing_ca_ratio`.
const PACING_SLOW_START: u64 = 200;
const PACING_AVOIDANCE: u64 = 120;
/// Paths from this round trip on have their windows spread.
const SPREAD_RTT_NS: u64 = 2_000_000;
/// Windows up to this many segments leave as they are opened: a router takes an initial window at
/// once.
const SPREAD_SEGMENTS: u32 = 10;

#[derive(Clone, Debug)]
enum Algorithm {
    NewReno(NewReno),
    /// CUBIC before its first loss.
    Starting(HyStart),
    Cubic(Cubic),
    Dctcp(Dctcp),
    Bbr(Box<Bbr>),
}

impl Algorithm {
    fn kind(&self) -> Congestion {
        match self {
            Algorithm::NewReno(_) => Congestion::NewReno,
            Algorithm::Starting(_) | Algorithm::Cubic(_) => Congestion::Cubic,
            Algorithm::Dctcp(_) => Congestion::Dctcp,
            Algorithm::Bbr(_) => Congestion::Bbr,
        }
    }
}

/// Which segments are paced, beside those of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pacing {
    /// Segments of large windows on long paths.
    AsNeeded,
    /// All, as configured.
    Always,
    /// All: the program limits the rate (SO_MAX_PACING_RATE).
    Limited,
}

impl Pacing {
    fn configured(is_paced: bool) -> Pacing {
        match is_paced {
            true => Pacing::Always,
            false => Pacing::AsNeeded,
        }
    }
}

/// The state to which a spurious reduction is undone.
#[derive(Clone, Debug)]
pub struct Saved {
    pub cwnd: u32,
    pub ssthresh: u32,
    /// `None`: a model has its own way back.
    algorithm: Option<Algorithm>,
}

/// Congestion state of one connection.
#[derive(Debug)]
pub struct Control {
    pub window: Window,
    /// The window was the limit since the last ACK that could have grown it (RFC 7661 4.5.3).
    pub is_limited: bool,
    /// The algorithm needs every delivery: no ACK takes the fast path.
    pub wants_samples: bool,
    pub is_paced: bool,
    pacing: Pacing,
    algorithm: Algorithm,
}

impl Control {
    /// State before the peer has announced its MSS: only the SYN is sent until [`Control::begin`].
    #[inline]
    pub fn new(kind: Congestion, mss: u32, is_paced: bool) -> Control {
        let mut control = Control {
            window: Window {
                cwnd: mss,
                ssthresh: WINDOW_MAX,
                mss,
            },
            is_limited: false,
            wants_samples: false,
            is_paced: false,
            pacing: Pacing::configured(is_paced),
            algorithm: Algorithm::Starting(HyStart::default()),
        };
        control.install(kind);
        control
    }

    /// The segment size is known; nothing has been sent.
    #[inline]
    pub fn begin(&mut self, mss: u32, initial_segments: u32) {
        self.window.mss = mss;
        self.window.cwnd = initial_window(mss, initial_segments);
        if let Algorithm::Bbr(bbr) = &mut self.algorithm {
            **bbr = Bbr::new(&self.window);
        }
    }

    /// Goes on with the windows of a connection that has come from elsewhere.
    pub fn resume(&mut self, cwnd: u32, ssthresh: u32) {
        let mss = self.window.mss;
        self.window.cwnd = cwnd.clamp(mss, WINDOW_MAX);
        self.window.ssthresh = ssthresh.clamp(SSTHRESH_MIN_SEGMENTS * mss, WINDOW_MAX);
        // The first slow start is over where there is a threshold.
        self.install(self.kind());
    }

    fn install(&mut self, kind: Congestion) {
        self.algorithm = match kind {
            Congestion::NewReno => Algorithm::NewReno(NewReno::default()),
            Congestion::Cubic if self.window.ssthresh == WINDOW_MAX => {
                Algorithm::Starting(HyStart::default())
            }
            Congestion::Cubic => Algorithm::Cubic(Cubic::default()),
            Congestion::Dctcp => Algorithm::Dctcp(Dctcp::default()),
            Congestion::Bbr => Algorithm::Bbr(Box::new(Bbr::new(&self.window))),
        };
        self.wants_samples = matches!(kind, Congestion::Dctcp | Congestion::Bbr);
        self.is_paced = self.pacing != Pacing::AsNeeded || kind == Congestion::Bbr;
    }

    pub fn kind(&self) -> Congestion {
        self.algorithm.kind()
    }

    /// `is_paced`: the configured value for algorithms that need no pacing.
    pub fn set_kind(&mut self, kind: Congestion, is_paced: bool) {
        if self.pacing != Pacing::Limited {
            self.pacing = Pacing::configured(is_paced);
        }
        if self.kind() != kind {
            self.install(kind);
        }
    }

    /// Notes whether the program limits the pacing rate. `is_paced`: the configured value for
    /// algorithms that need no pacing.
    pub fn set_limited(&mut self, is_limited: bool, is_paced: bool) {
        self.pacing = match is_limited {
            true => Pacing::Limited,
            false => Pacing::configured(is_paced),
        };
        self.is_paced |= is_limited;
    }

    /// Returns whether the program limits the pacing rate.
    pub fn has_rate_limit(&self) -> bool {
        self.pacing == Pacing::Limited
    }

    /// The algorithm sets cwnd by itself, in recovery too.
    #[inline]
    pub fn has_model(&self) -> bool {
        matches!(self.algorithm, Algorithm::Bbr(_))
    }

    /// New data was delivered outside of fast recovery.
    #[inline]
    pub fn on_ack(&mut self, ack: &Ack) {
        // RFC 7661 4.4: a window that was not used is not validated, so it does not grow.
        if self.is_limited {
            self.grow(ack);
        }
    }

    fn grow(&mut self, ack: &Ack) {
        self.is_paced = self.pacing != Pacing::AsNeeded
            || self.has_model()
            || self.is_worth_spreading(ack.srtt_ns);
        let mut bytes = ack.bytes;
        if self.window.is_slow_start() {
            bytes = self.slow_start(ack);
            if bytes == 0 {
                return;
            }
        }
        match &mut self.algorithm {
            Algorithm::NewReno(a) => a.on_ack(&mut self.window, bytes),
            Algorithm::Dctcp(a) => a.reno.on_ack(&mut self.window, bytes),
            Algorithm::Cubic(a) => a.on_ack(&mut self.window, ack, bytes),
            // ssthresh is out of reach, or was set by HyStart++, which made this a Cubic; a model
            // takes samples.
            Algorithm::Starting(_) | Algorithm::Bbr(_) => {}
        }
    }

    /// After a pause of this machine, in which ACKs have accumulated, a quarter of the window would
    /// leave in one burst and overrun a short queue. In the first slow start a window is no measure
    /// of the path yet, and pacing would delay short transfers.
    #[inline]
    fn is_worth_spreading(&self, srtt_ns: u64) -> bool {
        srtt_ns >= SPREAD_RTT_NS
            && self.window.ssthresh != WINDOW_MAX
            && self.window.cwnd > SPREAD_SEGMENTS * self.window.mss
    }

    /// RFC 5681 3.1, RFC 3465 2.2, RFC 9406 4.2. Gives the bytes that are left for avoidance.
    fn slow_start(&mut self, ack: &Ack) -> u32 {
        // A model has set the window with the sample; it is always paced.
        if self.is_paced && self.has_model() {
            return 0;
        }
        let l = match (&self.algorithm, ack.is_after_timeout) {
            (_, true) => 1,
            (Algorithm::Starting(_), _) => HYSTART_L,
            _ => ABC_L,
        };
        // RFC 9406 4.3: with pacing there is no burst that L would have to prevent.
        let limit = if self.pacing == Pacing::Always && !ack.is_after_timeout {
            u32::MAX
        } else if ack.is_after_timeout {
            self.window.mss
        } else {
            (l * self.window.mss).max(ack.burst)
        };
        let mut wanted = ack.bytes.min(limit);
        if let Algorithm::Starting(hystart) = &mut self.algorithm {
            match hystart.on_ack(ack, self.window.cwnd, wanted) {
                Verdict::Grow(bytes) => wanted = bytes,
                Verdict::Leave => {
                    self.leave_slow_start();
                    return ack.bytes;
                }
            }
        }
        let room = self.window.ssthresh - self.window.cwnd;
        let used = wanted.min(room);
        self.window.grow(used);
        if used < room { 0 } else { ack.bytes - used }
    }

    #[cold]
    fn leave_slow_start(&mut self) {
        self.window.ssthresh = self.window.cwnd;
        let mut cubic = Cubic::default();
        cubic.on_slow_start_left(&self.window);
        self.algorithm = Algorithm::Cubic(cubic);
    }

    /// Something was delivered, in any state; only for those that want samples.
    pub fn on_sample(
        &mut self,
        now: Instant,
        sample: &Sample,
        outstanding: Outstanding,
        is_marked: bool,
    ) {
        match &mut self.algorithm {
            Algorithm::Dctcp(a) => {
                let bytes = u32::try_from(sample.newly_delivered).unwrap_or(u32::MAX);
                a.on_delivered(bytes, is_marked, outstanding);
            }
            Algorithm::Bbr(a) => a.on_sample(now, &mut self.window, sample, is_marked),
            _ => {}
        }
    }

    /// Loss was detected: sets ssthresh. The caller moves cwnd (PRR or timeout).
    pub fn on_loss(&mut self, in_flight: u32) {
        let target = match &mut self.algorithm {
            Algorithm::NewReno(a) => a.on_loss(&self.window, in_flight),
            Algorithm::Dctcp(a) => a.reno.on_loss(&self.window, in_flight),
            Algorithm::Starting(_) => {
                let mut cubic = Cubic::default();
                let target = cubic.on_loss(&self.window);
                self.algorithm = Algorithm::Cubic(cubic);
                target
            }
            Algorithm::Cubic(a) => a.on_loss(&self.window),
            Algorithm::Bbr(a) => return a.on_recovery(&self.window),
        };
        self.set_ssthresh(target);
    }

    /// Handles the peer's report of an ECN mark (RFC 3168 6.1.2): as for a loss, except in DCTCP.
    pub fn on_mark(&mut self, in_flight: u32) {
        match &mut self.algorithm {
            Algorithm::Dctcp(a) => {
                let target = a.on_mark(&self.window);
                self.set_ssthresh(target);
            }
            // The model has taken the mark with the sample.
            Algorithm::Bbr(_) => {}
            _ => self.on_loss(in_flight),
        }
    }

    fn set_ssthresh(&mut self, target: u32) {
        self.window.ssthresh = target.max(SSTHRESH_MIN_SEGMENTS * self.window.mss);
    }

    /// RFC 5681 3.1: the loss window is one segment.
    pub fn on_timeout(&mut self) {
        match &mut self.algorithm {
            Algorithm::Cubic(a) => a.on_timeout(),
            Algorithm::Bbr(a) => a.on_timeout(&self.window),
            _ => {}
        }
        self.window.cwnd = self.window.mss;
    }

    /// An episode of recovery or loss is over: everything sent before it is acknowledged.
    pub fn on_recovered(&mut self) {
        match &mut self.algorithm {
            Algorithm::Bbr(a) => a.on_recovered(&mut self.window),
            // The episode began with a model, and has set none (Linux: tcp_end_cwnd_reduction).
            _ if self.window.ssthresh == WINDOW_MAX => {}
            // RFC 6937: at the end cwnd is ssthresh.
            _ => self.window.cwnd = self.window.ssthresh.max(self.window.mss),
        }
    }

    /// Saves the state to which a spurious reduction would be undone.
    pub fn save(&self) -> Saved {
        Saved {
            cwnd: self.window.cwnd,
            ssthresh: self.window.ssthresh,
            algorithm: match &self.algorithm {
                Algorithm::Bbr(_) => None,
                small => Some(small.clone()),
            },
        }
    }

    /// Undoes a spurious reduction (RFC 9438 4.9, RFC 4015).
    ///
    /// DEVIATION(RFC 4015 3.4): the old window is restored, as on Linux, and not the data in flight
    /// plus an initial window.
    pub fn undo(&mut self, saved: Saved) {
        self.window.cwnd = self.window.cwnd.max(saved.cwnd);
        let kind = self.kind();
        match (&mut self.algorithm, saved.algorithm) {
            (Algorithm::Bbr(a), _) => a.on_spurious(&mut self.window),
            (_, Some(algorithm)) if algorithm.kind() == kind => {
                self.window.ssthresh = saved.ssthresh;
                self.algorithm = algorithm;
            }
            // The program has chosen another one since.
            (_, _) => self.window.ssthresh = saved.ssthresh,
        }
    }

    /// RFC 5681 4.1: after an idle time of more than one timeout, restart from the initial window.
    pub fn on_idle(&mut self, now: Instant, initial_segments: u32) {
        if let Algorithm::Bbr(a) = &mut self.algorithm {
            // A paced sender makes no burst.
            return a.on_restart(now, &mut self.window);
        }
        // RFC 2861 3: remember three quarters of the window that the path has carried.
        let window = &mut self.window;
        window.ssthresh = window.ssthresh.max(window.cwnd / 4 * 3);
        window.cwnd = window
            .cwnd
            .min(initial_window(window.mss, initial_segments));
        if let Algorithm::Starting(hystart) = &mut self.algorithm {
            *hystart = HyStart::default();
        }
    }

    /// The MSS changed (path MTU): windows keep their bytes.
    pub fn set_mss(&mut self, mss: u32) {
        self.window.mss = mss;
        self.window.cwnd = self.window.cwnd.max(mss);
    }

    /// Bytes per second; 0 = not known yet, send.
    pub fn pacing_rate(&self, srtt_ns: u64) -> u64 {
        if let Algorithm::Bbr(a) = &self.algorithm {
            return a.pacing_rate();
        }
        // Linux (tcp_update_pacing_rate): in the first half of slow start twice the window a round
        // trip.
        let ratio = if self.window.cwnd < self.window.ssthresh / 2 {
            PACING_SLOW_START
        } else {
            PACING_AVOIDANCE
        };
        (u64::from(self.window.cwnd) * ratio * 10_000_000)
            .checked_div(srtt_ns)
            .unwrap_or(0)
    }
}

/// RFC 6928 2: ten segments, at most 14600 bytes of them unless two segments are larger.
fn initial_window(mss: u32, segments: u32) -> u32 {
    let segments = segments.max(1);
    segments
        .saturating_mul(mss)
        .min(segments.saturating_mul(1_460).max(2 * mss))
        .min(WINDOW_MAX)
}

#[cfg(test)]
mod tests;
