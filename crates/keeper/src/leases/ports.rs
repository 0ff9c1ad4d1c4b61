//! Blocks of local ports for outgoing connections.
//!
//! An engine that connects out takes local ports from blocks that are its own, so that every answer
//! finds its slot by one look at the local port.

use serde::{Deserialize, Serialize};

/// First and last port that may be leased; Linux's own default range.
pub const PORT_FIRST: u16 = 32768;
pub const PORT_LAST: u16 = 60999;
/// Ports in one block.
pub const BLOCK_LEN: u16 = 256;
/// Number of whole blocks in the range.
pub const BLOCKS: usize = ((PORT_LAST - PORT_FIRST + 1) / BLOCK_LEN) as usize;

/// Which slot owns which block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PortBlocks {
    owner: Vec<Option<u16>>,
}

impl Default for PortBlocks {
    fn default() -> Self {
        PortBlocks {
            owner: vec![None; BLOCKS],
        }
    }
}

impl PortBlocks {
    /// Takes a free block for `slot`, beginning the search at `hint` (any number). Returns its first
    /// and last port, or `None` when every block is taken or `slot` already has `blocks_max`.
    pub fn lease(&mut self, slot: u16, hint: u64, blocks_max: usize) -> Option<(u16, u16)> {
        if self
            .owner
            .iter()
            .filter(|owner| **owner == Some(slot))
            .count()
            >= blocks_max
        {
            return None;
        }
        let start = (hint % BLOCKS as u64) as usize;
        let index = (0..BLOCKS)
            .map(|i| (start + i) % BLOCKS)
            .find(|i| self.owner[*i].is_none())?;
        self.owner[index] = Some(slot);
        Some(range(index))
    }

    /// Frees all blocks of `slot` and returns their ranges.
    pub fn release(&mut self, slot: u16) -> Vec<(u16, u16)> {
        let mut freed = Vec::new();
        for (index, owner) in self.owner.iter_mut().enumerate() {
            if *owner == Some(slot) {
                *owner = None;
                freed.push(range(index));
            }
        }
        freed
    }

    /// The slot that owns the block of `port`.
    pub fn find_owner(&self, port: u16) -> Option<u16> {
        let index = usize::from(port.checked_sub(PORT_FIRST)? / BLOCK_LEN);
        *self.owner.get(index)?
    }

    /// Ranges leased to `slot`.
    pub fn of(&self, slot: u16) -> impl Iterator<Item = (u16, u16)> + '_ {
        self.owner
            .iter()
            .enumerate()
            .filter(move |(_, owner)| **owner == Some(slot))
            .map(|(index, _)| range(index))
    }

    /// A table read back from a former keeper has the right shape.
    pub fn is_sound(&self, slots: usize) -> bool {
        self.owner.len() == BLOCKS
            && self
                .owner
                .iter()
                .flatten()
                .all(|slot| usize::from(*slot) < slots)
    }
}

fn range(index: usize) -> (u16, u16) {
    let first = PORT_FIRST + index as u16 * BLOCK_LEN;
    (first, first + (BLOCK_LEN - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_leased_once_and_lies_in_the_range() {
        let mut blocks = PortBlocks::default();
        let mut seen = Vec::new();
        while let Some((first, last)) = blocks.lease(1, 1000, usize::MAX) {
            assert!(first >= PORT_FIRST && last <= PORT_LAST && last - first == BLOCK_LEN - 1);
            assert_eq!(blocks.find_owner(first), Some(1));
            assert_eq!(blocks.find_owner(last), Some(1));
            seen.push(first);
        }
        assert_eq!(seen.len(), BLOCKS);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), BLOCKS);
        assert_eq!(blocks.release(1).len(), BLOCKS);
        assert_eq!(blocks.find_owner(PORT_FIRST), None);
    }

    #[test]
    fn one_slot_cannot_take_more_than_its_share() {
        let mut blocks = PortBlocks::default();
        assert!(blocks.lease(1, 0, 2).is_some());
        assert!(blocks.lease(1, 0, 2).is_some());
        assert!(blocks.lease(1, 0, 2).is_none());
        assert!(blocks.lease(2, 0, 2).is_some());
    }

    #[test]
    fn ports_outside_of_the_range_have_no_owner() {
        let mut blocks = PortBlocks::default();
        while blocks.lease(3, 0, usize::MAX).is_some() {}
        assert_eq!(blocks.find_owner(80), None);
        assert_eq!(blocks.find_owner(PORT_FIRST - 1), None);
        assert_eq!(
            blocks.find_owner(PORT_LAST),
            None,
            "the tail shorter than a block is nobody's"
        );
        assert_eq!(blocks.find_owner(u16::MAX), None);
    }
}
