//! BBR's phases (draft-ietf-ccwg-bbr 5.3): Startup, Drain, the four parts of ProbeBW, ProbeRTT.

use super::model::is_inflight_too_high;
use super::{Bbr, State, UNIT};
use crate::tcp::cc::Window;
use crate::tcp::delivery::Sample;
use crate::time::Instant;

/// 5.3.1, 5.3.2: 4 ln 2, and the gain that drains the resulting queue. Hundredths.
pub const STARTUP_GAIN: u64 = 277;
const DRAIN_GAIN: u64 = 50;
const DRAIN_ROUNDS: u64 = 3;
const CWND_GAIN: u64 = 200;
/// 5.3.3.
const DOWN_GAIN: u64 = 90;
const UP_GAIN: u64 = 125;
const UP_CWND_GAIN: u64 = 225;
pub const PROBE_RTT_GAIN: u64 = 50;
/// 5.3.3.6: share left to other flows while cruising.
pub const HEADROOM: u64 = 15;
/// 5.3.1.3: separate losses in one round that end Startup.
const FULL_LOSSES: u32 = 6;
/// 5.3.4.2.
const PROBE_RTT_DURATION_NS: u64 = 200_000_000;
/// 5.3.3.5.2: Reno would have grown by one segment a round; no longer than this many rounds between
/// probes.
const RENO_ROUNDS_MAX: u64 = 63;
/// 5.3.3.5.2: 2 to 3 s between probes, spread so that flows do not probe in step.
const PROBE_WAIT_NS: u64 = 2_000_000_000;
const PROBE_SPREAD_NS: u64 = 1_000_000_000;
/// 5.5.10.2: the long-term bound never falls below this share of the target.
const BETA: u64 = 70;

/// Phase of the cycle of ProbeBW and of ProbeRTT.
#[derive(Clone, Debug, Default)]
pub struct Cycle {
    since: u64,
    /// The round in which Drain began.
    drain_round: u64,
    rounds_since_probe: u64,
    wait_ns: u64,
    /// 5.3.3.4: how fast `inflight_hi` grows.
    up_rounds: u32,
    up_acks: u64,
    up_price: u64,
    /// Samples of the last probe are still on their way.
    is_probing: bool,
    /// The probe has ended; all its data is acknowledged when this round is.
    is_stopping: bool,
    /// C.delivered up to which the window counts as fully used: a round after it was.
    full_window_upto: u64,
    /// 5.3.3.4: the last probe lost too much, so that the next one stops at the bound; and one has
    /// stopped there.
    was_too_high: bool,
    was_precautionary: bool,
    probe_rtt_until: Option<u64>,
    has_probe_rtt_round: bool,
    /// State of a counter-based mix that varies the probes, which is enough to desynchronise flows.
    mix: u64,
}

impl Bbr {
    pub(super) fn enter_startup(&mut self) {
        self.state = State::Startup;
        self.pacing_gain = STARTUP_GAIN;
        self.cwnd_gain = CWND_GAIN;
    }

    /// 5.3.1.1 and 5.3.1.3.
    pub(super) fn check_startup(&mut self, s: &Sample) {
        if self.state == State::Startup {
            let is_lossy = self.is_in_recovery
                && self.model.loss_events >= FULL_LOSSES
                && is_inflight_too_high(s);
            if is_lossy && self.model.is_round_start {
                self.undo.state = Some(State::Startup);
                self.model.has_full_bandwidth = true;
                self.model.inflight_hi = self.inflight(UNIT).max(self.model.inflight_latest);
            }
            if self.model.has_full_bandwidth {
                self.state = State::Drain;
                self.cycle.drain_round = self.model.rounds;
                self.pacing_gain = DRAIN_GAIN;
                self.cwnd_gain = CWND_GAIN;
            }
        }
        if self.model.is_round_start {
            self.model.loss_events = 0;
        }
    }

    /// 5.3.2.
    pub(super) fn check_drain(&mut self, now: Instant, s: &Sample) {
        if self.state != State::Drain {
            return;
        }
        // Where Startup thought too much of the path, only the next probe's filter forgets it.
        let has_lasted = self.model.rounds > self.cycle.drain_round + DRAIN_ROUNDS;
        if has_lasted || s.in_flight <= self.quantized(self.inflight(UNIT)) {
            self.enter_probe_bw(now);
        }
    }

    fn enter_probe_bw(&mut self, now: Instant) {
        self.cwnd_gain = CWND_GAIN;
        self.start_down(now);
    }

