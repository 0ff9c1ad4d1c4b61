//! Links whose frames carry 802.1Q tags.

use slipstack_sim::link::Link;
use slipstack_sim::vlan::Tags;
use slipstack_sim::{LinkParams, Options, run_seed};
use slipstack_stack::Instant;
use slipstack_stack::rng::Rng;

const SEEDS: u64 = 30;

/// Frames of other VLANs that stacks or interfaces have left, over all seeds.
fn run_all(tags: Tags) -> u64 {
    let options = Options {
        tags: Some(tags),
        ..Options::default()
    };
    let foreign = (0..SEEDS).map(|seed| match run_seed(seed, &options) {
        Ok(report) => report.foreign,
        Err(failure) => panic!("seed {seed} at {:?}: {}", failure.at, failure.message),
    });
    foreign.sum()
}

#[test]
fn priorities_without_a_vlan_change_nothing_and_frames_of_a_vlan_are_counted() {
    assert!(run_all(Tags::Priority) > 100);
}

#[test]
fn a_vlan_on_a_rough_link_delivers_every_byte_once_and_in_order() {
    assert!(run_all(Tags::Vlan(7)) > 100);
}

#[test]
fn a_tag_does_not_count_as_a_part_of_the_packet() {
    let params = LinkParams {
        mtu: 1500,
        ..LinkParams::default()
    };
    let mut link = Link::new(params, Rng::new(&[1; 32]));
    let frame = |tag: &[u8], len: usize| [&[2; 12][..], tag, &vec![0; 2 + len]].concat();
    for (tag, len, fits) in [
        (&[][..], 1500, true),
        (&[], 1501, false),
        (&[0x81, 0, 0xe0, 0], 1500, true),
        (&[0x81, 0, 0, 7], 1501, false),
    ] {
        let outcome = link.offer(Instant::ZERO, frame(tag, len), ());
        assert_eq!(outcome.is_ok(), fits, "{tag:?} {len}");
    }
}
