//! Assignment of buckets to slots, and the construction of keys.

use super::*;

fn wanted(slots: &[u8]) -> [usize; SLOTS_MAX] {
    let mut out = [0; SLOTS_MAX];
    for &slot in slots {
        out[usize::from(slot)] = BUCKETS / slots.len();
    }
    out
}

#[test]
fn slots_have_buckets_in_proportion_to_their_shares() {
    let steering = Steering::create_apart(7).unwrap();
    let count = |slot| {
        (0..BUCKETS as u16)
            .filter(|b| steering.group_slot(0, *b) == slot)
            .count()
    };
    for slot in 1..4 {
        steering.set_alive(slot, true).unwrap();
    }
    steering.share_group(0, &[(1, 6), (2, 1), (3, 1)]).unwrap();
    assert_eq!([1, 2, 3].map(count), [3072, 512, 512]);
    steering.share_group(0, &[(1, 1), (2, 1)]).unwrap();
    assert_eq!([1, 2, 3].map(count), [2048, 2048, 0]);
    steering.share_group(0, &[(3, 5)]).unwrap();
    assert_eq!([1, 2, 3].map(count), [0, 0, BUCKETS]);
}

fn loads(buckets: &[u8], slots: &[u8]) -> Vec<usize> {
    let count = |slot: &u8| buckets.iter().filter(|b| *b == slot).count();
    slots.iter().map(count).collect()
}

#[test]
fn a_new_slot_takes_its_share_and_no_more_moves() {
    let mut buckets = vec![1u8; BUCKETS];
    level(&mut buckets, &wanted(&[1, 2]));
    assert_eq!(loads(&buckets, &[1, 2]), [2048, 2048]);
    let before = buckets.clone();
    level(&mut buckets, &wanted(&[1, 2, 3]));
    let moved = before.iter().zip(&buckets).filter(|(a, b)| a != b).count();
    assert_eq!(moved, BUCKETS / 3);
}

#[test]
fn a_slot_that_leaves_hands_its_buckets_to_those_that_covered_for_it() {
    let mut old = vec![0u8; BUCKETS];
    for (bucket, slot) in old.iter_mut().enumerate() {
        *slot = 1 + (bucket % 3) as u8;
    }
    let left = wanted(&[1, 2]);
    let successors: Vec<_> = (0..BUCKETS).map(|b| successor(&old, b, &left)).collect();
    assert!(successors.iter().all(|h| matches!(h, Some(1 | 2))));
}

#[test]
fn the_chain_of_a_bucket_has_no_bucket_twice() {
    for bucket in 0..BUCKETS as u32 {
        let mut seen: Vec<u32> = chain(bucket).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), layout::PROBES);
    }
}
