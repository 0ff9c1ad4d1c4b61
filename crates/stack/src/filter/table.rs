//! Tables of prefixes with values: longest-prefix match by a search over ranges.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::ranges::{V4, ranges_of};

/// Prefixes of all tables together.
pub const PREFIXES_MAX: usize = 131_072;
/// Bits of an IPv4 address by which the search begins.
const BUCKET_BITS: u32 = 16;
/// With fewer ranges the search needs no such beginning.
const BUCKETS_FROM: usize = 256;

/// A prefix with its value.
pub type Prefix = ((IpAddr, u8), u32);

/// One table, made for look-ups.
#[derive(Debug, Default)]
pub struct Table {
    v4: Flat<u32>,
    /// Start in `v4` of the addresses that share their first [`BUCKET_BITS`] bits; empty: it is
    /// searched as a whole.
    buckets: Vec<u32>,
    v6: Flat<u128>,
}

/// Ranges that cover all values, each with its result.
#[derive(Debug)]
struct Flat<T> {
    starts: Vec<T>,
    values: Vec<Option<u32>>,
}

impl<T> Default for Flat<T> {
    fn default() -> Self {
        Flat {
            starts: Vec::new(),
            values: Vec::new(),
        }
    }
}

impl<T: Copy + Ord> Flat<T> {
    fn add(&mut self, start: T, value: Option<u32>) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.values.pop();
        }
        if self.values.last() != Some(&value) {
            self.starts.push(start);
            self.values.push(value);
        }
    }

    /// The range is one of those from `from` up to `upto`.
    fn find(&self, address: T, from: usize, upto: usize) -> Option<u32> {
        let among = self.starts.get(from..upto)?;
        let at = from + among.partition_point(|start| *start <= address);
        self.values.get(at.checked_sub(1)?).copied().flatten()
    }
}

/// Calls `add` with each position at which the result changes, in order; `ranges` are nested or
/// disjoint.
fn flatten(mut ranges: Vec<(u128, u128, u32)>, mut add: impl FnMut(u128, Option<u32>)) {
    // The wider of two that begin together comes first, so that the narrower covers it.
    ranges.sort_by_key(|(low, high, _)| (*low, u128::MAX - high));
    // Ranges that are open, the innermost last.
    let mut open: Vec<(u128, u32)> = Vec::new();
    // An end marker that closes all ranges.
    let ranges = ranges.into_iter().map(Some).chain([None]);
    for range in ranges {
        let upto = range.map(|(low, ..)| low);
        while let Some((high, _)) = open.pop_if(|(high, _)| upto.is_none_or(|upto| *high < upto)) {
            if let Some(next) = high.checked_add(1) {
                add(next, open.last().map(|(_, value)| *value));
            }
        }
        if let Some((low, high, value)) = range {
            open.push((high, value));
            add(low, Some(value));
        }
    }
}

impl Table {
    /// Makes a table; of a prefix that is there twice the last value counts.
    pub fn new(prefixes: &[Prefix]) -> Table {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (net, value) in prefixes.iter().take(PREFIXES_MAX) {
            let of_family = if net.0.is_ipv4() { &mut v4 } else { &mut v6 };
            for (low, high) in ranges_of(*net) {
                of_family.push((low, high, *value));
            }
        }
        let mut table = Table::default();
        flatten(v4, |start, value| {
            // Behind the last address there is nothing to say.
            if start >> 32 == V4 >> 32 {
                table.v4.add(start as u32, value);
            }
        });
        flatten(v6, |start, value| table.v6.add(start, value));
        table.build_buckets();
        table
    }

    fn build_buckets(&mut self) {
        let starts = &self.v4.starts;
        if starts.len() < BUCKETS_FROM {
            return;
        }
        let buckets = (0..=1u64 << BUCKET_BITS).map(|bucket| {
            let begin = bucket << (32 - BUCKET_BITS);
            starts.partition_point(|start| u64::from(*start) < begin) as u32
        });
        self.buckets = buckets.collect();
    }

    /// `address` as packets have it. The value of the longest prefix.
    pub fn find(&self, address: u128) -> Option<u32> {
        if address >> 32 != V4 >> 32 {
            return self.v6.find(address, 0, self.v6.starts.len());
        }
        let address = address as u32;
        let bucket = (address >> (32 - BUCKET_BITS)) as usize;
        let (from, upto) = match self.buckets.get(bucket..bucket + 2) {
            // A prefix that begins before the bucket may reach into it.
            Some(ends) => ((ends[0] as usize).saturating_sub(1), ends[1] as usize),
            None => (0, self.v4.starts.len()),
        };
        self.v4.find(address, from, upto)
    }
}
