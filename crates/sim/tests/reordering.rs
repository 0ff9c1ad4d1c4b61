//! A bulk flow over a path that lets frames overtake each other.

use slipstack_sim::LinkParams;
use slipstack_sim::flows::{Setup, run};
use slipstack_sim::link::{QueueParams, Share};
use slipstack_stack::Congestion;

const MS: u64 = 1_000_000;

#[test]
fn without_timestamps_dsacks_undo_what_reordering_took() {
    let (rate, rtt) = (100_000_000, 40 * MS);
    let link = LinkParams {
        rate,
        delay_ns: rtt / 2,
        reordering: Share::percent(5),
        reorder_ns: rtt / 8,
        queue: QueueParams {
            bytes_max: LinkParams::bandwidth_delay_product(rate, rtt),
            ..QueueParams::default()
        },
        ..LinkParams::default()
    };
    let mut setup = Setup::new(link, &[Congestion::Cubic]);
    setup.timestamps = false;
    let outcome = run(&setup, 0, 2_000 * MS).unwrap_or_else(|failure| panic!("{failure:?}"));
    let share = outcome.total() as f64 / rate as f64;
    assert!(share > 0.6, "{share} {outcome:?}");
}
