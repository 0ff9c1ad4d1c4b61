//! One slot of a memif device; the slots take turns at the rings.
//!
//! With several queues they are assigned to the engines in turn. The first engine of a queue that
//! looks at the receive ring takes its frames: it handles its own and puts those of other slots
//! into their inboxes. A slot leaves a ring alone while another slot works on it. The keeper has
//! the queues without an engine, and those whose engines have stopped ([`super::guard`]).
//!
//! The peer rings a queue's bell only while an engine sleeps, or is about to
//! ([`Device::has_rx`]).

mod keeper;
mod sleep;

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::event::epoll;
use slipstack_mem::{InboxReader, PrivateFd, RawSlice, now_ns};
use slipstack_terms::LinkTags;
use slipstack_wire::{RxMeta, TxOffload};

use crate::completed::tx_completed;
use crate::device::{Device, DeviceCounters, DeviceInfo, LinkNotice, Sink, TxFull};
use crate::error::DeviceError;
use crate::memif::board::{Board, Known, Side};
use crate::memif::control::Control;
use crate::memif::guard::Guard;
use crate::memif::ring::{Batch, Connection, ConnectionShape, FRAME_MAX, ProtocolViolation};
use crate::packets;
use crate::steering::Steering;
use crate::tags::{self, Tags};
pub(super) use sleep::ring;
use sleep::{await_readable, leave_bells, watch};

/// A description of a link, as text, at most.
const SHAPE_MAX: usize = 4096;
/// Frames that the first publication after a flush shows the peer, where no other slot sends by the
/// queue: it begins with them while others are made. Each further one has twice as many.
const BATCH_FIRST: u16 = 4;
const BATCH_MAX: u16 = 32;
/// The keeper's, which is not among those that send by a queue: engines publish batches beside it.
const KEEPER_SLOT: u16 = 0;

/// Way in which a slot learns of connections: slot 0 makes them, the others ask it.
#[derive(Debug)]
pub(super) enum Source {
    Control(Box<Control>, Guard),
    Asked { pair: PrivateFd, asked_for: u32 },
}

/// The parts with which a slot was adopted.
#[derive(Debug)]
pub(super) struct SlotSetup {
    pub info: DeviceInfo,
    /// The VLAN of the device's own link; 0 = its frames have no tag.
    pub vlan: u16,
    pub slot: u16,
    pub board: Board,
    pub steering: Steering,
    /// Wakes this slot.
    pub bell: PrivateFd,
    /// Wakes slot 0.
    pub keeper_bell: PrivateFd,
    pub source: Source,
}

#[derive(Debug)]
pub(super) struct MemifSlot {
    setup: SlotSetup,
    inbox: InboxReader,
    /// Everything that this slot sleeps on.
    epoll: PrivateFd,
    link: Option<Connection>,
    /// The link before, whose peer has ended: what it sent before is still to be taken.
    former: Option<Connection>,
    /// The connection that the link is of, 0 = none.
    generation: u32,
    /// The connection that was checked last.
    seen: u32,
    /// The queue by which this slot sends and, unless it is the keeper's, receives.
    lane: usize,
    /// Bells may have been rung since they were last cleared.
    is_armed: Cell<bool>,
    /// Frames that the peer does not see yet; this slot has the right to work at the queue.
    batch: Option<Batch>,
    /// Frames were put in since the peer was last woken.
    is_unrung: bool,
    /// Frames after which the batch is published.
    batch_len: u16,
    /// A server that is there has been given the time to agree.
    is_awaited: bool,
    buffer: Vec<u8>,
    tags: Tags,
    counters: DeviceCounters,
    notice: Option<LinkNotice>,
}

