//! All slots of a device: opened once by the keeper, leased to engines, adopted by [`open_slot`].

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::bpf::{programs, sys};
use crate::device::{Device, DeviceInfo};
use crate::error::DeviceError;
use crate::iface;
use crate::ingress::{self, DropKind, IngressDrop, load_program};
use crate::kernel;
use crate::packet::{self, PacketSlot, RingParams};
use crate::position::RingPosition;
use crate::steering::{SLOTS_MAX, Steering};
use crate::tap::{self, TapSlot};

/// Largest TCP payload of a frame that the kernel segments for us: 64 KiB with all headers.
const TSO_MAX: u32 = 65_535 - 20 - 60;
/// Where a TAP's steering program finds the network header.
const L3_OF_TAP: i32 = 14;
/// Where a fan-out program finds it.
const L3_OF_FANOUT: i32 = 0;

/// In a slot's first word: the device cuts joined datagrams apart.
const UDP_SEGMENTATION: u32 = 0x100;
/// IEEE 802.1Q 9.6: 4095 is reserved.
const VLAN_MAX: u16 = 4094;

/// Which back end a slot belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotKind {
    Tap,
    Packet,
}

/// What an engine must know of a slot beside its descriptor. Plain values, to be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotParams {
    pub kind: SlotKind,
    /// Address of the stack on the link.
    pub mac: [u8; 6],
    /// Largest IP packet.
    pub mtu: u16,
    pub tso_max: u32,
    /// The device cuts joined datagrams apart.
    pub udp_segmentation: bool,
    /// Number of the VLAN that the stack is in; 0 = frames without a tag. Of AF_PACKET alone.
    pub vlan: u16,
    /// Shape of the receive ring; all zero for a TAP.
    pub ring: RingParams,
}

impl SlotParams {
    /// As words, for a message.
    pub fn to_words(&self) -> [u32; 8] {
        let [a, b, c, d, e, f] = self.mac;
        [
            match self.kind {
                SlotKind::Tap => 1,
                SlotKind::Packet => 2,
            } | if self.udp_segmentation {
                UDP_SEGMENTATION
            } else {
                0
            },
            u32::from_be_bytes([a, b, c, d]),
            u32::from(self.vlan) << 16 | u32::from_be_bytes([0, 0, e, f]),
            u32::from(self.mtu),
            self.tso_max,
            self.ring.frame_size,
            self.ring.frame_count,
            self.ring.block_size,
        ]
    }

    /// `None` for words that [`SlotParams::to_words`] does not make.
    pub fn from_words(words: &[u32; 8]) -> Option<SlotParams> {
        let [
            kind,
            high,
            low,
            mtu,
            tso_max,
            frame_size,
            frame_count,
            block_size,
        ] = *words;
        let [a, b, c, d] = high.to_be_bytes();
        let [vlan @ .., e, f] = low.to_be_bytes();
        let vlan = u16::from_be_bytes(vlan);
        if vlan > VLAN_MAX {
            return None;
        }
        Some(SlotParams {
            kind: match kind & !UDP_SEGMENTATION {
                1 => SlotKind::Tap,
                2 => SlotKind::Packet,
                _ => return None,
            },
            mac: [a, b, c, d, e, f],
            mtu: u16::try_from(mtu).ok()?,
            tso_max,
            udp_segmentation: kind & UDP_SEGMENTATION != 0,
            vlan,
            ring: RingParams {
                frame_size,
                frame_count,
                block_size,
            },
        })
    }
}

/// The keeper's half of a device. What it set up goes with its descriptors, in whatever processes
/// they are; only a clsact filter (old kernels) is removed by dropping this.
#[derive(Debug)]
pub struct Slots {
    name: String,
    index: u32,
    params: SlotParams,
    slots: Vec<OwnedFd>,
    steering: Steering,
    drop: Option<IngressDrop>,
}

