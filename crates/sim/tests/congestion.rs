//! Congestion control on links of a known kind: the purpose of each algorithm.

use slipstack_sim::LinkParams;
use slipstack_sim::flows::{Outcome, Setup, run};
use slipstack_sim::link::{Loss, Share};
use slipstack_stack::{Congestion, EcnMode};

const SECOND: u64 = 1_000_000_000;

fn outcome(setup: &Setup, warm_up_ns: u64, ns: u64) -> Outcome {
    run(setup, warm_up_ns, ns).unwrap_or_else(|failure| panic!("{failure:?}"))
}

/// Jain's index of fairness: 1 = all the same, 1/n = one has everything.
fn fairness(outcome: &Outcome) -> f64 {
    let sum: f64 = outcome.goodput.iter().map(|g| *g as f64).sum();
    let squares: f64 = outcome.goodput.iter().map(|g| (*g as f64).powi(2)).sum();
    sum * sum / (outcome.goodput.len() as f64 * squares)
}

/// Share of the link that the flows got.
fn share(setup: &Setup, outcome: &Outcome) -> f64 {
    outcome.total() as f64 / setup.link.rate as f64
}

#[test]
fn every_algorithm_fills_a_pipe_with_a_queue_of_its_size() {
    for kind in Congestion::ALL {
        let setup = Setup::new(LinkParams::bottleneck(20, 40, 100), &[kind]);
        let outcome = outcome(&setup, 2 * SECOND, 10 * SECOND);
        let share = share(&setup, &outcome);
        assert!(share > 0.85, "{kind:?}: {share}");
    }
}

#[test]
fn a_shallow_queue_starves_no_connection() {
    for (kind, pacing) in [
        (Congestion::Cubic, false),
        (Congestion::Cubic, true),
        (Congestion::Bbr, true),
    ] {
        let mut setup = Setup::new(LinkParams::bottleneck(100, 40, 10), &[kind]);
        setup.pacing = pacing;
        let outcome = outcome(&setup, SECOND, 4 * SECOND);
        let share = share(&setup, &outcome);
        assert!(share > 0.3, "{kind:?}, paced {pacing}: {share} {outcome:?}");
        assert_eq!(outcome.timeouts, 0, "{kind:?}");
    }
}

#[test]
fn bbr_outruns_cubic_where_one_in_a_hundred_is_lost() {
    let goodput = |kind| {
        let mut link = LinkParams::bottleneck(20, 40, 100);
        link.loss = Loss::Random(Share::percent(1));
        outcome(&Setup::new(link, &[kind]), 2 * SECOND, 10 * SECOND).total()
    };
    let (bbr, cubic) = (goodput(Congestion::Bbr), goodput(Congestion::Cubic));
    assert!(bbr > 2 * cubic, "{bbr} against {cubic}");
    assert!(bbr > 14_000_000, "{bbr}");
}

#[test]
fn hystart_loses_far_less_than_a_plain_slow_start() {
    let mut setup = Setup::new(LinkParams::bottleneck(100, 40, 200), &[Congestion::Cubic]);
    setup.tso_max = 0;
    let cubic = outcome(&setup, 0, 2 * SECOND);
    assert!(share(&setup, &cubic) > 0.6, "{cubic:?}");
    // Slow start without it overflows the same queue by a window.
    setup.flows = vec![Congestion::NewReno];
    let reno = outcome(&setup, 0, 2 * SECOND);
    assert!(reno.resent > 200, "{reno:?}");
    assert!(cubic.resent * 2 < reno.resent, "{cubic:?} {reno:?}");
}

#[test]
fn dctcp_keeps_the_queue_at_the_marking_threshold() {
    let mut setup = Setup::new(
        LinkParams::bottleneck(100, 4, 1_000),
        &[Congestion::Dctcp; 2],
    );
    // RFC 8257 3.1: K above a seventh of the bandwidth-delay product.
    setup.link.queue.mark_bytes = 30_000;
    setup.tso_max = 0;
    let dctcp = outcome(&setup, SECOND, 4 * SECOND);
    assert!(share(&setup, &dctcp) > 0.9, "{dctcp:?}");
    assert!(
        dctcp.link.marked > 100 && dctcp.link.dropped_queue_full == 0,
        "{dctcp:?}"
    );
    assert!(dctcp.link.queue_bytes_max < 150_000, "{dctcp:?}");
    assert!(fairness(&dctcp) > 0.9, "{dctcp:?}");
}

#[test]
fn a_mark_spares_a_retransmission() {
    let mut setup = Setup::new(LinkParams::bottleneck(20, 40, 200), &[Congestion::Cubic]);
    setup.link.queue.mark_bytes = 60_000;
    setup.ecn = EcnMode::On;
    let on = outcome(&setup, 0, 8 * SECOND);
    assert!(on.link.dropped_queue_full * 10 < on.link.marked, "{on:?}");
    assert!(share(&setup, &on) > 0.8, "{on:?}");
}

#[test]
fn two_flows_of_a_kind_share_evenly() {
    for kind in [Congestion::Cubic, Congestion::NewReno, Congestion::Bbr] {
        let mut setup = Setup::new(LinkParams::bottleneck(10, 20, 100), &[kind; 2]);
        setup.stagger_ns = SECOND;
        let outcome = outcome(&setup, 5 * SECOND, 60 * SECOND);
        assert!(
            fairness(&outcome) >= 0.95,
            "{kind:?}: {:?}",
            outcome.goodput
        );
        assert!(share(&setup, &outcome) > 0.8, "{kind:?}: {outcome:?}");
    }
}
