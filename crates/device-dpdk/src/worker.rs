//! The loop between one queue of the port and the slots.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use slipstack_device::dpdk::{FRAME_MAX, Reader, Tag, Waiting, Way, is_partial};
use slipstack_mem::{Doorbell, RawSlice, now_ns};

use crate::pump::Shared;
use crate::sys::{BURST, Frame, Offload, PIECES_MAX, Piece, Queue, Sent};

/// Time for which a worker goes on looking after the last frame before it sleeps.
const SPIN_NS: u64 = 50_000;
/// The first sleep of a port without interrupts; each one is twice as long as the one before.
const SLEEP_FIRST_NS: u64 = 20_000;
/// Time that frames wait for a port that takes none, for example while its link is down.
const STUCK_NS: u64 = 20_000_000;
/// Interval of a busy loop's checks whether any process holds the device.
const LOOK_EVERY_NS: u64 = 10_000_000;
/// Longest sleep with interrupts, after which other events of the port are handled.
const SLEEP_MAX_NS: u64 = 1_000_000_000;

const FLAG_NEEDS_CSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;

const BELL: u64 = 0;
const INTERRUPT: u64 = 1;
const END: u64 = 2;

/// Parts of a worker.
pub struct WorkerSetup<'a> {
    pub queue: Queue,
    pub shared: Arc<Shared>,
    /// Rung by slots that send by this queue.
    pub bells: Vec<Doorbell>,
    /// Readable when it is time to end.
    pub ends: &'a [BorrowedFd<'a>],
}

/// The thread of one queue.
pub struct Worker {
    queue: Queue,
    shared: Arc<Shared>,
    /// Slots that send by this queue, by their numbers.
    readers: Vec<(usize, Reader)>,
    /// Slots into whose rings frames were put in this round.
    news: Vec<bool>,
    epoll: OwnedFd,
    bells: Vec<Doorbell>,
    buffer: Vec<u8>,
    /// Frames that the port had lost at the last query.
    missed: u64,
}

/// Reason why a sleep or a look ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    ToWork,
    /// No process holds the device any more, or this one has to end.
    ToEnd,
}

impl Worker {
    pub fn new(setup: WorkerSetup<'_>) -> io::Result<Worker> {
        let WorkerSetup {
            queue,
            shared,
            bells,
            ends,
        } = setup;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |fd: BorrowedFd<'_>, data, flags| {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(data), flags)
        };
        for bell in &bells {
            add(bell.as_fd(), BELL, epoll::EventFlags::IN)?;
        }
        for end in ends {
            add(*end, END, epoll::EventFlags::IN)?;
        }
        let interrupt = queue.interrupt_fd().filter(|_| shared.has_interrupts);
        if let Some(fd) = interrupt {
            // Drivers clear theirs in different ways: only the event itself counts.
            add(fd, INTERRUPT, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        }
        let lanes = shared.lanes.iter().enumerate();
        let own = lanes.filter(|(_, lane)| lane.queue == queue.number());
        let readers = own.map(|(slot, lane)| (slot, lane.rings.reader(Way::FromSlot)));
        Ok(Worker {
            readers: readers.collect(),
            news: vec![false; shared.lanes.len()],
            buffer: vec![0; FRAME_MAX],
            missed: 0,
            queue,
            epoll,
            bells,
            shared,
        })
    }

