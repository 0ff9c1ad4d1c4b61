//! Blocks of local ports for outgoing connections.
//!
//! An engine takes local ports for its own connections from blocks that are leased to it, so that
//! every answer finds its slot by one lookup of the local port. The pool is the system's
//! `ip_local_port_range` at the keeper's start. Blocks are ranges in a keyed permutation of the
//! pool ([`Scatter`]), so that their ports are spread over all of it and cannot be predicted from
//! each other (RFC 6056 3.3.3). If the system's range changes later, engines lease blocks beyond
//! the pool, too, which are made on demand and are not permuted.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use slipstack_stack::Scatter;

/// Linux's own default range.
const POOL_DEFAULT: (u16, u16) = (32768, 60999);
/// Ports in one block, of a pool that is large enough for [`BLOCKS_MIN`] of them.
pub const BLOCK_LEN: u16 = 256;
/// A smaller pool has smaller blocks: engines share it.
const BLOCKS_MIN: u16 = 64;
/// The first lease of an engine has so many blocks in a row at most: each block less makes ports
/// easier to guess.
const BLOCKS_FIRST_MAX: usize = 16;
/// Most blocks beyond the pool: as many as all ports make.
const BEYOND_MAX: usize = 256;

/// Which slot owns which block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PortBlocks {
    pool: (u16, u16),
    key: [u64; 2],
    block_len: u16,
    owner: Vec<Option<u16>>,
    /// Blocks of ports that are not in the pool, each by its first port.
    #[serde(default)]
    beyond: BTreeMap<u16, Beyond>,
    #[serde(skip)]
    order: OnceLock<Order>,
}

/// A block beyond the pool.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Beyond {
    last: u16,
    slot: u16,
}

/// The permutation, written down: a lease or an end concerns thousands of ports.
#[derive(Clone, Debug)]
struct Order {
    /// The port at each place of the pool, and the place of each port.
    ports: Vec<u16>,
    places: Vec<u16>,
}

impl Order {
    fn of((first, last): (u16, u16), scatter: &Scatter) -> Order {
        Order {
            ports: (first..=last).map(|place| scatter.port(place)).collect(),
            places: (first..=last).map(|port| scatter.place(port)).collect(),
        }
    }
}

impl PortBlocks {
    /// Blocks of the ports `pool.0` to `pool.1`, inclusive, in an order that follows from `key`.
    pub fn new(pool: (u16, u16), key: [u64; 2]) -> PortBlocks {
        let pool = if pool.0 == 0 || pool.1 < pool.0 {
            POOL_DEFAULT
        } else {
            pool
        };
        let count = pool.1 - pool.0;
        let block_len = (count / BLOCKS_MIN).clamp(1, BLOCK_LEN);
        let blocks = usize::from(count.saturating_add(1) / block_len);
        PortBlocks {
            pool,
            key,
            block_len,
            owner: vec![None; blocks],
            beyond: BTreeMap::new(),
            order: OnceLock::new(),
        }
    }

    pub fn pool(&self) -> (u16, u16) {
        self.pool
    }

    fn order(&self) -> &Order {
        self.order
            .get_or_init(|| Order::of(self.pool, &Scatter::new(self.pool, self.key)))
    }

    /// Returns the number of blocks that an engine starts with if `others` more may come: a quarter
    /// of what they do not need.
    pub fn first_lease(&self, others: usize) -> usize {
        let free = self.owner.iter().filter(|owner| owner.is_none()).count();
        (free.saturating_sub(others) / 4).clamp(1, BLOCKS_FIRST_MAX)
    }

    /// Takes `wanted` free blocks in a row for `slot`, or one, beginning the search at `hint` (any
    /// number). Returns the first and last place, or `None` when every block is taken or `slot`
    /// already has `blocks_max`.
    pub fn lease(
        &mut self,
        slot: u16,
        hint: u64,
        wanted: usize,
        blocks_max: usize,
    ) -> Option<(u16, u16)> {
        let blocks = self.owner.len();
        let has = self.blocks_of(slot);
        if has >= blocks_max || blocks == 0 {
            return None;
        }
        let start = (hint % blocks as u64) as usize;
        let find = |run: usize| {
            let at = |i: usize| (start + i) % blocks;
            let is_free = |from: usize| {
                let run = self.owner.get(from..from + run);
                run.is_some_and(|run| run.iter().all(Option::is_none))
            };
            (0..blocks).map(at).find(|from| is_free(*from))
        };
        let wanted = wanted.min(blocks_max - has).max(1);
        let (index, run) = match find(wanted) {
            Some(index) => (index, wanted),
            None => (find(1)?, 1),
        };
        self.owner[index..index + run].fill(Some(slot));
        let (first, _) = self.range(index);
        Some((first, self.range(index + run - 1).1))
    }

