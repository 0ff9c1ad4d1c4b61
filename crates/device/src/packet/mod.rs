//! AF_PACKET: a TPACKET_V2 receive ring, large frames by recv, batched sends, and a virtio header
//! with checksum and segmentation offloads in both directions.

mod arrivals;
mod backend;
mod large;
mod open;
mod raw;
mod receive;
mod room;
mod sys;
mod transmit;

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use serde::{Deserialize, Serialize};
use slipstack_mem::{PrivateFd, RawSlice, monotonic_ns_at};
use slipstack_terms::LinkTags;
use slipstack_wire::TxOffload;

use crate::device::{Device, DeviceCounters, DeviceInfo, Sink, TxFull, frame_cost};
use crate::error::DeviceError;
use crate::parts::LinkProperties;
use crate::position::RingPosition;
use receive::Receive;
use transmit::Transmit;

pub(crate) use backend::{Packet, open_members, shared_link};
pub(crate) use open::{hear_all, open_listener, open_port, switch_offloads_off};
pub(crate) use sys::{BATCH, Heard, drops, receive_from, send_batch};

/// Shape of a receive ring, the same for all slots of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingParams {
    /// Bytes of a ring slot.
    pub frame_size: u32,
    pub frame_count: u32,
    /// Bytes that the kernel allocates in one piece; a multiple of `frame_size`.
    pub block_size: u32,
}

/// One member of the fan-out group, driven by one engine.
#[derive(Debug)]
pub(crate) struct PacketSlot {
    fd: PrivateFd,
    /// The interface's number.
    index: u32,
    info: DeviceInfo,
    receive: Receive,
    transmit: Transmit,
    counters: DeviceCounters,
    /// Frames that found the ring full. The kernel's count starts again whenever it is read.
    overrun: Cell<u64>,
}

impl PacketSlot {
    /// Adopts a slot where its last holder stopped.
    pub(crate) fn from_fd(
        fd: OwnedFd,
        link: &LinkProperties,
        ring: RingParams,
        position: RingPosition,
    ) -> Result<PacketSlot, DeviceError> {
        let receive = Receive::adopt(fd.as_fd(), ring, link.vlan, position);
        let receive = receive.map_err(|source| {
            DeviceError::system("mapping the receive ring of a slot", "CAP_NET_RAW", source)
        })?;
        Ok(PacketSlot {
            fd: fd.into(),
            index: link.index,
            info: link.info(),
            receive,
            transmit: Transmit::new(link.vlan),
            counters: DeviceCounters::default(),
            overrun: Cell::new(0),
        })
    }
}

impl Device for PacketSlot {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn interfaces(&self) -> Vec<u32> {
        vec![self.index]
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        self.receive
            .run(self.fd.as_fd(), budget, sink, &mut self.counters)
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        let counters = &mut self.counters;
        self.transmit
            .send(self.fd.as_fd(), header, payload, offload, counters)
    }

    fn set_vlans(&mut self, vlans: &[LinkTags]) {
        self.receive.set_vlans(vlans);
        self.transmit.set_vlans(vlans);
    }

    fn flush(&mut self) {
        self.transmit.flush(self.fd.as_fd(), &mut self.counters);
    }

    fn poll_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn has_rx(&self) -> bool {
        self.receive.has_frames()
    }

    fn waiting_since_ns(&self) -> Option<u64> {
        self.receive.next_arrival_ns().map(monotonic_ns_at)
    }

    fn tx_pending(&self) -> bool {
        self.transmit.is_stalled()
    }

    fn datagram_room(&mut self, now_ns: u64, taken: u64) -> u64 {
        let sent = frame_cost(self.counters.tx_frames, self.counters.tx_bytes);
        self.transmit
            .datagram_room(self.fd.as_fd(), now_ns, taken, sent)
    }

    fn counters(&self) -> DeviceCounters {
        if let Ok(drops) = drops(self.fd.as_fd()) {
            self.overrun.set(self.overrun.get() + drops);
        }
        self.counters_at_hand()
    }

    fn counters_at_hand(&self) -> DeviceCounters {
        DeviceCounters {
            rx_overrun: self.overrun.get(),
            ..self.counters
        }
    }
}
