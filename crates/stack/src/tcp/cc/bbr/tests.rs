//! BBR on a pipe of one rate and one round trip, both of which it must find.

use super::*;
use crate::tcp::cc::WINDOW_MAX;
use crate::tcp::delivery::Delivery;
use crate::tcp::scoreboard::Newest;
use alloc::collections::VecDeque;

const MSS: u64 = 1_000;
const MS: u64 = 1_000_000;

/// One flow through a queue: ten-microsecond steps, no loss unless the queue is full.
struct Pipe {
    bbr: Bbr,
    window: Window,
    delivery: Delivery,
    rate: u64,
    rtt_ns: u64,
    queue_max: u64,
    now: u64,
    next_send: u64,
    busy_until: u64,
    /// Segments on their way: (arrival of the ACK, departure, stamp, lost).
    flying: VecDeque<(u64, u64, crate::tcp::delivery::Stamp, bool)>,
    in_flight: u64,
    delivered: u64,
    max_queue_ns: u64,
}

impl Pipe {
    fn new(rate: u64, rtt_ns: u64, queue_max: u64) -> Pipe {
        let window = Window {
            cwnd: 10 * MSS as u32,
            ssthresh: WINDOW_MAX,
            mss: MSS as u32,
        };
        Pipe {
            bbr: Bbr::new(&window),
            window,
            delivery: Delivery::default(),
            rate,
            rtt_ns,
            queue_max,
            now: MS,
            next_send: 0,
            busy_until: 0,
            flying: VecDeque::new(),
            in_flight: 0,
            delivered: 0,
            max_queue_ns: 0,
        }
    }

    fn run(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            self.acks();
            self.send();
            self.now += 10_000;
        }
    }

    fn send(&mut self) {
        while self.in_flight + MSS <= self.window.cwnd.into() && self.next_send <= self.now {
            let stamp =
                self.delivery
                    .on_sent(Instant(self.now), MSS, self.in_flight, self.delivered);
            let start = self.busy_until.max(self.now);
            let waits = start - self.now;
            let is_lost = waits * self.rate / 1_000_000_000 > self.queue_max;
            if !is_lost {
                self.busy_until = start + MSS * 1_000_000_000 / self.rate;
                self.max_queue_ns = self.max_queue_ns.max(waits);
            }
            let back = self.busy_until.max(self.now) + self.rtt_ns;
            self.flying.push_back((back, self.now, stamp, is_lost));
            self.in_flight += MSS;
            if let Some(gap) = (MSS * 1_000_000_000).checked_div(self.bbr.pacing_rate()) {
                self.next_send = self.next_send.max(self.now.saturating_sub(MS)) + gap;
            }
        }
    }

    fn acks(&mut self) {
        while let Some(&(at, sent_at, stamp, is_lost)) = self.flying.front() {
            if at > self.now {
                return;
            }
            self.flying.pop_front();
            self.in_flight -= MSS;
            if is_lost {
                self.delivery.on_lost(MSS);
                continue;
            }
            self.delivered += MSS;
            let newest = Newest {
                sent_at,
                end: 0,
                was_resent: false,
                stamp,
            };
            let sample =
                self.delivery
                    .on_delivered(Instant(self.now), &newest, self.delivered, self.rtt_ns);
            let sample = Sample {
                newly_delivered: MSS,
                rtt_ns: self.now - sent_at,
                in_flight: self.in_flight,
                ..sample
            };
            self.bbr
                .on_sample(Instant(self.now), &mut self.window, &sample, false);
        }
    }
}

#[test]
fn bbr_finds_the_rate_and_the_round_trip_time() {
    for (rate, rtt_ms) in [(1_250_000u64, 40u64), (12_500_000, 10), (125_000, 200)] {
        let mut pipe = Pipe::new(rate, rtt_ms * MS, u64::MAX >> 32);
        pipe.run(4_000 * MS);
        let before = pipe.delivered;
        pipe.run(4_000 * MS);
        let goodput = (pipe.delivered - before) / 4;
        assert!(goodput >= rate * 85 / 100, "{goodput} of {rate}");
        let bw = pipe.bbr.model.max_bandwidth();
        assert!(
            (rate * 90 / 100..=rate * 115 / 100).contains(&bw),
            "{bw} of {rate}"
        );
        let min_rtt = pipe.bbr.model.min_rtt_ns().unwrap() / MS;
        assert!(
            (rtt_ms..=rtt_ms + rtt_ms / 5 + 10).contains(&min_rtt),
            "{min_rtt} of {rtt_ms}"
        );
        assert!(pipe.bbr.is_probing_bandwidth() || pipe.bbr.state == State::ProbeRtt);
    }
}

