//! Decides when a ring that has grown may become smaller again.

use slipstack_mem::ByteRing;

/// Rings up to this size stay in a processor's own cache however they are used (L2 of 1 MiB and
/// more). A larger one is walked through from end to end, so that both its writer and its reader
/// find every line cold.
const CACHED_SIZE: usize = 512 << 10;
/// Number of passes with a mostly unused ring after which a smaller one replaces it: replacing it
/// costs a copy of its contents.
const SHRINK_LAPS: u64 = 4;

/// A stretch of the stream, some rings long, and the most of the ring that was in use in it. A
/// stall of the receiver or of the reader makes the ring grow; when it is over, a smaller one is
/// enough.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lap {
    end: u64,
    peak: usize,
}

impl Lap {
    /// For a fresh ring.
    pub(crate) const NEW: Lap = Lap { end: 0, peak: 0 };

    /// Returns whether uses of this ring are to be noted.
    #[inline]
    pub(crate) fn concerns(ring: ByteRing) -> bool {
        ring.size() > CACHED_SIZE
    }

    /// Bytes up to the stream offset `head` are about to be in the ring, `used` in all. The size
    /// that is enough, once it is known to be half of the ring's at most.
    #[cold]
    pub(crate) fn note(&mut self, ring: ByteRing, head: u64, used: usize) -> Option<usize> {
        self.peak = self.peak.max(used);
        if head < self.end {
            return None;
        }
        let has_begun = self.end != 0;
        let needed = (2 * self.peak).max(CACHED_SIZE);
        *self = Lap {
            end: head + SHRINK_LAPS * ring.size() as u64,
            peak: used,
        };
        (has_begun && needed <= ring.size() / 2).then_some(needed)
    }
}
