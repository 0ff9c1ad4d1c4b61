//! Replacement of the network configuration: whole, between two packets.
//!
//! Connections go on. Their address or route may be gone: as on Linux, packets to an address that
//! is no longer ours are dropped, and outgoing packets look up a new route or fail.

use alloc::sync::Arc;

use slipstack_network::NetworkState;

use crate::configured::routes4;
use crate::network_layer::Cx;
use crate::stack::{Stack, cx};
use crate::time::Instant;

impl Stack {
    /// The network that is in force.
    pub fn network(&self) -> &Arc<NetworkState> {
        &self.config.network
    }

    /// Goes by this network from now on.
    pub fn set_network(&mut self, now: Instant, network: Arc<NetworkState>) {
        if network.has_same_ways(&self.config.network) {
            self.config.network = network;
            return;
        }
        let before = self.net.mtus();
        let has_deletions = network.deletions != self.config.network.deletions;
        self.config.network = network;
        cx!(self).renew_network();
        if has_deletions {
            self.net.neighbours.forget_learnt();
        }
        cx!(self).ask_on_links(now);
        if self.net.mtus() != before {
            self.tcp.on_link_mtu(now, &mut cx!(self));
        }
    }
}

impl Cx<'_> {
    /// All next hops that are kept somewhere are looked up again.
    fn renew_network(&mut self) {
        let network = &self.config.network;
        self.net.set_mtu(network.own().mtu);
        self.net.set_links(network);
        let routes = routes4(network);
        let routes6 = self.routes_by(&self.net.learnt);
        self.change_groups(&routes6);
        self.announce_new(Some(&routes), &routes6);
        self.net.routes = routes;
        self.net.routes6 = routes6;
        self.net.renew_sources();
        self.net.neighbours.set_permanent(&network.neighbours);
        self.net.neighbours.renew_epoch();
    }
}