    /// As [`PortBlocks::lease`], one block of the ports `range.0` to `range.1`, inclusive, none of
    /// which is in the pool.
    pub fn lease_beyond(
        &mut self,
        slot: u16,
        hint: u64,
        range: (u16, u16),
        blocks_max: usize,
    ) -> Option<(u16, u16)> {
        let (first, last) = (range.0.max(1), range.1);
        let is_full = self.beyond.len() >= BEYOND_MAX || self.blocks_of(slot) >= blocks_max;
        if is_full || last < first {
            return None;
        }
        let span = last - first;
        let len = (span / BLOCKS_MIN).clamp(1, BLOCK_LEN);
        let count = u64::from(span / len) + 1;
        let start = hint % count;
        let block = |step: u64| {
            let low = first + ((start + step) % count) as u16 * len;
            (low, low.saturating_add(len - 1).min(last))
        };
        let (low, high) = (0..count).map(block).find(|block| self.is_beyond(*block))?;
        self.beyond.insert(low, Beyond { last: high, slot });
        Some((low, high))
    }

    /// Returns whether none of these ports are in the pool or in another block.
    fn is_beyond(&self, (low, high): (u16, u16)) -> bool {
        let before = self.beyond.range(..=high).next_back();
        (high < self.pool.0 || low > self.pool.1) && before.is_none_or(|(_, it)| it.last < low)
    }

    /// Number of blocks of `slot`.
    fn blocks_of(&self, slot: u16) -> usize {
        let owned = self.owner.iter().filter(|owner| **owner == Some(slot));
        owned.count() + self.beyond_of(slot).count()
    }

    /// The first and last port of the blocks that `slot` has beyond the pool.
    fn beyond_of(&self, slot: u16) -> impl Iterator<Item = (u16, u16)> + '_ {
        let owned = self.beyond.iter().filter(move |(_, it)| it.slot == slot);
        owned.map(|(first, it)| (*first, it.last))
    }

    /// Frees all blocks of `slot` and returns their ports.
    pub fn release(&mut self, slot: u16) -> Vec<u16> {
        let freed = self.of(slot);
        self.beyond.retain(|_, it| it.slot != slot);
        for owner in self.owner.iter_mut().filter(|owner| **owner == Some(slot)) {
            *owner = None;
        }
        freed
    }

    /// The slot that owns the block of `port`.
    pub fn find_owner(&self, port: u16) -> Option<u16> {
        if !(self.pool.0..=self.pool.1).contains(&port) {
            let (_, found) = self.beyond.range(..=port).next_back()?;
            return (port <= found.last).then_some(found.slot);
        }
        let at = port - self.pool.0;
        let place = self.order().places.get(usize::from(at))?;
        let index = usize::from((place - self.pool.0) / self.block_len);
        *self.owner.get(index)?
    }

    /// Number of ports leased to `slot`.
    pub fn count_of(&self, slot: u16) -> usize {
        let owned = self.owner.iter().filter(|owner| **owner == Some(slot));
        let beyond = self.beyond_of(slot);
        let beyond: usize = beyond.map(|(low, high)| usize::from(high - low) + 1).sum();
        owned.count() * usize::from(self.block_len) + beyond
    }

    fn of(&self, slot: u16) -> Vec<u16> {
        let owned = self.owner.iter().enumerate();
        let owned = owned.filter(|(_, owner)| **owner == Some(slot));
        owned
            .map(|(index, _)| self.range(index))
            .chain(self.beyond_of(slot))
            .flat_map(|places| self.ports(places))
            .collect()
    }

    /// The ports at these places.
    pub fn ports(&self, (first, last): (u16, u16)) -> Vec<u16> {
        let ports = &self.order().ports;
        let port = |place: u16| {
            let at = place.checked_sub(self.pool.0).map(usize::from);
            at.and_then(|at| ports.get(at)).copied().unwrap_or(place)
        };
        (first..=last).map(port).collect()
    }

    fn range(&self, index: usize) -> (u16, u16) {
        let first = self.pool.0 + index as u16 * self.block_len;
        (first, first + (self.block_len - 1))
    }

    /// A table read back from a former keeper has the right shape.
    pub fn is_sound(&self, slots: usize) -> bool {
        let fresh = PortBlocks::new(self.pool, self.key);
        self.pool == fresh.pool
            && self.block_len == fresh.block_len
            && self.owner.len() == fresh.owner.len()
            && self
                .owner
                .iter()
                .flatten()
                .all(|slot| usize::from(*slot) < slots)
            && self
                .beyond
                .iter()
                .all(|(first, it)| *first <= it.last && usize::from(it.slot) < slots)
    }
}

/// The system's range of local ports.
pub fn system_ports() -> (u16, u16) {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| read_pool(&text))
        .unwrap_or(POOL_DEFAULT)
}

/// Ports for the stack's own connections where the kernel has the same addresses and takes `system`
/// for its own: those right below it, or else above.
pub fn ports_beside((first, last): (u16, u16)) -> (u16, u16) {
    const LEAST: u16 = 2048;
    match (first / 2 >= LEAST, u16::MAX - last >= LEAST) {
        (true, _) => (first / 2, first - 1),
        (false, true) => (last + 1, u16::MAX),
        (false, false) => (first, last),
    }
}

