//! The effects of the keeper's stack.

use std::collections::HashSet;
use std::net::IpAddr;

use slipstack_channel::InboxMessage;
use slipstack_channel::control::net::NetworkState;
use slipstack_device::{Device, Flow, SlotSet, Steering, Transport, transmit};
use slipstack_mem::RawSlice;
use slipstack_stack::{
    ConnId, DatagramIn, Effects, Event, FrameOut, IpMeta, Payload, RxChecksum, RxMeta, UdpId,
};
use slipstack_wire::ethernet::{EtherType, EthernetHeader};
use slipstack_wire::flow::{FrameFlow, is_group_frame};
use slipstack_wire::frame_fragment::FrameFragment;
use slipstack_wire::ipv6_extensions;
use tracing::warn;

use super::backlogs::Backlogs;
use super::flows::{find_flow, flow_of, proto_of};
use super::fragments::{FragmentRoutes, Frame};
use super::frame_input::FrameSource;
use super::intents::Intents;
use super::orphan_table::OrphanTable;
use super::parked::Parked;
use super::servers::Servers;
use super::strays::Strays;
use super::unread::Unread;
use crate::neighbours::Neighbours;
use crate::network::Network;
use crate::regions::Inboxes;

/// Frames to ourselves that may wait.
const LOCAL_MAX: usize = 1024;

/// Device, inboxes of the engines, table of neighbours, orphans.
pub(super) struct NetEffects {
    pub(super) device: Box<dyn Device>,
    /// Our link-layer address.
    pub(super) mac: [u8; 6],
    own: Vec<IpAddr>,
    pub(super) orphan_table: OrphanTable,
    pub(super) neighbours: Neighbours,
    pub(super) steering: Option<Steering>,
    pub(super) inboxes: Inboxes,
    pub(super) strays: Strays,
    pub(super) parked: Parked,
    pub(super) servers: Servers,
    pub(super) backlogs: Backlogs,
    pub(super) intents: Intents,
    pub(super) dgram_intents: Intents,
    pub(super) unread: Unread,
    pub(super) fragment_routes: FragmentRoutes,
    /// Copies of datagrams to groups that found no room in an inbox.
    pub(super) lost_copies: u64,
    /// Flows of dead programs that are being reset here.
    pub(super) doomed: HashSet<Flow>,
    /// The segment that the stack is looking at now.
    pub(super) coming: Option<FrameSource>,
    local: Vec<Vec<u8>>,
}

impl NetEffects {
    pub(super) fn new(
        device: Box<dyn Device>,
        network: &Network,
        steering: Option<Steering>,
        inboxes: Inboxes,
        neighbours: Neighbours,
        orphan_table: OrphanTable,
    ) -> NetEffects {
        let mut effects = NetEffects {
            device,
            mac: network.mac,
            own: network
                .state
                .addresses()
                .iter()
                .map(|(ip, _)| *ip)
                .collect(),
            orphan_table,
            neighbours,
            steering,
            inboxes,
            strays: Strays::default(),
            parked: Parked::default(),
            servers: Servers::default(),
            backlogs: Backlogs::default(),
            intents: Intents::new(Transport::Tcp),
            dgram_intents: Intents::new(Transport::Udp),
            unread: Unread::default(),
            fragment_routes: FragmentRoutes::default(),
            lost_copies: 0,
            doomed: HashSet::new(),
            coming: None,
            local: Vec::new(),
        };
        effects.set_links(&network.state);
        effects
    }

    pub(super) fn set_own(&mut self, own: Vec<IpAddr>) {
        self.own = own;
    }

    pub(super) fn set_links(&mut self, state: &NetworkState) {
        self.intents.set_links(state);
        self.dgram_intents.set_links(state);
    }