impl MemifSlot {
    pub(super) fn new(setup: SlotSetup) -> Result<MemifSlot, DeviceError> {
        let failed = |errno: rustix::io::Errno| DeviceError::System {
            doing: "creating an epoll set",
            source: errno.into(),
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let epoll = PrivateFd::of_engine(epoll);
        let source = match &setup.source {
            Source::Control(control, guard) => {
                watch(&epoll, guard.fd()).map_err(failed)?;
                control.poll_fd()
            }
            Source::Asked { pair, .. } => pair.as_fd(),
        };
        for fd in [source, setup.bell.as_fd()] {
            watch(&epoll, fd).map_err(failed)?;
        }
        let missing = DeviceError::BadParameters("a slot has no inbox");
        Ok(MemifSlot {
            inbox: setup.board.reader().ok_or(missing)?,
            epoll,
            link: None,
            former: None,
            generation: 0,
            seen: 0,
            lane: 0,
            is_armed: Cell::new(true),
            batch: None,
            is_unrung: false,
            batch_len: BATCH_FIRST,
            is_awaited: false,
            buffer: vec![0; FRAME_MAX + Known::LEN],
            tags: Tags::new(setup.vlan),
            counters: DeviceCounters::default(),
            notice: None,
            setup,
        })
    }

    /// Follows the connection that slot 0 has.
    fn refresh(&mut self) {
        let current = self.setup.board.generation();
        if self.seen != current {
            self.end_batch();
        }
        self.seen = current;
        if let Source::Asked { pair, asked_for } = &mut self.setup.source {
            if self.generation != current
                && let Some(link) = self.link.take()
            {
                leave_bells(&self.epoll, &link);
                self.former = Some(link);
            }
            if current == 0 || self.generation == current {
                return;
            }
            if *asked_for != current {
                *asked_for = current;
                let _ = packets::send(&*pair, &[1], &[]);
                // Once for each connection, because frames sent meanwhile would be lost.
                await_readable(pair.as_fd());
            }
            self.link = receive_link(pair, current);
            if self.link.is_some() {
                self.generation = current;
                self.begin();
            }
        }
    }

    /// Takes its place at a new link.
    fn begin(&mut self) {
        let Some(link) = &self.link else {
            return;
        };
        let lanes = link.lanes();
        // Slot 0 is the keeper's, which has little to send.
        let lane = usize::from(self.setup.slot.saturating_sub(1)) % lanes;
        let board = &self.setup.board;
        if self.setup.slot != KEEPER_SLOT {
            board.leave(self.lane);
            board.join(lane);
        }
        self.lane = lane;
        self.is_armed.set(true);
        if self.setup.slot != KEEPER_SLOT {
            let _ = watch(&self.epoll, link.rx_bell(lane));
        }
    }

    /// Takes what the peer of the former link sent before it ended.
    #[cold]
    fn drain(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let current = std::mem::replace(&mut self.link, self.former.take());
        let lanes = self.link.as_ref().map_or(0, Connection::lanes);
        let mut done = 0;
        for lane in 0..lanes {
            // Where another slot works at the ring, that one drains it.
            while done < budget
                && let Ok(more @ 1..) = self.rx_ring(lane, budget - done, sink)
            {
                done += more;
            }
        }
        let former = std::mem::replace(&mut self.link, current);
        self.former = former.filter(|_| done == budget);
        done
    }

    /// Sends a frame with the batch that is under way, or begins one. `false`: there is no room.
    #[inline]
    fn put(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        is_partial: bool,
    ) -> Result<bool, ProtocolViolation> {
        let Some(link) = &self.link else {
            return Ok(false);
        };
        if self.batch.is_none() {
            let side = (Side::Tx, self.lane);
            let Some(held) = self.setup.board.lock(side, &self.setup.steering) else {
                return Ok(false);
            };
            self.batch = Some(link.begin(self.lane)?);
            held.keep();
        }
        let Some(batch) = &mut self.batch else {
            return Ok(false);
        };
        let is_put = link.put(batch, header, payload, is_partial)?;
        // Between its frames a slot may do much else, for which others are not to wait.
        if batch.frames == self.batch_len || self.setup.board.has_others(self.lane) {
            self.end_batch();
            if self.batch_len == BATCH_FIRST {
                // A peer that sleeps wakes while further frames are made.
                self.wake_peer();
            }
            self.batch_len = (2 * self.batch_len).min(BATCH_MAX);
        }
        Ok(is_put)
    }

    /// Shows the peer what was put in, and lets other slots work at the queue.
    #[inline]
    fn end_batch(&mut self) {
        let Some(batch) = self.batch.take() else {
            return;
        };
        if let Some(link) = &self.link {
            link.publish(&batch);
        }
        self.setup.board.unlock((Side::Tx, batch.lane));
    }

    fn wake_peer(&self) {
        if let Some(link) = &self.link {
            link.ring(self.lane);
        }
    }

    fn report_violation(&mut self, violation: ProtocolViolation) {
        self.end_batch();
        self.setup.board.report_violation(self.generation);
        if let Some(link) = self.link.take() {
            leave_bells(&self.epoll, &link);
        }
        self.counters.rx_malformed += 1;
        if let Source::Control(control, _) = &mut self.setup.source {
            control.set_violation(violation);
        }
        ring(&self.setup.keeper_bell);
    }

    /// Handles the frames of a queue.
    fn rx_lane(&mut self, lane: usize, budget: usize, sink: &mut dyn Sink) -> usize {
        if budget == 0 || self.link.as_ref().is_none_or(|link| !link.has_rx(lane)) {
            return 0;
        }
        match self.rx_ring(lane, budget, sink) {
            Ok(done) => done,
            Err(violation) => {
                self.report_violation(violation);
                0
            }
        }
    }

    /// Takes frames of this slot that others took out of a ring.
    fn rx_inbox(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        if self.inbox.is_empty() {
            return 0;
        }
        let (now, mut done) = (now_ns(), 0);
        while done < budget
            && let Some(len) = self.inbox.pop(now, &mut self.buffer)
        {
            if let Some((known, frame)) = self.buffer[..len].split_first_chunk() {
                give(&mut self.counters, Known::of(*known), frame, sink);
            }
            done += 1;
        }
        done
    }

    /// Takes frames out of a ring, if no other slot is there: its own it handles.
    fn rx_ring(
        &mut self,
        lane: usize,
        budget: usize,
        sink: &mut dyn Sink,
    ) -> Result<usize, ProtocolViolation> {
        let MemifSlot {
            setup,
            link,
            inbox,
            buffer,
            counters,
            tags,
            ..
        } = self;
        let Some(link) = link else {
            return Ok(0);
        };
        let Some(_held) = setup.board.lock((Side::Rx, lane), &setup.steering) else {
            return Ok(0);
        };
        // The slot's previous owner may have put earlier frames aside for this engine.
        if !inbox.is_empty() {
            return Ok(0);
        }
        let mut own = 0;
        // Frames of others count as well: they are not to hold this slot up for ever.
        link.receive(lane, budget, buffer, |frame, is_partial| {
            let Some((link, tags_len)) = tags.link_of_frame(frame) else {
                counters.rx_vlan += 1;
                return;
            };
            let frame = match tags_len {
                0 => frame,
                _ => tags::take_out(frame, tags_len),
            };
            let known = Known {
                link,
                checksum: Known::checksum(is_partial),
            };
            if is_own(setup, counters, known, frame) {
                give(counters, known, frame, sink);
                own += 1;
            }
        })?;
        Ok(own)
    }
}

#[inline]
fn give(counters: &mut DeviceCounters, known: Known, frame: &[u8], sink: &mut dyn Sink) {
    counters.rx_frames += 1;
    counters.rx_bytes += frame.len() as u64;
    let meta = RxMeta {
        link: known.link,
        checksum: known.checksum,
        ..RxMeta::UNKNOWN
    };
    sink.frame(frame, meta);
}

/// Determines the slot of a frame; another slot's frame goes there.
#[inline]
fn is_own(setup: &SlotSetup, counters: &mut DeviceCounters, known: Known, frame: &[u8]) -> bool {
    let is_to_us = frame.get(..6) == Some(&setup.info.mac);
    if !is_to_us && !frame.first().is_some_and(is_group) {
        counters.rx_foreign += 1;
        return false;
    }
    let owner = setup.steering.owner_of(frame);
    if owner == setup.slot {
        return true;
    }
    match setup.board.post(owner, known, frame) {
        (false, _) => counters.rx_passed_lost += 1,
        (true, is_news) => {
            counters.rx_passed_on += 1;
            if is_news {
                ring(&setup.keeper_bell);
            }
        }
    }
    false
}

fn is_group(first: &u8) -> bool {
    first & 1 != 0
}

/// The answers that wait; the link of that generation, if it is among them.
fn receive_link(pair: &OwnedFd, generation: u32) -> Option<Connection> {
    let mut bytes = [0; SHAPE_MAX];
    let mut link = None;
    while let Ok((len, fds)) = packets::receive(pair, &mut bytes) {
        if len == 0 {
            break;
        }
        let shape: Option<ConnectionShape> = serde_json::from_slice(&bytes[..len]).ok();
        let shape = shape.filter(|shape| shape.generation == generation);
        link = shape
            .and_then(|shape| Connection::open(shape, fds).ok())
            .or(link);
    }
    link
}

impl Drop for MemifSlot {
    fn drop(&mut self) {
        self.end_batch();
        self.setup.board.leave(self.lane);
        if self.setup.slot != KEEPER_SLOT
            && let Some(link) = &self.link
        {
            link.set_rx_masked(self.lane, false);
        }
    }
}

impl Device for MemifSlot {
    fn info(&self) -> DeviceInfo {
        self.setup.info
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        self.end_batch();
        self.control();
        self.refresh();
        self.rouse();
        let mut done = match self.former {
            Some(_) => self.drain(budget, sink),
            None => 0,
        };
        done += self.rx_inbox(budget - done, sink);
        done + match self.setup.slot {
            KEEPER_SLOT => self.rx_as_keeper(budget - done, sink),
            _ => self.rx_lane(self.lane, budget - done, sink),
        }
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        self.refresh();
        if self.link.is_none() {
            // As on a link without a carrier.
            self.counters.tx_unlinked += 1;
            return Ok(());
        }
        let is_partial = offload.checksum.is_some();
        if is_partial && !self.link.as_ref().is_some_and(|it| it.shape.takes_partial) {
            return tx_completed(self, header, payload, offload);
        }
        let tagged;
        let mut header = header;
        if offload.link != 0 || self.setup.vlan != 0 {
            let Some((with_tags, _)) = self.tags.insert(header, &offload) else {
                self.counters.tx_dropped += 1;
                return Ok(());
            };
            tagged = with_tags;
            header = tagged.bytes();
        }
        match self.put(header, payload, is_partial) {
            Ok(true) => {
                self.is_unrung = true;
                self.counters.tx_frames += 1;
                let len = header.len() + payload[0].len() + payload[1].len();
                self.counters.tx_bytes += len as u64;
                Ok(())
            }
            Ok(false) => {
                self.counters.tx_full += 1;
                self.is_unrung = true;
                self.flush();
                Err(TxFull)
            }
            Err(violation) => {
                self.report_violation(violation);
                Ok(())
            }
        }
    }

    fn set_vlans(&mut self, vlans: &[LinkTags]) {
        self.tags.set(vlans);
    }

    fn flush(&mut self) {
        self.end_batch();
        self.batch_len = BATCH_FIRST;
        if std::mem::take(&mut self.is_unrung) {
            self.wake_peer();
        }
    }

    fn poll_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let setup = &self.setup;
        let mut all = vec![
            self.epoll.as_raw_fd(),
            setup.bell.as_raw_fd(),
            setup.keeper_bell.as_raw_fd(),
        ];
        match &setup.source {
            Source::Control(control, guard) => {
                all.push(guard.fd().as_raw_fd());
                all.extend(control.descriptors());
            }
            Source::Asked { pair, .. } => all.push(pair.as_raw_fd()),
        }
        let link = self.link.iter().flat_map(Connection::descriptors);
        all.extend(link.map(|fd| fd.as_raw_fd()));
        all
    }

    fn has_rx(&self) -> bool {
        if self.has_due() {
            return true;
        }
        self.arm();
        self.has_due()
    }

    fn take_notice(&mut self) -> Option<LinkNotice> {
        self.notice.take()
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}
