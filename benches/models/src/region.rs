//! Shared memory for models: lines of loom's words. Plain bytes are words too, read and written
//! without any order, so that a ring which publishes too early shows old bytes.

use std::sync::Arc;

use crate::raw::{RawSlice, RawSpace};
use crate::sync::{AtomicU64, Ordering};

/// A small page: an inbox's header and its cells fit a few words.
pub const PAGE: usize = 256;

#[derive(Debug)]
pub struct Line {
    pub words: [AtomicU64; 8],
}

#[derive(Clone, Debug)]
pub struct Region {
    lines: Arc<Vec<Line>>,
}

impl Region {
    pub fn new(len: usize) -> Region {
        let line = |_| Line {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        let lines = Arc::new((0..len / 64).map(line).collect());
        Region { lines }
    }

    /// Takes whole words; models send no others.
    pub fn write_from(&self, offset: usize, bytes: &[u8]) -> bool {
        for (i, word) in bytes.chunks_exact(8).enumerate() {
            let value = word.try_into().map(u64::from_le_bytes).unwrap_or_default();
            self.word(offset + 8 * i).store(value, Ordering::Relaxed);
        }
        true
    }

    pub fn write_shared(&self, offset: usize, bytes: RawSlice<'_>) -> bool {
        self.write_from(offset, bytes.bytes())
    }

    pub fn read_into(&self, offset: usize, out: &mut [u8]) -> bool {
        for (i, word) in out.chunks_exact_mut(8).enumerate() {
            let value = self.word(offset + 8 * i).load(Ordering::Relaxed);
            word.copy_from_slice(&value.to_le_bytes());
        }
        true
    }

    /// Moves whole words.
    pub fn copy_within(&self, from: usize, to: usize, len: usize) -> bool {
        for at in (0..len).step_by(8) {
            let value = self.word(from + at).load(Ordering::Relaxed);
            self.word(to + at).store(value, Ordering::Relaxed);
        }
        true
    }

    pub fn slice(&self, _offset: usize, _len: usize) -> Option<RawSlice<'_>> {
        None
    }

    pub fn space(&self, _offset: usize, _len: usize) -> Option<RawSpace<'_>> {
        None
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        &self.lines[offset / 64].words[offset % 64 / 8]
    }
}

#[derive(Clone, Debug)]
pub struct Lines {
    region: Region,
    first: usize,
    count: usize,
}

impl Lines {
    pub fn new(region: &Region, offset: usize, count: usize) -> Option<Lines> {
        let first = offset / 64;
        (first + count <= region.lines.len()).then(|| Lines {
            region: region.clone(),
            first,
            count,
        })
    }

    pub fn region(&self) -> &Region {
        &self.region
    }

    pub fn line(&self, index: usize) -> &Line {
        assert!(index < self.count);
        &self.region.lines[self.first + index]
    }
}