#[test]
fn a_small_first_flight_does_not_hold_back_the_next() {
    let mut pipe = Pipe::new(1_250_000, 100 * MS, u64::MAX >> 32);
    let first = Sample {
        rate: 1_000,
        is_app_limited: true,
        delivered: 100,
        delivered_since: 100,
        in_flight_then: 100,
        newly_delivered: 100,
        rtt_ns: 100 * MS,
        ..Sample::default()
    };
    pipe.bbr
        .on_sample(Instant(pipe.now), &mut pipe.window, &first, false);
    // Ten segments in a tenth of a second, times 2.77.
    assert!(pipe.bbr.pacing_rate() >= 277_000);
}

#[test]
fn the_queue_that_startup_makes_is_drained() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    pipe.run(3_000 * MS);
    pipe.max_queue_ns = 0;
    pipe.run(6_000 * MS);
    // A probe raises a quarter of a round trip; twice the product is the window's limit.
    assert!(
        pipe.max_queue_ns <= 40 * MS,
        "{} ms",
        pipe.max_queue_ns / MS
    );
}

#[test]
fn bbr_enters_probe_rtt_at_least_every_ten_seconds() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    let mut seen = 0;
    for _ in 0..2_000 {
        pipe.run(10 * MS);
        seen += u32::from(pipe.bbr.state == State::ProbeRtt);
    }
    assert!(seen >= 20, "{seen}");
}

#[test]
fn a_rate_that_falls_is_forgotten_where_probes_end_with_loss() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, 10_000);
    pipe.run(10_000 * MS);
    pipe.rate = 250_000;
    pipe.run(20_000 * MS);
    let bw = pipe.bbr.model.max_bandwidth();
    assert!(bw <= 250_000 * 130 / 100, "{bw}");
}

#[test]
fn losses_of_a_probe_count_until_all_of_it_is_acknowledged() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    while pipe.bbr.state != State::ProbeUp {
        pipe.run(MS);
    }
    while pipe.bbr.state == State::ProbeUp {
        pipe.run(10_000);
    }
    // The segments of its last round are in flight.
    pipe.run(20 * MS);
    assert_eq!(pipe.bbr.model.inflight_hi, u64::MAX);
    let lossy = Sample {
        lost_since: 10 * MSS,
        in_flight_then: 60 * MSS,
        ..Sample::default()
    };
    let now = Instant(pipe.now);
    pipe.bbr.on_sample(now, &mut pipe.window, &lossy, false);
    assert_eq!(pipe.bbr.model.inflight_hi, 60 * MSS);
}

#[test]
fn a_window_is_restored_once_and_after_a_silence_too() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    pipe.run(3_000 * MS);
    let Pipe { bbr, window, .. } = &mut pipe;
    window.cwnd = 90_000;
    bbr.on_recovery(window);
    window.cwnd = 20_000;
    bbr.on_recovered(window);
    assert_eq!(window.cwnd, 90_000);
    // A mark's episode saves nothing.
    window.cwnd = 30_000;
    bbr.on_recovered(window);
    assert_eq!(window.cwnd, 30_000);
    while pipe.bbr.state != State::ProbeRtt {
        pipe.run(MS);
    }
    pipe.run(100 * MS);
    let small = pipe.window.cwnd;
    let later = Instant(pipe.now + 1_000 * MS);
    pipe.bbr.on_restart(later, &mut pipe.window);
    assert!(pipe.bbr.state == State::ProbeCruise && pipe.window.cwnd > small);
}

#[test]
fn probe_rtt_of_a_flow_that_never_filled_its_path_returns_to_startup() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    while pipe.bbr.state != State::ProbeRtt {
        // The program's data is the limit.
        pipe.bbr.model.reset_full_bandwidth(0);
        pipe.run(MS);
        assert!(pipe.now < 20_000 * MS);
    }
    while pipe.bbr.state == State::ProbeRtt {
        pipe.bbr.model.reset_full_bandwidth(0);
        pipe.run(MS);
    }
    assert_eq!(pipe.bbr.state, State::Startup);
}

