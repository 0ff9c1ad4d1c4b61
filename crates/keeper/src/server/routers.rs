//! Application of a changed network, whether the change comes from an operator, from routers or
//! from the link: steering, journal and publication.

use slipstack_channel::control::net::{Interface, NetworkState};
use slipstack_device::{DeviceError, iface};
use tracing::warn;

use super::{Server, share};

impl Server {
    /// Puts this network in force: steering and the own stack use it at once, engines and programs
    /// when they have been notified.
    pub(super) fn publish(&mut self, state: NetworkState, now: u64) -> Result<(), DeviceError> {
        let steering = self.resources.slots.steering();
        let in_force = state.in_force();
        steering.set_own(&in_force.addresses())?;
        steering.set_forward(state.is_forwarding)?;
        self.net.set_network(now, &in_force);
        self.net.set_filter(&self.resources.state.filter, &in_force);
        self.resources.state.network.clone_from(&state);
        self.resources.network.state = state;
        self.share_ports(&share::ALL);
        self.publish_engines();
        self.resources.save();
        self.announcer.note(now);
        self.tell_watchers();
        Ok(())
    }

    /// Puts the recorded network in force everywhere, because the former keeper may have died in
    /// the middle of a change.
    pub(super) fn renew_network(&mut self, now: u64) {
        let state = self.resources.network.state.clone();
        if let Err(error) = self.publish(state, now) {
            warn!(%error, "the network cannot be steered");
        }
    }

    /// An interface of this namespace has changed, maybe ours.
    pub(super) fn follow_link(&mut self, now: u64) {
        let mut state = self.resources.network.state.clone();
        let ports: Vec<Interface> = state.ports().cloned().collect();
        let mut is_changed = false;
        for (at, port) in ports.into_iter().enumerate() {
            let Ok(link) = iface::link(&port.name) else {
                if let Some(remade) = self.remake(now) {
                    (state, is_changed) = (remade, true);
                }
                continue;
            };
            let mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
            let is_again = link.index != port.index && self.resources.network.device.has_interface;
            if is_again {
                // Otherwise the ports that follow would be looked for in the former network.
                self.resources.network.state.clone_from(&state);
                match self.reopen(at, &link, now) {
                    Some(reopened) => (state, is_changed) = (reopened, true),
                    None => continue,
                }
            }
            if link.index != port.index && !is_again || mtu == port.device_mtu() {
                continue;
            }
            is_changed = true;
            let mut followed = port.clone();
            followed.follow_device(mtu);
            let of_port = |it: &&mut Interface| it.link().own() == port.link();
            for interface in state.interfaces.iter_mut().filter(of_port) {
                if interface.is_port() {
                    interface.follow_device(mtu);
                    continue;
                }
                // An interface that is narrower by choice stays so while its MTU fits.
                let (before, after) = (port.mtu, followed.mtu);
                let (before, after) = (interface.mtu_max(before), interface.mtu_max(after));
                if interface.mtu == before || interface.mtu > after {
                    interface.mtu = after;
                }
            }
        }
        if is_changed {
            self.publish_or_say(state, now);
        }
    }

    /// After each turn of the own stack.
    pub(super) fn follow_routers(&mut self, now: u64) {
        let image = self.net.take_routers();
        let learnt = self.net.take_learnt();
        let is_silent = image.is_none() && learnt.is_none();
        if is_silent {
            return;
        }
        if let Some(image) = image {
            self.resources.state.routers = image;
        }
        match learnt {
            Some(learnt) => {
                let state = NetworkState {
                    learnt: Some(learnt),
                    ..self.resources.network.state.clone()
                };
                self.publish_or_say(state, now);
            }
            None => self.resources.save(),
        }
    }

    fn publish_or_say(&mut self, mut state: NetworkState, now: u64) {
        state.revision += 1;
        if let Err(error) = self.publish(state, now) {
            warn!(%error, "frames to new addresses cannot be steered");
        }
    }
}
