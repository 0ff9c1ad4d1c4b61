//! What the keeper's stack does to the world.

use std::net::{IpAddr, SocketAddr};

use slipstack_device::{Device, Flow, Proto, RxMeta, Steering};
use slipstack_mem::RawSlice;
use slipstack_stack::{ConnId, Effects, Event, FrameOut, Payload, UdpId};
use slipstack_wire::ethernet;
use slipstack_wire::ipv4::Ipv4Packet;
use slipstack_wire::protocol;

use super::orphans::Care;
use super::strays::Strays;
use crate::neighbours::Neighbours;
use crate::regions::Inboxes;

/// Frames to ourselves that may wait.
const LOCAL_MAX: usize = 1024;

/// Device, inboxes of the engines, table of neighbours, orphans.
pub(super) struct World {
    pub(super) device: Box<dyn Device>,
    pub(super) care: Care,
    pub(super) neighbours: Neighbours,
    steering: Option<Steering>,
    inboxes: Inboxes,
    local: Vec<Vec<u8>>,
}

impl World {
    pub(super) fn new(
        device: Box<dyn Device>,
        steering: Option<Steering>,
        inboxes: Inboxes,
        neighbours: Neighbours,
        care: Care,
    ) -> World {
        World {
            device,
            care,
            neighbours,
            steering,
            inboxes,
            local: Vec::new(),
        }
    }

    pub(super) fn take_local(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.local)
    }

    pub(super) fn has_local(&self) -> bool {
        !self.local.is_empty()
    }

    /// An ICMP error about what an engine sent: into that engine's inbox. False: it is not one.
    pub(super) fn pass_error_on(&mut self, frame: &[u8]) -> bool {
        let (Some(steering), Some(flow)) = (&self.steering, super::errors::quoted_flow(frame))
        else {
            return false;
        };
        let slot = steering.find_slot(flow.proto, flow.local, flow.remote);
        slot != 0 && self.inboxes.push(slot, &[frame])
    }

    /// A segment that an engine got and does not know: to the next one that may. False: it is none,
    /// or nobody knows it.
    pub(super) fn pass_stray_on(
        &mut self,
        frame: &[u8],
        meta: RxMeta,
        strays: &mut Strays,
        now: u64,
    ) -> bool {
        let (true, Some(steering), Some(flow)) = (meta.local, &self.steering, find_flow(frame))
        else {
            return false;
        };
        if flow.proto != Proto::Tcp {
            return false;
        }
        let first = steering.find_slot(flow.proto, flow.local, flow.remote);
        match strays.next_slot(flow, frame, first, now) {
            Some(slot) => self.inboxes.push(slot, &[frame]),
            None => false,
        }
    }

    /// A frame for a socket on this machine: into the inbox of the engine that serves it.
    fn deliver(&mut self, frame: Vec<u8>) {
        let slot = match (&self.steering, find_flow(&frame)) {
            (Some(steering), Some(flow)) => steering.find_slot(flow.proto, flow.local, flow.remote),
            _ => 0,
        };
        if slot != 0 {
            self.inboxes.push(slot, &[&frame]);
        } else if self.local.len() < LOCAL_MAX {
            self.local.push(frame);
        }
    }
}

/// The flow of a frame as its receiver sees it.
pub(super) fn find_flow(frame: &[u8]) -> Option<Flow> {
    let packet = Ipv4Packet::parse(frame.get(ethernet::HEADER_LEN..)?).ok()?;
    let proto = match packet.header.protocol {
        protocol::TCP => Proto::Tcp,
        protocol::UDP => Proto::Udp,
        _ => return None,
    };
    let port = |at: usize| {
        Some(u16::from_be_bytes([
            *packet.payload.get(at)?,
            *packet.payload.get(at + 1)?,
        ]))
    };
    Some(Flow {
        proto,
        local: SocketAddr::new(packet.header.dst.into(), port(2)?),
        remote: SocketAddr::new(packet.header.src.into(), port(0)?),
    })
}

impl Effects for World {
    fn transmit(&mut self, frame: FrameOut<'_>) {
        let World { care, device, .. } = self;
        let payload = match frame.payload {
            Payload::None => [RawSlice::EMPTY; 2],
            Payload::Inline(bytes) => [RawSlice::of(bytes), RawSlice::EMPTY],
            Payload::Stream { conn, offset, len } => {
                match care.slices(conn, offset, len as usize) {
                    Some(slices) => slices,
                    None => return,
                }
            }
        };
        if frame.local {
            let mut bytes = frame.header.to_vec();
            for slice in payload {
                let at = bytes.len();
                bytes.resize(at + slice.len(), 0);
                slice.copy_to(&mut bytes[at..]);
            }
            self.deliver(bytes);
        } else {
            // A full device loses the frame as a wire would.
            let _ = device.tx(frame.header, payload, frame.offload);
        }
    }

    /// Nobody reads any more: bytes for an orphan are dropped, which resets the connection as on the
    /// kernel.
    fn store(&mut self, _conn: ConnId, _offset: u64, _bytes: &[u8]) -> bool {
        false
    }

    fn datagram(&mut self, _udp: UdpId, _from: SocketAddr, _to: SocketAddr, _bytes: &[u8]) {}

    fn event(&mut self, event: Event) {
        match event {
            Event::Neighbour { ip, mac } => self.publish(ip, mac),
            // TIME-WAIT goes on in the stack.
            Event::Released { conn } => self.care.on_released(conn),
            _ => {}
        }
    }
}

impl World {
    fn publish(&mut self, ip: IpAddr, mac: [u8; 6]) {
        self.neighbours.publish(ip, mac);
    }
}