#[test]
fn a_shallow_queue_bounds_the_bytes_in_flight() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, 10_000);
    pipe.run(10_000 * MS);
    assert_ne!(pipe.bbr.model.inflight_hi, u64::MAX);
    let before = pipe.delivered;
    pipe.run(5_000 * MS);
    let goodput = (pipe.delivered - before) / 5;
    assert!(goodput >= 1_250_000 * 80 / 100, "{goodput}");
}

/// Runs until `state`, a minute at most.
fn run_to(pipe: &mut Pipe, state: State) {
    let end = pipe.now + 60_000 * MS;
    while pipe.bbr.state != state {
        pipe.run(10_000);
        assert!(pipe.now < end, "{:?}", pipe.bbr.state);
    }
}

/// One more ACK, which ends no round.
fn feed(pipe: &mut Pipe, sample: Sample) {
    let sample = Sample {
        delivered: pipe.delivered,
        in_flight: pipe.in_flight,
        ..sample
    };
    let now = Instant(pipe.now);
    pipe.bbr.on_sample(now, &mut pipe.window, &sample, false);
}

#[test]
fn the_long_term_bound_rises_only_where_the_window_reaches_it() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    run_to(&mut pipe, State::ProbeUp);
    pipe.bbr.model.inflight_hi = 1_000_000;
    pipe.run(60 * MS);
    assert_eq!(pipe.bbr.model.inflight_hi, 1_000_000);
    run_to(&mut pipe, State::ProbeRefill);
    run_to(&mut pipe, State::ProbeUp);
    pipe.bbr.model.inflight_hi = 60_000;
    pipe.run(300 * MS);
    assert!(pipe.bbr.model.inflight_hi > 60_000);
}

#[test]
fn startup_ends_after_three_rounds_without_growth() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    run_to(&mut pipe, State::ProbeUp);
    let from = pipe.now;
    run_to(&mut pipe, State::ProbeDown);
    let ms = (pipe.now - from) / MS;
    assert!((120..400).contains(&ms), "{ms} ms");
    // Where there is more it goes on, and finds it.
    run_to(&mut pipe, State::ProbeUp);
    pipe.rate = 5_000_000;
    run_to(&mut pipe, State::ProbeDown);
    let bw = pipe.bbr.model.max_bandwidth();
    assert!(bw > 4_000_000, "{bw}");
}

#[test]
fn after_a_probe_that_lost_the_next_stops_at_the_bound_and_goes_on_when_that_is_safe() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    run_to(&mut pipe, State::ProbeUp);
    pipe.run(50 * MS);
    feed(
        &mut pipe,
        Sample {
            lost_since: 10 * MSS,
            in_flight_then: 50 * MSS,
            ..Sample::default()
        },
    );
    assert_eq!(pipe.bbr.state, State::ProbeDown);
    run_to(&mut pipe, State::ProbeUp);
    let from = pipe.now;
    run_to(&mut pipe, State::ProbeDown);
    let ms = (pipe.now - from) / MS;
    assert!(ms < 80, "{ms} ms");
    let from = pipe.now;
    run_to(&mut pipe, State::ProbeRefill);
    let ms = (pipe.now - from) / MS;
    assert!(ms < 100, "{ms} ms");
    run_to(&mut pipe, State::ProbeUp);
    let from = pipe.now;
    run_to(&mut pipe, State::ProbeDown);
    let ms = (pipe.now - from) / MS;
    assert!(ms >= 100, "{ms} ms");
}

#[test]
fn a_probes_losses_lower_no_bound_of_the_time_after_it() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    run_to(&mut pipe, State::ProbeUp);
    pipe.run(20 * MS);
    feed(
        &mut pipe,
        Sample {
            newly_lost: 10 * MSS,
            lost_since: 10 * MSS,
            in_flight_then: 60 * MSS,
            ..Sample::default()
        },
    );
    assert_eq!(pipe.bbr.state, State::ProbeDown);
    pipe.run(200 * MS);
    assert_eq!(pipe.bbr.model.inflight_lo, u64::MAX);
}

