//! All slots of a device: opened once by the keeper, leased to engines, adopted by [`open_slot`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use slipstack_wire::LinkId;

use crate::backend::{Backend, Description, Opened, PortSettings};
use crate::device::{Device, Sink};
use crate::error::DeviceError;
use crate::ingress::{self, DropKind, IngressDrop};
use crate::joined::{Joined, JoinedPart, join};
use crate::kinds::{find, find_any};
use crate::packet;
use crate::parts::{LinkProperties, SlotParams, SlotParts, VLAN_MAX};
use crate::position::RingPosition;
use crate::steering::{Rule, SLOTS_MAX, Steering, maps};

/// Interfaces of a device.
pub const PORTS_MAX: usize = LinkId::PORTS_MAX;

/// Descriptors and own parameters of one slot.
#[derive(Debug)]
struct Slot {
    fds: Vec<OwnedFd>,
    own: serde_json::Value,
}

/// The part of a description that an opened device does not tell.
struct Again {
    argument: Option<String>,
    ring_frames: u32,
    settings: PortSettings,
}

/// One interface of a device.
struct Port {
    name: String,
    index: u32,
    link: LinkProperties,
    drop: Option<IngressDrop>,
    needs_ingress_drop: bool,
}

/// The keeper's half of a device. The kernel undoes its set-up when the last descriptor of it is
/// closed, in whichever process; only a clsact filter (old kernels) is removed by dropping this.
pub struct Slots {
    /// That of every port.
    backend: &'static dyn Backend,
    /// That which adopts a slot of all ports.
    adopts: &'static dyn Backend,
    /// At least one.
    ports: Vec<Port>,
    link: LinkProperties,
    slots: Vec<Slot>,
    steering: Steering,
    held: Vec<OwnedFd>,
    mode: Option<String>,
    delivery: Option<String>,
    /// How a device of one port is opened again.
    again: Option<Again>,
    /// Others have the device: nothing of it is undone here.
    is_left: bool,
}

impl Slots {
    /// Opens all slots of a device.
    pub fn open(
        backend: &'static dyn Backend,
        description: &Description<'_>,
    ) -> Result<Slots, DeviceError> {
        Slots::open_ports(backend, core::slice::from_ref(description), None)
    }

