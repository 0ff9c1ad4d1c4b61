//! Memory that all slots of a memif device share: the present connection, the slot that is working
//! on each ring, and the inboxes of frames that one slot has taken out of a ring for another.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use slipstack_mem::{InboxReader, MpscInbox, PAGE, Region};
use slipstack_wire::RxChecksum;

use super::options::QUEUES_MAX;
use crate::error::DeviceError;
use crate::steering::Steering;

const GENERATION: usize = 0;
/// Slots with new frames in their inboxes, as bits: slot 0 wakes their holders.
const WANTED: usize = 192;
/// Number of a protocol error, and its generation.
const FAULT: usize = 256;
/// 1: the keeper looks at the queues of engines again soon.
const GUARDED: usize = 320;
/// A lock for each queue and direction, in lines of their own.
const RX_LOCKS: usize = 512;
const TX_LOCKS: usize = RX_LOCKS + QUEUES_MAX * LINE;
const LINE: usize = 64;
/// In the line of a lock: the slots that send by the queue, as bits.
const SENDERS: usize = 8;
const _: () = assert!(TX_LOCKS + QUEUES_MAX * LINE <= INBOXES);
const INBOXES: usize = PAGE;
/// Frames that wait for another slot at most.
const CELLS: usize = 256;
const INBOX_LEN: usize = MpscInbox::bytes(CELLS).next_multiple_of(PAGE);
/// Slots at most: they are bits of a word.
pub(super) const SLOTS_MAX: usize = 64;
/// Number of attempts at a lock.
const LOCK_TRIES: u32 = 2000;

/// Facts about a received frame beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub link: u16,
    pub checksum: RxChecksum,
}

impl Known {
    /// Bytes of it before a frame in an inbox.
    pub(super) const LEN: usize = 3;

    fn to_bytes(self) -> [u8; Known::LEN] {
        let [a, b] = self.link.to_ne_bytes();
        [a, b, u8::from(self.checksum == RxChecksum::Partial)]
    }

    pub(super) fn of([a, b, is_partial]: [u8; Known::LEN]) -> Known {
        Known {
            link: u16::from_ne_bytes([a, b]),
            checksum: Known::checksum(is_partial != 0),
        }
    }

    pub(super) fn checksum(is_partial: bool) -> RxChecksum {
        match is_partial {
            true => RxChecksum::Partial,
            false => RxChecksum::Unknown,
        }
    }
}

/// A slot's view of it.
#[derive(Debug)]
pub(super) struct Board {
    region: Region,
    slot: u16,
}

/// One of the two sides of a queue, which one slot at a time works at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Rx,
    Tx,
}

/// The right to work at a side.
pub(super) struct SideGuard<'a>(&'a AtomicU32);