#[test]
fn losses_of_a_round_are_evaluated_when_it_ends() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    run_to(&mut pipe, State::ProbeCruise);
    while !pipe.bbr.model.is_loss_round_start {
        pipe.run(10_000);
    }
    pipe.run(30 * MS);
    let loss = Sample {
        newly_lost: MSS,
        lost_since: MSS,
        in_flight_then: 50 * MSS,
        ..Sample::default()
    };
    feed(&mut pipe, loss);
    pipe.run(25 * MS);
    assert_eq!(pipe.bbr.model.inflight_lo, u64::MAX);
    pipe.run(50 * MS);
    assert_ne!(pipe.bbr.model.inflight_lo, u64::MAX);
}

#[test]
fn a_single_loss_does_not_reduce_the_window() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    run_to(&mut pipe, State::ProbeCruise);
    pipe.run(200 * MS);
    let before = pipe.window.cwnd;
    pipe.bbr.on_recovery(&pipe.window);
    feed(
        &mut pipe,
        Sample {
            newly_lost: 20 * MSS,
            newly_delivered: MSS,
            ..Sample::default()
        },
    );
    assert!(pipe.window.cwnd + MSS as u32 >= before);
}

#[test]
fn a_window_restored_after_recovery_stays_within_the_model() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    run_to(&mut pipe, State::ProbeCruise);
    pipe.window.cwnd = 90_000;
    pipe.bbr.on_recovery(&pipe.window);
    pipe.bbr.model.inflight_hi = 30_000;
    pipe.bbr.on_recovered(&mut pipe.window);
    assert!(pipe.window.cwnd <= 30_000, "{}", pipe.window.cwnd);
}

#[test]
fn drain_ends_after_a_bounded_number_of_rounds() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    run_to(&mut pipe, State::Drain);
    pipe.in_flight = 200 * MSS;
    let a_round = Sample {
        prior_delivered: pipe.delivered,
        ..Sample::default()
    };
    for _ in 0..3 {
        feed(&mut pipe, a_round);
    }
    assert_eq!(pipe.bbr.state, State::Drain);
    feed(&mut pipe, a_round);
    assert_eq!(pipe.bbr.state, State::ProbeDown);
}

#[test]
fn a_short_path_is_drained_when_only_the_batches_of_its_hosts_are_left() {
    let mut pipe = Pipe::new(1_250_000, MS, u64::MAX >> 32);
    run_to(&mut pipe, State::ProbeCruise);
    pipe.bbr.state = State::ProbeDown;
    pipe.in_flight = 5 * MSS;
    feed(&mut pipe, Sample::default());
    assert_eq!(pipe.bbr.state, State::ProbeCruise);
}

#[test]
fn bounds_lowered_by_a_spurious_loss_are_restored_and_the_probe_is_repeated() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    run_to(&mut pipe, State::ProbeUp);
    pipe.bbr.model.inflight_hi = 100_000;
    let loss = Sample {
        newly_lost: 10 * MSS,
        lost_since: 10 * MSS,
        in_flight_then: 50 * MSS,
        ..Sample::default()
    };
    feed(&mut pipe, loss);
    pipe.bbr.on_recovery(&pipe.window);
    assert_eq!(pipe.bbr.model.inflight_hi, 50_000);
    pipe.bbr.on_spurious(&mut pipe.window);
    assert_eq!(pipe.bbr.model.inflight_hi, 100_000);
    assert_eq!(pipe.bbr.state, State::ProbeRefill);
}

#[test]
fn a_spurious_loss_does_not_end_startup() {
    let mut pipe = Pipe::new(1_250_000, 40 * MS, u64::MAX >> 32);
    pipe.run(60 * MS);
    assert_eq!(pipe.bbr.state, State::Startup);
    pipe.bbr.on_recovery(&pipe.window);
    let loss = Sample {
        newly_lost: MSS,
        lost_since: 10 * MSS,
        in_flight_then: 20 * MSS,
        ..Sample::default()
    };
    for _ in 0..6 {
        feed(&mut pipe, loss);
    }
    let ends_round = Sample {
        prior_delivered: pipe.delivered,
        ..loss
    };
    feed(&mut pipe, ends_round);
    assert_eq!(pipe.bbr.state, State::Drain);
    pipe.bbr.on_spurious(&mut pipe.window);
    assert_eq!(pipe.bbr.state, State::Startup);
    assert!(!pipe.bbr.model.has_full_bandwidth);
}