impl Slots {
    /// Creates a TAP with `count` queues. It is down and has no address yet; the stack's own
    /// address on the link is derived from the kernel's.
    pub fn open_tap(name: &str, count: u16) -> Result<Slots, DeviceError> {
        iface::check_name(name)?;
        let count = check_count(count)?;
        let slots = tap::open_slots(name, count)?;
        let link = iface::link(name)?;
        let steering = Steering::create()?;
        let program = load_steering(&steering, L3_OF_TAP)?;
        let attached = tap::set_steering(slots[0].as_fd(), program.as_fd());
        attached.map_err(|source| {
            DeviceError::system("attaching the steering to a TAP", "CAP_NET_ADMIN", source)
        })?;
        let params = SlotParams {
            kind: SlotKind::Tap,
            mac: neighbour_of(link.mac),
            mtu: u16::try_from(link.mtu).unwrap_or(u16::MAX),
            tso_max: TSO_MAX,
            udp_segmentation: kernel::cuts_datagrams(),
            vlan: 0,
            ring: RingParams::default(),
        };
        Ok(Slots {
            name: name.to_owned(),
            index: link.index,
            params,
            slots,
            steering,
            drop: None,
        })
    }

    /// Opens `count` fan-out members on an existing interface, which must be up. `ring_frames` is
    /// the length of each receive ring; 0 = 2048.
    pub fn open_packet(name: &str, count: u16, ring_frames: u32) -> Result<Slots, DeviceError> {
        let link = iface::usable(name)?;
        let count = check_count(count)?;
        let mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
        let (slots, ring) = packet::open_slots(link.index, mtu, count, ring_frames)?;
        let steering = Steering::create()?;
        let failed = |source| {
            DeviceError::system(
                "attaching the steering to packet sockets",
                "CAP_NET_RAW",
                source,
            )
        };
        let program = load_steering(&steering, L3_OF_FANOUT)?;
        packet::set_fanout_program(slots[0].as_fd(), program.as_fd()).map_err(failed)?;
        let [table, ..] = writable(&steering)?;
        let code = programs::keeper_filter(table);
        let filter = load_program("slip_filter", sys::PROG_SOCKET_FILTER, 0, &code)?;
        for (slot, fd) in slots.iter().enumerate() {
            let filter = (slot == 0).then_some(filter.as_fd());
            packet::attach_filter(fd.as_fd(), filter).map_err(failed)?;
        }
        let params = SlotParams {
            kind: SlotKind::Packet,
            mac: link.mac,
            mtu,
            tso_max: TSO_MAX,
            udp_segmentation: kernel::cuts_datagrams(),
            vlan: 0,
            ring,
        };
        Ok(Slots {
            name: link.name,
            index: link.index,
            params,
            slots,
            steering,
            drop: None,
        })
    }

    /// Keeps frames for the stack's addresses ([`Steering::set_own`]) from the kernel.
    pub fn install_ingress_drop(&mut self) -> Result<DropKind, DeviceError> {
        if self.params.kind == SlotKind::Tap {
            return Ok(DropKind::None);
        }
        let [table, ..] = writable(&self.steering)?;
        match ingress::install_tcx(table, self.index) {
            Ok(drop) => {
                self.drop = Some(drop);
                Ok(DropKind::Tcx)
            }
            Err(_) => self.install_ingress_drop_by_filter(),
        }
    }

    /// The same in the way of kernels before 6.6.
    pub fn install_ingress_drop_by_filter(&mut self) -> Result<DropKind, DeviceError> {
        let [table, ..] = writable(&self.steering)?;
        self.steering.beat(slipstack_mem::now_ns());
        self.drop = Some(ingress::install_clsact(table, self.index)?);
        Ok(DropKind::Clsact)
    }

    /// Name of the interface.
    pub fn interface(&self) -> &str {
        &self.name
    }

    /// Its number in the kernel.
    pub fn interface_index(&self) -> u32 {
        self.index
    }

    /// Slots that are adopted from now on are in this VLAN (1 to 4094), or with 0 in none.
    pub fn set_vlan(&mut self, vlan: u16) {
        self.params.vlan = vlan.min(VLAN_MAX);
    }

    pub fn params(&self) -> SlotParams {
        self.params
    }

    pub fn count(&self) -> u16 {
        // At most SLOTS_MAX.
        self.slots.len() as u16
    }

