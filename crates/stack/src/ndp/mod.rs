//! Neighbour discovery (RFC 4861; RFC 4861 7.2.4 for the answers).
//!
//! Router discovery is in [`crate::router`].

mod solicit;

use core::net::{IpAddr, Ipv6Addr};

use slipstack_wire::LinkId;
use slipstack_wire::ethernet;
use slipstack_wire::icmpv6::{Icmpv6Kind, Icmpv6Message};
use slipstack_wire::ipv6::solicited_node;
use slipstack_wire::ndp::{HOP_LIMIT, NEIGHBOUR_LEN, Neighbour, flag};
use slipstack_wire::zone::{plain, zoned};

use crate::config::Role;
use crate::counters::Counter;
use crate::effects::{Effects, Event};
use crate::fib::Query;
use crate::ip::{Ends, IpMeta};
use crate::neighbour::{Confidence, Learned, Querier};
use crate::network_layer::Cx;
use crate::route::Route;
use crate::route6::ALL_NODES;
use crate::time::Instant;
use solicit::{Stations, send_over_link};

pub(crate) use solicit::{Sender, send_probe, send_solicitation};

impl Cx<'_> {
    /// Processes a neighbour discovery message; returns the counter of its outcome.
    pub(crate) fn on_ndp(
        &mut self,
        now: Instant,
        ip: &IpMeta,
        ends: Ends<Ipv6Addr>,
        message: &Icmpv6Message<'_>,
        fx: &mut impl Effects,
    ) -> Counter {
        // RFC 4861 7.1: a packet that a router has forwarded does not come from the link.
        if ip.ttl != HOP_LIMIT {
            return Counter::DropNdpHopLimit;
        }
        match message.kind {
            Icmpv6Kind::NeighbourSolicitation => {
                self.on_solicitation(now, (ip.link, ends), message.body, fx)
            }
            Icmpv6Kind::NeighbourAdvertisement([flags, ..]) => {
                self.on_advertisement(now, ip, flags, message.body, fx)
            }
            Icmpv6Kind::RouterAdvertisement(rest) => {
                let from = (LinkId(ip.link), ends.src);
                self.on_router(now, from, (rest, message.body), fx)
            }
            Icmpv6Kind::Redirect => self.on_redirect(now, ip, ends, message.body, fx),
            _ => Counter::DropNdpRouter,
        }
    }

    /// RFC 4861 7.1.1, 7.2.3.
    fn on_solicitation(
        &mut self,
        now: Instant,
        (link, Ends { src, dst }): (u16, Ends<Ipv6Addr>),
        body: &[u8],
        fx: &mut impl Effects,
    ) -> Counter {
        let Some(mut asked) = Neighbour::parse_solicitation(body) else {
            return Counter::DropNdpMalformed;
        };
        asked.target = zoned(asked.target, LinkId(link));
        let is_probe = src.is_unspecified();
        if is_probe && (asked.link.is_some() || dst != solicited_node(asked.target)) {
            return Counter::DropNdpMalformed;
        }
        if asked
            .link
            .is_some_and(|mac| !is_station(mac, self.net.macs.on(link)))
        {
            return Counter::DropNdpMalformed;
        }
        // RFC 7527 4.2: a looped-back probe does not mean that the address is in use.
        if is_probe && self.is_own_probe(asked.target, asked.nonce) {
            return Counter::DropNdpLooped;
        }
        // RFC 4862 5.4.3: another that probes for the address that we probe for.
        if is_probe && self.on_claim(now, asked.target, LinkId(link)) {
            return Counter::DropNdpConflict;
        }
        if !self.net.routes6.is_own(asked.target) {
            return Counter::DropNdpNotOurs;
        }
        if is_probe {
            // RFC 4862 5.4.3: another station is about to use our address. We announce that it is
            // ours.
            self.tell_all(now, asked.target, link, fx);
            return Counter::RxNdpSolicitations;
        }
        let is_here = self.net.routes6.is_on_link(src) && self.net.routes6.link_of(src) == link;
        if !is_here {
            return self.answer_distant(src, &asked, link, fx);
        }
        if let Some(mac) = asked.link {
            let learned = Learned {
                ip: src.into(),
                mac,
                confidence: Confidence::Heard,
            };
            let asker = Querier {
                ip: asked.target.into(),
                link,
            };
            self.learn_v6(now, learned, asker, fx);
        }
        let target = (asked.target, link);
        self.advertise(now, target, src, flag::SOLICITED | flag::OVERRIDE, fx);
        Counter::RxNdpSolicitations
    }

    /// Handles a station on the link that asks from an address of another network: it is answered
    /// over the link if there is a route back (RFC 4861 7.2.4). Nothing is learnt from it.
    #[cold]
    fn answer_distant(
        &mut self,
        src: Ipv6Addr,
        asked: &Neighbour,
        link: u16,
        fx: &mut impl Effects,
    ) -> Counter {
        let way = Query::between(Some(asked.target.into()), src.into());
        let back = self.net.routes6.find(&way);
        let is_way = back.is_some_and(|back| matches!(back.route, Route::Neighbour(_)));
        // A router asks from its link-local address, where we may have none.
        let is_near = link != 0 && src.is_unicast_link_local();
        let Some(mac) = asked.link.filter(|_| is_way || is_near) else {
            return Counter::DropNdpOffLink;
        };
        if self.config.role != Role::Engine {
            self.counters.bump(Counter::TxNdpAdvertisements);
            let flags = flag::SOLICITED | flag::OVERRIDE | self.router_flag();
            let mut body = [0; NEIGHBOUR_LEN];
            let from = self.net.macs.on(link);
            let answer = advertisement(from, asked.target, flags, &mut body);
            let stations = Stations {
                from,
                to: mac,
                link,
            };
            send_over_link(
                stations,
                Ends::new(asked.target, src),
                &answer,
                self.counters,
                fx,
            );
        }
        Counter::RxNdpSolicitations
    }

    /// RFC 4861 7.1.2, 7.2.5.
    fn on_advertisement(
        &mut self,
        now: Instant,
        ip: &IpMeta,
        flags: u8,
        body: &[u8],
        fx: &mut impl Effects,
    ) -> Counter {
        let Some(mut advertisement) = Neighbour::parse_advertisement(body) else {
            return Counter::DropNdpMalformed;
        };
        advertisement.target = zoned(advertisement.target, LinkId(ip.link));
        let is_solicited = flags & flag::SOLICITED != 0;
        if is_solicited && ip.group {
            return Counter::DropNdpMalformed;
        }
        if self.net.routes6.is_own(advertisement.target)
            || self.on_claim(now, advertisement.target, LinkId(ip.link))
        {
            return Counter::DropNdpConflict;
        }
        if !self.net.routes6.is_on_link(advertisement.target)
            || self.net.routes6.link_of(advertisement.target) != ip.link
        {
            return Counter::DropNdpOffLink;
        }
        let target = IpAddr::V6(advertisement.target);
        let known = self.net.neighbours.find_mac(target);
        // An engine sends requests in our name: the keeper has no entry for the answers that it
        // publishes.
        let is_awaited = self.net.neighbours.contains(target)
            || (is_solicited && self.config.role == Role::Keeper);
        if !is_awaited {
            return Counter::DropNdpUnsolicited;
        }
        // Without an address the answer confirms the one that is known.
        let Some(mac) = advertisement.link.or(known) else {
            return Counter::DropNdpMalformed;
        };
        if !is_station(mac, self.net.macs.on(ip.link)) {
            return Counter::DropNdpMalformed;
        }
        let is_change = known.is_some_and(|old| old != mac);
        if is_change && flags & flag::OVERRIDE == 0 {
            return Counter::DropNdpUnsolicited;
        }
        let Some(source) = self.net.routes6.find_source(advertisement.target) else {
            return Counter::DropNdpOffLink;
        };
        if flags & flag::ROUTER == 0 {
            self.on_router_gone(now, advertisement.target, LinkId(ip.link));
        }
        let confidence = if is_solicited {
            Confidence::Confirmed
        } else {
            Confidence::Heard
        };
        let learned = Learned {
            ip: target,
            mac,
            confidence,
        };
        let asker = Querier {
            ip: source.into(),
            link: ip.link,
        };
        self.learn_v6(now, learned, asker, fx);
        Counter::RxNdpAdvertisements
    }

    pub(crate) fn learn_v6(
        &mut self,
        now: Instant,
        learned: Learned,
        asker: Querier,
        fx: &mut impl Effects,
    ) {
        let Learned {
            ip,
            mac,
            confidence,
        } = learned;
        let neighbours = &mut self.net.neighbours;
        let is_new = neighbours.learn(now, learned, asker, self.counters, fx);
        // Engines learn from the keeper whether a router still answers.
        let is_answer = confidence == Confidence::Confirmed && self.config.role == Role::Keeper;
        if is_new || is_answer {
            fx.event(Event::Neighbour { ip, mac });
        }
        if !self.net.lost_routers.is_empty() {
            self.on_router_found(ip);
        }
    }

    /// RFC 4861 7.2.6.
    pub(crate) fn announce_v6(&mut self, now: Instant, ip: Ipv6Addr, fx: &mut impl Effects) {
        self.counters.bump(Counter::TxNdpAnnouncements);
        let link = self.net.routes6.link_of_own(ip);
        self.tell_all(now, ip, link, fx);
    }

    fn tell_all(&mut self, now: Instant, own: Ipv6Addr, link: u16, fx: &mut impl Effects) {
        if link == 0 {
            return self.advertise(now, (own, link), ALL_NODES, flag::OVERRIDE, fx);
        }
        if self.config.role == Role::Engine {
            return;
        }
        self.counters.bump(Counter::TxNdpAdvertisements);
        let mut body = [0; NEIGHBOUR_LEN];
        let flags = flag::OVERRIDE | self.router_flag();
        let from = self.net.macs.on(link);
        let answer = advertisement(from, own, flags, &mut body);
        let stations = Stations {
            from,
            to: ethernet::multicast_v6(ALL_NODES),
            link,
        };
        send_over_link(
            stations,
            Ends::new(own, ALL_NODES),
            &answer,
            self.counters,
            fx,
        );
    }

    fn advertise(
        &mut self,
        now: Instant,
        (target, link): (Ipv6Addr, u16),
        to: Ipv6Addr,
        flags: u8,
        fx: &mut impl Effects,
    ) {
        if self.config.role == Role::Engine {
            return;
        }
        self.counters.bump(Counter::TxNdpAdvertisements);
        let mut body = [0; NEIGHBOUR_LEN];
        let flags = flags | self.router_flag();
        let mac = self.net.macs.on(link);
        let message = advertisement(mac, target, flags, &mut body);
        self.send_icmpv6(now, Ends::new(target, to), (0, HOP_LIMIT), &message, fx);
    }

    /// RFC 4861 4.4: a forwarding node sets the router flag.
    fn router_flag(&self) -> u8 {
        match self.config.network.is_forwarding {
            true => flag::ROUTER,
            false => 0,
        }
    }
}

/// Returns the advertisement that `target` is at this station; `body` is room for it.
fn advertisement(
    mac: [u8; 6],
    target: Ipv6Addr,
    flags: u8,
    body: &mut [u8; NEIGHBOUR_LEN],
) -> Icmpv6Message<'_> {
    let answer = Neighbour {
        target: plain(target),
        link: Some(mac),
        nonce: None,
    };
    let len = answer.emit_advertisement(body);
    Icmpv6Message {
        kind: Icmpv6Kind::NeighbourAdvertisement([flags, 0, 0, 0]),
        body: &body[..len],
    }
}

pub(crate) fn is_station(mac: [u8; 6], own: [u8; 6]) -> bool {
    mac != [0; 6] && !ethernet::is_group(mac) && mac != own
}
