//! Choice between several default routers: one that answers (RFC 4861 6.3.6).
//!
//! A router whose neighbour entry has failed is used after the others until it is heard again; when
//! none answers, they take turns. Cached routes by it are looked up again, and packets that waited
//! for it go to the next one.

mod lost;

use core::net::{IpAddr, Ipv6Addr};

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::ipv6::Ipv6Packet;
use slipstack_wire::zone::{plain, zone_of};

use crate::counters::Counter;
use crate::effects::Effects;
use crate::held::HeldFrame;
use crate::neighbour::{Resolution, Station};
use crate::network_layer::Cx;
use crate::time::Instant;
use lost::PROBE_EVERY;

pub(crate) use lost::LostRouters;

impl Cx<'_> {
    /// Neighbours that were given up: routers among them are used no more while there are others.
    #[cold]
    pub(crate) fn on_neighbours_lost(&mut self, now: Instant, gone: &[IpAddr]) {
        let before = self.net.lost_routers.rank(&self.net.learnt.routers);
        for ip in gone {
            if let IpAddr::V6(ip) = ip
                && before.contains(ip)
            {
                self.counters.bump(Counter::RoutersLost);
                self.net.lost_routers.note(now, *ip);
                self.net.look_at(Some(now + PROBE_EVERY));
            }
        }
        if self.net.lost_routers.rank(&self.net.learnt.routers) != before {
            self.renew_ways();
        }
    }

    /// A neighbour is there: if it is a router that was lost, it is used as before.
    #[cold]
    pub(crate) fn on_router_found(&mut self, ip: IpAddr) {
        if let IpAddr::V6(ip) = ip
            && self.net.lost_routers.forget(ip)
        {
            self.renew_ways();
        }
    }

    /// Probes preferred routers that are unreachable, while another router is used.
    // DEVIATION(RFC 4191 3.2): three solicitations a minute instead of one, as for every neighbour.
    #[cold]
    pub(crate) fn probe_lost_routers(&mut self, now: Instant, fx: &mut impl Effects) {
        let ranked = self.net.lost_routers.rank(&self.net.learnt.routers);
        let Some(&current) = ranked.first() else {
            return;
        };
        let used = self.net.neighbours.last_used(current.into());
        let is_used = used.is_some_and(|at| at + PROBE_EVERY > now);
        let asked = self.net.lost_routers.take_due(now);
        for router in asked {
            if is_used && router != current {
                self.resolve_router(now, router, fx);
            }
        }
        let next = self.net.lost_routers.next_deadline();
        self.net.look_at(next);
    }

    fn resolve_router(
        &mut self,
        now: Instant,
        router: Ipv6Addr,
        fx: &mut impl Effects,
    ) -> Resolution {
        let Some(source) = self.net.routes6.find_source(router) else {
            return Resolution::TableFull;
        };
        let link = zone_of(router).0;
        let station = Station {
            mac: self.net.macs.on(link),
            ip: source.into(),
            link,
        };
        let neighbours = &mut self.net.neighbours;
        neighbours.resolve(now, router.into(), station, self.counters, fx)
    }

    /// Sends packets that waited for an unreachable router by the next one; returns them if no
    /// router answers.
    pub(crate) fn divert(
        &mut self,
        now: Instant,
        hop: IpAddr,
        mut frame: HeldFrame,
        fx: &mut impl Effects,
    ) -> Option<HeldFrame> {
        let IpAddr::V6(hop) = hop else {
            return Some(frame);
        };
        let ranked = self.net.lost_routers.rank(&self.net.learnt.routers);
        let next = ranked.first().copied();
        // The waiting frame has its link's headers already: the next router has to be on that link.
        let is_there = |next: &Ipv6Addr| *next != hop && zone_of(*next) == zone_of(hop);
        let next = next.filter(is_there);
        let next = next.filter(|next| !self.net.lost_routers.contains(*next));
        let Some(next) = next.filter(|_| is_passed_on(&frame, hop)) else {
            return Some(frame);
        };
        match self.resolve_router(now, next, fx) {
            Resolution::Known { mac, .. } => frame.send(mac, self.counters, fx),
            Resolution::Asking => {
                let neighbours = &mut self.net.neighbours;
                neighbours.hold(next.into(), frame, self.counters);
            }
            Resolution::TableFull => return Some(frame),
        }
        None
    }
}

/// Returns whether a frame was to go beyond the router, not to it.
fn is_passed_on(frame: &HeldFrame, hop: Ipv6Addr) -> bool {
    let Some((header, _)) = EthernetHeader::parse(frame.header()) else {
        return false;
    };
    let packet = Ipv6Packet::parse_quoted(&frame.header()[ethernet::HEADER_LEN..]);
    header.ethertype == EtherType::IPV6
        && packet.is_some_and(|packet| packet.header.dst != plain(hop))
}
