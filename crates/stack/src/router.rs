//! Routers of the link: their advertisements and redirects, and our solicitations (RFC 4861 6 and
//! 8, RFC 4862).
//!
//! The consequences are decided in [`crate::slaac`].

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use slipstack_wire::LinkId;
use slipstack_wire::icmpv6::{Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ndp::{self, HOP_LIMIT, Redirect, RouterAdvertisement};
use slipstack_wire::zone::zoned;

use slipstack_network::NetworkState;

use crate::config::Role;
use crate::configured::{links, routes6};
use crate::counters::Counter;
use crate::effects::Effects;
use crate::fib::Query;
use crate::groups::{Asker, GroupFilter};
use crate::ip::{Ends, IpMeta};
use crate::ndp::{Sender, is_station, send_probe};
use crate::neighbour::{Confidence, Learned, Querier, ToldTimes};
use crate::network_layer::Cx;
use crate::route::Route;
use crate::route6::Routes6;
use crate::slaac::{Action, Discovery};
use crate::time::Instant;
use slipstack_terms::{Learnt, Redirected};

const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

impl Cx<'_> {
    /// Starts router solicitation, if the stack is configured for it.
    pub(crate) fn ask_routers(&mut self, now: Instant) {
        if let Some(config) = &self.config.slaac {
            let links = links_of(&self.config.network);
            self.net.slaac = Some(Box::new(Discovery::new(config, links, now)));
            self.renew(now);
        }
    }

    /// Asks on the links that there are now.
    pub(crate) fn ask_on_links(&mut self, now: Instant) {
        if let Some(slaac) = &mut self.net.slaac {
            slaac.set_links(links_of(&self.config.network), now);
            self.renew(now);
        }
    }

    /// RFC 4861 6.1.2, 6.3.4.
    pub(crate) fn on_router(
        &mut self,
        now: Instant,
        (link, src): (LinkId, Ipv6Addr),
        (rest, body): ([u8; 4], &[u8]),
        fx: &mut impl Effects,
    ) -> Counter {
        let link_mtu = self.net.mtu_of_link(link.0);
        let own = self.net.macs.on(link.0);
        let slaac = self.net.slaac.as_mut();
        let Some(slaac) = slaac.and_then(|slaac| slaac.on(link)) else {
            return Counter::DropNdpRouter;
        };
        let message = RouterAdvertisement::parse(rest, body);
        let Some(message) = message.filter(|_| src.is_unicast_link_local()) else {
            return Counter::DropNdpMalformed;
        };
        slaac.on_advertisement(now, src, &message, link_mtu);
        self.renew(now);
        if let Some(mac) = message.link.filter(|mac| is_station(*mac, own)) {
            self.hear_neighbour(now, (src, mac), link, fx);
        }
        Counter::RxNdpRouters
    }

    /// RFC 4861 8.1, 8.3.
    pub(crate) fn on_redirect(
        &mut self,
        now: Instant,
        ip: &IpMeta,
        Ends { src, .. }: Ends<Ipv6Addr>,
        body: &[u8],
        fx: &mut impl Effects,
    ) -> Counter {
        let link = LinkId(ip.link);
        let slaac = self.net.slaac.as_mut();
        if slaac.is_none_or(|slaac| slaac.on(link).is_none()) {
            return Counter::DropNdpRouter;
        }
        let Some(message) = Redirect::parse(body) else {
            return Counter::DropNdpMalformed;
        };
        let (to, hop) = (message.destination, zoned(message.target, link));
        let to = zoned(to, link);
        let is_sound = src.is_unicast_link_local()
            && !ip.group
            && !to.is_multicast()
            && (hop == to || hop.is_unicast_link_local());
        if !is_sound {
            return Counter::DropNdpMalformed;
        }
        let way = self.net.routes6.find(&Query::to(to.into()));
        let is_first_hop = way.is_some_and(|way| way.route == Route::Neighbour(IpAddr::V6(src)));
        if !is_first_hop || self.net.routes6.is_own(hop) {
            return Counter::DropNdpRedirect;
        }
        let slaac = self.net.slaac.as_mut();
        if let Some(slaac) = slaac.and_then(|slaac| slaac.on(link)) {
            let redirected = Redirected {
                destination: to,
                hop,
                link: link.0,
            };
            slaac.on_redirect(now, src, redirected);
        }
        let own = self.net.macs.on(link.0);
        if let Some(mac) = message.link.filter(|mac| is_station(*mac, own)) {
            self.hear_neighbour(now, (hop, mac), link, fx);
        }
        self.renew(now);
        Counter::RxNdpRedirects
    }

    fn hear_neighbour(
        &mut self,
        now: Instant,
        (ip, mac): (Ipv6Addr, [u8; 6]),
        link: LinkId,
        fx: &mut impl Effects,
    ) {
        if let Some(source) = self.net.routes6.find_source(ip) {
            let learned = Learned {
                ip: ip.into(),
                mac,
                confidence: Confidence::Heard,
            };
            let asker = Querier {
                ip: source.into(),
                link: link.0,
            };
            self.learn_v6(now, learned, asker, fx);
        }
    }

    /// Handles another station's claim of an address that we probe for. Returns `false` if we do
    /// not.
    pub(crate) fn on_claim(&mut self, now: Instant, ip: Ipv6Addr, link: LinkId) -> bool {
        let slaac = self.net.slaac.as_mut();
        let slaac = slaac.and_then(|slaac| slaac.on(link));
        let is_meant = slaac.is_some_and(|slaac| slaac.on_claim(now, ip));
        if is_meant {
            self.renew(now);
        }
        is_meant
    }

    /// RFC 4861 7.2.5: a neighbour announces that it is no router, or no longer one.
    pub(crate) fn on_router_gone(&mut self, now: Instant, ip: Ipv6Addr, link: LinkId) {
        let slaac = self.net.slaac.as_mut();
        let slaac = slaac.and_then(|slaac| slaac.on(link));
        if slaac.is_some_and(|slaac| slaac.forget_router(ip)) {
            self.renew(now);
        }
    }

    /// Returns whether a probe is one of ours that came back.
    pub(crate) fn is_own_probe(&self, ip: Ipv6Addr, nonce: Option<[u8; 6]>) -> bool {
        let slaac = self.net.slaac.as_ref();
        slaac.is_some_and(|slaac| slaac.is_own_probe(ip, nonce))
    }

    /// Removes expired state, and sends due messages.
    #[cold]
    pub(crate) fn on_router_timers(&mut self, now: Instant, fx: &mut impl Effects) {
        let mut actions = Vec::new();
        if let Some(slaac) = &mut self.net.slaac {
            slaac.on_time(now, &mut actions);
        }
        self.renew(now);
        for (link, action) in actions {
            match action {
                Action::Solicit => self.solicit(now, link, fx),
                Action::Probe(ip) => {
                    let fresh = self.rng.next_u64();
                    let slaac = self.net.slaac.as_mut();
                    let slaac = slaac.and_then(|slaac| slaac.on(link));
                    let nonce = slaac.and_then(|slaac| slaac.nonce_of(ip, fresh));
                    let sender = Sender {
                        mac: self.net.macs.on(link.0),
                        ip: Ipv6Addr::UNSPECIFIED,
                        link: link.0,
                    };
                    send_probe(ip, nonce, sender, self.counters, fx);
                }
            }
        }
    }

    fn solicit(&mut self, now: Instant, link: LinkId, fx: &mut impl Effects) {
        let Some(from) = self.net.routes6.link_local_of(link.0) else {
            return;
        };
        self.counters.bump(Counter::TxNdpRouterSolicitations);
        let message = Icmpv6Message {
            kind: Icmpv6Kind::RouterSolicitation,
            body: &ndp::router_solicitation(self.net.macs.on(link.0)),
        };
        self.send_icmpv6(
            now,
            Ends::new(from, ALL_ROUTERS),
            (0, HOP_LIMIT),
            &message,
            fx,
        );
    }

    /// Recomputes the configuration after a message or an expiry.
    fn renew(&mut self, now: Instant) {
        let Some(slaac) = &self.net.slaac else {
            return;
        };
        let (learnt, next) = (slaac.learnt(now), slaac.next_deadline());
        self.follow(learnt);
        self.net.look_at(next);
    }

    /// Applies the configuration learnt from routers.
    #[cold]
    pub(crate) fn follow(&mut self, mut learnt: Learnt) {
        // The advertisement may leave out the link's MTU.
        learnt.link_mtu = learnt.link_mtu.or(self.net.learnt.link_mtu);
        if let Some(mtu) = learnt.link_mtu {
            self.net.set_mtu(mtu);
        }
        let link_mtu = self.net.mtu();
        learnt.mtu = learnt.mtu.filter(|mtu| *mtu < link_mtu);
        let further = core::mem::take(&mut learnt.further_mtus).into_iter();
        learnt.further_mtus = further
            .filter(|&(link, mtu)| mtu < self.net.mtu_of_link(link))
            .collect();
        self.net.lost_routers.retain(&learnt.routers);
        let routes = self.routes_by(&learnt);
        self.change_groups(&routes);
        if learnt == *self.net.learnt {
            self.net.routes6.hear_as(routes);
            return;
        }
        let time = |ms: Option<u32>| ms.map(|ms| Duration::from_millis(ms.into()));
        let times = learnt.links.iter().map(|it| {
            let reachable = time(it.reachable_ms).map(|base| self.spread(base));
            ToldTimes {
                link: it.link,
                reachable,
                retry: time(it.retry_ms),
            }
        });
        let times: Vec<ToldTimes> = times.collect();
        self.net.neighbours.set_times6(&times);
        self.net.neighbours.renew_epoch();
        self.announce_new(None, &routes);
        self.net.routes6 = routes;
        *self.net.learnt = learnt;
        self.net.learnt_revision = self.net.learnt_revision.wrapping_add(1);
    }

    pub(crate) fn routes_by(&self, learnt: &Learnt) -> Routes6 {
        let mut routes = routes6(&self.config.network);
        let routers = self.net.lost_routers.rank(&learnt.routers);
        routes.add_learnt(learnt, &routers);
        if let Some(slaac) = &self.net.slaac {
            routes.hear(slaac.heard());
        }
        routes
    }

    /// Looks up cached routes again, because another router comes first.
    pub(crate) fn renew_ways(&mut self) {
        self.net.neighbours.renew_epoch();
        self.net.routes6 = self.routes_by(&self.net.learnt);
    }

    /// Groups of new addresses are reported to routers and switches by the stack that answers for
    /// them.
    pub(crate) fn change_groups(&mut self, new: &Routes6) {
        if self.config.role == Role::Engine {
            return;
        }
        let (old, new): (Vec<_>, Vec<_>) = (
            self.net.routes6.reported_groups().collect(),
            new.reported_groups().collect(),
        );
        for &group in old.iter().filter(|group| !new.contains(group)) {
            self.want_group(Asker::Address, group, GroupFilter::NOTHING);
        }
        for &group in new.iter().filter(|group| !old.contains(group)) {
            self.want_group(Asker::Address, group, GroupFilter::ALL);
        }
    }

    /// RFC 4861 6.3.2: between half and one and a half times, so that hosts do not send at the same
    /// time.
    fn spread(&mut self, base: Duration) -> Duration {
        base / 2 + base * (self.rng.next_u32() >> 16) / 0xffff
    }
}

/// The links that a stack has.
fn links_of(network: &NetworkState) -> impl Iterator<Item = LinkId> + '_ {
    let further = links(network).map(|it| LinkId(it.link));
    core::iter::once(LinkId(0)).chain(further)
}
