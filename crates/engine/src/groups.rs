//! Multicast groups that programs join, reported to the keeper.

use slipstack_channel::{InboxMessage, SlotGroup};
use slipstack_stack::{GroupFilter, LinkedGroup};

use crate::environment::Environment;
use crate::strays::KEEPER;

impl Environment {
    /// The keeper answers queriers for all engines of the device. A lost message is repeated.
    #[cold]
    pub(crate) fn tell_group(&mut self, to: LinkedGroup, filter: &GroupFilter) {
        let Some(interconnect) = &self.local.interconnect else {
            return;
        };
        let message = InboxMessage::Group(SlotGroup {
            slot: interconnect.own_slot(),
            group: to.group,
            link: to.link,
            is_exclude: filter.is_exclude,
            sources: filter.sources.clone(),
        });
        if !interconnect.post(KEEPER, &message) {
            self.counters.local_lost += 1;
        }
    }
}
