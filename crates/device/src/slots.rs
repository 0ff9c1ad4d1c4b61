//! All slots of a device: opened once by the keeper, leased to engines, adopted by [`open_slot`].

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use slipstack_wire::LinkId;

use crate::backend::{Backend, Description};
use crate::device::{Device, Takes};
use crate::error::DeviceError;
use crate::ingress::{self, DropKind, IngressDrop};
use crate::joined::{Joined, JoinedPart, join};
use crate::kinds::{find, find_any};
use crate::opened::OpenedPort;
use crate::parts::{LinkProperties, SlotParams, SlotParts};
use crate::position::RingPosition;
use crate::steering::{Rule, SLOTS_MAX, Steering, maps};

/// Interfaces of a device.
pub const PORTS_MAX: usize = LinkId::PORTS_MAX;

/// The keeper's half of a device. The kernel undoes its set-up when the last descriptor of it is
/// closed, in whichever process; only a clsact filter (old kernels) is removed by dropping this.
pub struct Slots {
    /// The back end of every port.
    backend: &'static dyn Backend,
    /// The back end that adopts a slot of all ports.
    adopts: &'static dyn Backend,
    /// At least one, each with the same number of slots.
    ports: Vec<OpenedPort>,
    link: LinkProperties,
    /// Own parameters of each slot.
    own: Vec<serde_json::Value>,
    steering: Steering,
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
        let mut ports = Vec::new();
        for description in descriptions {
            ports.push(OpenedPort::open(backend, description, &steering)?);
        }
        let (link, own) = common(backend, &ports)?;
        Ok(Slots {
            backend,
            adopts: if ports.len() == 1 { backend } else { &Joined },
            ports,
            link,
            own,
            steering,
            is_left: false,
        })
    }

    /// A device of a kind as `--device` names it.
    ///
    /// # Errors
    /// There is no such kind, or it cannot be opened.
    pub fn of_kind(kind: &str, interface: &str, slots: u16) -> Result<Slots, DeviceError> {
        let (backend, argument) = find(kind)?;
        Slots::open(
            backend,
            &Description {
                interface,
                argument,
                slots,
                ..Description::default()
            },
        )
    }

    /// Opens one of the interfaces again that was deleted and made again under its name, or that
    /// the device makes itself. Slots keep their numbers and the steering holds; their descriptors
    /// for this interface are others.
    ///
    /// # Errors
    /// It cannot be opened: everything stays as it is.
    pub fn reopen(&mut self, port: usize) -> Result<(), DeviceError> {
        let count = self.count();
        let no_port = DeviceError::BadParameters("the device has no such interface");
        let former = self.ports.get_mut(port).ok_or(no_port)?;
        // The programs of the former interface have gone with it.
        *former = former.again(self.backend, count, &self.steering)?;
        (self.link, self.own) = common(self.backend, &self.ports)?;
        self.install_ingress_drop().map(drop)
    }

    /// Returns whether the interface that this device made has been deleted.
    pub fn has_lost_own(&self) -> bool {
        let first = self.ports.first().and_then(|port| port.slots.first());
        self.backend.capabilities().makes_interface
            && first.is_some_and(|(fds, _)| self.backend.has_lost_interface(fds))
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
        for port in self.ports.iter_mut().filter(|port| port.wants_drop()) {
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
        for port in self.ports.iter_mut().filter(|port| port.wants_drop()) {
            port.drop = Some(ingress::install_clsact(maps(&self.steering)?, port.index)?);
        }
        Ok(DropKind::Clsact)
    }

    /// Means by which frames for the stack's addresses are kept from the kernel.
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
        self.ports.first()?.mode.as_deref()
    }

    /// Returns how received flows come to queues, if the device has several, as a sentence for each
    /// interface.
    pub fn delivery(&self) -> Option<String> {
        let told = self.ports.iter().filter_map(|port| {
            let delivery = port.delivery.as_deref()?;
            Some(match self.ports.len() {
                1 => delivery.to_owned(),
                _ => format!("{}: {delivery}", port.name),
            })
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join("; "))
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
        self.own.len() as u16
    }

    /// Returns the parameters for the process that leases the slot; `None` if there is no such
    /// slot.
    pub fn params(&self, slot: u16) -> Option<SlotParams> {
        let own = self.own.get(usize::from(slot))?;
        Some(SlotParams {
            backend: self.adopts.name().to_owned(),
            link: self.link,
            own: own.clone(),
        })
    }

    /// The descriptors to pass with [`Slots::params`].
    pub fn slot_fds(&self, slot: u16) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.fds_of(slot).map(AsFd::as_fd)
    }

    /// The slot's descriptors at every port, in the order of the ports.
    fn fds_of(&self, slot: u16) -> impl Iterator<Item = &OwnedFd> {
        let parts = self
            .ports
            .iter()
            .filter_map(move |port| port.slots.get(usize::from(slot)));
        parts.flat_map(|(fds, _)| fds)
    }

    /// Returns the descriptors that are readable while frames wait in the slot.
    pub fn waiting_fds(&self, slot: u16) -> impl Iterator<Item = BorrowedFd<'_>> {
        let own = self.own.get(usize::from(slot));
        let places = own.map(|own| self.adopts.waits_at(own)).unwrap_or_default();
        let at = move |place: usize| self.fds_of(slot).nth(place).map(AsFd::as_fd);
        places.into_iter().filter_map(at)
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
        let ports = self.ports.iter();
        let slots =
            ports.flat_map(|port| port.slots.iter().flat_map(|(fds, _)| fds).chain(&port.held));
        let drops = self.ports.iter().filter_map(|port| port.drop.as_ref());
        slots
            .map(AsFd::as_fd)
            .chain(self.steering.fds().into_iter().flatten())
            .chain(self.steering.rule_fds())
            .chain(drops.filter_map(IngressDrop::fd))
            .map(|fd| fd.as_raw_fd())
            .collect()
    }

    /// Returns whether [`Slots::beat`] must be called at least every 250 ms.
    pub fn needs_beat(&self) -> bool {
        let is_clsact = |port: &OpenedPort| matches!(port.drop, Some(IngressDrop::Clsact { .. }));
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

impl Drop for Slots {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        for drop in self.ports.iter().filter_map(|port| port.drop.as_ref()) {
            drop.remove();
        }
        if let Some(own) = self.own.first() {
            self.adopts.clean_up(own);
        }
    }
}

