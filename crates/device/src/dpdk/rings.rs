//! Two rings of frames in memory that one slot shares with the process of its device.
//!
//! A frame takes one cell, or several in a row. The writer of a ring stores its head, the reader
//! its tail; both run on without bound and are taken modulo the number of cells. Both are kept in
//! the region alone, so that a successor of either side goes on where the other one stopped.
//!
//! ```text
//! cell:  0 length  2 flags  4 VLAN  8 virtio header (12 bytes)  32 the bytes
//! ```

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use slipstack_mem::{PAGE, RawSlice, Region};

use crate::vnet;

/// Cells of each ring.
pub const CELLS: u32 = 1024;
const CELL_LEN: usize = 2048;
const DATA_AT: usize = 32;
/// Bytes of a frame that one cell holds.
pub const DATA_MAX: usize = CELL_LEN - DATA_AT;
/// The frame goes on in the next cell.
const FLAG_NEXT: u16 = 1;
/// The frame came by another queue than the slot's.
const FLAG_AWAY: u16 = 2;
/// The longest frame: an IP packet of 64 KiB behind an Ethernet header with a tag.
pub const FRAME_MAX: usize = 65_535 + 18;

const TO_SLOT_AT: usize = 0;
const FROM_SLOT_AT: usize = 128;
/// From a ring's head.
const TAIL: usize = 64;
/// The slot wants to be woken by the next frame.
const SLOT_SLEEPS_AT: usize = 256;
/// The device's process wants to be woken by the next frame.
const DEVICE_SLEEPS_AT: usize = 320;
/// The device's process has the port running.
const IS_RUNNING_AT: usize = 384;
/// Frames for the slot that were lost for want of room.
const LOST_AT: usize = 448;
const CELLS_AT: usize = PAGE;
const RING_LEN: usize = CELLS as usize * CELL_LEN;
const REGION_LEN: usize = CELLS_AT + 2 * RING_LEN;

/// The direction of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToSlot,
    FromSlot,
}

impl Way {
    fn head_at(self) -> usize {
        match self {
            Way::ToSlot => TO_SLOT_AT,
            Way::FromSlot => FROM_SLOT_AT,
        }
    }

    fn cell_at(self, index: u32) -> usize {
        let first = match self {
            Way::ToSlot => CELLS_AT,
            Way::FromSlot => CELLS_AT + RING_LEN,
        };
        first + (index % CELLS) as usize * CELL_LEN
    }
}

/// A violation of the protocol by the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Metadata of a frame in a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// 802.1Q VLAN whose tag is not in the bytes; sent frames have its priority in it; 0 = none.
    pub vlan: u16,
    /// The frame came by another queue than that by which the slot sends.
    pub is_away: bool,
    /// The offloads, as virtio has them.
    pub virtio: [u8; vnet::TAP_LEN],
}

/// The header of one cell: a frame takes one or several.
struct Cell {
    tag: Tag,
    len: usize,
    /// The frame continues in the next cell.
    goes_on: bool,
}

/// The memory of one slot.
#[derive(Clone, Debug)]
pub struct Rings(Region);

impl Rings {
    /// # Errors
    /// The kernel has no memory.
    pub fn create() -> io::Result<Rings> {
        Region::create("slipstack-dpdk", REGION_LEN).map(Rings)
    }

