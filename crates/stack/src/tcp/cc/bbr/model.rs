//! BBR's model of the path (draft-ietf-ccwg-bbr 5.5).

use super::{Bbr, State, UNIT};
use crate::tcp::cc::window::{INITIAL_BYTES, Window};
use crate::tcp::delivery::Sample;
use crate::time::Instant;

/// 5.5.8, 5.5.10: more than this share lost (in hundredths) is too much.
const LOSS_THRESH: u64 = 2;
/// 5.5.10.3: short-term bounds fall to this, in hundredths.
const BETA: u64 = 70;
/// 5.3.1.2: the bandwidth is full when it does not grow by a quarter in three rounds.
const FULL_GROWTH: u64 = 125;
const FULL_ROUNDS: u8 = 3;
/// 5.5.9: rounds over which the largest aggregate is remembered.
const EXTRA_ACKED_ROUNDS: u64 = 10;
/// 5.5.7: lifetime of a minimum round trip, and the interval of ProbeRTT.
const MIN_RTT_NS: u64 = 10_000_000_000;
pub const PROBE_RTT_NS: u64 = 5_000_000_000;

#[derive(Clone, Debug)]
pub struct Model {
    /// Rounds: C.delivered at which the current one ends, their number, and whether this ACK began
    /// one.
    next_round: u64,
    delivered: u64,
    pub rounds: u64,
    pub is_round_start: bool,
    /// Two slots of the filter over ProbeBW cycles, bytes per second.
    max_bw: [u64; 2],
    cycle: u64,
    /// Short-term bound of the bandwidth, and the value in use.
    bw_lo: u64,
    bw: u64,
    bw_latest: u64,
    pub inflight_latest: u64,
    /// Bounds of the bytes in flight; `u64::MAX` = none.
    pub inflight_hi: u64,
    pub inflight_lo: u64,
    loss_round: u64,
    pub is_loss_round_start: bool,
    has_loss_in_round: bool,
    has_mark_in_round: bool,
    /// Bytes that loss took in this round, and separate events of it (Startup leaves on many).
    pub loss_events: u32,
    /// 5.3.1.2: the pipe has been full once, and is found to be full now.
    pub has_full_bandwidth: bool,
    pub is_full_now: bool,
    full_bw: u64,
    full_bw_count: u8,
    /// 0 = none yet.
    min_rtt: u64,
    min_rtt_at: u64,
    pub probe_rtt_min: u64,
    pub probe_rtt_min_at: u64,
    pub is_probe_rtt_expired: bool,
    extra_acked: [u64; 2],
    extra_acked_round: u64,
    aggregate_from: u64,
    aggregate: u64,
}

/// Bounds that loss has set.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    bw_lo: u64,
    inflight_lo: u64,
    inflight_hi: u64,
}

impl Bounds {
    pub const NONE: Bounds = Bounds {
        bw_lo: u64::MAX,
        inflight_lo: u64::MAX,
        inflight_hi: u64::MAX,
    };
}

impl Default for Model {
    fn default() -> Model {
        Model {
            next_round: 0,
            delivered: 0,
            rounds: 0,
            is_round_start: false,
            max_bw: [0; 2],
            cycle: 0,
            bw_lo: u64::MAX,
            bw: 0,
            bw_latest: 0,
            inflight_latest: 0,
            inflight_hi: u64::MAX,
            inflight_lo: u64::MAX,
            loss_round: 0,
            is_loss_round_start: false,
            has_loss_in_round: false,
            has_mark_in_round: false,
            loss_events: 0,
            has_full_bandwidth: false,
            is_full_now: false,
            full_bw: 0,
            full_bw_count: 0,
            min_rtt: 0,
            min_rtt_at: 0,
            probe_rtt_min: 0,
            probe_rtt_min_at: 0,
            is_probe_rtt_expired: false,
            extra_acked: [0; 2],
            extra_acked_round: 0,
            aggregate_from: 0,
            aggregate: 0,
        }
    }
}

impl Model {
    pub fn bandwidth(&self) -> u64 {
        self.bw
    }

    pub fn max_bandwidth(&self) -> u64 {
        self.max_bw[0].max(self.max_bw[1])
    }

    pub fn min_rtt_ns(&self) -> Option<u64> {
        (self.min_rtt != 0).then_some(self.min_rtt)
    }

