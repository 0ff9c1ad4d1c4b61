//! ARP input (RFC 826, RFC 1122 2.3.2, RFC 5227's conflicts).

use core::net::{IpAddr, Ipv4Addr};

use slipstack_wire::arp::{ArpOperation, ArpPacket};
use slipstack_wire::ethernet;

use crate::config::Role;
use crate::counters::Counter;
use crate::effects::{Effects, Event};
use crate::fib::Query;
use crate::neighbour::{Confidence, Learned, Querier, send_arp};
use crate::network_layer::Cx;
use crate::route::Route;
use crate::time::Instant;

impl Cx<'_> {
    #[inline(never)]
    pub(crate) fn on_arp(&mut self, now: Instant, bytes: &[u8], link: u16, fx: &mut impl Effects) {
        let verdict = self.handle_arp(now, bytes, link, fx);
        self.counters.bump(verdict);
    }

    fn handle_arp(
        &mut self,
        now: Instant,
        bytes: &[u8],
        link: u16,
        fx: &mut impl Effects,
    ) -> Counter {
        let Some(arp) = ArpPacket::parse(bytes) else {
            return Counter::DropArpMalformed;
        };
        if arp.sender_mac == [0; 6]
            || ethernet::is_group(arp.sender_mac)
            || self.net.macs.has(arp.sender_mac)
        {
            return Counter::DropArpSender;
        }
        let is_for_us = self.net.routes.is_own(arp.target_ip);
        if arp.sender_ip == Ipv4Addr::UNSPECIFIED {
            // RFC 5227 2.1.1: a probe. Defend the address, learn nothing.
            if is_for_us && arp.operation == ArpOperation::Request {
                self.answer_arp(&arp, link, fx);
                return Counter::RxArpRequests;
            }
            return Counter::DropArpUnsolicited;
        }
        if self.net.routes.is_own(arp.sender_ip) {
            self.defend(now, &arp, fx);
            return Counter::DropArpConflict;
        }
        if !self.net.routes.is_on_link(arp.sender_ip)
            || self.net.routes.is_broadcast(arp.sender_ip)
            || self.net.routes.link_of(arp.sender_ip) != link
        {
            return self.on_distant(&arp, is_for_us, link, fx);
        }
        // RFC 826: a known sender is always updated, an unknown one only if we are the target.
        // Engines send requests in our name, so a keeper has not asked for the answers that it
        // publishes.
        let is_request = arp.operation == ArpOperation::Request;
        let is_known = self.net.neighbours.contains(IpAddr::V4(arp.sender_ip));
        let is_asked = is_for_us && (is_request || self.config.role == Role::Keeper);
        if !is_known && !is_asked {
            return Counter::DropArpUnsolicited;
        }
        let source = if is_for_us {
            arp.target_ip
        } else {
            self.net
                .routes
                .find_source(arp.sender_ip)
                .unwrap_or(arp.target_ip)
        };
        let sender = Learned {
            ip: arp.sender_ip.into(),
            mac: arp.sender_mac,
            confidence: Confidence::Confirmed,
        };
        let asker = Querier {
            ip: source.into(),
            link,
        };
        self.learn_neighbour(now, sender, asker, fx);
        if !is_request {
            return Counter::RxArpReplies;
        }
        if is_for_us {
            self.answer_arp(&arp, link, fx);
        }
        Counter::RxArpRequests
    }

    /// Handles a station on the link that asks from an address of another network, for example one
    /// of its loopback: Linux answers if it has a route back. Nothing is learnt from it.
    #[cold]
    fn on_distant(
        &mut self,
        arp: &ArpPacket,
        is_for_us: bool,
        link: u16,
        fx: &mut impl Effects,
    ) -> Counter {
        // By the table of the requested address, which an answer of ours would use.
        let way = Query::between(Some(arp.target_ip.into()), arp.sender_ip.into());
        let back = self.net.routes.find(&way);
        let is_way = back.is_some_and(|back| matches!(back.route, Route::Neighbour(_)));
        if is_for_us && is_way && arp.operation == ArpOperation::Request {
            self.answer_arp(arp, link, fx);
            return Counter::RxArpRequests;
        }
        Counter::DropArpOffLink
    }

    /// RFC 5227 2.4 (c): the address stays ours, because connections use it; it is announced, once
    /// in ten seconds.
    #[cold]
    fn defend(&mut self, now: Instant, claim: &ArpPacket, fx: &mut impl Effects) {
        if self.config.role == Role::Engine || !self.net.may_defend(now, claim.sender_ip) {
            return;
        }
        fx.event(Event::Conflict {
            ip: claim.sender_ip.into(),
            mac: claim.sender_mac,
        });
        self.counters.bump(Counter::TxArpDefences);
        self.send_announcement(claim.sender_ip, fx);
    }

    /// RFC 5227 2.3.
    pub(crate) fn announce_v4(&mut self, ip: Ipv4Addr, fx: &mut impl Effects) {
        self.counters.bump(Counter::TxArpAnnouncements);
        self.send_announcement(ip, fx);
    }

    fn send_announcement(&mut self, ip: Ipv4Addr, fx: &mut impl Effects) {
        let link = self.net.routes.link_of_own(ip);
        let announcement = ArpPacket::request(self.net.macs.on(link), ip, ip);
        send_arp(
            &announcement,
            (ethernet::BROADCAST, link),
            self.counters,
            fx,
        );
    }

    fn learn_neighbour(
        &mut self,
        now: Instant,
        learned: Learned,
        asker: Querier,
        fx: &mut impl Effects,
    ) {
        let Learned { ip, mac, .. } = learned;
        let neighbours = &mut self.net.neighbours;
        if neighbours.learn(now, learned, asker, self.counters, fx) {
            fx.event(Event::Neighbour { ip, mac });
        }
    }

    fn answer_arp(&mut self, request: &ArpPacket, link: u16, fx: &mut impl Effects) {
        if self.config.role == Role::Engine {
            return;
        }
        self.counters.bump(Counter::TxArpReplies);
        let reply = ArpPacket {
            operation: ArpOperation::Reply,
            sender_mac: self.net.macs.on(link),
            sender_ip: request.target_ip,
            target_mac: request.sender_mac,
            target_ip: request.sender_ip,
        };
        send_arp(&reply, (request.sender_mac, link), self.counters, fx);
    }
}
