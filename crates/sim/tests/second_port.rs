//! The seeds of the first worlds, between the second interfaces of hosts that have two.

use slipstack_sim::{Options, run_seed};

const SEEDS: u64 = 30;

#[test]
fn a_world_gives_the_same_result_on_the_second_interface() {
    for offloads in [false, true] {
        let first = Options {
            offloads,
            ..Options::default()
        };
        let second = Options {
            is_on_second_port: true,
            ..first.clone()
        };
        for seed in 0..SEEDS {
            let (first, second) = (run_seed(seed, &first), run_seed(seed, &second));
            assert_eq!(first, second, "seed {seed}, offloads {offloads}");
        }
    }
}
