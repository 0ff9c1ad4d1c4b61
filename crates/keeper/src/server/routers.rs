//! What routers say is written down, steered by, and told.

use super::Server;

impl Server {
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
                eprintln!("frames to addresses of routers' prefixes cannot be steered: {error}");
            }
        }
        self.world.save();
    }
}
