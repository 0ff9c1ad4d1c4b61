//! AF_PACKET as a back end: an interface that the kernel uses too.

use std::os::fd::{AsFd, OwnedFd};

use super::{PacketSlot, RingParams, open, receive};
use crate::backend::{Backend, Capabilities, Description, DeviceKind, Opened, TagSupport};
use crate::bpf::{filters, sys};
use crate::device::{Device, Takes};
use crate::error::DeviceError;
use crate::iface::{self, KernelInterface};
use crate::ingress::load_program;
use crate::kernel;
use crate::parts::{LinkProperties, SlotParts, TSO_MAX, own_value};
use crate::position::RingPosition;
use crate::steering::{Steering, load_steering, maps};

/// Offset at which a fan-out program finds the network header.
const L3: i32 = 0;

/// The row of the table.
pub(crate) struct Packet;

impl Backend for Packet {
    fn kind(&self) -> &'static DeviceKind {
        &DeviceKind {
            name: "packet",
            title: "interface",
            usage: "packet (AF_PACKET on --if)",
            takes_path: false,
            default_interface: None,
            capabilities: Capabilities {
                has_interface: true,
                is_heard: true,
                has_neighbours: true,
                has_vlans: true,
                tags: TagSupport::All,
                ..Capabilities::NONE
            },
        }
    }

    /// Opens fan-out members on an existing interface, which must be up.
    fn open(
        &self,
        description: &Description<'_>,
        steering: &Steering,
    ) -> Result<Opened, DeviceError> {
        let link = iface::usable(description.interface)?;
        let (slots, ring) = open_members(&link, description, steering)?;
        let own = own_value(&ring);
        Ok(Opened {
            index: link.index,
            link: shared_link(&link),
            name: link.name,
            slots: slots
                .into_iter()
                .map(|fd| (vec![fd], own.clone()))
                .collect(),
            held: Vec::new(),
            needs_ingress_drop: true,
            mode: None,
            delivery: None,
        })
    }

    fn adopt(
        &self,
        parts: SlotParts,
        position: RingPosition,
    ) -> Result<Box<dyn Device>, DeviceError> {
        let ring: RingParams = parts.params.own()?;
        let [fd] = SlotParts::descriptors(parts.fds)?;
        let slot = PacketSlot::from_fd(fd, &parts.params.link, ring, position)?;
        Ok(Box::new(slot))
    }

    fn peek(
        &self,
        parts: SlotParts,
        position: RingPosition,
        takes: &mut Takes<'_>,
    ) -> Result<bool, DeviceError> {
        let ring: RingParams = parts.params.own()?;
        let [fd] = SlotParts::descriptors(parts.fds)?;
        let vlan = parts.params.link.vlan;
        receive::peek(fd.as_fd(), ring, vlan, position, takes)
            .map_err(|source| DeviceError::system("mapping a ring", "CAP_NET_RAW", source))?;
        Ok(false)
    }
}

/// The stack's side of an interface that it shares with the kernel.
pub(crate) fn shared_link(link: &KernelInterface) -> LinkProperties {
    LinkProperties {
        index: 0,
        mac: link.mac,
        mtu: u16::try_from(link.mtu).unwrap_or(u16::MAX),
        tx_checksum: true,
        tso_max: TSO_MAX,
        udp_segmentation: kernel::cuts_datagrams(),
        vlan: 0,
    }
}

/// The sockets of all slots with the steering among them, and the shape of their rings.
pub(crate) fn open_members(
    link: &KernelInterface,
    description: &Description<'_>,
    steering: &Steering,
) -> Result<(Vec<OwnedFd>, RingParams), DeviceError> {
    let mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
    let (slots, ring) = open::open_slots(link.index, mtu, description.slots)?;
    let failed = |source| {
        DeviceError::system(
            "attaching the steering to packet sockets",
            "CAP_NET_RAW",
            source,
        )
    };
    let program = load_steering(steering, L3)?;
    open::set_fanout_program(slots[0].as_fd(), program.as_fd()).map_err(failed)?;
    let code = filters::keeper_filter(maps(steering)?);
    let filter = load_program("slip_filter", sys::PROG_SOCKET_FILTER, 0, &code)?;
    for (slot, fd) in slots.iter().enumerate() {
        let filter = (slot == 0).then_some(filter.as_fd());
        open::attach_filter(fd.as_fd(), filter).map_err(failed)?;
    }
    Ok((slots, ring))
}
