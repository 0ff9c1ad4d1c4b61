//! A bounded inbox of frames: any engine of a device writes, the slot's owner reads.
//!
//! Cells are 2 KiB: a sequence word, a length word and the frame. A longer frame takes several
//! cells in a row, of which the first is published, last. Writers are several processes, so the
//! claim counter is shared; a writer that dies between claim and publication would stop the inbox,
//! hence the reader steps over cells that stay claimed for [`STUCK_NS`]. A writer that was only
//! held up finds its cell gone, and its frame is lost.

use crate::raw::RawSlice;
use crate::region::{Lines, PAGE, Region};
use crate::sync::{AtomicU64, Ordering, fence};

const CELL: usize = PAGE / 2;
const LINES_PER_CELL: usize = CELL / 64;
/// Bytes of a frame in one cell.
const CELL_BYTES: usize = CELL - 64;
/// The longest IP packet behind an Ethernet header with a tag, and the header of an inbox message.
const FRAME_MAX: usize = 65_535 + 18 + 8;
/// A claimed cell that is not published for so long belongs to a dead writer.
const STUCK_NS: u64 = 100_000_000;

/// Words of the inbox's header line.
const CLAIM: usize = 0;
/// Words of the reader's line.
const SLEEPING: usize = 0;
const LOST: usize = 1;
const NEXT: usize = 2;
const BEATS: usize = 3;

/// The writers' view of one inbox.
#[derive(Clone, Debug)]
pub struct MpscInbox {
    header: Lines,
    cells: Lines,
    base: usize,
    mask: u64,
}

impl MpscInbox {
    /// Largest frame an inbox takes, if it has so many cells.
    pub const FRAME_MAX: usize = FRAME_MAX;
    /// Largest frame that takes one cell.
    pub const CELL_BYTES: usize = CELL_BYTES;

    /// Bytes that an inbox of `cells` cells takes in its region.
    pub const fn bytes(cells: usize) -> usize {
        PAGE + cells * CELL
    }

    /// The inbox at page-aligned `offset` with a power of two of cells.
    pub fn new(region: &Region, offset: usize, cells: usize) -> Option<MpscInbox> {
        if cells < 2 || !cells.is_power_of_two() || !offset.is_multiple_of(PAGE) {
            return None;
        }
        let base = offset.checked_add(PAGE)?;
        Some(MpscInbox {
            header: Lines::new(region, offset, 2)?,
            cells: Lines::new(region, base, cells.checked_mul(LINES_PER_CELL)?)?,
            base,
            mask: cells as u64 - 1,
        })
    }

    /// Puts a frame in, given in parts. `false` when it is too large or the inbox has no room.
    pub fn push(&self, parts: &[&[u8]]) -> bool {
        self.push_shared(parts, &[])
    }