    /// Opens all slots of a device with several interfaces of one kind, whose numbers of slots are
    /// alike: each slot is made of a slot of every interface. `rule`: what chooses engines for new
    /// flows in place of the hash.
    ///
    /// # Errors
    /// One of them cannot be opened, or devices of this kind cannot be combined.
    pub fn open_ports(
        backend: &'static dyn Backend,
        descriptions: &[Description<'_>],
        rule: Option<Rule>,
    ) -> Result<Slots, DeviceError> {
        check_ports(backend, descriptions)?;
        if rule.is_some() && !backend.capabilities().has_interface {
            return Err(DeviceError::Unsuitable(format!(
                "--spread turns, table and program are rules of the kernel's, which does not see \
                 the frames of a device of kind \"{}\": use hash, port or shares",
                backend.name()
            )));
        }
        let steering = Steering::create(rule)?;
        let mut opened = Vec::new();
        for description in descriptions {
            opened.push(open_port(backend, description, &steering)?);
        }
        Ok(match <[Opened; 1]>::try_from(opened) {
            Ok([alone]) => {
                let mut slots = Slots::of_one(backend, alone, steering);
                slots.again = descriptions.first().map(|it| Again {
                    argument: it.argument.map(str::to_owned),
                    ring_frames: it.ring_frames,
                    settings: it.settings,
                });
                slots
            }
            Err(several) => Slots::of_several(backend, several, steering)?,
        })
    }

    fn of_one(backend: &'static dyn Backend, opened: Opened, steering: Steering) -> Slots {
        let port = Port::of(&opened);
        let slots = opened.slots.into_iter();
        Slots {
            backend,
            adopts: backend,
            ports: vec![port],
            link: opened.link,
            slots: slots.map(|(fds, own)| Slot { fds, own }).collect(),
            steering,
            held: opened.held,
            mode: opened.mode,
            delivery: opened.delivery,
            again: None,
            is_left: false,
        }
    }

    fn of_several(
        backend: &'static dyn Backend,
        opened: Vec<Opened>,
        steering: Steering,
    ) -> Result<Slots, DeviceError> {
        let ports = opened.iter().map(Port::of).collect();
        let mode = opened.first().and_then(|port| port.mode.clone());
        let mut held = Vec::new();
        // By slot: the parts of every port.
        let mut slots: Vec<(Vec<OwnedFd>, Vec<JoinedPart>)> = Vec::new();
        for port in opened {
            held.extend(port.held);
            slots.resize_with(port.slots.len(), Default::default);
            for (slot, (fds, own)) in slots.iter_mut().zip(port.slots) {
                slot.1.push(JoinedPart {
                    backend: backend.name().to_owned(),
                    link: port.link,
                    own,
                    fds: fds.len(),
                });
                slot.0.extend(fds);
            }
        }
        let mut link = None;
        let mut joined = Vec::new();
        for (fds, parts) in slots {
            let none = DeviceError::BadParameters("a device has at least one port");
            let (common, own) = join(&parts).ok_or(none)?;
            link.get_or_insert(common);
            joined.push(Slot { fds, own });
        }
        Ok(Slots {
            backend,
            adopts: &Joined,
            ports,
            link: link.ok_or(DeviceError::BadParameters("a device has at least one slot"))?,
            slots: joined,
            steering,
            held,
            mode,
            delivery: None,
            again: None,
            is_left: false,
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
                ..Description::default()
            },
        )
    }

    /// Opens the interface again that was deleted and made again under its name. Slots keep their
    /// numbers and the steering holds; their descriptors are others.
    ///
    /// # Errors
    /// It cannot be opened, or is one of several: everything stays as it is.
    pub fn reopen(&mut self) -> Result<(), DeviceError> {
        let (Some(again), Some(port)) = (&self.again, self.ports.first()) else {
            return Err(DeviceError::Unsuitable(
                "one of several interfaces is not opened again".to_owned(),
            ));
        };
        let opened = open_port(
            self.backend,
            &Description {
                interface: &port.name,
                argument: again.argument.as_deref(),
                slots: self.count(),
                ring_frames: again.ring_frames,
                vlan: port.link.vlan,
                settings: again.settings,
            },
            &self.steering,
        )?;
        // Ports and programs of the former interface have gone with it.
        self.ports = vec![Port::of(&opened)];
        self.link = opened.link;
        let slots = opened.slots.into_iter();
        self.slots = slots.map(|(fds, own)| Slot { fds, own }).collect();
        self.held = opened.held;
        self.mode = opened.mode;
        self.delivery = opened.delivery;
        self.install_ingress_drop().map(drop)
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
        let mut kind = DropKind::None;
        for port in self.ports.iter_mut().filter(|port| port.needs_ingress_drop) {
            let index = port.index;
            match ingress::install_tcx(maps(&self.steering)?, index) {
                Ok(drop) => {
                    port.drop = Some(drop);
                    kind = DropKind::Tcx;
                }
                Err(_) => return self.install_ingress_drop_by_filter(),
            }
        }
        Ok(kind)
    }

    /// Installs the ingress drop as a clsact filter, for kernels before 6.6.
    pub fn install_ingress_drop_by_filter(&mut self) -> Result<DropKind, DeviceError> {
        self.steering.beat(slipstack_mem::now_ns());
        for port in self.ports.iter_mut().filter(|port| port.needs_ingress_drop) {
            port.drop = Some(ingress::install_clsact(maps(&self.steering)?, port.index)?);
        }
        Ok(DropKind::Clsact)
    }

    /// How frames for the stack's addresses are kept from the kernel.
    pub fn drop_kind(&self) -> DropKind {
        let mut drops = self.ports.iter().filter_map(|port| port.drop.as_ref());
        match drops.next() {
            Some(IngressDrop::Clsact { .. }) => DropKind::Clsact,
            Some(IngressDrop::Tcx(_)) => DropKind::Tcx,
            None => DropKind::None,
        }
    }

    /// The kind of the device, which all its ports have.
    pub fn backend(&self) -> &'static dyn Backend {
        self.backend
    }

    /// Returns how the device was opened, if its back end has several ways.
    pub fn mode(&self) -> Option<&str> {
        self.mode.as_deref()
    }

    /// Returns how received flows come to queues, if the device has several, as a sentence.
    pub fn delivery(&self) -> Option<&str> {
        self.delivery.as_deref()
    }

    /// Name of the first interface.
    pub fn interface(&self) -> &str {
        &self.ports[0].name
    }