    fn start_down(&mut self, now: Instant) {
        self.state = State::ProbeDown;
        self.pacing_gain = DOWN_GAIN;
        self.cwnd_gain = CWND_GAIN;
        self.model.forget_signals();
        let cycle = &mut self.cycle;
        cycle.since = now.0;
        cycle.up_price = u64::MAX;
        cycle.mix = (cycle.mix ^ now.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        cycle.rounds_since_probe = cycle.mix >> 63;
        cycle.wait_ns = PROBE_WAIT_NS + (cycle.mix >> 20) % PROBE_SPREAD_NS;
        cycle.is_stopping = true;
        self.model.begin_round();
    }

    fn start_cruise(&mut self) {
        self.state = State::ProbeCruise;
        self.pacing_gain = UNIT;
        self.cwnd_gain = CWND_GAIN;
    }

    fn start_refill(&mut self) {
        self.model.forget_short_term();
        self.state = State::ProbeRefill;
        self.pacing_gain = UNIT;
        self.cwnd_gain = CWND_GAIN;
        self.cycle.up_rounds = 0;
        self.cycle.up_acks = 0;
        self.cycle.is_stopping = false;
        self.cycle.was_precautionary = false;
        self.model.begin_round();
    }

    fn start_up(&mut self, window: &Window, s: &Sample) {
        self.state = State::ProbeUp;
        self.pacing_gain = UP_GAIN;
        self.cwnd_gain = UP_CWND_GAIN;
        // From here on samples are of data that the refill has put in flight.
        self.cycle.is_probing = true;
        self.model.reset_full_bandwidth(s.rate);
        self.raise_slope(window);
        self.model.begin_round();
    }

    /// 5.5.11.2: the probing that a loss has ended goes on, since nothing was lost.
    pub(super) fn return_to(&mut self, then: State) {
        if self.state == State::ProbeRtt || self.state == then {
            return;
        }
        match then {
            State::Startup => {
                self.model.has_full_bandwidth = false;
                self.enter_startup();
            }
            State::ProbeUp => self.start_refill(),
            _ => {}
        }
    }

    /// 5.3.3.5: the parts of ProbeBW, and the result of a probe.
    pub(super) fn update_probe(&mut self, now: Instant, window: &Window, s: &Sample) {
        if !self.model.has_full_bandwidth {
            return;
        }
        self.note_window_use(window, s);
        if self.adapt_long_term(now, window, s) || !self.is_probing_bandwidth() {
            return;
        }
        self.cycle.rounds_since_probe += u64::from(self.model.is_round_start);
        let is_due = self.is_time_to_probe(now, window);
        let state = self.state;
        match state {
            State::ProbeDown | State::ProbeCruise if is_due => self.start_refill(),
            State::ProbeDown if self.is_time_to_cruise(s) => self.start_cruise(),
            State::ProbeRefill if self.model.is_round_start => self.start_up(window, s),
            State::ProbeUp if self.is_time_to_go_down(window, s) => {
                self.cycle.was_too_high = false;
                self.start_down(now);
            }
            _ => {}
        }
    }

    /// The bandwidth-delay product, unless congestion has cut the window.
    fn target_inflight(&self, window: &Window) -> u64 {
        self.inflight(UNIT).min(window.cwnd.into())
    }

    /// 5.3.3.5.2: after two or three seconds, or when Reno would have filled the pipe again.
    fn is_time_to_probe(&self, now: Instant, window: &Window) -> bool {
        let reno = (self.target_inflight(window) / self.mss.max(1)).clamp(1, RENO_ROUNDS_MAX);
        now.0.saturating_sub(self.cycle.since) > self.cycle.wait_ns
            || self.cycle.rounds_since_probe >= reno.max(4)
    }

    fn is_time_to_cruise(&self, s: &Sample) -> bool {
        let product = self.model.bdp_at(self.model.max_bandwidth(), UNIT);
        s.in_flight <= self.inflight_with_headroom().min(self.quantized(product))
    }

    /// 5.3.3.4: sending more does not increase the bandwidth, and the bound is not the limit.
    fn is_time_to_go_down(&mut self, window: &Window, s: &Sample) -> bool {
        if self.cycle.was_too_high && self.has_reached(self.model.inflight_hi, s) {
            self.cycle.was_precautionary = true;
            return true;
        }
        if self.is_held_by_long_term(window, s) {
            self.model.reset_full_bandwidth(s.rate);
            return false;
        }
        self.model.is_full_now
    }

    /// 5.5.10.1 and 5.5.10.2. `true`: the state has changed.
    fn adapt_long_term(&mut self, now: Instant, window: &Window, s: &Sample) -> bool {
        if self.model.is_round_start && self.cycle.is_stopping {
            // The round after the probe: its measurements are in the filter now, however it ended.
            self.cycle.is_stopping = false;
            self.cycle.is_probing = false;
            if self.is_probing_bandwidth() && !s.is_app_limited {
                self.model.advance_filter();
            }
            // The data that the careful probe put in flight was safe: now one that goes on.
            let is_safe = self.cycle.was_precautionary && !self.cycle.was_too_high;
            if self.is_probing_bandwidth() && is_safe {
                self.start_refill();
                return true;
            }
        }
        if is_inflight_too_high(s) && s.lost_since > 0 {
            if self.cycle.is_probing || self.state == State::ProbeUp {
                self.on_inflight_too_high(window, s);
                if self.state == State::ProbeUp {
                    self.undo.state = Some(State::ProbeUp);
                    self.start_down(now);
                    return true;
                }
            }
            return false;
        }
        if self.model.inflight_hi == u64::MAX {
            return false;
        }
        self.model.inflight_hi = self.model.inflight_hi.max(s.in_flight_then);
        if self.state == State::ProbeUp {
            self.probe_upward(window, s);
        }
        false
    }

    fn on_inflight_too_high(&mut self, window: &Window, s: &Sample) {
        self.cycle.is_probing = false;
        self.cycle.was_too_high = true;
        if !s.is_app_limited {
            let aimed = self.target_inflight(window) * BETA / 100;
            self.model.inflight_hi = s.in_flight_then.max(aimed);
        }
    }

    /// 5.5.10.1: one segment more for each `up_price` acknowledged bytes; the price halves every
    /// round.
    fn probe_upward(&mut self, window: &Window, s: &Sample) {
        if !self.is_held_by_long_term(window, s) {
            return;
        }
        let cycle = &mut self.cycle;
        cycle.up_acks += s.newly_delivered;
        if cycle.up_acks >= cycle.up_price {
            let segments = cycle.up_acks / cycle.up_price;
            cycle.up_acks -= segments * cycle.up_price;
            self.model.inflight_hi += segments * self.mss;
        }
        if self.model.is_round_start {
            self.raise_slope(window);
        }
    }

    /// C.is_cwnd_limited: all of the window was used at some time in the last round.
    fn note_window_use(&mut self, window: &Window, s: &Sample) {
        if self.has_reached(window.cwnd.into(), s) {
            self.cycle.full_window_upto = s.delivered + s.in_flight;
        }
    }

    /// Before this ACK no more fitted under `limit`.
    fn has_reached(&self, limit: u64, s: &Sample) -> bool {
        s.in_flight + s.newly_delivered + s.newly_lost + self.mss > limit
    }

    /// The window is used, and only `inflight_hi` keeps it from being larger.
    fn is_held_by_long_term(&self, window: &Window, s: &Sample) -> bool {
        s.delivered <= self.cycle.full_window_upto
            && u64::from(window.cwnd) >= self.model.inflight_hi
    }

    fn raise_slope(&mut self, window: &Window) {
        let cwnd = u64::from(window.cwnd);
        let growth = 1u64 << self.cycle.up_rounds;
        self.cycle.up_rounds = (self.cycle.up_rounds + 1).min(30);
        self.cycle.up_price = (cwnd / growth).max(self.mss);
    }

    /// 5.3.4.3.
    pub(super) fn check_probe_rtt(&mut self, now: Instant, window: &mut Window, s: &Sample) {
        let is_due = self.model.is_probe_rtt_expired && !self.has_idle_restart;
        if self.state != State::ProbeRtt && is_due {
            self.save_cwnd(window);
            self.state = State::ProbeRtt;
            self.pacing_gain = UNIT;
            self.cwnd_gain = PROBE_RTT_GAIN;
            self.cycle.probe_rtt_until = None;
            self.cycle.has_probe_rtt_round = false;
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(now, window, s);
        }
        if s.newly_delivered > 0 {
            self.has_idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, now: Instant, window: &mut Window, s: &Sample) {
        if self.cycle.probe_rtt_until.is_none() {
            if s.in_flight <= self.probe_rtt_cwnd() {
                self.cycle.probe_rtt_until = Some(now.0 + PROBE_RTT_DURATION_NS);
                self.cycle.has_probe_rtt_round = false;
                self.model.begin_round();
            }
            return;
        }
        self.cycle.has_probe_rtt_round |= self.model.is_round_start;
        if self.cycle.has_probe_rtt_round {
            self.check_probe_rtt_done(now, window);
        }
    }

    pub(super) fn check_probe_rtt_done(&mut self, now: Instant, window: &mut Window) {
        if self.cycle.probe_rtt_until.is_none_or(|at| now.0 < at) {
            return;
        }
        self.model.probe_rtt_min_at = now.0;
        self.model.forget_short_term();
        if self.model.has_full_bandwidth {
            self.start_down(now);
            self.start_cruise();
        } else {
            self.enter_startup();
        }
        self.restore_cwnd(window);
    }
}