    /// As [`MpscInbox::push`], of a frame whose end lies in shared memory.
    pub fn push_shared(&self, parts: &[&[u8]], end: &[RawSlice<'_>]) -> bool {
        let own: usize = parts.iter().map(|part| part.len()).sum();
        let len = own + end.iter().map(RawSlice::len).sum::<usize>();
        if len == 0 || len > FRAME_MAX {
            return false;
        }
        let Some(position) = self.claim(cells_of(len)) else {
            return false;
        };
        let mut done = 0;
        let own = parts.iter().map(|part| RawSlice::of(part));
        for part in own.chain(end.iter().copied()) {
            self.write(position, done, part);
            done += part.len();
        }
        self.publish(position, len)
    }

    /// Publishes the frame whose first cell is at `position`. Returns `false` if it has waited too
    /// long and the reader has skipped the cell, which is in a later lap by now. A plain store
    /// would set it back to this one, and no writer could claim it any more.
    fn publish(&self, position: u64, len: usize) -> bool {
        let index = position & self.mask;
        let lap = position.wrapping_sub(index);
        let line = self.cells.line(index as usize * LINES_PER_CELL);
        if line.words[0].load(Ordering::Relaxed) != lap {
            return false;
        }
        line.words[1].store(len as u64, Ordering::Relaxed);
        line.words[0]
            .compare_exchange(
                lap,
                lap.wrapping_add(1),
                Ordering::Release,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Writes bytes of the frame whose first cell is at `position`, from its byte `from` on.
    fn write(&self, position: u64, from: usize, bytes: RawSlice<'_>) {
        let mut done = 0;
        while done < bytes.len() {
            let (at, room) = self.place(position, from + done);
            let now = bytes.sub(done, room);
            self.cells.region().write_shared(at, now);
            done += now.len();
        }
    }

    /// Reads the frame whose first cell is at `position`. Returns `false` if it is not in the
    /// region.
    fn read(&self, position: u64, out: &mut [u8]) -> bool {
        let mut from = 0;
        out.chunks_mut(CELL_BYTES).all(|chunk| {
            let (at, _) = self.place(position, from);
            from += chunk.len();
            self.cells.region().read_into(at, chunk)
        })
    }

    /// Address of byte `from` of the frame at `position`, and how many bytes its cell has from
    /// there on.
    fn place(&self, position: u64, from: usize) -> (usize, usize) {
        let index = (position + (from / CELL_BYTES) as u64) & self.mask;
        let within = from % CELL_BYTES;
        let at = self.base + index as usize * CELL + 64 + within;
        (at, CELL_BYTES - within)
    }

    /// The position of the first of so many cells in a row; `None` when they are not free. The
    /// reader frees cells in order: if the last one is free, so are those before it.
    fn claim(&self, cells: u64) -> Option<u64> {
        if cells > self.mask + 1 {
            return None;
        }
        let counter: &AtomicU64 = &self.header.line(0).words[CLAIM];
        let mut position = counter.load(Ordering::Relaxed);
        loop {
            let last = position.wrapping_add(cells - 1);
            let index = last & self.mask;
            let line = self.cells.line(index as usize * LINES_PER_CELL);
            if line.words[0].load(Ordering::Acquire) != last.wrapping_sub(index) {
                let now = counter.load(Ordering::Relaxed);
                if now == position {
                    return None;
                }
                position = now;
                continue;
            }
            match counter.compare_exchange_weak(
                position,
                position.wrapping_add(cells),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(position),
                Err(now) => position = now,
            }
        }
    }

    /// Returns whether the owner sleeps and needs its doorbell rung; calling it clears the flag.
    #[inline]
    pub fn take_sleeping(&self) -> bool {
        let word = &self.header.line(1).words[SLEEPING];
        fence(Ordering::SeqCst);
        word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::AcqRel) != 0
    }

    /// Number of times that the owner has begun to work, wrapping.
    pub fn beats(&self) -> u64 {
        self.header.line(1).words[BEATS].load(Ordering::Relaxed)
    }

    /// Returns whether frames wait for the owner.
    pub fn has_frames(&self) -> bool {
        let claimed = self.header.line(0).words[CLAIM].load(Ordering::Relaxed);
        self.header.line(1).words[NEXT].load(Ordering::Relaxed) != claimed
    }
}

/// The owner's view.
#[derive(Debug)]
pub struct InboxReader {
    inbox: MpscInbox,
    next: u64,
    /// Frames from here to `next` have been taken and are not released.
    freed: u64,
    /// State of claimed and unpublished cells: since when the first is waited for, and which were
    /// claimed by then.
    waiting: Option<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    since_ns: u64,
    upto: u64,
}

impl InboxReader {
    /// Continues where an earlier owner of the slot stopped.
    pub fn new(inbox: MpscInbox) -> InboxReader {
        let next = inbox.header.line(1).words[NEXT].load(Ordering::Acquire);
        InboxReader {
            inbox,
            next,
            freed: next,
            waiting: None,
        }
    }

    /// Copies the next frame into `out` and gives its length. A frame with an impossible length
    /// is dropped and counted as lost.
    pub fn pop(&mut self, now_ns: u64, out: &mut [u8]) -> Option<usize> {
        let len = self.take(now_ns, out);
        self.release();
        len
    }

    /// As [`InboxReader::pop`], but a reader that ends before [`InboxReader::release`] leaves the
    /// frame to the next one.
    pub fn take(&mut self, now_ns: u64, out: &mut [u8]) -> Option<usize> {
        loop {
            let index = self.next & self.inbox.mask;
            let line = self.inbox.cells.line(index as usize * LINES_PER_CELL);
            let lap = self.next.wrapping_sub(index);
            if line.words[0].load(Ordering::Acquire) != lap.wrapping_add(1) {
                if self.is_stuck(now_ns) {
                    self.skip(1);
                    continue;
                }
                return None;
            }
            let len = line.words[1].load(Ordering::Relaxed) as usize;
            let fits = len > 0 && len <= FRAME_MAX && len <= out.len();
            // Cells that are not claimed are no part of a frame, whatever its length says.
            let cells = cells_of(len);
            if !fits || cells > self.claimed().wrapping_sub(self.next) {
                self.skip(1);
                continue;
            }
            if self.inbox.read(self.next, &mut out[..len]) {
                self.next = self.next.wrapping_add(cells);
                return Some(len);
            }
            self.skip(cells);
        }
    }

    /// Frees the cells of the frames that were taken.
    pub fn release(&mut self) {
        while self.freed != self.next {
            let index = self.freed & self.inbox.mask;
            let line = self.inbox.cells.line(index as usize * LINES_PER_CELL);
            let free = self.freed.wrapping_add(self.inbox.mask + 1);
            line.words[0].store(free.wrapping_sub(index), Ordering::Release);
            self.freed = self.freed.wrapping_add(1);
            let own = self.inbox.header.line(1);
            own.words[NEXT].store(self.freed, Ordering::Release);
        }
    }

    /// Passes over cells whose frame is lost.
    fn skip(&mut self, cells: u64) {
        self.next = self.next.wrapping_add(cells);
        self.release();
        self.inbox.header.line(1).words[LOST].fetch_add(1, Ordering::Relaxed);
    }

    fn claimed(&self) -> u64 {
        self.inbox.header.line(0).words[CLAIM].load(Ordering::Acquire)
    }

    /// Returns whether the next cell has been claimed but unpublished for too long. The cells of a
    /// long frame have all been claimed when the first was: one wait is enough for them.
    fn is_stuck(&mut self, now_ns: u64) -> bool {
        let claimed = self.claimed();
        if claimed == self.next {
            self.waiting = None;
            return false;
        }
        // No more cells than there are, whatever the counter says.
        let ahead = |upto: u64| upto.wrapping_sub(self.next);
        let fresh = Waiting {
            since_ns: now_ns,
            upto: self
                .next
                .wrapping_add(ahead(claimed).min(self.inbox.mask + 1)),
        };
        let is_covered =
            |waiting: &Waiting| (1..=self.inbox.mask + 1).contains(&ahead(waiting.upto));
        let waiting = self.waiting.filter(is_covered).unwrap_or(fresh);
        self.waiting = Some(waiting);
        now_ns.saturating_sub(waiting.since_ns) > STUCK_NS
    }

    pub fn is_empty(&self) -> bool {
        let index = self.next & self.inbox.mask;
        let line = self.inbox.cells.line(index as usize * LINES_PER_CELL);
        line.words[0].load(Ordering::Acquire) != self.next.wrapping_sub(index).wrapping_add(1)
    }

    /// Returns whether frames are there or being written: a cell is claimed.
    #[inline]
    pub fn is_claimed(&self) -> bool {
        self.claimed() != self.next
    }

    /// Announces that the owner is about to sleep; returns `false` if a frame arrived meanwhile.
    pub fn prepare_sleep(&self) -> bool {
        let word = &self.inbox.header.line(1).words[SLEEPING];
        word.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.is_empty() {
            return true;
        }
        word.store(0, Ordering::Release);
        false
    }

    /// Shows that the owner runs.
    #[inline]
    pub fn beat(&self) {
        let word = &self.inbox.header.line(1).words[BEATS];
        let beats = word.load(Ordering::Relaxed);
        word.store(beats.wrapping_add(1), Ordering::Relaxed);
    }

    pub fn finish_sleep(&self) {
        self.inbox.header.line(1).words[SLEEPING].store(0, Ordering::Release);
    }

    /// Frames lost to dead writers or impossible lengths.
    pub fn lost(&self) -> u64 {
        self.inbox.header.line(1).words[LOST].load(Ordering::Relaxed)
    }
}

/// Cells that a frame takes.
fn cells_of(len: usize) -> u64 {
    len.div_ceil(CELL_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Region, MpscInbox, InboxReader) {
        let region = Region::create("test", MpscInbox::bytes(4)).unwrap();
        let inbox = MpscInbox::new(&region, 0, 4).unwrap();
        (region, inbox.clone(), InboxReader::new(inbox))
    }

    #[test]
    fn other_engines_see_whether_the_owner_runs_and_whether_frames_wait() {
        let (_region, inbox, mut reader) = pair();
        assert_eq!((inbox.beats(), inbox.has_frames()), (0, false));
        assert!(inbox.push(&[&[1]]));
        assert!(inbox.has_frames());
        reader.beat();
        assert!(reader.pop(0, &mut [0; 8]).is_some());
        assert_eq!((inbox.beats(), inbox.has_frames()), (1, false));
    }

    #[test]
    fn frames_that_are_not_released_are_left_to_the_next_reader() {
        let (_region, inbox, mut reader) = pair();
        let mut out = [0; 8];
        for number in 0..4 {
            assert!(inbox.push(&[&[number]]));
        }
        assert_eq!(reader.take(0, &mut out), Some(1));
        reader.release();
        for number in 1..4 {
            assert_eq!((reader.take(0, &mut out), out[0]), (Some(1), number));
        }
        assert_eq!(reader.take(0, &mut out), None);
        assert!(reader.is_empty() && !reader.is_claimed() && inbox.has_frames());
        assert!(inbox.push(&[&[4]]) && !inbox.push(&[&[5]]));
        let mut next = InboxReader::new(inbox.clone());
        for number in 1..5 {
            assert_eq!((next.pop(0, &mut out), out[0]), (Some(1), number));
        }
        assert!(!inbox.has_frames());
    }

    #[test]
    fn frames_pass_in_order_and_a_full_inbox_refuses() {
        let (_region, inbox, mut reader) = pair();
        let mut out = [0; 8];
        for lap in 0..5u8 {
            for i in 0..4 {
                assert!(inbox.push(&[&[lap], &[i, 7]]));
            }
            assert!(!inbox.push(&[&[1]]));
            for i in 0..4 {
                assert_eq!(reader.pop(0, &mut out), Some(3));
                assert_eq!(out[..3], [lap, i, 7]);
            }
            assert_eq!(reader.pop(0, &mut out), None);
        }
        assert!(!inbox.push(&[&[0; FRAME_MAX + 1]]));
    }

    #[test]
    fn a_long_frame_takes_cells_in_a_row_and_round_the_end() {
        let (_region, inbox, mut reader) = pair();
        let mut out = vec![0; FRAME_MAX];
        let long: Vec<u8> = (0..CELL_BYTES * 2 + 1).map(|at| at as u8).collect();
        let (head, tail) = long.split_at(100);
        for lap in 0..7 {
            let is_pushed = match lap % 2 {
                0 => inbox.push(&[head, tail]),
                _ => inbox.push_shared(&[head], &[RawSlice::of(tail), RawSlice::EMPTY]),
            };
            assert!(is_pushed, "{lap}");
            assert!(inbox.push(&[&[lap]]));
            // Three cells of four, and one: a further frame needs cells that the reader has freed.
            assert!(!inbox.push(&[b"no"]));
            assert_eq!(reader.pop(0, &mut out), Some(long.len()));
            assert_eq!(out[..long.len()], long);
            assert!(inbox.push(&[b"yes"]));
            assert!(!inbox.push(&[&long]));
            assert_eq!(reader.pop(0, &mut out), Some(1));
            assert_eq!(reader.pop(0, &mut out), Some(3));
            assert_eq!(reader.pop(0, &mut out), None);
            assert!(reader.is_empty() && !reader.is_claimed());
        }
        assert_eq!(reader.lost(), 0);
        assert!(inbox.push(&[&vec![0; CELL_BYTES * 4]]));
        assert_eq!(reader.pop(0, &mut out), Some(CELL_BYTES * 4));
        // One cell more than there are is never free.
        assert!(!inbox.push(&[&vec![0; CELL_BYTES * 4 + 1]]));
    }

    #[test]
    fn a_reader_skips_all_cells_of_a_dead_writer_at_once() {
        let (region, inbox, mut reader) = pair();
        region.u64(0).unwrap().fetch_add(3, Ordering::Relaxed);
        assert!(inbox.push(&[b"next"]));
        let mut out = [0; 8];
        assert_eq!(reader.pop(0, &mut out), None);
        assert_eq!(reader.pop(STUCK_NS, &mut out), None);
        assert_eq!(reader.pop(STUCK_NS + 1, &mut out), Some(4));
        assert_eq!(reader.lost(), 3);
        // A writer that claims an entry now has its own time limit.
        region.u64(0).unwrap().fetch_add(1, Ordering::Relaxed);
        assert_eq!(reader.pop(2 * STUCK_NS, &mut out), None);
        assert_eq!(reader.pop(3 * STUCK_NS, &mut out), None);
        assert_eq!(reader.lost(), 3);
        assert_eq!(reader.pop(3 * STUCK_NS + 1, &mut out), None);
        assert_eq!(reader.lost(), 4);
    }

    #[test]
    fn a_claim_larger_than_the_ring_loses_one_round_of_cells() {
        let (region, _inbox, mut reader) = pair();
        region.u64(0).unwrap().store(1 << 40, Ordering::Relaxed);
        let mut out = [0; 8];
        assert_eq!(reader.pop(0, &mut out), None);
        assert_eq!(reader.pop(STUCK_NS + 1, &mut out), None);
        assert_eq!(reader.lost(), 4);
    }

    #[test]
    fn a_writer_that_was_held_up_for_too_long_loses_its_frame_and_nothing_else() {
        let (_region, inbox, mut reader) = pair();
        let mut out = [0; 8];
        let held_up = inbox.claim(1).unwrap();
        assert_eq!(reader.pop(0, &mut out), None);
        assert_eq!(reader.pop(STUCK_NS + 1, &mut out), None);
        assert_eq!(reader.lost(), 1);
        assert!(!inbox.publish(held_up, 3));
        for lap in 0..3u8 {
            for cell in 0..4 {
                assert!(inbox.push(&[&[lap, cell]]), "{lap} {cell}");
            }
            for cell in 0..4 {
                assert_eq!(reader.pop(0, &mut out), Some(2));
                assert_eq!(out[..2], [lap, cell]);
            }
        }
    }

    #[test]
    fn a_length_beyond_its_claim_skips_one_cell() {
        let (_region, inbox, mut reader) = pair();
        assert!(inbox.push(&[b"lie"]));
        let line = inbox.cells.line(0);
        line.words[1].store(CELL_BYTES as u64 * 3, Ordering::Relaxed);
        let mut out = vec![0; FRAME_MAX];
        assert_eq!(reader.pop(0, &mut out), None);
        assert_eq!(reader.lost(), 1);
        assert!(inbox.push(&[b"next"]));
        assert_eq!(reader.pop(0, &mut out), Some(4));
    }

    #[test]
    fn a_new_owner_continues_and_a_sleeping_owner_is_woken() {
        let (_region, inbox, mut reader) = pair();
        assert!(!inbox.take_sleeping());
        assert!(inbox.push(&[b"a"]));
        assert!(inbox.push(&[b"b"]));
        assert!(!reader.prepare_sleep());
        let mut out = [0; 8];
        reader.pop(0, &mut out);
        let mut next = InboxReader::new(inbox.clone());
        assert_eq!(next.pop(0, &mut out), Some(1));
        assert_eq!(out[0], b'b');
        assert!(next.prepare_sleep());
        assert!(inbox.take_sleeping());
        assert!(!inbox.take_sleeping());
    }
}
