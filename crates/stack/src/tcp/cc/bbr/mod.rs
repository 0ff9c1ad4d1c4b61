//! BBR, version 3 (draft-ietf-ccwg-bbr): a model of the path, made of its bandwidth and its round
//! trip, decides how fast and how much is sent.
//!
//! | what | file | draft |
//! |---|---|---|
//! | what the path can carry: bandwidth, round trip, bounds from loss | `model.rs` | 5.3.3, 5.5 |
//! | what is being tried out: the state machine | `phase.rs` | 5.3 |
//! | pacing rate and cwnd | this file | 5.6 |
//!
//! DEVIATION(draft-ietf-ccwg-bbr 5.5.10): the draft leaves ECN open; a mark (RFC 3168) lowers the
//! short-term bounds once a round, as a lost round does, so that a marked sender yields as RFC 3168
//! 6.1.2 asks.

mod model;
mod phase;

use super::window::{INITIAL_BYTES, WINDOW_MAX, Window};
use crate::tcp::delivery::Sample;
use crate::time::Instant;
use model::{Bounds, Model};
use phase::Cycle;

/// Gains are in hundredths.
const UNIT: u64 = 100;
/// 5.6.2: a little below the estimate, so that a queue of our own making drains.
const PACING_MARGIN: u64 = 99;
/// 5.6.4.2: the window never closes below this many segments.
const MIN_PIPE_SEGMENTS: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeDown,
    ProbeCruise,
    ProbeRefill,
    ProbeUp,
    ProbeRtt,
}

#[derive(Clone, Debug)]
pub struct Bbr {
    state: State,
    model: Model,
    cycle: Cycle,
    pacing_rate: u64,
    pacing_gain: u64,
    cwnd_gain: u64,
    /// cwnd before recovery or ProbeRTT; 0 = none.
    prior_cwnd: u32,
    mss: u64,
    is_in_recovery: bool,
    has_idle_restart: bool,
    undo: Undo,
}

/// 5.5.11.1: the state before an episode of losses.
#[derive(Clone, Copy, Debug)]
struct Undo {
    bounds: Bounds,
    /// The probing that its losses have ended.
    state: Option<State>,
    /// The episode continues: the saved state precedes it.
    is_kept: bool,
}

impl Bbr {
    pub fn new(window: &Window) -> Bbr {
        let mut bbr = Bbr {
            state: State::Startup,
            model: Model::default(),
            cycle: Cycle::default(),
            pacing_rate: 0,
            pacing_gain: UNIT,
            cwnd_gain: UNIT,
            prior_cwnd: 0,
            mss: window.mss.into(),
            is_in_recovery: false,
            has_idle_restart: false,
            undo: Undo {
                bounds: Bounds::NONE,
                state: None,
                is_kept: false,
            },
        };
        bbr.enter_startup();
        bbr
    }

    /// 5.2.3: for every ACK that delivers.
    pub fn on_sample(&mut self, now: Instant, window: &mut Window, s: &Sample, is_marked: bool) {
        self.mss = window.mss.into();
        if s.newly_lost > 0 {
            self.note_loss(s.delivered);
        }
        self.model.on_latest(s);
        self.update_congestion(window, s, is_marked);
        self.update_ack_aggregation(now, window, s);
        self.model.check_full_bandwidth(s);
        self.check_startup(s);
        self.check_drain(now, s);
        self.update_probe(now, window, s);
        self.update_min_rtt(now, window, s);
        self.model.advance_latest(s);
        self.model.bound();
        self.set_pacing_rate(window);
        self.set_cwnd(window, s);
    }

    /// Bytes per second; 0 = not known yet.
    pub fn pacing_rate(&self) -> u64 {
        self.pacing_rate
    }

    /// Loss was detected.
    pub fn on_recovery(&mut self, window: &Window) {
        self.save_cwnd(window);
        self.note_loss(self.model.delivered());
        self.is_in_recovery = true;
    }

    pub fn on_timeout(&mut self, window: &Window) {
        self.on_recovery(window);
    }

    fn note_loss(&mut self, delivered: u64) {
        if !self.undo.is_kept {
            self.undo = Undo {
                bounds: self.model.bounds(),
                state: None,
                is_kept: true,
            };
        }
        self.model.note_loss(delivered);
    }

    pub fn on_recovered(&mut self, window: &mut Window) {
        self.is_in_recovery = false;
        self.undo.is_kept = false;
        self.restore_cwnd(window);
    }

    /// 5.5.11: nothing had been lost.
    pub fn on_spurious(&mut self, window: &mut Window) {
        self.is_in_recovery = false;
        self.model.raise_to(self.undo.bounds);
        if let Some(state) = self.undo.state.take() {
            self.return_to(state);
        }
        self.undo.is_kept = false;
        self.restore_cwnd(window);
    }

