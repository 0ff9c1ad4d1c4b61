//! An interface that was deleted and made again under its name is opened again; a TAP of the
//! keeper's own that was deleted is made again here. Engines keep their slots, connections go on:
//! the network that is published names the new interface, and an engine that sees it asks for the
//! descriptors of its slot.

use slipstack_channel::control::net::NetworkState;
use slipstack_device::DeviceError;
use slipstack_device::iface::{self, KernelInterface};
use tracing::{info, warn};

use super::Server;
use crate::interfaces;
use crate::slots::open_keeper_slot;

/// Distance of attempts to make a TAP again, which another program may delete each time.
const REMAKE_NS: u64 = 1_000_000_000;

impl Server {
    /// Opens the port at this position again, whose name is another interface's now. Returns the
    /// network with it; `None`: it cannot be opened.
    pub(super) fn reopen(
        &mut self,
        port: usize,
        link: &KernelInterface,
        now: u64,
    ) -> Option<NetworkState> {
        // Nobody but the keeper makes a TAP of its own.
        if !link.is_up || self.resources.network.device.is_own {
            return None;
        }
        self.open_again(port, &link.name, now)
    }

    /// Makes the TAP again that the keeper had made, if programs use it. Returns the network with
    /// it.
    pub(super) fn remake(&mut self, now: u64) -> Option<NetworkState> {
        let is_used = !self.resources.state.leases.clients.is_empty();
        let is_wanted = is_used || self.resources.options.is_persistent;
        if !is_wanted || !self.resources.slots.has_lost_own() {
            self.remake_due = None;
            return None;
        }
        if self.remade_at.is_some_and(|at| now < at + REMAKE_NS) {
            self.remake_due = self.remade_at.map(|at| at + REMAKE_NS);
            return None;
        }
        (self.remade_at, self.remake_due) = (Some(now), None);
        let name = self.resources.dir.interface().to_owned();
        let state = self.open_again(0, &name, now)?;
        if let Err(error) = self.settle_hosts(&name, &state) {
            warn!(interface = name, %error, "a TAP that was made again has not all its addresses");
        }
        Some(state)
    }

    /// Gives the host its addresses on a TAP that was made again, and sets it up.
    fn settle_hosts(&self, name: &str, state: &NetworkState) -> Result<(), DeviceError> {
        let own = state.own();
        for (host, (_, prefix)) in own.hosts.iter().zip(&own.addresses) {
            iface::add_address(name, *host, *prefix)?;
        }
        iface::set_up(name)
    }

    fn open_again(&mut self, port: usize, name: &str, now: u64) -> Option<NetworkState> {
        if let Err(error) = self.resources.slots.reopen(port) {
            warn!(interface = name, %error, "an interface made again is not taken up");
            return None;
        }
        for slot in 0..self.resources.slots.count() {
            let position = self.resources.words.position(slot)?.beside(port)?;
            position.rewind();
        }
        // Rings of other ports are mapped by one device at a time.
        self.net.release_device();
        let opened = open_keeper_slot(&self.resources.slots, &self.resources.words);
        let device = opened
            .inspect_err(|error| warn!(%error, "the keeper has no slot"))
            .ok()?;
        let info = device.info();
        // Stations on the former link are not those of this one.
        for (address, _) in self.resources.neighbours.entries() {
            self.resources.neighbours.forget(address);
        }
        let network = &mut self.resources.network;
        (network.mac, network.tso_max) = (info.mac, info.tso_max);
        network.has_udp_segmentation = info.udp_segmentation;
        let mut state = network.state.clone();
        interfaces::identify(&self.resources.slots, &mut state);
        self.net.replace_device(device, now);
        // The standby holds the former descriptors.
        if let Some(standby) = self.standby.take() {
            standby.end();
        }
        self.standby_due = Some(now);
        info!(
            interface = name,
            "an interface that was made again is taken up"
        );
        Some(state)
    }
}
