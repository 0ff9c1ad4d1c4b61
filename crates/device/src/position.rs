//! The consumer's position in a receive ring, in shared memory, so that a successor continues
//! exactly there.

use core::sync::atomic::{AtomicU32, Ordering};

use slipstack_mem::Region;

/// The position of one slot's receive ring.
#[derive(Debug)]
pub struct RingPosition(Storage);

#[derive(Debug)]
enum Storage {
    Shared { region: Region, offset: usize },
    Private(AtomicU32),
}

impl RingPosition {
    /// The 32-bit word at `offset` of `region`. It begins as zero, when the ring is opened.
    /// `None` when the offset is outside or not aligned.
    pub fn new(region: Region, offset: usize) -> Option<RingPosition> {
        region.u32(offset)?;
        Some(RingPosition(Storage::Shared { region, offset }))
    }

    /// A position that is not shared: for slots that are opened once.
    pub fn private() -> RingPosition {
        RingPosition(Storage::Private(AtomicU32::new(0)))
    }

    /// The position of another port's ring of the same slot: the word so many places behind. `None`
    /// when it is outside.
    pub fn beside(&self, port: usize) -> Option<RingPosition> {
        match &self.0 {
            Storage::Shared { region, offset } => {
                RingPosition::new(region.clone(), offset + port * size_of::<u32>())
            }
            Storage::Private(_) => Some(RingPosition::private()),
        }
    }

    /// Begins again: the ring is another one.
    pub fn rewind(&self) {
        self.store(0);
    }

    #[inline]
    pub(crate) fn load(&self) -> u32 {
        self.word().map_or(0, |word| word.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn store(&self, position: u32) {
        if let Some(word) = self.word() {
            word.store(position, Ordering::Release);
        }
    }

    #[inline]
    fn word(&self) -> Option<&AtomicU32> {
        match &self.0 {
            Storage::Shared { region, offset } => region.u32(*offset),
            Storage::Private(word) => Some(word),
        }
    }
}
