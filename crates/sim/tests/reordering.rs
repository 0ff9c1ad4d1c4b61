//! A bulk flow over a path that lets frames overtake each other.

use slipstack_sim::LinkParams;
use slipstack_sim::flows::{Setup, run};
use slipstack_sim::link::{QueueParams, Share};
use slipstack_stack::Congestion;

const MS: u64 = 1_000_000;

const RATE: u64 = 100_000_000;
const RTT: u64 = 40 * MS;

/// One segment in twenty is overtaken; the queue holds so many bytes.
fn link(bytes_max: u64) -> LinkParams {
    LinkParams {
        rate: RATE,
        delay_ns: RTT / 2,
        reordering: Share::percent(5),
        reorder_ns: RTT / 8,
        queue: QueueParams {
            bytes_max,
            ..QueueParams::default()
        },
        ..LinkParams::default()
    }
}

#[test]
fn without_timestamps_dsacks_undo_the_reductions_of_reordering() {
    let link = link(LinkParams::bandwidth_delay_product(RATE, RTT));
    let mut setup = Setup::new(link, &[Congestion::Cubic]);
    setup.timestamps = false;
    let outcome = run(&setup, 0, 2_000 * MS).unwrap_or_else(|failure| panic!("{failure:?}"));
    let share = outcome.total() as f64 / RATE as f64;
    assert!(share > 0.6, "{share} {outcome:?}");
}

#[test]
fn reordered_segments_do_not_keep_the_window_small() {
    // Nothing is lost.
    let link = link(20 * LinkParams::bandwidth_delay_product(RATE, RTT));
    for seed in 1..=3 {
        let mut setup = Setup::new(link, &[Congestion::NewReno]);
        setup.seed = seed;
        let outcome = run(&setup, 0, 700 * MS).unwrap_or_else(|failure| panic!("{failure:?}"));
        let share = outcome.total() as f64 / RATE as f64;
        assert!(share > 0.5, "{share} {outcome:?}");
    }
}

#[test]
fn overtaking_in_both_directions_ends_no_slow_start_early_and_sends_nothing_twice() {
    let link = link(LinkParams::bandwidth_delay_product(RATE, RTT));
    for seed in [1, 4, 5] {
        let mut setup = Setup::new(link, &[Congestion::Cubic]);
        setup.seed = seed;
        (setup.back.reordering, setup.back.reorder_ns) = (link.reordering, link.reorder_ns);
        let outcome = run(&setup, 400 * MS, 1_000 * MS).unwrap_or_else(|f| panic!("{f:?}"));
        let share = outcome.total() as f64 / RATE as f64;
        assert!(share > 0.85, "seed {seed}: {share} {outcome:?}");
        assert!(outcome.resent < 10, "seed {seed}: {outcome:?}");
    }
}
