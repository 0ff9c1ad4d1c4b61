//! Replacement of a device that is gone by one that is opened again.

use std::os::fd::RawFd;

use slipstack_mem::RawSlice;
use slipstack_terms::LinkTags;
use slipstack_wire::TxOffload;
use slipstack_wire::rss::QueueMap;

use crate::device::{Device, DeviceCounters, DeviceInfo, LinkNotice, Sink, TxFull};

/// Stands in for a device between the end of one and the beginning of the next.
#[derive(Clone, Copy, Debug)]
pub struct Gone(pub DeviceInfo);

impl Device for Gone {
    fn info(&self) -> DeviceInfo {
        self.0
    }

    fn rx(&mut self, _: usize, _: &mut dyn Sink) -> usize {
        0
    }

    fn tx(&mut self, _: &[u8], _: [RawSlice<'_>; 2], _: TxOffload) -> Result<(), TxFull> {
        Ok(())
    }

    fn flush(&mut self) {}

    fn poll_fd(&self) -> RawFd {
        -1
    }

    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn has_rx(&self) -> bool {
        false
    }
}

/// A device inside a wrapper that can be replaced.
pub struct Swap(Box<dyn Device>);

impl Swap {
    pub fn new(device: Box<dyn Device>) -> Swap {
        Swap(device)
    }
}

impl Device for Swap {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        self.0.rx(budget, sink)
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        self.0.tx(header, payload, offload)
    }

    fn interfaces(&self) -> Vec<u32> {
        self.0.interfaces()
    }

    fn replace(&mut self, device: Box<dyn Device>) -> Option<Box<dyn Device>> {
        self.0 = device;
        None
    }

    fn set_vlans(&mut self, vlans: &[LinkTags]) {
        self.0.set_vlans(vlans);
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn poll_fd(&self) -> RawFd {
        self.0.poll_fd()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.0.descriptors()
    }

    fn has_rx(&self) -> bool {
        self.0.has_rx()
    }

    fn waiting_since_ns(&self) -> Option<u64> {
        self.0.waiting_since_ns()
    }

    fn tx_pending(&self) -> bool {
        self.0.tx_pending()
    }

    fn datagram_room(&mut self, now_ns: u64, taken: u64) -> u64 {
        self.0.datagram_room(now_ns, taken)
    }

    fn take_notice(&mut self) -> Option<LinkNotice> {
        self.0.take_notice()
    }

    fn queue_map(&self) -> Option<QueueMap> {
        self.0.queue_map()
    }

    fn answers_away(&self) -> u64 {
        self.0.answers_away()
    }

    fn port_counters(&self) -> Vec<(u16, DeviceCounters)> {
        self.0.port_counters()
    }

    fn counters(&self) -> DeviceCounters {
        self.0.counters()
    }

    fn counters_at_hand(&self) -> DeviceCounters {
        self.0.counters_at_hand()
    }
}
