//! Multicast groups that this host hears, for its sockets, for engines, and for its own addresses.
//!
//! IGMPv3 (RFC 3376, RFC 9776) and MLDv2 (RFC 3810, RFC 9777) for hosts, with the older versions
//! that a querier may speak. The memberships of all sockets are merged into the state of the
//! interface; changes of that state are reported here, queries are answered in `query.rs`, and
//! messages are built in `report.rs`. An engine sends no reports: it informs its keeper
//! ([`crate::Effects::group`]), which does.

mod entry;
mod filter;
mod links;
mod querier;
mod query;
mod report;
mod table;

use crate::config::Role;
use crate::effects::Effects;
use crate::ip::LinkedGroup;
use crate::network_layer::Cx;
use crate::time::Instant;

pub(crate) use entry::Asker;
pub use filter::{GroupFilter, SOURCES_MAX};
pub(crate) use links::Groups;
use report::On;
use table::LinkGroups;

impl Cx<'_> {
    /// See [`Groups::want`]; it is reported with the next timers.
    pub(crate) fn want_group(
        &mut self,
        asker: Asker,
        group: LinkedGroup,
        filter: GroupFilter,
    ) -> bool {
        let groups = self.net.groups.get_or_insert_default();
        let is_taken = groups.want(asker, group, filter);
        self.net.look_at(Some(Instant::ZERO));
        is_taken
    }

    /// Sends due reports: changes, and answers to queries.
    #[cold]
    pub(crate) fn on_group_timers(&mut self, now: Instant, fx: &mut impl Effects) {
        let Some(mut all) = self.net.groups.take() else {
            return;
        };
        for (link, groups) in all.all() {
            self.say_of_link(now, link, groups, fx);
        }
        self.net.groups = Some(all);
    }

    fn say_of_link(
        &mut self,
        now: Instant,
        link: u16,
        groups: &mut LinkGroups,
        fx: &mut impl Effects,
    ) {
        if self.config.role == Role::Engine {
            groups.tell(now, link, fx);
        } else {
            for is_v6 in [false, true] {
                let on = On { link, is_v6, now };
                let changes = groups.due_changes(now, is_v6, self.rng);
                self.say_changes(on, groups, &changes, fx);
                let answers = groups.due_answers(now, is_v6);
                self.say_answers(on, groups, &answers, fx);
            }
        }
        groups.drop_unwanted();
    }
}
