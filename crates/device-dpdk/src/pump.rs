//! The loop between the port and the slots.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use slipstack_device::Steering;
use slipstack_device::dpdk::{
    FRAME_MAX, Reader, Rings, Setup, Tag, Waiting, Way, Writer, is_partial,
};
use slipstack_mem::{Doorbell, RawSlice, now_ns};

use crate::start::Started;
use crate::sys::{BURST, Frame, Offload, PIECES_MAX, Piece, Port, Sent};

/// How long it goes on looking after the last frame before it sleeps.
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

/// One slot.
struct Lane {
    rings: Rings,
    bell: Doorbell,
    writer: Writer,
    reader: Reader,
    /// Frames were put into its ring in this round.
    has_news: bool,
}

pub struct Pump {
    port: Port,
    lanes: Vec<Lane>,
    steering: Steering,
    mac: [u8; 6],
    /// 0: never sleeps.
    sleep_ns: u64,
    has_interrupts: bool,
    /// As [`Started`] has it.
    has_partial: bool,
    epoll: OwnedFd,
    bell: Doorbell,
    buffer: Vec<u8>,
    /// Frames that the port had lost at the last query.
    missed: u64,
}

/// Why a sleep or a look ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    ToWork,
    /// No process holds the device any more, or this one has to end.
    ToEnd,
}

impl Pump {
    /// `ends`: descriptors that become readable when it is time to end.
    pub fn new(started: Started, setup: Setup, ends: &[BorrowedFd<'_>]) -> io::Result<Pump> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |fd: BorrowedFd<'_>, data, flags| {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(data), flags)
        };
        add(setup.bell.as_fd(), BELL, epoll::EventFlags::IN)?;
        for end in ends {
            add(*end, END, epoll::EventFlags::IN)?;
        }
        let interrupt = started
            .port
            .interrupt_fd()
            .filter(|_| started.has_interrupts);
        if let Some(fd) = interrupt {
            // Drivers clear theirs in different ways: only the event itself counts.
            add(fd, INTERRUPT, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        }
        let lanes = setup.slots.into_iter().map(|(rings, bell)| Lane {
            writer: rings.writer(Way::ToSlot),
            reader: rings.reader(Way::FromSlot),
            rings,
            bell,
            has_news: false,
        });
        Ok(Pump {
            port: started.port,
            lanes: lanes.collect(),
            steering: setup.steering,
            mac: started.told.mac,
            sleep_ns: u64::from(setup.order.options.sleep_us) * 1000,
            has_interrupts: started.has_interrupts,
            has_partial: started.has_partial,
            epoll,
            bell: setup.bell,
            buffer: vec![0; FRAME_MAX],
            missed: 0,
        })
    }

    /// Returns whether frames can be waited for without looking.
    pub fn set_running(&self, is_running: bool) {
        for lane in &self.lanes {
            lane.rings.set_running(is_running);
        }
    }

    /// Passes frames until it is time to end, and gives the port back.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn run(mut self) -> io::Result<Port> {
        let mut worked_at = now_ns();
        let mut looked_at = worked_at;
        let mut sleep_ns = SLEEP_FIRST_NS;
        let mut stuck = Stuck::default();
        loop {
            let has_received = self.receive();
            let has_sent = self.send();
            let waiting = self.port.flush();
            let now = now_ns();
            if stuck.is_for_long(waiting, now) {
                self.port.give_up();
            }
            if has_received || has_sent {
                worked_at = now;
                sleep_ns = SLEEP_FIRST_NS;
            }
            let is_idle = now.saturating_sub(worked_at) >= SPIN_NS && waiting == 0;
            let woken = if is_idle && self.sleep_ns != 0 {
                looked_at = now;
                self.count_missed();
                let woken = self.sleep(sleep_ns.min(self.sleep_ns))?;
                sleep_ns = sleep_ns.saturating_mul(2).min(self.sleep_ns);
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
                self.set_running(false);
                return Ok(self.port);
            }
        }
    }

    /// Reports the port's losses to slot 0.
    fn count_missed(&mut self) {
        let missed = self.port.missed();
        if missed > self.missed {
            self.lanes[0].rings.add_lost(missed - self.missed);
        }
        self.missed = missed;
    }

    /// Hands a burst to the slots. Returns whether there was one.
    #[inline]
    fn receive(&mut self) -> bool {
        let burst = self.port.receive();
        if burst.is_empty() {
            return false;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        for frame in burst.frames() {
            self.dispatch(&frame, &mut buffer);
        }
        self.buffer = buffer;
        for lane in &mut self.lanes {
            if std::mem::take(&mut lane.has_news)
                && lane.writer.publish()
                && lane.rings.take_wake_up(Way::ToSlot)
            {
                lane.bell.ring();
            }
        }
        true
    }

    #[inline]
    fn dispatch(&mut self, frame: &Frame<'_>, buffer: &mut [u8]) {
        let bytes = frame.bytes(buffer);
        let is_group = bytes.first().is_some_and(|first| first & 1 != 0);
        if !is_group && bytes.get(..6) != Some(&self.mac) {
            return;
        }
        let owner = usize::from(self.steering.owner_of(bytes));
        let lane = match owner < self.lanes.len() {
            true => &mut self.lanes[owner],
            false => return,
        };
        let mut tag = Tag {
            vlan: frame.vlan(),
            ..Tag::default()
        };
        if frame.is_checked() {
            tag.virtio[0] = FLAG_DATA_VALID;
        } else if self.has_partial && is_partial(bytes) {
            tag.virtio[0] = FLAG_NEEDS_CSUM;
        }
        // Without room it is lost, as in the ring of a card.
        match lane.writer.put(tag, &[RawSlice::of(bytes)]) {
            true => lane.has_news = true,
            false => lane.rings.add_lost(1),
        }
    }

    /// Takes frames to send from the slots, a burst of each. Returns whether there were any.
    #[inline]
    fn send(&mut self) -> bool {
        let mut has_sent = false;
        for lane in &mut self.lanes {
            let mut done = 0;
            while done < BURST
                && let Some(frame) = lane.reader.peek().unwrap_or(None)
            {
                if send_one(&mut self.port, &lane.reader, &frame) == Sent::NoRoom {
                    break;
                }
                lane.reader.release(&frame);
                done += 1;
            }
            if done > 0 {
                lane.reader.publish();
                has_sent = true;
            }
        }
        has_sent
    }

    /// Sleeps until a slot has something to send, the port has frames, or for so long if it cannot
    /// say.
    fn sleep(&mut self, limit_ns: u64) -> io::Result<Woken> {
        for lane in &self.lanes {
            lane.rings.request_wake_up(Way::FromSlot);
        }
        let is_armed = self.has_interrupts && self.port.arm(true);
        let is_quiet = !self.lanes.iter().any(|lane| lane.reader.has_frames());
        // Frames that arrived before interrupts were enabled.
        let woken = match is_quiet && !(is_armed && self.receive()) {
            true => self.wait(if is_armed { SLEEP_MAX_NS } else { limit_ns })?,
            false => Woken::ToWork,
        };
        if is_armed {
            self.port.arm(false);
        }
        for lane in &self.lanes {
            lane.rings.cancel_wake_up(Way::FromSlot);
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
            self.bell.clear();
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
fn send_one(port: &mut Port, reader: &Reader, frame: &Waiting) -> Sent {
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
    port.send(&pieces[..count], &offload_of(&frame.tag))
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
            virtio: [0; 12],
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
