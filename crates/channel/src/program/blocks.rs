//! Blocks of the send arena that pieces are carved from, and their contents.

use core::ops::Range;
use std::collections::VecDeque;

use slipstack_mem::ByteRing;

use crate::extents::Extent;

#[derive(Debug)]
pub(super) struct Block {
    pub(super) ring: ByteRing,
    /// Pieces, extents, and one for the block that pieces are carved from.
    pub(super) users: u32,
}

/// The blocks of one program.
#[derive(Debug, Default)]
pub(super) struct Carvings {
    /// In the order of their places.
    pub(super) blocks: Vec<Block>,
    /// The rest of the block that pieces are carved from.
    rest: Range<usize>,
    pub(super) held: usize,
    pub(super) extents: usize,
}

impl Carvings {
    fn index_of(&self, place: usize) -> Option<usize> {
        let after = |block: &Block| block.ring.offset() <= place;
        let index = self.blocks.partition_point(after).checked_sub(1)?;
        let ring = self.blocks[index].ring;
        (place - ring.offset() < ring.size()).then_some(index)
    }

    pub(super) fn block_of(&mut self, place: usize) -> Option<&mut Block> {
        let index = self.index_of(place)?;
        self.blocks.get_mut(index)
    }

    /// Returns whether both are in one block, because each block is freed separately.
    pub(super) fn are_of_one(&mut self, one: &Extent, other: &Extent) -> bool {
        let mut ring = |extent: &Extent| self.block_of(extent.place).map(|block| block.ring);
        ring(one) == ring(other)
    }

    /// The next piece of the block that there is.
    pub(super) fn take(&mut self, len: usize) -> Option<usize> {
        let end = self.rest.end;
        let block = self.block_of(end.checked_sub(1)?)?;
        if block.users == 1 {
            // Nothing is in the block: it is used from its start, where the cache is warm.
            self.rest = end - block.ring.size()..end;
        }
        if self.rest.len() < len {
            return None;
        }
        let place = self.rest.start;
        self.rest.start += len;
        self.use_block(place);
        Some(place)
    }

    pub(super) fn use_block(&mut self, place: usize) {
        if let Some(block) = self.block_of(place) {
            block.users += 1;
        }
    }

    /// One user less; returns the block if it was the last one.
    pub(super) fn leave_block(&mut self, place: usize) -> Option<ByteRing> {
        let index = self.index_of(place)?;
        let block = &mut self.blocks[index];
        block.users -= 1;
        if block.users > 0 {
            return None;
        }
        let ring = self.blocks.remove(index).ring;
        self.held -= ring.size();
        Some(ring)
    }

    /// Carves from this block from now on; returns the previous one if nothing in it is in use.
    pub(super) fn begin(&mut self, ring: ByteRing) -> Option<ByteRing> {
        let before = match self.rest.end {
            0 => None,
            end => self.leave_block(end - 1),
        };
        let before_it = |block: &Block| block.ring.offset() < ring.offset();
        let index = self.blocks.partition_point(before_it);
        self.blocks.insert(index, Block { ring, users: 1 });
        self.held += ring.size();
        self.rest = ring.offset()..ring.offset() + ring.size();
        before
    }
}

/// Extents of one connection that are not acknowledged, in order.
#[derive(Debug, Default)]
pub(super) struct Lent {
    pub(super) extents: VecDeque<Extent>,
    /// End of the last one that there was.
    pub(super) end: u64,
}