    /// Bandwidth-delay product times `gain`; without a round trip yet, no limit.
    pub fn bdp(&self, gain: u64) -> u64 {
        self.bdp_at(self.bw, gain)
    }

    /// Returns the bandwidth-delay product at the given bandwidth.
    pub fn bdp_at(&self, bw: u64, gain: u64) -> u64 {
        if self.min_rtt == 0 || bw == 0 {
            return u64::from(INITIAL_BYTES);
        }
        let bdp = u128::from(bw) * u128::from(self.min_rtt) / 1_000_000_000;
        (bdp * u128::from(gain) / u128::from(UNIT)) as u64
    }

    pub fn extra_acked(&self) -> u64 {
        if self.has_full_bandwidth {
            self.extra_acked[0].max(self.extra_acked[1])
        } else {
            0
        }
    }

    /// 5.5.10.3, BBRUpdateLatestDeliverySignals, and rounds (5.5.1).
    pub fn on_latest(&mut self, s: &Sample) {
        self.delivered = s.delivered;
        self.is_loss_round_start = false;
        self.bw_latest = self.bw_latest.max(s.rate);
        self.inflight_latest = self.inflight_latest.max(s.delivered_since);
        if s.prior_delivered >= self.loss_round {
            self.loss_round = s.delivered;
            self.is_loss_round_start = true;
        }
        self.is_round_start = s.prior_delivered >= self.next_round;
        if self.is_round_start {
            self.next_round = s.delivered;
            self.rounds += 1;
        }
        // 5.5.5: application-limited samples count only when they are higher.
        if s.rate > 0 && (s.rate >= self.max_bandwidth() || !s.is_app_limited) {
            let slot = &mut self.max_bw[(self.cycle & 1) as usize];
            *slot = (*slot).max(s.rate);
        }
    }

    pub fn advance_latest(&mut self, s: &Sample) {
        if self.is_loss_round_start {
            self.bw_latest = s.rate;
            self.inflight_latest = s.delivered_since;
        }
    }

    /// Looking for a plateau begins, from this rate.
    pub fn reset_full_bandwidth(&mut self, rate: u64) {
        self.full_bw = rate;
        self.full_bw_count = 0;
        self.is_full_now = false;
    }

    /// 5.3.1.2, BBRCheckFullBWReached. An interval too short to say a rate counts neither way.
    pub fn check_full_bandwidth(&mut self, s: &Sample) {
        if self.is_full_now || !self.is_round_start || s.is_app_limited || s.rate == 0 {
            return;
        }
        if s.rate * UNIT >= self.full_bw * FULL_GROWTH {
            self.reset_full_bandwidth(s.rate);
            return;
        }
        self.full_bw_count += 1;
        self.is_full_now = self.full_bw_count >= FULL_ROUNDS;
        self.has_full_bandwidth |= self.is_full_now;
    }

    /// Begins a round that ends with the delivery of data sent from now on.
    pub fn begin_round(&mut self) {
        self.next_round = self.delivered;
    }

    /// 5.5.6: the filter drops values that are two cycles old.
    pub fn advance_filter(&mut self) {
        self.cycle += 1;
        self.max_bw[(self.cycle & 1) as usize] = 0;
    }

    /// 5.5.10.2, BBRNoteLoss: the first loss of a round begins the one in which it is judged.
    pub fn note_loss(&mut self, delivered: u64) {
        if !self.has_loss_in_round {
            self.loss_round = delivered;
        }
        self.has_loss_in_round = true;
    }

    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// 5.5.10.3, BBRResetCongestionSignals: signals of a probe do not apply after it.
    pub fn forget_signals(&mut self) {
        self.has_loss_in_round = false;
        self.has_mark_in_round = false;
        self.bw_latest = 0;
        self.inflight_latest = 0;
    }

    pub fn forget_short_term(&mut self) {
        self.bw_lo = u64::MAX;
        self.inflight_lo = u64::MAX;
        self.has_loss_in_round = false;
        self.has_mark_in_round = false;
    }

    pub fn bounds(&self) -> Bounds {
        Bounds {
            bw_lo: self.bw_lo,
            inflight_lo: self.inflight_lo,
            inflight_hi: self.inflight_hi,
        }
    }

