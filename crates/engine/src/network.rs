//! Conversion of the network from the keeper's published form to the stack's.

use std::sync::Arc;

use slipstack_channel::control::net::{FilterReceived, NetworkState};
use slipstack_device::Device;
use slipstack_device::swap::Gone;
use slipstack_stack::filter::SharedLimits;
use slipstack_stack::{Instant, Tunable};

use crate::engine::Engine;

/// Between two attempts to fetch the rules of the filter.
const FILTER_RETRY_NS: u64 = 100_000_000;

impl Engine {
    /// Handles the keeper's notice that the network has changed.
    #[cold]
    pub(crate) fn on_network_changed(&mut self, now: Instant) {
        let published = self.ports.as_ref().and_then(|ports| ports.network());
        if let Some(published) =
            published.filter(|published| published.revision != self.network().revision)
        {
            self.apply(now, published);
        }
    }

    /// Returns the network of this engine's stack.
    pub fn network(&self) -> &Arc<NetworkState> {
        self.stack.network()
    }

    /// Counts the flows of rules with `limit` together with other engines. Called before
    /// [`Engine::begin`].
    pub fn share_limits(&mut self, shared: Arc<dyn SharedLimits>) {
        self.stack.share_limits(shared);
    }

    /// Before the first frame: the stack was made with it. It may be newer than the device.
    pub fn begin(&mut self) {
        let network = self.network().clone();
        self.follow_interfaces(&network);
        if let Some(learnt) = &network.learnt {
            self.stack.learn(self.env.now, learnt.clone());
        }
        self.set_filter(&network);
        self.follow_local_ports(None, &network);
        self.publish(&network);
    }

    fn apply(&mut self, now: Instant, network: NetworkState) {
        let network = Arc::new(network);
        self.follow_interfaces(&network);
        self.set_filter(&network);
        self.follow_local_ports(self.network().local_ports, &network);
        self.stack.set_network(now, network.clone());
        if let Some(learnt) = &network.learnt {
            self.stack.learn(now, learnt.clone());
        }
        self.publish(&network);
    }

    /// Interfaces may have been deleted and made again: goes on with this slot's descriptors there.
    fn follow_interfaces(&mut self, network: &NetworkState) {
        let again = made_again(&*self.device, network);
        if again.is_empty() {
            return;
        }
        let ports = self.ports.as_ref();
        let Some(open) = ports.and_then(|ports| ports.renew_device(again)) else {
            return;
        };
        let numbers = self.device.descriptors();
        // The former descriptors are closed before the new ones take their numbers, which others
        // have written down.
        let gone = Gone(self.device.info());
        self.put_device(Box::new(gone));
        if let Some(device) = open(&numbers) {
            let info = device.info();
            self.put_device(device);
            self.begin_homing();
            self.stack.forget_neighbours();
            self.env.mac = info.mac;
            self.env.has_tx_checksum = info.tx_checksum;
        }
    }

    /// Returns how often this engine has changed its device.
    pub(crate) fn device_renewals(&self) -> u32 {
        self.device_renewals
    }

    fn put_device(&mut self, device: Box<dyn Device>) {
        self.device_renewals = self.device_renewals.wrapping_add(1);
        self.env.waiting.on_other_device();
        if let Some(device) = self.device.replace(device) {
            self.device = device;
        }
    }

    /// Uses the packet filter. Rules that cannot be fetched now are fetched again soon; until then
    /// the previous ones hold.
    fn set_filter(&mut self, network: &NetworkState) {
        self.filter_due = None;
        if network.filter != self.filter.revision() {
            let known = self.filter.known();
            let published = match network.filter {
                0 => Some(FilterReceived::default()),
                _ => self.ports.as_ref().and_then(|ports| ports.filter(&known)),
            };
            match published {
                Some(published) => self.filter.take(network.filter, published),
                None => self.filter_due = Some(self.env.now.plus_nanos(FILTER_RETRY_NS)),
            }
        }
        self.filter.apply(&mut self.stack, network);
        self.renew_chores();
    }

    /// Does periodic work for the filter: fetches rules that could not be fetched, and sends logged
    /// matches to the keeper.
    pub(crate) fn tend_filter(&mut self, now: Instant) {
        if self.filter_due.is_some_and(|due| due <= now) {
            let network = self.network().clone();
            self.set_filter(&network);
        }
        if !self.stack.has_filter_log() {
            return;
        }
        let logged = self.stack.take_filter_log();
        let network = self.network().clone();
        let lines = self.filter.lines(&logged, &network);
        if let Some(ports) = self.ports.as_ref().filter(|_| !lines.is_empty()) {
            ports.log_filter(lines);
        }
    }

    /// Programs go by it from now on.
    fn publish(&mut self, network: &NetworkState) {
        self.device.set_vlans(&network.further_links());
        for (name, value) in &network.tunables {
            if let Some(tunable) = Tunable::find(name) {
                self.stack.tune(tunable, *value);
            }
        }
        for client in self.env.clients.iter().flatten() {
            client.end.set_network_revision(network.revision);
        }
    }
}

/// Returns the positions of the ports of a network that are not the interfaces of this device any
/// more.
fn made_again(device: &dyn Device, network: &NetworkState) -> Vec<usize> {
    let interfaces = device.interfaces();
    let pairs = interfaces.iter().zip(network.ports()).enumerate();
    let again = pairs.filter(|(_, (index, port))| **index != port.index);
    again.map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests;
