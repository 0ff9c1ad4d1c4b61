//! Distribution of the buckets of a group among its slots, and again when these change.

use super::hash;
use super::layout::{self, BUCKETS, SLOTS_MAX};

/// The buckets that are tried for a flow, its own first.
pub(super) fn chain(bucket: u32) -> impl Iterator<Item = u32> {
    (0..layout::PROBES as u32).map(move |n| (bucket + n * layout::PROBE_STEP) % BUCKETS as u32)
}

/// Returns the slot that gets the bucket of one that leaves: the one that its flows were passed on
/// to while the slot was dead, so that they stay there.
pub(super) fn successor(old: &[u8], bucket: usize, targets: &[usize; SLOTS_MAX]) -> Option<u8> {
    chain(bucket as u32)
        .map(|bucket| old[bucket as usize])
        .find(|&slot| targets[usize::from(slot)] > 0)
}

/// Hands buckets without a slot, and if a slot is well below its share those of the rich, to slots
/// that have less. Small differences stay: every bucket that moves costs exceptions.
pub(super) fn level(buckets: &mut [u8], targets: &[usize; SLOTS_MAX]) {
    let target = |slot: u8| targets.get(usize::from(slot)).copied().unwrap_or(0);
    let wanted: Vec<u8> = (0..SLOTS_MAX as u8)
        .filter(|&slot| target(slot) > 0)
        .collect();
    let mut load = [0usize; 256];
    for &slot in buckets.iter() {
        load[usize::from(slot)] += 1;
    }
    let is_skewed = wanted
        .iter()
        .any(|&slot| load[usize::from(slot)] < target(slot) - target(slot) / 4);
    let mut poor: Vec<u8> = wanted
        .iter()
        .copied()
        .filter(|&slot| load[usize::from(slot)] < target(slot))
        .collect();
    for (bucket, slot) in buckets.iter_mut().enumerate() {
        let is_orphan = *slot == u8::MAX;
        if !is_orphan && (!is_skewed || load[usize::from(*slot)] <= target(*slot)) {
            continue;
        }
        // In no order, or neighbours on a chain would all have the same slot.
        let takers = match (poor.is_empty(), is_orphan) {
            (false, _) => &poor,
            (true, true) => &wanted,
            (true, false) => continue,
        };
        let Some(at) = scatter(bucket).checked_rem(takers.len()) else {
            continue;
        };
        let to = takers[at];
        load[usize::from(*slot)] -= 1;
        load[usize::from(to)] += 1;
        *slot = to;
        if load[usize::from(to)] >= target(to) {
            poor.retain(|&slot| slot != to);
        }
    }
}

/// A number that looks random, from a bucket.
fn scatter(bucket: usize) -> usize {
    (hash::MULTIPLIER_1.wrapping_mul(bucket as u64 + 1) >> 40) as usize
}