    /// # Errors
    /// The descriptor is of no such memory.
    pub fn open(fd: OwnedFd) -> io::Result<Rings> {
        let region = Region::open(fd, REGION_LEN)?;
        match region.len() {
            REGION_LEN => Ok(Rings(region)),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// Excludes the memory from forked children, whose writes would disturb it.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn dont_fork(&self) -> io::Result<()> {
        self.0.dont_fork()
    }

    pub fn writer(&self, way: Way) -> Writer {
        let head = self.load(way.head_at());
        Writer {
            rings: self.clone(),
            way,
            head,
            tail: self.load(way.head_at() + TAIL),
        }
    }

    pub fn reader(&self, way: Way) -> Reader {
        let tail = self.load(way.head_at() + TAIL);
        Reader {
            rings: self.clone(),
            way,
            head: tail,
            tail,
        }
    }

    pub fn set_running(&self, is_running: bool) {
        self.store(IS_RUNNING_AT, u32::from(is_running));
    }

    #[inline]
    pub fn is_running(&self) -> bool {
        self.load(IS_RUNNING_AT) != 0
    }

    /// Counts frames for the slot that were lost for want of room.
    pub fn add_lost(&self, count: u64) {
        if let Some(word) = self.0.u64(LOST_AT) {
            word.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub fn lost(&self) -> u64 {
        let word = self.0.u64(LOST_AT);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Requests a wake-up by the next frame of that direction; check the ring once more before
    /// sleeping.
    pub fn request_wake_up(&self, way: Way) {
        self.store(wake_up_word(way), 1);
        fence(Ordering::SeqCst);
    }

    pub fn cancel_wake_up(&self, way: Way) {
        self.store(wake_up_word(way), 0);
    }

    /// Returns whether the reader of that direction sleeps, and clears its request. To be called
    /// after a frame was published.
    #[inline]
    pub fn take_wake_up(&self, way: Way) -> bool {
        fence(Ordering::SeqCst);
        let word = self.word(wake_up_word(way));
        word.is_some_and(|word| {
            word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::AcqRel) != 0
        })
    }

    #[inline]
    fn word(&self, at: usize) -> Option<&AtomicU32> {
        self.0.u32(at)
    }

    #[inline]
    fn load(&self, at: usize) -> u32 {
        self.word(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    #[inline]
    fn store(&self, at: usize, value: u32) {
        if let Some(word) = self.word(at) {
            word.store(value, Ordering::Release);
        }
    }
}

fn wake_up_word(way: Way) -> usize {
    match way {
        Way::ToSlot => SLOT_SLEEPS_AT,
        Way::FromSlot => DEVICE_SLEEPS_AT,
    }
}

/// The side that puts frames into a ring.
#[derive(Debug)]
pub struct Writer {
    rings: Rings,
    way: Way,
    /// Cells written, those not published yet among them.
    head: u32,
    /// The reader's position at the last check.
    tail: u32,
}

impl Writer {
    /// Copies a frame into the ring; `false` and nothing done if there is no room.
    #[inline]
    pub fn put(&mut self, tag: Tag, parts: &[RawSlice<'_>]) -> bool {
        let len: usize = parts.iter().map(RawSlice::len).sum();
        let cells = len.div_ceil(DATA_MAX).max(1) as u32;
        if len > FRAME_MAX || !self.has_room(cells) {
            return false;
        }
        let mut rest = Gather { parts, at: 0 };
        let mut left = len;
        for index in 0..cells {
            let taken = left.min(DATA_MAX);
            left -= taken;
            let cell = Cell {
                tag,
                len: taken,
                goes_on: left > 0,
            };
            self.fill(self.head.wrapping_add(index), cell, &mut rest);
        }
        self.head = self.head.wrapping_add(cells);
        true
    }

    fn has_room(&mut self, cells: u32) -> bool {
        if CELLS.saturating_sub(self.head.wrapping_sub(self.tail)) >= cells {
            return true;
        }
        self.tail = self.rings.load(self.way.head_at() + TAIL);
        CELLS.saturating_sub(self.head.wrapping_sub(self.tail)) >= cells
    }

    #[inline]
    fn fill(&self, index: u32, cell: Cell, rest: &mut Gather<'_>) {
        let Cell { tag, len, goes_on } = cell;
        let at = self.way.cell_at(index);
        let mut header = [0; DATA_AT];
        header[..2].copy_from_slice(&(len as u16).to_ne_bytes());
        let flags = [(goes_on, FLAG_NEXT), (tag.is_away, FLAG_AWAY)];
        let flags = flags.map(|(is_set, flag)| u16::from(is_set) * flag);
        header[2..4].copy_from_slice(&(flags[0] | flags[1]).to_ne_bytes());
        header[4..6].copy_from_slice(&tag.vlan.to_ne_bytes());
        header[8..20].copy_from_slice(&tag.virtio);
        let region = &self.rings.0;
        region.write_from(at, &header);
        let mut done = 0;
        while done < len {
            let piece = rest.take(len - done);
            if piece.is_empty() {
                break;
            }
            if let Some(space) = region.space(at + DATA_AT + done, piece.len()) {
                space.copy_raw(piece);
            }
            done += piece.len();
        }
    }

    /// Publishes added frames. Returns whether there was anything new.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let at = self.way.head_at();
        let is_new = self.rings.load(at) != self.head;
        if is_new {
            self.rings.store(at, self.head);
        }
        is_new
    }
}

/// Pieces of a frame, taken one after the other.
struct Gather<'a> {
    parts: &'a [RawSlice<'a>],
    /// Position in the first of `parts`.
    at: usize,
}

impl<'a> Gather<'a> {
    #[inline]
    fn take(&mut self, len_max: usize) -> RawSlice<'a> {
        while let Some((first, others)) = self.parts.split_first() {
            let piece = first.sub(self.at, len_max);
            if !piece.is_empty() {
                self.at += piece.len();
                return piece;
            }
            self.parts = others;
            self.at = 0;
        }
        RawSlice::EMPTY
    }
}

/// A frame that waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub tag: Tag,
    pub len: usize,
    pub cells: u32,
    first: u32,
}

/// The side that takes frames out of a ring.
#[derive(Debug)]
pub struct Reader {
    rings: Rings,
    way: Way,
    /// The writer's position at the last check.
    head: u32,
    tail: u32,
}

impl Reader {
    /// Returns whether frames wait.
    #[inline]
    pub fn has_frames(&self) -> bool {
        self.head != self.tail || self.rings.load(self.way.head_at()) != self.tail
    }

