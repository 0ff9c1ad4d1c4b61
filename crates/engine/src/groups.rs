//! Groups: what programs join, and what the keeper is told of it.

use std::net::IpAddr;

use slipstack_channel::{GroupChange as Asked, InboxMessage, MulticastOption as Option, SlotGroup};
use slipstack_stack::{GroupChange, GroupFilter, MulticastOption, SocketError, UdpId};

use crate::engine::Engine;
use crate::strays::KEEPER;
use crate::world::World;

impl Engine {
    pub(crate) fn set_multicast(&mut self, id: UdpId, option: Option) -> Result<(), SocketError> {
        let option = match option {
            Option::Group { group, change } => {
                let change = match change {
                    Asked::Join => GroupChange::Join,
                    Asked::Leave => GroupChange::Leave,
                    Asked::Include(source) => GroupChange::Include(source),
                    Asked::Forgo(source) => GroupChange::Forgo(source),
                    Asked::Block(source) => GroupChange::Block(source),
                    Asked::Unblock(source) => GroupChange::Unblock(source),
                };
                return self.stack.udp_change_group(id, group, change);
            }
            Option::Ttl { is_v6, ttl } => MulticastOption::Ttl { is_v6, ttl },
            Option::Loop { is_v6, on } => MulticastOption::Loop { is_v6, on },
            Option::All { is_v6, on } => MulticastOption::All { is_v6, on },
            Option::Source(ip) => MulticastOption::Source(ip),
        };
        self.stack.udp_set_multicast(id, option)
    }
}

impl World {
    /// The keeper answers routers for all engines of the device. What is lost is told again.
    #[cold]
    pub(crate) fn tell_group(&mut self, group: IpAddr, filter: &GroupFilter) {
        let Some(fabric) = &self.local.fabric else {
            return;
        };
        let message = InboxMessage::Group(SlotGroup {
            slot: fabric.own_slot(),
            group,
            is_exclude: filter.is_exclude,
            sources: filter.sources.clone(),
        });
        if !fabric.post(KEEPER, &message) {
            self.counters.local_lost += 1;
        }
    }
}