    /// 5.5.11.2: nothing had been lost.
    pub fn raise_to(&mut self, bounds: Bounds) {
        self.has_loss_in_round = false;
        self.reset_full_bandwidth(0);
        self.bw_lo = self.bw_lo.max(bounds.bw_lo);
        self.inflight_lo = self.inflight_lo.max(bounds.inflight_lo);
        self.inflight_hi = self.inflight_hi.max(bounds.inflight_hi);
    }

    pub fn bound(&mut self) {
        self.bw = self.max_bandwidth().min(self.bw_lo);
    }

    /// 5.5.10.3, BBRAdaptLowerBounds.
    fn lower_short_term(&mut self, cwnd: u64) {
        if self.bw_lo == u64::MAX {
            self.bw_lo = self.max_bandwidth();
        }
        if self.inflight_lo == u64::MAX {
            self.inflight_lo = cwnd;
        }
        self.bw_lo = self.bw_latest.max(self.bw_lo * BETA / 100);
        self.inflight_lo = self.inflight_latest.max(self.inflight_lo * BETA / 100);
    }
}

/// 5.5.10.2: was the loss rate of the data in flight with the sampled record above the threshold?
pub fn is_inflight_too_high(s: &Sample) -> bool {
    s.lost_since > s.in_flight_then * LOSS_THRESH / 100
}

impl Bbr {
    /// 5.5.10.3, BBRUpdateCongestionSignals.
    pub(super) fn update_congestion(&mut self, window: &Window, s: &Sample, is_marked: bool) {
        if s.newly_lost > 0 {
            self.model.loss_events = self.model.loss_events.saturating_add(1);
        }
        self.model.has_mark_in_round |= is_marked;
        if !self.model.is_loss_round_start {
            return;
        }
        // While the bandwidth is probed, higher bounds are being searched for.
        let is_probing = matches!(
            self.state,
            State::Startup | State::ProbeRefill | State::ProbeUp
        );
        let has_signal = self.model.has_loss_in_round || self.model.has_mark_in_round;
        if has_signal && !is_probing {
            self.model.lower_short_term(window.cwnd.into());
        }
        self.model.has_loss_in_round = false;
        self.model.has_mark_in_round = false;
    }

    /// 5.5.9: allows for aggregated acknowledgements of receivers and links.
    pub(super) fn update_ack_aggregation(&mut self, now: Instant, window: &Window, s: &Sample) {
        let model = &mut self.model;
        let elapsed = now.0.saturating_sub(model.aggregate_from);
        let expected = (u128::from(model.bw) * u128::from(elapsed) / 1_000_000_000) as u64;
        if model.aggregate_from == 0 || model.aggregate <= expected {
            model.aggregate = 0;
            model.aggregate_from = now.0;
        }
        model.aggregate += s.newly_delivered;
        let expected = if model.aggregate_from == now.0 {
            0
        } else {
            expected
        };
        let extra = model
            .aggregate
            .saturating_sub(expected)
            .min(window.cwnd.into());
        let rounds = if model.has_full_bandwidth {
            EXTRA_ACKED_ROUNDS
        } else {
            1
        };
        if model.rounds.saturating_sub(model.extra_acked_round) > rounds / 2 {
            model.extra_acked_round = model.rounds;
            model.extra_acked = [0, model.extra_acked[0]];
        }
        model.extra_acked[0] = model.extra_acked[0].max(extra);
    }

    /// 5.5.7 and 5.3.4.3, BBRUpdateMinRTT and BBRCheckProbeRTT.
    pub(super) fn update_min_rtt(&mut self, now: Instant, window: &mut Window, s: &Sample) {
        let model = &mut self.model;
        let age = now.0.saturating_sub(model.probe_rtt_min_at);
        model.is_probe_rtt_expired = model.probe_rtt_min != 0 && age > PROBE_RTT_NS;
        if s.rtt_ns != 0
            && (model.probe_rtt_min == 0
                || s.rtt_ns < model.probe_rtt_min
                || model.is_probe_rtt_expired)
        {
            model.probe_rtt_min = s.rtt_ns;
            model.probe_rtt_min_at = now.0;
        }
        let is_old = now.0.saturating_sub(model.min_rtt_at) > MIN_RTT_NS;
        if model.probe_rtt_min != 0
            && (model.min_rtt == 0 || model.probe_rtt_min < model.min_rtt || is_old)
        {
            model.min_rtt = model.probe_rtt_min;
            model.min_rtt_at = model.probe_rtt_min_at;
        }
        self.check_probe_rtt(now, window, s);
    }
}
