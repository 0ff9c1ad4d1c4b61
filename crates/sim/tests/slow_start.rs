//! The first slow start of a bulk flow ends before the queue of the bottleneck does.

use slipstack_sim::LinkParams;
use slipstack_sim::flows::{Setup, run};
use slipstack_stack::Congestion;

const MS: u64 = 1_000_000;

/// A queue of `percent` of the bandwidth-delay product: returns a bulk flow's retransmissions in
/// its first twenty round trips, and its share of the link in the second ten.
fn begin((mbits, rtt_ms): (u64, u64), percent: u64, pacing: bool) -> (u64, f64) {
    let rate = mbits * 1_000_000;
    let link = LinkParams::bottleneck(mbits, rtt_ms, percent);
    let mut setup = Setup::new(link, &[Congestion::Cubic]);
    setup.pacing = pacing;
    let outcome = run(&setup, 10 * rtt_ms * MS, 10 * rtt_ms * MS)
        .unwrap_or_else(|failure| panic!("{failure:?}"));
    (outcome.resent, outcome.total() as f64 / rate as f64)
}

#[test]
fn slow_start_fills_the_path_but_not_the_queue() {
    // Queues in which a window that doubles until its losses are known loses hundreds of segments.
    for path in [(100, 40), (1_000, 10), (10, 200), (50, 15)] {
        for (percent, pacing) in [(75, false), (100, false), (200, true)] {
            let (resent, share) = begin(path, percent, pacing);
            let case = format!("{path:?}, queue {percent} %, paced {pacing}");
            // Where a window is 60 segments the eighth ACK comes late.
            assert!(resent <= 2, "{case}: {resent}");
            // Headers take the rest.
            assert!(share > 0.95, "{case}: {share}");
        }
    }
}