    /// The descriptor to pass to whoever leases the slot.
    pub fn slot_fd(&self, slot: u16) -> Option<BorrowedFd<'_>> {
        self.slots.get(usize::from(slot)).map(AsFd::as_fd)
    }

    pub fn steering(&self) -> &Steering {
        &self.steering
    }

    /// Everything that keeps the device as it is while a process holds it.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let slots = self.slots.iter().map(AsFd::as_fd);
        let drop = self.drop.as_ref().and_then(IngressDrop::fd);
        slots
            .chain(self.steering.fds().into_iter().flatten())
            .chain(drop)
            .map(|fd| fd.as_raw_fd())
            .collect()
    }

    /// Whether [`Slots::beat`] must be called at least every 250 ms.
    pub fn needs_beat(&self) -> bool {
        matches!(self.drop, Some(IngressDrop::Clsact { .. }))
    }

    /// Tells the ingress drop that its keeper lives.
    pub fn beat(&self, now_ns: u64) {
        self.steering.beat(now_ns);
    }

    /// Lets go of the descriptors and undoes nothing: for a copy of a keeper that lives on.
    pub fn leave(mut self) {
        self.drop = None;
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if let Some(drop) = &self.drop {
            drop.remove();
        }
    }
}

/// Adopts a slot, where its last holder stopped. Needs no privilege. A slot has one holder at a
/// time who receives; `position` is the word that belongs to the slot (a TAP has none to keep). The
/// descriptor moves out of the way of the program whose process this is.
pub fn open_slot(
    fd: OwnedFd,
    params: &SlotParams,
    position: RingPosition,
) -> Result<Box<dyn Device>, DeviceError> {
    let fd = slipstack_mem::raised(fd);
    let info = DeviceInfo {
        mac: params.mac,
        mtu: params.mtu,
        tx_checksum: true,
        tso_max: params.tso_max,
        udp_segmentation: params.udp_segmentation,
    };
    Ok(match params.kind {
        SlotKind::Tap => Box::new(TapSlot::from_fd(fd, info)),
        SlotKind::Packet => Box::new(PacketSlot::from_fd(fd, info, params, position)?),
    })
}

fn check_count(count: u16) -> Result<u16, DeviceError> {
    if (1..=SLOTS_MAX).contains(&usize::from(count)) {
        return Ok(count);
    }
    Err(DeviceError::OutOfRange {
        what: "number of slots",
        value: usize::from(count),
    })
}

fn writable(steering: &Steering) -> Result<[BorrowedFd<'_>; 3], DeviceError> {
    steering.fds().ok_or(DeviceError::ReadOnly)
}

fn load_steering(steering: &Steering, l3: i32) -> Result<OwnedFd, DeviceError> {
    let [table, exceptions, _] = writable(steering)?;
    let code = programs::steering(table, exceptions, l3);
    load_program("slip_steer", sys::PROG_SOCKET_FILTER, 0, &code)
}

/// An address for the stack on a link of which the kernel has `mac`: locally administered, and the
/// same whenever it is asked for.
fn neighbour_of(mac: [u8; 6]) -> [u8; 6] {
    let [a, b, c, d, e, f] = mac;
    [(a | 0x02) & !0x01, b, c, d, e, f ^ 0x01]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_survive_a_message_and_nonsense_does_not() {
        let params = SlotParams {
            kind: SlotKind::Packet,
            mac: [2, 3, 4, 5, 6, 7],
            mtu: 1500,
            tso_max: TSO_MAX,
            udp_segmentation: true,
            vlan: 7,
            ring: RingParams {
                frame_size: 2048,
                frame_count: 2048,
                block_size: 65_536,
            },
        };
        let words = params.to_words();
        assert_eq!(SlotParams::from_words(&words), Some(params));
        for (at, value) in [(0, 3), (0, 0x101 + 2), (2, 0xfff << 16), (3, 65_536)] {
            let mut bad = words;
            bad[at] = value;
            assert_eq!(SlotParams::from_words(&bad), None);
        }
    }

    #[test]
    fn the_stack_and_the_kernel_have_different_addresses_on_a_tap() {
        let mac = [0x5e, 1, 2, 3, 4, 5];
        assert_ne!(neighbour_of(mac), mac);
        assert_eq!(neighbour_of(mac)[0] & 3, 2);
    }
}
