//! Announcements of our addresses (RFC 5227 2.3, RFC 4861 7.2.6): stations that knew another
//! station by them update their tables.

mod waiting;

use core::net::IpAddr;

use crate::config::Role;
use crate::effects::Effects;
use crate::network_layer::Cx;
use crate::route::Routes;
use crate::route6::Routes6;
use crate::time::Instant;

pub(crate) use waiting::Announcements;

impl Cx<'_> {
    /// Announces all own addresses from now on, later ones from routers included. Not for an
    /// engine, whose keeper does it.
    pub(crate) fn announce_addresses(&mut self) {
        if self.config.role == Role::Engine {
            return;
        }
        let mut announcements = Announcements::default();
        for &(ip, _) in self.net.routes.addrs() {
            announcements.add(ip.into());
        }
        for ip in self.net.routes6.own() {
            announcements.add(ip.into());
        }
        self.net.announcements = Some(announcements);
    }

    /// Addresses that are about to become ours, by these routes; `None`: those of IPv4 stay as they
    /// are.
    pub(crate) fn announce_new(&mut self, new4: Option<&Routes>, new: &Routes6) {
        let Some(announcements) = &mut self.net.announcements else {
            return;
        };
        let new4 = new4.into_iter().flat_map(Routes::addrs);
        for (ip, _) in new4.filter(|(ip, _)| !self.net.routes.is_own(*ip)) {
            announcements.add((*ip).into());
        }
        for ip in new.own().filter(|ip| !self.net.routes6.is_own(*ip)) {
            announcements.add(ip.into());
        }
        let next = announcements.next_deadline();
        self.net.look_at(next);
    }

    #[cold]
    pub(crate) fn on_announcement_timers(&mut self, now: Instant, fx: &mut impl Effects) {
        let Some(announcements) = &mut self.net.announcements else {
            return;
        };
        let mut due = announcements.take_due(now);
        let next = announcements.next_deadline();
        self.net.look_at(next);
        due.retain(|ip| self.net.is_own(*ip));
        for ip in due {
            match ip {
                IpAddr::V4(ip) => self.announce_v4(ip, fx),
                IpAddr::V6(ip) => self.announce_v6(now, ip, fx),
            }
        }
    }
}
