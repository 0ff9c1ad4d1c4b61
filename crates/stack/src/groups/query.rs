//! Input of queries of routers and reports of other members.
//!
//! RFC 3376 5.2 and 7.2.1, RFC 3810 6.2 and 8.2.1.

use core::net::{IpAddr, Ipv6Addr};

use slipstack_wire::{igmp, mld};

use super::querier::Asked;
use crate::config::Role;
use crate::counters::Counter;
use crate::ip::IpMeta;
use crate::network_layer::Cx;
use crate::time::Instant;

impl Cx<'_> {
    pub(crate) fn on_igmp(&mut self, now: Instant, ip: &IpMeta, bytes: &[u8]) {
        if self.config.role == Role::Engine {
            self.counters.bump(Counter::DropIcmpRole);
            return;
        }
        // RFC 3376 4: they do not leave their link.
        let message = igmp::IgmpMessage::parse(bytes).filter(|_| ip.ttl == 1);
        match message {
            Some(igmp::IgmpMessage::Query(query)) => {
                self.counters.bump(Counter::RxIgmpQueries);
                self.on_query(
                    (now, ip.link),
                    false,
                    Asked {
                        old: (query.version < 3).then_some(query.version),
                        group: (!query.group.is_unspecified()).then_some(query.group.into()),
                        sources: query.sources().map(IpAddr::V4).collect(),
                        response_max_ms: query.response_max_ms,
                        robustness: query.robustness,
                    },
                );
            }
            Some(igmp::IgmpMessage::Report(group)) => self.on_other_member(ip.link, group.into()),
            Some(igmp::IgmpMessage::Other) => self.counters.bump(Counter::DropIgmpType),
            None => self.counters.bump(Counter::DropIgmpMalformed),
        }
    }

    pub(crate) fn on_mld_query(&mut self, now: Instant, ip: &IpMeta, rest: [u8; 4], body: &[u8]) {
        let is_local = is_of_link(ip);
        match mld::Query::parse(rest, body) {
            Some(_) if self.config.role == Role::Engine => {
                self.counters.bump(Counter::DropIcmpRole);
            }
            // RFC 3810 5.1.14: from a link-local address and with a hop limit of one.
            Some(query) if is_local => {
                self.counters.bump(Counter::RxMldQueries);
                self.on_query(
                    (now, ip.link),
                    true,
                    Asked {
                        old: query.is_v1.then_some(2),
                        group: (!query.group.is_unspecified()).then_some(query.group.into()),
                        sources: query.sources().map(IpAddr::V6).collect(),
                        response_max_ms: query.response_max_ms,
                        robustness: query.robustness,
                    },
                );
            }
            _ => self.counters.bump(Counter::DropMldMalformed),
        }
    }

    pub(crate) fn on_mld_report(&mut self, ip: &IpMeta, body: &[u8]) {
        match body.first_chunk::<16>() {
            Some(_) if self.config.role == Role::Engine => {
                self.counters.bump(Counter::DropIcmpRole);
            }
            // RFC 2710 3: only hosts of the link can report in our place.
            Some(group) if is_of_link(ip) => {
                self.on_other_member(ip.link, Ipv6Addr::from(*group).into());
            }
            _ => self.counters.bump(Counter::DropMldMalformed),
        }
    }

    /// RFC 2236 3, RFC 2710 4: for routers of older versions one member is enough.
    fn on_other_member(&mut self, link: u16, group: IpAddr) {
        self.counters.bump(Counter::RxGroupReports);
        let groups = self.net.groups.as_mut();
        if let Some(entry) = groups.and_then(|groups| groups.on(link).find_mut(group)) {
            entry.on_other_member();
        }
    }

    fn on_query(&mut self, (now, link): (Instant, u16), is_v6: bool, asked: Asked) {
        if self.net.groups.is_none() && asked.old.is_none() {
            return;
        }
        let groups = self.net.groups.get_or_insert_default().on(link);
        groups.note_querier(now, is_v6, &asked);
        groups.schedule(now, is_v6, asked, self.rng);
        let at = groups.next_deadline();
        self.net.look_at(at);
    }
}

fn is_of_link(ip: &IpMeta) -> bool {
    ip.ttl == 1 && matches!(ip.src, IpAddr::V6(src) if src.is_unicast_link_local())
}
