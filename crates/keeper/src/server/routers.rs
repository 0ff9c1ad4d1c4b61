//! What routers say is written down, steered by, and told; what becomes of the link is told too.

use slipstack_device::iface;

use crate::log::say;

use super::Server;

impl Server {
    /// An interface of this namespace has changed, maybe ours.
    pub(super) fn follow_link(&mut self, now: u64) {
        let Ok(link) = iface::link(self.world.dir.interface()) else {
            return;
        };
        let network = &mut self.world.network;
        let mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
        if link.index == network.interface_index && mtu != network.mtu {
            network.mtu = mtu;
            self.net.set_link_mtu(now, mtu);
        }
    }

    /// After each turn of the own stack.
    pub(super) fn follow_routers(&mut self) {
        let image = self.net.take_routers();
        let learnt = self.net.take_learnt();
        if image.is_none() && learnt.is_none() {
            return;
        }
        if let Some(image) = image {
            self.world.state.routers = image;
        }
        if let Some(learnt) = learnt {
            self.world.network.learnt = learnt;
            let own = self.world.network.all_addresses();
            if let Err(error) = self.world.slots.steering().set_own(&own) {
                say(format_args!(
                    "frames to addresses of routers' prefixes cannot be steered: {error}"
                ));
            }
        }
        self.world.save();
    }
}