    pub(super) fn take_local(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.local)
    }

    pub(super) fn has_local(&self) -> bool {
        !self.local.is_empty()
    }

    /// Passes an ICMP error about an engine's packet into that engine's inbox. Returns false if it
    /// is not one.
    pub(super) fn pass_error_on(&mut self, frame: &[u8], link: u16) -> bool {
        let (Some(steering), Some(flow)) = (&self.steering, super::errors::quoted_flow(frame))
        else {
            return false;
        };
        let slot = steering.find_slot(flow.proto, flow.local, flow.remote);
        slot != 0
            && self
                .inboxes
                .post(slot, &InboxMessage::Frame { link, frame })
    }

    /// Passes a packet with extension headers, which steering leaves to us, into the inbox of the
    /// engine that serves its flow, or leaves it to the kernel. Returns false if it is none, or no
    /// engine has its flow.
    pub(super) fn pass_extended_on(&mut self, frame: &[u8], meta: RxMeta) -> bool {
        const NEXT_HEADER_AT: usize = 14 + 6;
        let is_extended = !meta.local
            && EthernetHeader::parse(frame)
                .is_some_and(|(header, _)| header.ethertype == EtherType::IPV6)
            && frame
                .get(NEXT_HEADER_AT)
                .is_some_and(|next| ipv6_extensions::is_extension(*next));
        let (true, Some(steering)) = (is_extended, &self.steering) else {
            return false;
        };
        // Frames from an inbox are trusted: their checksum was verified before.
        let parsed = FrameFlow::parse(frame)
            .filter(|flow| !self.own.contains(&flow.src.ip()))
            .filter(|flow| meta.checksum != RxChecksum::Unknown || flow.is_checksum_valid());
        let Some(flow) = parsed.as_ref().map(flow_of) else {
            return false;
        };
        if steering.is_kernel_port(flow.proto, flow.local.port()) {
            return true;
        }
        let slot = steering.find_slot(flow.proto, flow.local, flow.remote);
        let link = meta.link;
        slot != 0
            && self
                .inboxes
                .post(slot, &InboxMessage::Frame { link, frame })
    }

    /// Passes a multicast datagram into the inboxes of all engines that have its port, each of
    /// which knows its memberships. Returns false if it is none, or no engine has the port.
    pub(super) fn pass_group_on(&mut self, frame: &[u8], meta: RxMeta) -> bool {
        if !is_group_frame(frame) || meta.local {
            return false;
        }
        let Some(steering) = &self.steering else {
            return false;
        };
        // As in `pass_extended_on`.
        let parsed = FrameFlow::parse(frame)
            .filter(|flow| flow.is_to_group(frame) && !self.own.contains(&flow.src.ip()))
            .filter(|flow| meta.checksum != RxChecksum::Unknown || flow.is_checksum_valid());
        let Some(flow) = parsed else {
            return false;
        };
        let slots = steering.find_slots(Transport::Udp, flow.dst.port());
        self.lost_copies += push_all(&self.inboxes, slots, (frame, meta.link));
        slots != 0
    }

    /// Passes a fragment to the slots of its packet's first fragment, or keeps it until that
    /// arrives. Returns `None` if it is no fragment; else the frames for our own stack.
    pub(super) fn pass_fragment_on(
        &mut self,
        frame: &[u8],
        meta: RxMeta,
        now: u64,
    ) -> Option<Vec<Frame>> {
        let steering = self.steering.as_ref()?;
        let fragment = FrameFragment::parse(frame)?;
        let (slots, mut frames) = match fragment {
            // The sender named in an inbox message is trusted.
            FrameFragment::First(id, ..)
            | FrameFragment::Portless(id)
            | FrameFragment::Later(id)
                if !meta.local && self.own.contains(&id.src) =>
            {
                (0, Vec::new())
            }
            // The kernel has the packet too, and its address.
            FrameFragment::First(id, number, _, dst)
                if steering.is_kernel_port(proto_of(number), dst.port()) =>
            {
                self.fragment_routes.begin(id, 0, now);
                return Some(Vec::new());
            }
            FrameFragment::First(id, number, src, dst) => {
                let slots = match proto_of(number) {
                    Transport::Udp if is_group_frame(frame) => {
                        steering.find_slots(Transport::Udp, dst.port())
                    }
                    proto => 1 << steering.find_slot(proto, dst, src) & !1,
                };
                (slots, self.fragment_routes.begin(id, slots, now))
            }
            FrameFragment::Portless(id) => (0, self.fragment_routes.begin(id, 0, now)),
            FrameFragment::Later(id) => match self.fragment_routes.follow(id, frame, meta, now) {
                Some(slots) => (slots, Vec::new()),
                None => return Some(Vec::new()),
            },
        };
        frames.push((frame.to_vec(), meta));
        if slots == 0 {
            return Some(frames);
        }
        for (frame, meta) in frames {
            self.fragment_routes.lost += push_all(&self.inboxes, slots, (&frame, meta.link));
        }
        Some(Vec::new())
    }

    /// A frame for a socket on this machine: into the inbox of the engine that serves it.
    fn deliver(&mut self, frame: Vec<u8>) {
        let flow = find_flow(&frame).or_else(|| super::errors::quoted_flow(&frame));
        let slot = match (&self.steering, flow) {
            (Some(steering), Some(flow)) => steering.find_slot(flow.proto, flow.local, flow.remote),
            _ => 0,
        };
        if slot != 0 {
            let frame = &frame;
            self.inboxes
                .post(slot, &InboxMessage::Frame { link: 0, frame });
        } else if self.local.len() < LOCAL_MAX {
            self.local.push(frame);
        }
    }
}

