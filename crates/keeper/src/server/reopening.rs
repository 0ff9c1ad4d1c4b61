//! An interface that was deleted and made again under its name is opened again. Engines keep their
//! slots, connections go on: the network that is published names the new interface, and an engine
//! that sees it asks for the descriptors of its slot.

use slipstack_channel::control::net::NetworkState;
use slipstack_device::iface::KernelInterface;
use tracing::{info, warn};

use super::Server;
use crate::interfaces;
use crate::slots::open_keeper_slot;

impl Server {
    /// The first port's name is another interface's now. Returns the network with it; `None`: it
    /// cannot be opened.
    pub(super) fn reopen(&mut self, link: &KernelInterface, now: u64) -> Option<NetworkState> {
        if !link.is_up {
            return None;
        }
        if let Err(error) = self.resources.slots.reopen() {
            warn!(interface = link.name, %error, "an interface made again is not taken up");
            return None;
        }
        for slot in 0..self.resources.slots.count() {
            self.resources.words.position(slot)?.rewind();
        }
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
            interface = link.name,
            "an interface that was made again is taken up"
        );
        Some(state)
    }
}