/// Adopts a slot, where its last holder stopped. Needs no privilege. A slot has one receiving
/// holder at a time; `position` is the word that belongs to the slot (a TAP has none to keep). The
/// descriptors move to numbers that do not disturb the program.
pub fn open_slot(parts: SlotParts, position: RingPosition) -> Result<Box<dyn Device>, DeviceError> {
    let backend = find_any(&parts.params.backend)?;
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
    takes: &mut Takes<'_>,
) -> Result<bool, DeviceError> {
    let backend = find_any(&parts.params.backend)?;
    backend.peek(parts, position, takes)
}

/// Returns the common properties of the ports' links, and the own parameters of each slot.
fn common(
    backend: &'static dyn Backend,
    ports: &[OpenedPort],
) -> Result<(LinkProperties, Vec<serde_json::Value>), DeviceError> {
    if let [alone] = ports {
        let own = alone.slots.iter().map(|(_, own)| own.clone());
        return Ok((alone.link, own.collect()));
    }
    let none = || DeviceError::BadParameters("a device has at least one port");
    let first = ports.first().ok_or_else(none)?;
    let (mut link, mut all) = (first.link, Vec::new());
    for slot in 0..first.slots.len() {
        let part = |port: &OpenedPort| {
            let (fds, own) = port.slots.get(slot)?;
            Some(JoinedPart {
                backend: backend.name().to_owned(),
                link: port.link,
                own: own.clone(),
                fds: fds.len(),
            })
        };
        let parts: Option<Vec<JoinedPart>> = ports.iter().map(part).collect();
        let (common, own) = parts.and_then(|parts| join(&parts)).ok_or_else(none)?;
        link = common;
        all.push(own);
    }
    Ok((link, all))
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
