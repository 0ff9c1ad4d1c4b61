//! What routers have told, between the keeper's words and the stack's.

use std::time::Duration;

use slipstack_channel::control::{AddressTold, LearntTold};
use slipstack_stack::{Instant, Learnt, LearntAddress, Redirected};

use crate::engine::Engine;

impl Engine {
    /// The keeper says that the network has changed.
    #[cold]
    pub(crate) fn on_notice(&mut self, now: Instant) {
        let told = self.ports.as_ref().and_then(|ports| ports.network());
        if let Some(told) = told {
            self.stack.learn(now, learnt_of(&told));
        }
    }

    /// What holds on this engine's stack.
    pub fn learnt(&self) -> LearntTold {
        told_of(self.stack.learnt().0)
    }

    /// Before the first frame.
    pub fn learn(&mut self, told: &LearntTold) {
        let now = self.world.now;
        self.stack.learn(now, learnt_of(told));
    }
}

pub fn told_of(learnt: &Learnt) -> LearntTold {
    let address = |known: &LearntAddress| AddressTold {
        ip: known.ip,
        prefix_len: known.prefix_len,
        is_deprecated: known.is_deprecated,
    };
    let ms = |time: Option<Duration>| time.map(|time| time.as_millis() as u32);
    let redirects = learnt.redirects.iter();
    LearntTold {
        addresses: learnt.addresses.iter().map(address).collect(),
        networks: learnt.networks.clone(),
        routers: learnt.routers.clone(),
        redirects: redirects.map(|told| (told.destination, told.hop)).collect(),
        mtu: learnt.mtu,
        link_mtu: learnt.link_mtu,
        hop_limit: learnt.hop_limit,
        reachable_ms: ms(learnt.reachable),
        retry_ms: ms(learnt.retry),
    }
}

fn learnt_of(told: &LearntTold) -> Learnt {
    let address = |told: &AddressTold| LearntAddress {
        ip: told.ip,
        prefix_len: told.prefix_len,
        is_deprecated: told.is_deprecated,
    };
    let redirected = |&(destination, hop)| Redirected { destination, hop };
    let time = |ms: Option<u32>| ms.map(|ms| Duration::from_millis(ms.into()));
    Learnt {
        addresses: told.addresses.iter().map(address).collect(),
        networks: told.networks.clone(),
        routers: told.routers.clone(),
        redirects: told.redirects.iter().map(redirected).collect(),
        mtu: told.mtu,
        link_mtu: told.link_mtu,
        hop_limit: told.hop_limit,
        reachable: time(told.reachable_ms),
        retry: time(told.retry_ms),
    }
}