fn read_pool(text: &str) -> Option<(u16, u16)> {
    let mut words = text.split_whitespace().map(|word| word.parse().ok());
    Some((words.next()??, words.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks() -> PortBlocks {
        PortBlocks::new(POOL_DEFAULT, [1, 2])
    }

    #[test]
    fn shared_addresses_leave_the_kernel_its_ports() {
        assert_eq!(ports_beside((32768, 60999)), (16384, 32767));
        assert_eq!(ports_beside((1024, 40000)), (40001, 65535));
        assert_eq!(ports_beside((1024, 65000)), (1024, 65000));
    }

    #[test]
    fn every_port_is_leased_once_and_is_in_the_pool() {
        for pool in [
            POOL_DEFAULT,
            (40_000, 40_010),
            (1024, u16::MAX),
            (5000, 5000),
        ] {
            let mut blocks = PortBlocks::new(pool, [3, 4]);
            let mut seen = Vec::new();
            while let Some(places) = blocks.lease(1, 1000, 1, usize::MAX) {
                seen.extend(blocks.ports(places));
            }
            assert!(seen.iter().all(|port| (pool.0..=pool.1).contains(port)));
            assert!(seen.iter().all(|port| blocks.find_owner(*port) == Some(1)));
            let count = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), count);
            assert!(count + usize::from(blocks.block_len) > usize::from(pool.1 - pool.0));
            let mut freed = blocks.release(1);
            freed.sort_unstable();
            assert_eq!(freed, seen);
            assert!(blocks.is_sound(2));
        }
    }

    #[test]
    fn a_first_lease_has_several_blocks_as_long_as_there_are() {
        let mut blocks = blocks();
        let len = |places: (u16, u16)| places.1 - places.0 + 1;
        let wanted = blocks.first_lease(15);
        assert_eq!(wanted, BLOCKS_FIRST_MAX);
        assert_eq!(
            blocks.lease(1, 7, wanted, 64).map(len),
            Some(16 * BLOCK_LEN)
        );
        while blocks.lease(2, 0, 1, usize::MAX).is_some() {}
        blocks.owner[50] = None;
        assert_eq!(blocks.first_lease(15), 1);
        assert_eq!(blocks.lease(3, 7, wanted, 64).map(len), Some(BLOCK_LEN));
    }

    #[test]
    fn blocks_beyond_the_pool_are_leased_once_and_have_none_of_its_ports() {
        for range in [(20_000, 20_099), (1, u16::MAX), (61_000, 61_000)] {
            let mut blocks = blocks();
            let mut seen = Vec::new();
            let mut hint = 7;
            while let Some(places) = blocks.lease_beyond(1, hint, range, usize::MAX) {
                seen.extend(blocks.ports(places));
                hint += 5;
            }
            let is_meant = |port: &u16| {
                let is_in_pool = (POOL_DEFAULT.0..=POOL_DEFAULT.1).contains(port);
                (range.0..=range.1).contains(port) && !is_in_pool
            };
            assert!(seen.iter().all(is_meant));
            assert!(seen.iter().all(|port| blocks.find_owner(*port) == Some(1)));
            assert_eq!(blocks.count_of(1), seen.len());
            let missing = (range.0..=range.1).filter(is_meant).count() - seen.len();
            assert!(missing <= 2 * usize::from(BLOCK_LEN), "{range:?}");
            assert!(blocks.is_sound(2));
            assert_eq!(blocks.lease_beyond(2, 3, range, 64), None);
            let mut freed = blocks.release(1);
            freed.sort_unstable();
            seen.sort_unstable();
            assert_eq!(freed, seen);
            assert_eq!(blocks.find_owner(range.0), None);
        }
        let mut blocks = blocks();
        assert_eq!(blocks.lease_beyond(1, 0, (40_000, 50_000), 64), None);
        assert_eq!(blocks.lease_beyond(1, 0, (5000, 4000), 64), None);
        assert_eq!(blocks.lease_beyond(1, 0, (20_000, 20_999), 0), None);
    }

    #[test]
    fn one_slot_cannot_take_more_than_its_share() {
        let mut blocks = blocks();
        assert!(blocks.lease(1, 0, 1, 2).is_some());
        assert!(blocks.lease(1, 0, 4, 2).is_some());
        assert!(blocks.lease(1, 0, 1, 2).is_none());
        assert!(blocks.lease(2, 0, 1, 2).is_some());
    }

    #[test]
    fn ports_outside_of_the_pool_have_no_owner() {
        let mut blocks = blocks();
        while blocks.lease(3, 0, 1, usize::MAX).is_some() {}
        for port in [80, POOL_DEFAULT.0 - 1, POOL_DEFAULT.1 + 1, u16::MAX] {
            assert_eq!(blocks.find_owner(port), None);
        }
    }

    #[test]
    fn the_systems_range_is_read() {
        assert_eq!(read_pool("32768\t60999\n"), Some((32768, 60999)));
        assert_eq!(read_pool("32768"), None);
        let (first, last) = system_ports();
        assert!(first <= last);
    }
}