    /// Returns the kernel's numbers of all interfaces with the properties of their links, in the
    /// order of the ports.
    pub fn ports(&self) -> impl Iterator<Item = (u32, LinkProperties)> + '_ {
        self.ports.iter().map(|port| (port.index, port.link))
    }

    pub fn link(&self) -> LinkProperties {
        self.link
    }

    pub fn count(&self) -> u16 {
        // At most SLOTS_MAX.
        self.slots.len() as u16
    }

    /// Returns the parameters for the process that leases the slot; `None` if there is no such
    /// slot.
    pub fn params(&self, slot: u16) -> Option<SlotParams> {
        let slot = self.slots.get(usize::from(slot))?;
        Some(SlotParams {
            backend: self.adopts.name().to_owned(),
            link: self.link,
            own: slot.own.clone(),
        })
    }

    /// The descriptors to pass with [`Slots::params`].
    pub fn slot_fds(&self, slot: u16) -> impl Iterator<Item = BorrowedFd<'_>> {
        let slot = self.slots.get(usize::from(slot));
        slot.into_iter().flat_map(|slot| &slot.fds).map(AsFd::as_fd)
    }

    /// Those of the descriptors that are readable while frames wait in the slot.
    pub fn waiting_fds(&self, slot: u16) -> impl Iterator<Item = BorrowedFd<'_>> {
        let slot = self.slots.get(usize::from(slot)).into_iter();
        slot.flat_map(|slot| {
            let places = self.adopts.waits_at(&slot.own).into_iter();
            places.filter_map(|at| slot.fds.get(at).map(AsFd::as_fd))
        })
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
        let drops = self.ports.iter().filter_map(|port| port.drop.as_ref());
        slots
            .chain(&self.held)
            .map(AsFd::as_fd)
            .chain(self.steering.fds().into_iter().flatten())
            .chain(self.steering.rule_fds())
            .chain(drops.filter_map(IngressDrop::fd))
            .map(|fd| fd.as_raw_fd())
            .collect()
    }

    /// Returns whether [`Slots::beat`] must be called at least every 250 ms.
    pub fn needs_beat(&self) -> bool {
        let is_clsact = |port: &Port| matches!(port.drop, Some(IngressDrop::Clsact { .. }));
        self.ports.iter().any(is_clsact)
    }

    /// Tells the ingress drop that its keeper lives.
    pub fn beat(&self, now_ns: u64) {
        self.steering.beat(now_ns);
    }

    /// Lets go of the descriptors and undoes nothing: for a copy of a keeper that lives on.
    pub fn leave(mut self) {
        self.is_left = true;
    }
}

impl Port {
    fn of(opened: &Opened) -> Port {
        Port {
            name: opened.name.clone(),
            index: opened.index,
            link: opened.link,
            drop: None,
            needs_ingress_drop: opened.needs_ingress_drop,
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        for drop in self.ports.iter().filter_map(|port| port.drop.as_ref()) {
            drop.remove();
        }
        if let Some(first) = self.slots.first() {
            self.adopts.clean_up(&first.own);
        }
    }
}

/// Adopts a slot, where its last holder stopped. Needs no privilege. A slot has one receiving
/// holder at a time; `position` is the word that belongs to the slot (a TAP has none to keep). The
/// descriptors are moved to numbers that do not disturb the program.
pub fn open_slot(
    mut parts: SlotParts,
    position: RingPosition,
) -> Result<Box<dyn Device>, DeviceError> {
    let backend = find_any(&parts.params.backend)?;
    parts.fds = parts.fds.into_iter().map(slipstack_mem::raised).collect();
    backend.adopt(parts, position)
}

/// Shows the frames that wait in a slot whose holder does not run at the moment; see
/// [`crate::Backend::peek`].
///
/// # Errors
/// The parts do not fit together, or the kernel refuses a mapping.
pub fn peek_slot(
    parts: SlotParts,
    position: RingPosition,
    sink: &mut dyn Sink,
) -> Result<bool, DeviceError> {
    let backend = find_any(&parts.params.backend)?;
    backend.peek(parts, position, sink)
}

/// Opens one interface as it is described.
fn open_port(
    backend: &'static dyn Backend,
    description: &Description<'_>,
    steering: &Steering,
) -> Result<Opened, DeviceError> {
    let mut port = backend.open(description, steering)?;
    port.link.vlan = description.vlan.min(VLAN_MAX);
    port.link.limit(description.settings);
    if description.settings.is_promiscuous {
        let heard = packet::hear_all(port.index);
        let failed =
            |source| DeviceError::system("making the interface promiscuous", "CAP_NET_RAW", source);
        port.held.push(heard.map_err(failed)?);
    }
    Ok(port)
}

/// Refuses combinations that no device of this kind supports.
fn check_ports(
    backend: &'static dyn Backend,
    descriptions: &[Description<'_>],
) -> Result<(), DeviceError> {
    let (is, name) = (backend.capabilities(), backend.name());
    if descriptions.len() > 1 && (!is.has_interface || is.makes_interface) {
        return Err(DeviceError::Unsuitable(format!(
            "a device of kind \"{name}\" has one port; several need interfaces that exist, by \
             --device packet or xdp"
        )));
    }
    if !(1..=PORTS_MAX).contains(&descriptions.len()) {
        return Err(DeviceError::OutOfRange {
            what: "number of interfaces",
            value: descriptions.len(),
        });
    }
    for description in descriptions {
        check_count(description.slots)?;
        if description.settings.is_promiscuous && !is.takes_interface() {
            return Err(DeviceError::Unsuitable(format!(
                "--promiscuous is for interfaces of the kernel's; a device of kind \"{name}\" \
                 has its own setting, or hears all frames"
            )));
        }
        if description.vlan != 0 && !is.has_vlans {
            return Err(DeviceError::Unsuitable(format!(
                "a device of kind \"{name}\" has no VLANs"
            )));
        }
    }
    Ok(())
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
