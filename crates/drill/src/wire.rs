//! The device of a world: IP packets in and out, without a link.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slipstack_device::{Device, DeviceInfo, Sink, TxFull, loopback};
use slipstack_mem::RawSlice;
use slipstack_wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN};
use slipstack_wire::{RxMeta, TxOffload};

use crate::packet::is_of_the_link;

pub const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// The two directions of the link.
#[derive(Clone, Default)]
pub struct Wire(Arc<Mutex<Queues>>);

#[derive(Default)]
struct Queues {
    inbound: VecDeque<Vec<u8>>,
    /// With the time at which they left.
    outbound: VecDeque<(u64, Vec<u8>)>,
    now_ns: u64,
}

impl Wire {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An IP packet for the stack.
    pub fn push(&self, packet: &[u8]) {
        let ethertype = match packet.first().map(|byte| byte >> 4) {
            Some(6) => EtherType::IPV6,
            _ => EtherType::IPV4,
        };
        let header = EthernetHeader {
            dst: OWN_MAC,
            src: PEER_MAC,
            ethertype,
        };
        let mut frame = vec![0; HEADER_LEN + packet.len()];
        header.emit(&mut frame);
        frame[HEADER_LEN..].copy_from_slice(packet);
        self.queues().inbound.push_back(frame);
    }

    /// Sets the time at which frames sent from now on leave.
    pub fn set_now(&self, now_ns: u64) {
        self.queues().now_ns = now_ns;
    }

    /// The next IP packet that the stack sent, and when.
    pub fn pop(&self) -> Option<(u64, Vec<u8>)> {
        self.queues().outbound.pop_front()
    }

    pub fn has_sent(&self) -> bool {
        !self.queues().outbound.is_empty()
    }
}

/// The stack's end.
pub struct WireDevice {
    wire: Wire,
    info: DeviceInfo,
}

impl WireDevice {
    /// With `tso_max` other than 0, segments leave in one large packet as Linux hands them to its
    /// device, which is where packetdrill looks.
    pub fn new(wire: Wire, mtu: u16, tso_max: u32) -> Self {
        let info = DeviceInfo {
            mac: OWN_MAC,
            mtu,
            tx_checksum: true,
            tso_max,
            udp_segmentation: false,
        };
        Self { wire, info }
    }
}

impl Device for WireDevice {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        for done in 0..budget {
            let Some(frame) = self.wire.queues().inbound.pop_front() else {
                return done;
            };
            sink.frame(&frame, RxMeta::UNKNOWN);
        }
        budget
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        let mut frame = loopback::gather(header, payload);
        if let Some(checksum) = offload.checksum {
            checksum.complete(&mut frame, []);
        }
        let is_ip = EthernetHeader::parse(&frame)
            .is_some_and(|(header, _)| header.ethertype != EtherType::ARP);
        // Questions of the link, ARP's or neighbour discovery's, are not the script's.
        if is_ip && !is_of_the_link(&frame[HEADER_LEN..]) {
            let mut queues = self.wire.queues();
            let now_ns = queues.now_ns;
            queues
                .outbound
                .push_back((now_ns, frame.split_off(HEADER_LEN)));
        }
        Ok(())
    }

    fn flush(&mut self) {}

    fn poll_fd(&self) -> RawFd {
        -1
    }

    fn has_rx(&self) -> bool {
        !self.wire.queues().inbound.is_empty()
    }
}
