//! The multicast groups of all links.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use super::entry::Asker;
use super::filter::GroupFilter;
use super::table::LinkGroups;
use crate::ip::LinkedGroup;
use crate::time::Instant;

/// See the [module documentation](self). Made for the first.
#[derive(Debug, Default)]
pub(crate) struct Groups(BTreeMap<u16, LinkGroups>);

impl Groups {
    /// Returns whether there is a receiver for datagrams to this group on this link.
    pub fn hears(&self, link: u16, group: IpAddr) -> bool {
        let of_link = self.0.get(&link);
        of_link.is_some_and(|groups| groups.hears(group))
    }

    /// Sets an asker's filter for a group on a link. Returns `false` if there is no room.
    pub fn want(&mut self, asker: Asker, of: LinkedGroup, filter: GroupFilter) -> bool {
        self.on(of.link).want(asker, of.group, filter)
    }

    /// Removes a party.
    pub fn forget(&mut self, asker: Asker) {
        self.all().for_each(|(_, groups)| groups.forget(asker));
    }

    /// Sends no report before [`Groups::announce`], except in answer to a query.
    pub fn keep_quiet(&mut self) {
        self.all().for_each(|(_, groups)| groups.keep_quiet());
    }

    /// Reports the whole state as if it were new.
    pub fn announce(&mut self) {
        self.all().for_each(|(_, groups)| groups.announce());
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let links = self.0.values();
        links.filter_map(LinkGroups::next_deadline).min()
    }

    /// The groups of one link.
    pub(super) fn on(&mut self, link: u16) -> &mut LinkGroups {
        self.0.entry(link).or_default()
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = (u16, &mut LinkGroups)> {
        self.0.iter_mut().map(|(&link, groups)| (link, groups))
    }
}
