//! TAP as a back end: an interface that is made for the stack and removed with its keeper.

use std::os::fd::{AsFd, OwnedFd};

use slipstack_wire::RxMeta;

use super::TapSlot;
use crate::backend::{Backend, Capabilities, Description, DeviceKind, Opened, TagSupport};
use crate::device::{Device, Takes};
use crate::error::DeviceError;
use crate::iface;
use crate::kernel;
use crate::parts::{LinkProperties, SlotParts, TSO_MAX};
use crate::position::RingPosition;
use crate::steering::{Steering, load_steering};

/// Offset at which a TAP's steering program finds the network header.
const L3: i32 = 14;
/// Frames that are examined in a slot whose holder does not run.
const PEEK_MAX: usize = 1024;

/// The row of the table.
pub(crate) struct Tap;

impl Backend for Tap {
    fn kind(&self) -> &'static DeviceKind {
        &DeviceKind {
            name: "tap",
            title: "TAP",
            usage: "tap",
            takes_path: false,
            default_interface: Some("slip0"),
            capabilities: Capabilities {
                has_interface: true,
                makes_interface: true,
                is_heard: true,
                tags: TagSupport::All,
                ..Capabilities::NONE
            },
        }
    }

    /// Creates a TAP, which is down and has no address yet; the stack's own address on the link is
    /// derived from the kernel's.
    fn open(
        &self,
        description: &Description<'_>,
        steering: &Steering,
    ) -> Result<Opened, DeviceError> {
        let name = description.interface;
        iface::check_name(name)?;
        let slots = super::open_slots(name, description.slots)?;
        let link = iface::link(name)?;
        let program = load_steering(steering, L3)?;
        let attached = super::set_steering(slots[0].as_fd(), program.as_fd());
        attached.map_err(|source| {
            DeviceError::system("attaching the steering to a TAP", "CAP_NET_ADMIN", source)
        })?;
        Ok(Opened {
            index: link.index,
            name: link.name,
            link: LinkProperties {
                index: 0,
                mac: neighbour_of(link.mac),
                mtu: u16::try_from(link.mtu).unwrap_or(u16::MAX),
                tx_checksum: true,
                tso_max: TSO_MAX,
                udp_segmentation: kernel::cuts_datagrams(),
                vlan: 0,
            },
            slots: slots
                .into_iter()
                .map(|fd| (vec![fd], serde_json::Value::Null))
                .collect(),
            held: Vec::new(),
            needs_ingress_drop: false,
            mode: None,
            delivery: None,
        })
    }

    fn has_lost_interface(&self, fds: &[OwnedFd]) -> bool {
        fds.first()
            .is_some_and(|fd| !super::is_attached(fd.as_fd()))
    }

    fn adopt(
        &self,
        parts: SlotParts,
        _position: RingPosition,
    ) -> Result<Box<dyn Device>, DeviceError> {
        let [fd] = SlotParts::descriptors(parts.fds)?;
        Ok(Box::new(TapSlot::from_fd(fd, &parts.params.link)))
    }

    fn peek(
        &self,
        parts: SlotParts,
        position: RingPosition,
        takes: &mut Takes<'_>,
    ) -> Result<bool, DeviceError> {
        let mut sink = |frame: &[u8], meta: RxMeta| {
            takes(frame, meta);
        };
        self.adopt(parts, position)?.rx(PEEK_MAX, &mut sink);
        Ok(true)
    }
}

/// Returns an address for the stack on a link on which the kernel has `mac`: locally administered,
/// and the same for each call.
fn neighbour_of(mac: [u8; 6]) -> [u8; 6] {
    let [a, b, c, d, e, f] = mac;
    [(a | 0x02) & !0x01, b, c, d, e, f ^ 0x01]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_and_the_kernel_have_different_addresses_on_a_tap() {
        let mac = [0x5e, 1, 2, 3, 4, 5];
        assert_ne!(neighbour_of(mac), mac);
        assert_eq!(neighbour_of(mac)[0] & 3, 2);
    }
}
