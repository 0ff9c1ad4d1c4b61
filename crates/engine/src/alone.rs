//! Operation without a keeper, when frames arrive at the wrong engine.
//!
//! Steering names queues of the device by numbers that the kernel reassigns when a queue is closed.
//! A keeper closes none. When it is killed together with its standby, the queues that nobody leases
//! close at once, and each other one with its engine. From then on every engine checks whether a
//! frame is its own, and puts those of others into their inboxes.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slipstack_channel::InboxMessage;
use slipstack_device::{Device, DeviceCounters, DeviceInfo, LinkTags, Rest, Sink, TxFull};
use slipstack_mem::RawSlice;
use slipstack_stack::{RxChecksum, RxMeta, TxOffload};
use slipstack_wire::flow::FrameFlow;
use slipstack_wire::protocol;
use slipstack_wire::rss::QueueMap;

use crate::engine::Engine;
use crate::local::{Outboxes, flow_of};

/// A device some of whose frames belong to other engines.
struct Sorting {
    device: Box<dyn Device>,
    outboxes: Outboxes,
    is_alone: Arc<AtomicBool>,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    passed_on: u64,
    lost: u64,
}

struct Sorter<'a> {
    outboxes: &'a Outboxes,
    tally: &'a mut Tally,
    sink: &'a mut dyn Sink,
}

impl Sorter<'_> {
    /// Another engine's slot, if the tables name one.
    fn find_owner(&self, parsed: &FrameFlow<'_>, frame: &[u8]) -> Option<u16> {
        let steering = &self.outboxes.steering;
        let is_ours = steering.is_own(parsed.dst.ip()) && !parsed.is_to_group(frame);
        // The sender named in an inbox message is trusted.
        if !is_ours || steering.is_own(parsed.src.ip()) {
            return None;
        }
        let flow = flow_of(parsed);
        let slot = steering.find_slot(flow.proto, flow.local, flow.remote);
        (slot != 0 && slot != self.outboxes.own_slot).then_some(slot)
    }
}

impl Sink for Sorter<'_> {
    fn frame(&mut self, frame: &[u8], meta: RxMeta) {
        // A frame whose flow cannot be read, or whose checksum is wrong, has no owner.
        let owner = FrameFlow::parse(frame)
            .filter(|flow| meta.checksum != RxChecksum::Unknown || flow.is_checksum_valid())
            .and_then(|flow| Some((self.find_owner(&flow, frame)?, flow.protocol)));
        let Some((slot, of)) = owner else {
            return self.sink.frame(frame, meta);
        };
        // Joined datagrams would arrive there as one. Lost as on a wire: here an error would answer
        // them.
        let message = InboxMessage::Frame {
            link: meta.link,
            frame,
        };
        let is_apart = meta.segment == 0 || of == protocol::TCP;
        if is_apart && self.outboxes.post(usize::from(slot), &message) {
            self.tally.passed_on += 1;
        } else {
            self.tally.lost += 1;
        }
    }

    fn large(&mut self, beginning: &[u8], meta: RxMeta, rest: &mut dyn Rest) {
        let parsed = FrameFlow::parse(beginning);
        let owner = parsed.and_then(|flow| self.find_owner(&flow, beginning));
        // Another's comes as a whole a moment later.
        if owner.is_none() {
            self.sink.large(beginning, meta, rest);
        }
    }

    fn clock_ns(&self) -> Option<u64> {
        self.sink.clock_ns()
    }
}

impl Device for Sorting {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        if !self.is_alone.load(Ordering::Relaxed) {
            return self.device.rx(budget, sink);
        }
        let mut sorter = Sorter {
            outboxes: &self.outboxes,
            tally: &mut self.tally,
            sink,
        };
        self.device.rx(budget, &mut sorter)
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        self.device.tx(header, payload, offload)
    }

    fn interfaces(&self) -> Vec<u32> {
        self.device.interfaces()
    }

    fn replace(&mut self, device: Box<dyn Device>) -> Option<Box<dyn Device>> {
        if let Some(device) = self.device.replace(device) {
            self.device = device;
        }
        None
    }

    fn set_vlans(&mut self, vlans: &[LinkTags]) {
        self.device.set_vlans(vlans);
    }

    fn flush(&mut self) {
        self.device.flush();
    }

    fn poll_fd(&self) -> RawFd {
        self.device.poll_fd()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.device.descriptors()
    }

    fn has_rx(&self) -> bool {
        self.device.has_rx()
    }

    fn waiting_since_ns(&self) -> Option<u64> {
        self.device.waiting_since_ns()
    }

    fn tx_pending(&self) -> bool {
        self.device.tx_pending()
    }

    fn datagram_room(&mut self, now_ns: u64, taken: u64) -> u64 {
        self.device.datagram_room(now_ns, taken)
    }

    fn queue_map(&self) -> Option<QueueMap> {
        self.device.queue_map()
    }

    fn answers_away(&self) -> u64 {
        self.device.answers_away()
    }

    fn port_counters(&self) -> Vec<(u16, DeviceCounters)> {
        self.device.port_counters()
    }

    fn counters(&self) -> DeviceCounters {
        self.with_tally(self.device.counters())
    }

    fn counters_at_hand(&self) -> DeviceCounters {
        self.with_tally(self.device.counters_at_hand())
    }
}

impl Sorting {
    fn with_tally(&self, counters: DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            rx_passed_on: self.tally.passed_on,
            rx_passed_lost: self.tally.lost,
            ..counters
        }
    }
}

/// Stands where a device was, while that is wrapped.
struct Absent(DeviceInfo);

impl Device for Absent {
    fn info(&self) -> DeviceInfo {
        self.0
    }

    fn rx(&mut self, _budget: usize, _sink: &mut dyn Sink) -> usize {
        0
    }

    fn tx(
        &mut self,
        _header: &[u8],
        _payload: [RawSlice<'_>; 2],
        _offload: TxOffload,
    ) -> Result<(), TxFull> {
        Err(TxFull)
    }

    fn flush(&mut self) {}

    fn poll_fd(&self) -> RawFd {
        -1
    }

    fn has_rx(&self) -> bool {
        false
    }
}

impl Engine {
    /// Notes that the keeper is gone, or back. Costs nothing until the first time.
    pub fn set_alone(&mut self, is_alone: bool) {
        if let Some(flag) = &self.is_alone {
            flag.store(is_alone, Ordering::Relaxed);
            return;
        }
        let Some(interconnect) = self.env.local.interconnect.as_ref().filter(|_| is_alone) else {
            return;
        };
        let outboxes = interconnect.outboxes();
        let is_alone = Arc::new(AtomicBool::new(true));
        let absent = Box::new(Absent(self.device.info()));
        self.device = Box::new(Sorting {
            device: std::mem::replace(&mut self.device, absent),
            outboxes,
            is_alone: Arc::clone(&is_alone),
            tally: Tally::default(),
        });
        self.is_alone = Some(is_alone);
    }
}