    /// Returns the next frame; it stays until [`Reader::release`].
    ///
    /// # Errors
    /// The writer's numbers are invalid; the contents of the ring are skipped.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Waiting>, Malformed> {
        if self.head == self.tail {
            self.head = self.rings.load(self.way.head_at());
        }
        let waiting = self.head.wrapping_sub(self.tail);
        if waiting == 0 {
            return Ok(None);
        }
        let frame = self.frame_of(waiting).ok_or(Malformed);
        if frame.is_err() {
            self.tail = self.head;
            self.publish();
        }
        frame.map(Some)
    }

    #[inline]
    fn frame_of(&self, waiting: u32) -> Option<Waiting> {
        if waiting > CELLS {
            return None;
        }
        let Cell {
            tag,
            mut len,
            mut goes_on,
        } = self.read(self.tail)?;
        let mut cells = 1;
        while goes_on {
            if cells == waiting {
                return None;
            }
            let next = self.read(self.tail.wrapping_add(cells))?;
            len += next.len;
            cells += 1;
            goes_on = next.goes_on;
        }
        (len <= FRAME_MAX).then_some(Waiting {
            tag,
            len,
            cells,
            first: self.tail,
        })
    }

    #[inline]
    fn read(&self, index: u32) -> Option<Cell> {
        let mut header = [0; 20];
        self.rings.0.read_into(self.way.cell_at(index), &mut header);
        let [a, b, c, d, e, f, _, _, virtio @ ..] = header;
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let flags = u16::from_ne_bytes([c, d]);
        let tag = Tag {
            vlan: u16::from_ne_bytes([e, f]),
            is_away: flags & FLAG_AWAY != 0,
            virtio,
        };
        (len <= DATA_MAX).then_some(Cell {
            tag,
            len,
            goes_on: flags & FLAG_NEXT != 0,
        })
    }