    /// 5.4.1: after idle time the pacing rate is the path's known bandwidth, without a gain.
    pub fn on_restart(&mut self, now: Instant, window: &mut Window) {
        self.has_idle_restart = true;
        if self.is_probing_bandwidth() {
            self.set_rate(UNIT);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(now, window);
        }
    }

    fn is_probing_bandwidth(&self) -> bool {
        matches!(
            self.state,
            State::ProbeDown | State::ProbeCruise | State::ProbeRefill | State::ProbeUp
        )
    }

    fn save_cwnd(&mut self, window: &Window) {
        self.prior_cwnd = if !self.is_in_recovery && self.state != State::ProbeRtt {
            window.cwnd
        } else {
            self.prior_cwnd.max(window.cwnd)
        };
    }

    fn restore_cwnd(&mut self, window: &mut Window) {
        let cwnd = u64::from(window.cwnd.max(self.prior_cwnd)).min(self.model_limit());
        window.cwnd = cwnd as u32;
        // Once: a mark's episode ends in the same way and has saved nothing.
        if !self.is_in_recovery && self.state != State::ProbeRtt {
            self.prior_cwnd = 0;
        }
    }

    fn min_pipe(&self) -> u64 {
        MIN_PIPE_SEGMENTS * self.mss
    }

    /// 5.6.2.
    fn set_pacing_rate(&mut self, window: &Window) {
        // 5.6.2, BBRInitPacingRate: from the window and the first round trip. The first delivery
        // may be the answer to a small request and says nothing of the path.
        if self.pacing_rate == 0
            && let Some(rtt) = self.model.min_rtt_ns()
        {
            let nominal = u64::from(window.cwnd) * 1_000_000_000 / rtt.max(1);
            self.pacing_rate = nominal * phase::STARTUP_GAIN / UNIT;
        }
        if self.model.bandwidth() != 0 {
            self.set_rate(self.pacing_gain);
        }
    }

    fn set_rate(&mut self, gain: u64) {
        let rate = self.model.bandwidth().saturating_mul(gain * PACING_MARGIN) / (UNIT * UNIT);
        if self.model.has_full_bandwidth || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// 5.6.4.2: bandwidth-delay product times gain, plus an allowance for aggregation by receivers
    /// and links.
    fn max_inflight(&self) -> u64 {
        self.quantized(self.inflight(self.cwnd_gain) + self.model.extra_acked())
    }

    /// The bandwidth-delay product times a gain.
    fn inflight(&self, gain: u64) -> u64 {
        self.model.bdp(gain)
    }

    /// 5.6.4.2.1: room for the batches in which hosts work.
    fn quantized(&self, inflight: u64) -> u64 {
        let budget = 3 * self.send_quantum();
        let up = if self.state == State::ProbeUp {
            2 * self.mss
        } else {
            0
        };
        inflight.max(budget).max(self.min_pipe()) + up
    }

    /// 5.6.3: a millisecond of the pacing rate, as the sender cuts it.
    fn send_quantum(&self) -> u64 {
        (self.pacing_rate / 1_000).clamp(2 * self.mss, 65_536.max(2 * self.mss))
    }

    /// 5.6.4.6; in recovery too, where the model has already accounted for the losses (5.6.4.4).
    fn set_cwnd(&mut self, window: &mut Window, s: &Sample) {
        let most = self.max_inflight();
        let mut cwnd = u64::from(window.cwnd);
        if self.model.has_full_bandwidth {
            cwnd = (cwnd + s.newly_delivered).min(most);
        } else if cwnd < most || s.delivered < u64::from(INITIAL_BYTES) {
            cwnd += s.newly_delivered;
        }
        cwnd = cwnd.max(self.min_pipe());
        if self.state == State::ProbeRtt {
            cwnd = cwnd.min(self.probe_rtt_cwnd());
        }
        cwnd = cwnd.min(self.model_limit());
        window.cwnd = cwnd.min(u64::from(WINDOW_MAX)) as u32;
    }

    /// 5.6.4.5: 0.5 of the bandwidth-delay product.
    fn probe_rtt_cwnd(&self) -> u64 {
        self.inflight(phase::PROBE_RTT_GAIN).max(self.min_pipe())
    }

    /// 5.6.4.7, BBRBoundCwndForModel.
    fn model_limit(&self) -> u64 {
        let long_term = match self.state {
            State::ProbeDown | State::ProbeRefill | State::ProbeUp => self.model.inflight_hi,
            State::ProbeRtt | State::ProbeCruise => self.inflight_with_headroom(),
            State::Startup | State::Drain => u64::MAX,
        };
        long_term.min(self.model.inflight_lo).max(self.min_pipe())
    }

    /// 5.3.3.6.
    fn inflight_with_headroom(&self) -> u64 {
        if self.model.inflight_hi == u64::MAX {
            return u64::MAX;
        }
        let headroom = (self.model.inflight_hi * phase::HEADROOM / UNIT).max(self.mss);
        self.model
            .inflight_hi
            .saturating_sub(headroom)
            .max(self.min_pipe())
    }
}

#[cfg(test)]
mod tests;
