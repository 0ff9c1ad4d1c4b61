//! All slots of a device: opened once by the keeper, leased to engines, adopted by [`open_slot`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::backend::{Backend, Description};
use crate::device::{Device, Sink};
use crate::error::DeviceError;
use crate::ingress::{self, DropKind, IngressDrop};
use crate::kinds::find;
use crate::parts::{SlotLink, SlotParams, SlotParts, VLAN_MAX};
use crate::position::RingPosition;
use crate::steering::{SLOTS_MAX, Steering, maps};

/// Descriptors and own parameters of one slot.
#[derive(Debug)]
struct Slot {
    fds: Vec<OwnedFd>,
    own: serde_json::Value,
}

/// The keeper's half of a device. What it set up goes with its descriptors, in whatever processes
/// they are; only a clsact filter (old kernels) is removed by dropping this.
pub struct Slots {
    backend: &'static dyn Backend,
    name: String,
    index: u32,
    link: SlotLink,
    slots: Vec<Slot>,
    steering: Steering,
    held: Vec<OwnedFd>,
    drop: Option<IngressDrop>,
    needs_ingress_drop: bool,
    mode: Option<String>,
}

impl Slots {
    /// Opens all slots of a device.
    pub fn open(
        backend: &'static dyn Backend,
        description: &Description<'_>,
    ) -> Result<Slots, DeviceError> {
        check_count(description.slots)?;
        if description.vlan != 0 && !backend.capabilities().has_vlans {
            return Err(DeviceError::Unsuitable(format!(
                "a device of kind \"{}\" has no VLANs",
                backend.name()
            )));
        }
        let steering = Steering::create()?;
        let opened = backend.open(description, &steering)?;
        let vlan = description.vlan.min(VLAN_MAX);
        let slots = opened.slots.into_iter();
        Ok(Slots {
            backend,
            name: opened.name,
            index: opened.index,
            link: SlotLink {
                vlan,
                ..opened.link
            },
            slots: slots.map(|(fds, own)| Slot { fds, own }).collect(),
            steering,
            held: opened.held,
            drop: None,
            needs_ingress_drop: opened.needs_ingress_drop,
            mode: opened.mode,
        })
    }

    /// A device of a kind as `--device` names it, with rings of so many frames (0 = the default).
    ///
    /// # Errors
    /// There is no such kind, or it cannot be opened.
    pub fn of_kind(
        kind: &str,
        interface: &str,
        slots: u16,
        ring_frames: u32,
    ) -> Result<Slots, DeviceError> {
        let (backend, argument) = find(kind)?;
        Slots::open(
            backend,
            &Description {
                interface,
                argument,
                slots,
                ring_frames,
                vlan: 0,
            },
        )
    }

    /// Adopts one of the slots in this process.
    ///
    /// # Errors
    /// There is no such slot, or the kernel refuses a mapping.
    pub fn adopt(&self, slot: u16, position: RingPosition) -> Result<Box<dyn Device>, DeviceError> {
        let parts = self.parts(slot).map_err(|source| DeviceError::System {
            doing: "adopting a slot",
            source,
        })?;
        open_slot(parts, position)
    }

    /// Keeps frames for the stack's addresses ([`Steering::set_own`]) from the kernel.
    pub fn install_ingress_drop(&mut self) -> Result<DropKind, DeviceError> {
        if !self.needs_ingress_drop {
            return Ok(DropKind::None);
        }
        match ingress::install_tcx(maps(&self.steering)?, self.index) {
            Ok(drop) => {
                self.drop = Some(drop);
                Ok(DropKind::Tcx)
            }
            Err(_) => self.install_ingress_drop_by_filter(),
        }
    }

    /// The same in the way of kernels before 6.6.
    pub fn install_ingress_drop_by_filter(&mut self) -> Result<DropKind, DeviceError> {
        self.steering.beat(slipstack_mem::now_ns());
        self.drop = Some(ingress::install_clsact(maps(&self.steering)?, self.index)?);
        Ok(DropKind::Clsact)
    }

    /// How frames for the stack's addresses are kept from the kernel.
    pub fn drop_kind(&self) -> DropKind {
        match self.drop {
            Some(IngressDrop::Clsact { .. }) => DropKind::Clsact,
            Some(_) => DropKind::Tcx,
            None => DropKind::None,
        }
    }

    pub fn backend(&self) -> &'static dyn Backend {
        self.backend
    }

    /// How the device was opened, where its back end has several ways.
    pub fn mode(&self) -> Option<&str> {
        self.mode.as_deref()
    }

    /// Name of the interface.
    pub fn interface(&self) -> &str {
        &self.name
    }

    /// Its number in the kernel.
    pub fn interface_index(&self) -> u32 {
        self.index
    }

    pub fn link(&self) -> SlotLink {
        self.link
    }

    pub fn count(&self) -> u16 {
        // At most SLOTS_MAX.
        self.slots.len() as u16
    }

    /// What to pass to whoever leases the slot; `None`: there is no such slot.
    pub fn params(&self, slot: u16) -> Option<SlotParams> {
        let slot = self.slots.get(usize::from(slot))?;
        Some(SlotParams {
            backend: self.backend.name().to_owned(),
            link: self.link,
            own: slot.own.clone(),
        })
    }

    /// The descriptors to pass with [`Slots::params`].
    pub fn slot_fds(&self, slot: u16) -> impl Iterator<Item = BorrowedFd<'_>> {
        let slot = self.slots.get(usize::from(slot));
        slot.into_iter().flat_map(|slot| &slot.fds).map(AsFd::as_fd)
    }

    /// Both, as a copy.
    pub fn parts(&self, slot: u16) -> io::Result<SlotParts> {
        let params = self.params(slot).ok_or(io::ErrorKind::NotFound)?;
        let fds = self.slot_fds(slot).map(|fd| fd.try_clone_to_owned());
        Ok(SlotParts {
            params,
            fds: fds.collect::<io::Result<_>>()?,
        })
    }

    pub fn steering(&self) -> &Steering {
        &self.steering
    }

    /// Everything that keeps the device as it is while a process holds it.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let slots = self.slots.iter().flat_map(|slot| &slot.fds);
        let drop = self.drop.as_ref().and_then(IngressDrop::fd);
        slots
            .chain(&self.held)
            .map(AsFd::as_fd)
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
/// descriptors move out of the way of the program whose process this is.
pub fn open_slot(
    mut parts: SlotParts,
    position: RingPosition,
) -> Result<Box<dyn Device>, DeviceError> {
    let (backend, _) = find(&parts.params.backend)?;
    parts.fds = parts.fds.into_iter().map(slipstack_mem::raised).collect();
    backend.adopt(parts, position)
}

/// Shows what waits in a slot whose holder does not run at the moment; see [`crate::Backend::peek`].
///
/// # Errors
/// The parts do not fit together, or the kernel refuses a mapping.
pub fn peek_slot(
    parts: SlotParts,
    position: RingPosition,
    sink: &mut dyn Sink,
) -> Result<bool, DeviceError> {
    let (backend, _) = find(&parts.params.backend)?;
    backend.peek(parts, position, sink)
}

fn check_count(count: u16) -> Result<(), DeviceError> {
    if (1..=SLOTS_MAX).contains(&usize::from(count)) {
        return Ok(());
    }
    Err(DeviceError::OutOfRange {
        what: "number of slots",
        value: usize::from(count),
    })
}