/// Puts a frame into the inboxes of these slots, given as bits; how many had no room.
fn push_all(inboxes: &Inboxes, slots: SlotSet, (frame, link): (&[u8], u16)) -> u64 {
    let mut left = slots;
    let mut lost = 0;
    while left != 0 {
        let slot = left.trailing_zeros() as u16;
        lost += u64::from(!inboxes.post(slot, &InboxMessage::Frame { link, frame }));
        left &= left - 1;
    }
    lost
}

impl Effects for NetEffects {
    fn transmit(&mut self, frame: FrameOut<'_>) {
        let NetEffects {
            orphan_table,
            device,
            ..
        } = self;
        let payload = match frame.payload {
            Payload::None => [RawSlice::EMPTY; 2],
            Payload::Inline(bytes) => [RawSlice::of(bytes), RawSlice::EMPTY],
            Payload::Stream { conn, offset, len } => {
                match orphan_table.slices(conn, offset, len as usize) {
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
            let _ = transmit(&mut **device, frame.header, payload, frame.offload);
        }
    }

    /// An orphan's data is not read: it is dropped, which resets the connection as on the kernel.
    fn store(&mut self, conn: ConnId, offset: u64, bytes: &[u8]) -> bool {
        self.backlogs.store(conn, offset, bytes)
    }

    fn datagram(&mut self, _udp: UdpId, _datagram: &DatagramIn<'_>) {}

    fn event(&mut self, event: Event) {
        match event {
            Event::Neighbour { ip, mac } => self.publish(ip, mac),
            Event::Conflict { ip, mac } => {
                let [a, b, c, d, e, f] = mac;
                let mac = format_args!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
                warn!(%ip, %mac, "another station claims an address of ours");
            }
            // TIME-WAIT goes on in the stack.
            Event::Released { conn } => {
                self.orphan_table.on_released(conn);
                self.backlogs.on_released(conn);
            }
            Event::Failed { conn, reason } => self.backlogs.on_failed(conn, reason),
            Event::Accepted {
                listener,
                conn,
                local,
                remote,
                ..
            } => self.backlogs.on_accepted(listener, conn, (local, remote)),
            Event::Received { conn, upto } => self.backlogs.on_received(conn, upto),
            Event::Fin { conn } => self.backlogs.on_fin(conn),
            Event::Urgent { conn, at, byte } => self.backlogs.on_urgent(conn, at, byte),
            _ => {}
        }
    }

    fn stray(&mut self, ip: &IpMeta, segment: &[u8]) -> bool {
        self.send_stray(ip, segment)
    }

    fn stray_datagram(&mut self, datagram: &DatagramIn<'_>, is_to_group: bool) -> bool {
        self.on_stray_datagram(datagram, is_to_group)
    }
}

impl NetEffects {
    fn publish(&mut self, ip: IpAddr, mac: [u8; 6]) {
        self.neighbours.publish(ip, mac);
    }
}