impl SideGuard<'_> {
    /// Keeps the right until [`Board::unlock`].
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for SideGuard<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Board {
    /// Creates a board for `slots` slots.
    pub(super) fn create(slots: u16) -> std::io::Result<Region> {
        Region::create("slipstack-board", INBOXES + usize::from(slots) * INBOX_LEN)
    }

    /// # Errors
    /// The region is no board with that slot.
    pub(super) fn new(region: Region, slot: u16) -> Result<Board, DeviceError> {
        let board = Board { region, slot };
        if usize::from(slot) >= SLOTS_MAX || board.inbox(slot).is_none() {
            return Err(DeviceError::BadParameters(
                "this is not the shared memory of that slot",
            ));
        }
        // A predecessor may have died at the rings.
        for lock in (RX_LOCKS..TX_LOCKS + QUEUES_MAX * LINE).step_by(LINE) {
            let own = u32::from(slot) + 1;
            if board.load(lock) == own {
                board.store(lock, 0);
            }
        }
        for queue in 0..QUEUES_MAX {
            board.leave(queue);
        }
        Ok(board)
    }

    fn senders(&self, queue: usize) -> Option<&AtomicU64> {
        let at = TX_LOCKS + queue % QUEUES_MAX * LINE + SENDERS;
        self.region.u64(at)
    }

    /// Enters this slot among those that send by a queue.
    pub(super) fn join(&self, queue: usize) {
        if let Some(word) = self.senders(queue) {
            word.fetch_or(self.bit(), Ordering::AcqRel);
        }
    }

    /// Takes it out again.
    pub(super) fn leave(&self, queue: usize) {
        if let Some(word) = self.senders(queue) {
            word.fetch_and(!self.bit(), Ordering::AcqRel);
        }
    }

    /// Returns whether another slot sends by this queue.
    #[inline]
    pub(super) fn has_others(&self, queue: usize) -> bool {
        let word = self.senders(queue);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & !self.bit() != 0)
    }

    /// Returns whether an engine that is not known to be dead has this queue as its own.
    pub(super) fn has_engine(&self, queue: usize, steering: &Steering) -> bool {
        let word = self.senders(queue);
        let mut left = word.map_or(0, |word| word.load(Ordering::Acquire));
        while left != 0 {
            if steering.is_alive(left.trailing_zeros() as u16) {
                return true;
            }
            left &= left - 1;
        }
        false
    }

    /// Records whether the keeper looks at the queues of engines again soon.
    pub(super) fn set_guarded(&self, is_guarded: bool) {
        self.store(GUARDED, u32::from(is_guarded));
        fence(Ordering::SeqCst);
    }

    /// Returns whether the keeper looks at the queues of engines again soon; otherwise it wants to
    /// know that one of them works at its queue.
    pub(super) fn is_guarded(&self) -> bool {
        self.load(GUARDED) != 0
    }

    fn bit(&self) -> u64 {
        1 << (usize::from(self.slot) % SLOTS_MAX)
    }

    fn load(&self, at: usize) -> u32 {
        let word = self.region.u32(at);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn store(&self, at: usize, value: u32) {
        if let Some(word) = self.region.u32(at) {
            word.store(value, Ordering::Release);
        }
    }

    fn wanted(&self) -> Option<&AtomicU64> {
        self.region.u64(WANTED)
    }

    fn inbox(&self, slot: u16) -> Option<MpscInbox> {
        MpscInbox::new(&self.region, INBOXES + usize::from(slot) * INBOX_LEN, CELLS)
    }

    pub(super) fn reader(&self) -> Option<InboxReader> {
        self.inbox(self.slot).map(InboxReader::new)
    }

    /// Number of the connection that holds; 0: there is none.
    #[inline]
    pub(super) fn generation(&self) -> u32 {
        self.load(GENERATION)
    }

    pub(super) fn set_generation(&self, generation: u32) {
        self.store(GENERATION, generation);
    }

    /// Ends a connection whose peer has violated the protocol.
    pub(super) fn report_violation(&self, generation: u32) {
        self.store(FAULT, generation);
    }

    pub(super) fn has_violation(&self, generation: u32) -> bool {
        self.load(FAULT) == generation
    }

    /// Waits a moment for a side. A holder that is dead is passed over.
    pub(super) fn lock(
        &self,
        (side, queue): (Side, usize),
        steering: &Steering,
    ) -> Option<SideGuard<'_>> {
        let word = self.lock_word((side, queue))?;
        let tries = match side {
            Side::Rx => 1,
            Side::Tx => LOCK_TRIES,
        };
        let own = u32::from(self.slot) + 1;
        for attempt in 0..tries {
            let taken = word.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed);
            match taken {
                Ok(_) => return Some(SideGuard(word)),
                // The slot's last holder has died with it.
                Err(holder) if holder == own && side == Side::Tx => return Some(SideGuard(word)),
                Err(holder) if attempt + 1 == tries => {
                    let slot = u16::try_from(holder.saturating_sub(1)).unwrap_or(0);
                    let is_dead = holder != 0 && !steering.is_alive(slot);
                    let (new, old) = (Ordering::Acquire, Ordering::Relaxed);
                    let freed = is_dead && word.compare_exchange(holder, own, new, old).is_ok();
                    return freed.then_some(SideGuard(word));
                }
                Err(_) if attempt % 64 == 63 => rustix::thread::sched_yield(),
                Err(_) => std::hint::spin_loop(),
            }
        }
        None
    }

    fn lock_word(&self, (side, queue): (Side, usize)) -> Option<&AtomicU32> {
        let first = match side {
            Side::Rx => RX_LOCKS,
            Side::Tx => TX_LOCKS,
        };
        self.region.u32(first + queue % QUEUES_MAX * LINE)
    }

    /// Gives back a right that was kept.
    pub(super) fn unlock(&self, place: (Side, usize)) {
        if let Some(word) = self.lock_word(place) {
            word.store(0, Ordering::Release);
        }
    }

    /// Puts a frame without its tags into another slot's inbox, behind what is known of it.
    /// Returns whether it was taken, and whether slot 0 is to be notified.
    pub(super) fn post(&self, slot: u16, known: Known, frame: &[u8]) -> (bool, bool) {
        let parts = [&known.to_bytes()[..], frame];
        let is_taken = self.inbox(slot).is_some_and(|inbox| inbox.push(&parts));
        let bit = 1u64.checked_shl(u32::from(slot)).unwrap_or(0);
        let wanted = self.wanted();
        let before = wanted.map_or(0, |word| word.fetch_or(bit, Ordering::AcqRel));
        (is_taken, before & bit == 0)
    }

    /// The slots that others want woken; afterwards none.
    pub(super) fn take_wanted(&self) -> u64 {
        self.wanted()
            .map_or(0, |word| match word.load(Ordering::Acquire) {
                0 => 0,
                _ => word.swap(0, Ordering::AcqRel),
            })
    }
}
