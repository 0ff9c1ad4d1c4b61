//! A few seeds of every family of worlds, unoptimised, with every assertion. The `worlds` binary
//! plays any number of seeds.

use slipstack_sim::worlds::{FAMILIES, Family};

const SEEDS: u64 = 2;

#[test]
fn every_family_of_worlds_passes() {
    for family in FAMILIES {
        for seed in 0..SEEDS {
            if let Err(failure) = family.run(seed, None) {
                panic!(
                    "{} seed {seed} at {:?}: {}",
                    family.name, failure.at, failure.message
                );
            }
        }
    }
}

/// Runs a seed between the first and between the second interfaces of hosts that have two: families
/// and links see no difference.
#[test]
fn every_world_gives_the_same_result_on_the_second_interface() {
    for family in FAMILIES {
        let (first, second) = (family.run(1, None), family.run_on_second_port(1, None));
        assert_eq!(first, second, "{}", family.name);
    }
}

#[test]
fn a_world_repeats_itself_exactly() {
    for family in FAMILIES {
        assert_eq!(family.run(3, None), family.run(3, None), "{}", family.name);
    }
}

/// Seeds that failed once.
#[test]
fn seeds_that_once_failed_pass() {
    for (name, seed) in [
        // The tail was sent again while losses lay before it, and they were forgotten.
        ("pause", 1142),
        ("pause", 1010),
    ] {
        let Some(family) = Family::find(name) else {
            panic!("no family {name}");
        };
        if let Err(failure) = family.run(seed, None) {
            panic!(
                "{name} seed {seed} at {:?}: {}",
                failure.at, failure.message
            );
        }
    }
}
