//! Every byte exactly once and in order, on a link that loses 5 %, duplicates 5 %, reorders 10 %
//! and corrupts 1 %. The `seeds` binary runs any number of seeds.

use slipstack_sim::{Options, run_seed};

const SEEDS: u64 = 60;

#[test]
fn a_rough_link_delivers_every_byte_once_and_in_order() {
    run_all(&Options::default());
}

#[test]
fn a_lossy_link_carries_super_frames() {
    run_all(&Options {
        offloads: true,
        ..Options::default()
    });
}

fn run_all(options: &Options) {
    // Every second seed uses IPv6.
    let mut merged = [0; 2];
    for seed in 0..SEEDS {
        match run_seed(seed, options) {
            Ok(report) => merged[(seed % 2) as usize] += report.merged,
            Err(failure) => panic!("seed {seed} at {:?}: {}", failure.at, failure.message),
        }
    }
    assert!(merged.iter().all(|count| *count > 0), "{merged:?}");
}

#[test]
fn a_seed_repeats_itself_exactly() {
    let first = run_seed(7, &Options::default());
    assert_eq!(first, run_seed(7, &Options::default()));
    assert_ne!(first, run_seed(8, &Options::default()));
}