    /// Passes frames until it is time to end.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn run(mut self) -> io::Result<()> {
        let sleep_max_ns = self.shared.sleep_ns;
        let mut worked_at = now_ns();
        let mut looked_at = worked_at;
        let mut sleep_ns = SLEEP_FIRST_NS;
        let mut stuck = Stuck::default();
        loop {
            let has_received = self.receive();
            let has_sent = self.send();
            let waiting = self.queue.flush();
            let now = now_ns();
            if stuck.is_for_long(waiting, now) {
                self.queue.give_up();
            }
            if has_received || has_sent {
                worked_at = now;
                sleep_ns = SLEEP_FIRST_NS;
            }
            let is_idle = now.saturating_sub(worked_at) >= SPIN_NS && waiting == 0;
            let woken = if is_idle && sleep_max_ns != 0 {
                looked_at = now;
                self.count_missed();
                let woken = self.sleep(sleep_ns.min(sleep_max_ns))?;
                sleep_ns = sleep_ns.saturating_mul(2).min(sleep_max_ns);
                woken
            } else if now.saturating_sub(looked_at) >= LOOK_EVERY_NS {
                looked_at = now;
                self.count_missed();
                self.wait(0)?
            } else {
                std::hint::spin_loop();
                Woken::ToWork
            };
            if woken == Woken::ToEnd {
                return Ok(());
            }
        }
    }

    /// Reports the port's losses to slot 0.
    fn count_missed(&mut self) {
        if self.queue.number() != 0 {
            return;
        }
        let missed = self.queue.missed();
        if missed > self.missed {
            self.shared.lanes[0].rings.add_lost(missed - self.missed);
        }
        self.missed = missed;
    }

    /// Hands a burst to the slots. Returns whether there was one.
    #[inline]
    fn receive(&mut self) -> bool {
        let burst = self.queue.receive();
        if burst.is_empty() {
            return false;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        for frame in burst.frames() {
            self.dispatch(&frame, &mut buffer);
        }
        self.buffer = buffer;
        for (lane, has_news) in self.shared.lanes.iter().zip(&mut self.news) {
            if std::mem::take(has_news) {
                lane.publish();
            }
        }
        true
    }

    #[inline]
    fn dispatch(&mut self, frame: &Frame<'_>, buffer: &mut [u8]) {
        let bytes = frame.bytes(buffer);
        let is_group = bytes.first().is_some_and(|first| first & 1 != 0);
        if !is_group && bytes.get(..6) != Some(&self.shared.mac) {
            return;
        }
        let owner = usize::from(self.shared.steering.owner_of(bytes));
        let Some(lane) = self.shared.lanes.get(owner) else {
            return;
        };
        let mut tag = Tag {
            vlan: frame.vlan(),
            is_away: lane.queue != self.queue.number(),
            ..Tag::default()
        };
        if frame.is_checked() {
            tag.virtio[0] = FLAG_DATA_VALID;
        } else if self.shared.has_partial && is_partial(bytes) {
            tag.virtio[0] = FLAG_NEEDS_CSUM;
        }
        // Without room it is lost, as in the ring of a card.
        match lane.writer().put(tag, &[RawSlice::of(bytes)]) {
            true => self.news[owner] = true,
            false => lane.rings.add_lost(1),
        }
    }

    /// Takes frames to send from the slots, a burst of each. Returns whether there were any.
    #[inline]
    fn send(&mut self) -> bool {
        let mut has_sent = false;
        for (_, reader) in &mut self.readers {
            let mut done = 0;
            while done < BURST
                && let Some(frame) = reader.peek().unwrap_or(None)
            {
                if send_one(&mut self.queue, reader, &frame) == Sent::NoRoom {
                    break;
                }
                reader.release(&frame);
                done += 1;
            }
            if done > 0 {
                reader.publish();
                has_sent = true;
            }
        }
        has_sent
    }

    /// Sleeps until a slot has something to send, the port has frames, or for so long if it cannot
    /// say.
    fn sleep(&mut self, limit_ns: u64) -> io::Result<Woken> {
        for (slot, _) in &self.readers {
            self.shared.lanes[*slot]
                .rings
                .request_wake_up(Way::FromSlot);
        }
        let is_armed = self.shared.has_interrupts && self.queue.arm(true);
        let is_quiet = !self.readers.iter().any(|(_, reader)| reader.has_frames());
        // Frames that arrived before interrupts were enabled.
        let woken = match is_quiet && !(is_armed && self.receive()) {
            true => self.wait(if is_armed { SLEEP_MAX_NS } else { limit_ns })?,
            false => Woken::ToWork,
        };
        if is_armed {
            self.queue.arm(false);
        }
        for (slot, _) in &self.readers {
            self.shared.lanes[*slot].rings.cancel_wake_up(Way::FromSlot);
        }
        Ok(woken)
    }

    fn wait(&self, limit_ns: u64) -> io::Result<Woken> {
        let limit = Timespec {
            tv_sec: (limit_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (limit_ns % 1_000_000_000).cast_signed(),
        };
        let mut events = Vec::with_capacity(4);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let has = |data| events.iter().any(|event| event.data.u64() == data);
        if has(BELL) {
            self.bells.iter().for_each(Doorbell::clear);
        }
        Ok(if has(END) {
            Woken::ToEnd
        } else {
            Woken::ToWork
        })
    }
}

/// Frames that the port does not take.
#[derive(Default)]
struct Stuck {
    count: usize,
    since: u64,
}

impl Stuck {
    /// Returns whether so many frames, no fewer than at the last look, have waited long enough.
    fn is_for_long(&mut self, count: usize, now: u64) -> bool {
        if count == 0 || count < self.count || self.count == 0 {
            self.since = now;
        }
        self.count = count;
        count > 0 && now.saturating_sub(self.since) >= STUCK_NS
    }
}

#[inline]
fn send_one(queue: &mut Queue, reader: &Reader, frame: &Waiting) -> Sent {
    let none = Piece {
        data: core::ptr::null(),
        len: 0,
    };
    let mut pieces = [none; PIECES_MAX];
    let count = frame.cells as usize;
    if count > PIECES_MAX {
        return Sent::Refused;
    }
    for (index, piece) in (0..).zip(&mut pieces[..count]) {
        let cell = reader.cell(frame, index);
        *piece = Piece {
            data: cell.as_ptr(),
            len: cell.len() as u32,
        };
    }
    queue.send(&pieces[..count], &offload_of(&frame.tag))
}

/// Returns the work that a slot leaves to the port, from its virtio header.
fn offload_of(tag: &Tag) -> Offload {
    let [flags, gso_type, _, _, m0, m1, s0, s1, o0, o1, ..] = tag.virtio;
    let mut offload = Offload {
        vlan: tag.vlan,
        ..Offload::default()
    };
    if flags & FLAG_NEEDS_CSUM != 0 {
        offload.transport_at = u16::from_ne_bytes([s0, s1]);
        offload.checksum_at = u16::from_ne_bytes([o0, o1]);
        if gso_type != 0 {
            offload.mss = u16::from_ne_bytes([m0, m1]);
        }
    }
    offload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_given_up_only_when_the_port_takes_none_for_a_while() {
        let mut stuck = Stuck::default();
        assert!(!stuck.is_for_long(9, 0));
        assert!(!stuck.is_for_long(9, STUCK_NS - 1));
        assert!(!stuck.is_for_long(8, STUCK_NS), "one was taken");
        assert!(!stuck.is_for_long(8, 2 * STUCK_NS - 1));
        assert!(stuck.is_for_long(9, 2 * STUCK_NS));
        assert!(!stuck.is_for_long(0, 3 * STUCK_NS));
        assert!(!stuck.is_for_long(1, 9 * STUCK_NS), "begins again");
    }

    #[test]
    fn offloads_are_read_from_the_header() {
        let mut tag = Tag {
            vlan: 7,
            ..Tag::default()
        };
        assert_eq!(
            offload_of(&tag),
            Offload {
                vlan: 7,
                ..Offload::default()
            }
        );
        tag.virtio[0] = FLAG_NEEDS_CSUM;
        tag.virtio[1] = 1;
        tag.virtio[4..6].copy_from_slice(&1448u16.to_ne_bytes());
        tag.virtio[6..8].copy_from_slice(&34u16.to_ne_bytes());
        tag.virtio[8..10].copy_from_slice(&16u16.to_ne_bytes());
        let expected = Offload {
            vlan: 7,
            transport_at: 34,
            checksum_at: 16,
            mss: 1448,
        };
        assert_eq!(offload_of(&tag), expected);
        tag.virtio[0] = 0;
        assert_eq!(offload_of(&tag).mss, 0, "without a checksum nothing is cut");
    }
}