    /// One of the cells of a frame. Its length is read again, and no longer than a cell.
    #[inline]
    pub fn cell(&self, frame: &Waiting, index: u32) -> RawSlice<'_> {
        let at = self.way.cell_at(frame.first.wrapping_add(index));
        let mut len = [0; 2];
        self.rings.0.read_into(at, &mut len);
        let len = usize::from(u16::from_ne_bytes(len)).min(DATA_MAX);
        let cell = self.rings.0.slice(at + DATA_AT, len);
        cell.unwrap_or(RawSlice::EMPTY)
    }

    /// Gives the frame's cells back when [`Reader::publish`] is called.
    #[inline]
    pub fn release(&mut self, frame: &Waiting) {
        self.tail = frame.first.wrapping_add(frame.cells);
    }

    /// Publishes released frames.
    #[inline]
    pub fn publish(&self) {
        self.rings.store(self.way.head_at() + TAIL, self.tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(reader: &Reader, frame: &Waiting) -> Vec<u8> {
        let mut all = Vec::new();
        for index in 0..frame.cells {
            let cell = reader.cell(frame, index);
            let mut bytes = vec![0; cell.len()];
            cell.copy_to(&mut bytes);
            all.extend(bytes);
        }
        all
    }

    #[test]
    fn frames_of_any_length_come_out_as_they_went_in() {
        let rings = Rings::create().unwrap();
        let (mut writer, mut reader) = (rings.writer(Way::FromSlot), rings.reader(Way::FromSlot));
        let bytes: Vec<u8> = (0..FRAME_MAX).map(|at| (at * 7 % 251) as u8).collect();
        for (round, len) in [1, 60, 1514, DATA_MAX, DATA_MAX + 1, 9000, FRAME_MAX]
            .into_iter()
            .cycle()
            .take(200)
            .enumerate()
        {
            let tag = Tag {
                vlan: round as u16,
                is_away: round % 3 == 0,
                virtio: [round as u8; 12],
            };
            let (a, b) = bytes[..len].split_at(len / 3);
            assert!(writer.put(tag, &[RawSlice::of(a), RawSlice::EMPTY, RawSlice::of(b)]));
            assert_eq!(reader.peek().unwrap().map(|it| it.len), None, "not shown");
            assert!(writer.publish());
            assert!(!writer.publish());
            let frame = reader.peek().unwrap().unwrap();
            assert_eq!((frame.tag, frame.len), (tag, len));
            assert_eq!(bytes_of(&reader, &frame), bytes[..len]);
            reader.release(&frame);
            reader.publish();
        }
    }

    #[test]
    fn a_full_ring_takes_nothing_until_its_reader_has_released_something() {
        let rings = Rings::create().unwrap();
        let (mut writer, mut reader) = (rings.writer(Way::ToSlot), rings.reader(Way::ToSlot));
        let frame = [RawSlice::of(&[7; 60])];
        for _ in 0..CELLS {
            assert!(writer.put(Tag::default(), &frame));
        }
        assert!(!writer.put(Tag::default(), &frame));
        writer.publish();
        let first = reader.peek().unwrap().unwrap();
        reader.release(&first);
        reader.publish();
        assert!(writer.put(Tag::default(), &frame));
        assert!(!writer.put(Tag::default(), &frame));
    }

    #[test]
    fn a_new_owner_of_a_ring_continues_where_the_last_one_stopped() {
        let rings = Rings::create().unwrap();
        let mut writer = rings.writer(Way::ToSlot);
        for byte in 0..3 {
            writer.put(Tag::default(), &[RawSlice::of(&[byte; 60])]);
            writer.publish();
        }
        let mut reader = rings.reader(Way::ToSlot);
        let first = reader.peek().unwrap().unwrap();
        reader.release(&first);
        reader.publish();
        let mut reader = rings.reader(Way::ToSlot);
        let second = reader.peek().unwrap().unwrap();
        assert_eq!(bytes_of(&reader, &second), [1; 60]);
        let mut writer = rings.writer(Way::ToSlot);
        assert!(!writer.publish());
        writer.put(Tag::default(), &[RawSlice::of(&[9; 60])]);
        assert!(writer.publish());
    }

    #[test]
    fn invalid_descriptors_in_a_ring_are_skipped() {
        let rings = Rings::create().unwrap();
        let mut reader = rings.reader(Way::FromSlot);
        let lies: [&dyn Fn(); 3] = [
            &|| {
                rings.store(
                    FROM_SLOT_AT,
                    rings.load(FROM_SLOT_AT).wrapping_add(CELLS + 1),
                )
            },
            &|| {
                // A cell that is longer than a cell.
                let at = Way::FromSlot.cell_at(rings.load(FROM_SLOT_AT));
                rings.0.write_from(at, &u16::MAX.to_ne_bytes());
                rings.store(FROM_SLOT_AT, rings.load(FROM_SLOT_AT).wrapping_add(1));
            },
            &|| {
                // A frame that goes on behind the head.
                let at = Way::FromSlot.cell_at(rings.load(FROM_SLOT_AT));
                rings.0.write_from(at, &[60, 0, 1, 0]);
                rings.store(FROM_SLOT_AT, rings.load(FROM_SLOT_AT).wrapping_add(1));
            },
        ];
        for lie in lies {
            lie();
            assert!(matches!(reader.peek(), Err(Malformed)));
            assert!(matches!(reader.peek(), Ok(None)));
        }
    }

    #[test]
    fn a_sleeper_is_woken_once() {
        let rings = Rings::create().unwrap();
        assert!(!rings.take_wake_up(Way::ToSlot));
        rings.request_wake_up(Way::ToSlot);
        assert!(!rings.take_wake_up(Way::FromSlot));
        assert!(rings.take_wake_up(Way::ToSlot));
        assert!(!rings.take_wake_up(Way::ToSlot));
    }
}
