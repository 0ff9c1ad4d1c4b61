//! The handover area: connections that outlive their program, for the keeper to complete.
//!
//! An entry is the stack's own image of the connection and the name of its send ring, whose bytes
//! stay in the region.

use core::sync::atomic::Ordering;

use slipstack_mem::{ByteRing, Lines, RawSlice, Region, RingWord};

use crate::layout::{IMAGE_BYTES, IMAGES, IMAGES_AT, send_arena};

/// Longest image of the stack.
pub const STACK_IMAGE_MAX: usize = 768;

const IMAGE_LINES: usize = IMAGE_BYTES / 64;
const HEADER_LINES: usize = 64;
/// Bytes of an image before the stack's part.
const STACK_AT: usize = 64;

/// The engine's handle.
#[derive(Debug)]
pub struct HandoverArea {
    region: Region,
    lines: Lines,
    count: u32,
}

impl HandoverArea {
    pub fn new(region: &Region) -> Option<HandoverArea> {
        Some(HandoverArea {
            region: region.clone(),
            lines: area(region)?,
            count: 0,
        })
    }

    /// Adds a connection. `false` when the area is full or the image too long.
    pub fn push(&mut self, stack: &[u8], tx_ring: Option<ByteRing>, acked: u64, head: u64) -> bool {
        if stack.len() > STACK_IMAGE_MAX || self.count as usize >= IMAGES {
            return false;
        }
        let index = self.count as usize;
        let line = self.lines.line(HEADER_LINES + index * IMAGE_LINES);
        let word = tx_ring.map_or(RingWord::NONE, |ring| ring.word(0));
        for (at, value) in line
            .words
            .iter()
            .zip([stack.len() as u64, word.0, acked, head])
        {
            at.store(value, Ordering::Relaxed);
        }
        let at = IMAGES_AT + HEADER_LINES * 64 + index * IMAGE_BYTES + STACK_AT;
        self.region.write_from(at, stack);
        self.count += 1;
        let count = u64::from(self.count);
        self.lines.line(0).words[0].store(count, Ordering::Release);
        true
    }
}

/// A connection in a handover area, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverImage {
    /// The stack's part of the image; the stack checks it.
    pub stack: Vec<u8>,
    ring: Option<ByteRing>,
    /// Stream offsets of the bytes in the ring: acknowledged up to, written up to.
    pub acked: u64,
    pub head: u64,
}

impl HandoverImage {
    /// Encodes where the bytes are, for the record of the connection: ring, acknowledged up to,
    /// written up to.
    pub fn words(&self) -> [u64; 3] {
        let ring = self.ring.map_or(RingWord::NONE, |ring| ring.word(0));
        [ring.0, self.acked, self.head]
    }

    /// Decodes a record; its bytes are in `region`. Returns `None` for impossible values.
    pub fn from_words(
        stack: Vec<u8>,
        [ring, acked, head]: [u64; 3],
        region: &Region,
    ) -> Option<HandoverImage> {
        let ring = ByteRing::validate(RingWord(ring), &send_arena(region.len()));
        let held = head.checked_sub(acked)?;
        (held <= ring.map_or(0, |ring| ring.size() as u64)).then_some(HandoverImage {
            stack,
            ring,
            acked,
            head,
        })
    }

    /// Copies all bytes that are still to be sent or acknowledged.
    pub fn to_vec(&self, region: &Region) -> Vec<u8> {
        let mut bytes = vec![0; (self.head - self.acked) as usize];
        if let Some(ring) = self.ring {
            ring.read(region, self.acked, &mut bytes);
        }
        bytes
    }

    /// The bytes `[at, at + len)` of the stream to send. Empty where the image has none.
    pub fn gather<'a>(&self, region: &'a Region, at: u64, len: usize) -> [RawSlice<'a>; 2] {
        let end = at.saturating_add(len as u64);
        match self.ring {
            Some(ring) if at >= self.acked && end <= self.head => ring.slices(region, at, len),
            _ => [RawSlice::EMPTY; 2],
        }
    }
}

/// Returns the images in the handover area of a channel's region, at most `count`. Invalid images
/// are left out.
pub fn handover_images(region: &Region, count: u32) -> Vec<HandoverImage> {
    let Some(lines) = area(region) else {
        return Vec::new();
    };
    let written = lines.line(0).words[0].load(Ordering::Acquire);
    let count = written.min(u64::from(count)).min(IMAGES as u64) as usize;
    let image = |index: usize| {
        let line = lines.line(HEADER_LINES + index * IMAGE_LINES);
        let word = |at: usize| line.words[at].load(Ordering::Relaxed);
        let len = usize::try_from(word(0)).ok()?;
        let words = [word(1), word(2), word(3)];
        if len > STACK_IMAGE_MAX {
            return None;
        }
        let mut stack = vec![0; len];
        let at = IMAGES_AT + HEADER_LINES * 64 + index * IMAGE_BYTES + STACK_AT;
        region.read_into(at, &mut stack).then_some(())?;
        HandoverImage::from_words(stack, words, region)
    };
    (0..count).filter_map(image).collect()
}

fn area(region: &Region) -> Option<Lines> {
    Lines::new(region, IMAGES_AT, HEADER_LINES + IMAGES * IMAGE_LINES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::REGION_BYTES;

    #[test]
    fn images_come_back_with_their_bytes_and_invalid_ones_are_left_out() {
        let region = Region::create("test", REGION_BYTES).unwrap();
        let mut area = HandoverArea::new(&region).unwrap();
        let arena = send_arena(REGION_BYTES);
        let word = RingWord::new(0, 12, arena.start + 8192);
        let ring = ByteRing::validate(word, &arena).unwrap();
        ring.write(&region, 4090, b"queued data");
        assert!(area.push(b"image", Some(ring), 4090, 4101));
        assert!(area.push(b"too much", Some(ring), 0, 4097));
        assert!(area.push(b"backwards", None, 5, 4));
        assert!(!area.push(&[0; STACK_IMAGE_MAX + 1], None, 0, 0));
        let images = handover_images(&region, 100);
        assert_eq!(images.len(), 1);
        assert_eq!(images[0].stack, b"image");
        let again = HandoverImage::from_words(b"image".to_vec(), images[0].words(), &region);
        assert_eq!(again.as_ref(), Some(&images[0]));
        let mut out = [0; 11];
        let [first, second] = images[0].gather(&region, 4090, 11);
        let split = first.copy_to(&mut out);
        second.copy_to(&mut out[split..]);
        assert_eq!(&out, b"queued data");
        assert!(images[0].gather(&region, 4090, 12)[0].is_empty());
    }
}
