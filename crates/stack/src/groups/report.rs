//! Output of reports about groups.
//!
//! RFC 3376 4.2, RFC 3810 5.2; RFC 2236 2 and 3, RFC 2710 3 and 4.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use slipstack_wire::ethernet::{self, EtherType, EthernetHeader};
use slipstack_wire::group_record::GroupRecord;
use slipstack_wire::icmpv6::{self, Icmpv6Kind, Icmpv6Message};
use slipstack_wire::igmp;
use slipstack_wire::ipv4::{ALERT_HEADER_LEN, Ipv4Header};
use slipstack_wire::{TxOffload, ipv6, ipv6_extensions, mld, protocol};

use super::entry::Saying;
use super::table::LinkGroups;
use crate::counters::Counter;
use crate::effects::{Effects, FrameOut, Payload};
use crate::fib::Choice;
use crate::network_layer::{Cx, OutPacket, OutSegment, transmit};
use crate::time::Instant;

/// RFC 3376 4: internetwork control.
const TOS: u8 = 0xc0;
const IPV4_HEADERS: usize = ethernet::HEADER_LEN + ALERT_HEADER_LEN + igmp::HEADER_LEN;

/// Link, family and time of a report.
#[derive(Clone, Copy)]
pub(super) struct On {
    pub link: u16,
    pub is_v6: bool,
    pub now: Instant,
}

impl Cx<'_> {
    pub(super) fn say_changes(
        &mut self,
        on: On,
        groups: &mut LinkGroups,
        said: &[Saying],
        fx: &mut impl Effects,
    ) {
        let Some(version) = groups.querier(on.is_v6).version(on.now) else {
            return self.report(on, said, fx);
        };
        let mut last = None;
        for saying in said {
            let Some(entry) = groups.find_mut(saying.group) else {
                continue;
            };
            // Older versions have no sources: a group is reported once.
            if last.replace(saying.group) == Some(saying.group) {
                continue;
            }
            let is_leave = entry.state().is_nothing();
            let was_reporter = entry.set_reporter(!is_leave);
            // RFC 2236 3: a host that was not the last to report need not send a leave; version 1
            // has none.
            if !is_leave || (was_reporter && version == 2) {
                self.say_old(on, version, (saying.group, is_leave), fx);
            }
        }
    }

    pub(super) fn say_answers(
        &mut self,
        on: On,
        groups: &mut LinkGroups,
        said: &[Saying],
        fx: &mut impl Effects,
    ) {
        let Some(version) = groups.querier(on.is_v6).version(on.now) else {
            return self.report(on, said, fx);
        };
        for saying in said {
            if let Some(entry) = groups.find_mut(saying.group) {
                entry.set_reporter(true);
            }
            self.say_old(on, version, (saying.group, false), fx);
        }
    }

    /// Reports of IGMPv3 or MLDv2, as many as the records need.
    fn report(&mut self, on: On, said: &[Saying], fx: &mut impl Effects) {
        let is_v6 = on.is_v6;
        let headers = if is_v6 {
            ipv6::HEADER_LEN + 8 + icmpv6::HEADER_LEN
        } else {
            ALERT_HEADER_LEN + igmp::HEADER_LEN
        };
        let room = usize::from(self.net.mtu_of_link(on.link)).saturating_sub(headers);
        let mut body = Vec::new();
        let mut count = 0;
        for saying in said {
            let mut record = GroupRecord {
                kind: saying.kind,
                group: saying.group,
                sources: &saying.sources,
            };
            // RFC 3376 4.2.16: an exclusion that does not fit is cut.
            let width = if is_v6 { 16 } else { 4 };
            let sources_max = room.saturating_sub(4 + width) / width;
            if record.sources.len() > sources_max {
                record.sources = &record.sources[..sources_max];
            }
            if body.len() + record.wire_len() > room {
                self.send_report(on, count, &body, fx);
                body.clear();
                count = 0;
            }
            let at = body.len();
            body.resize(at + record.wire_len(), 0);
            record.emit(&mut body[at..]);
            count += 1;
        }
        if count > 0 {
            self.send_report(on, count, &body, fx);
        }
    }

    fn send_report(&mut self, on: On, count: u16, records: &[u8], fx: &mut impl Effects) {
        if !on.is_v6 {
            let message = [&igmp::v3_report(count, records)[..], records].concat();
            return self.send_igmp(on.link, igmp::V3_ROUTERS, &message, fx);
        }
        let [high, low] = count.to_be_bytes();
        let message = Icmpv6Message {
            kind: Icmpv6Kind::MldReport([0, 0, high, low]),
            body: records,
        };
        self.send_mld(on, mld::ROUTERS, &message, fx);
    }

    /// A message of an older version: to the group itself, or to all routers.
    fn say_old(
        &mut self,
        on: On,
        version: u8,
        (group, is_leave): (IpAddr, bool),
        fx: &mut impl Effects,
    ) {
        match group {
            IpAddr::V4(group) => {
                let (saying, dst) = match (is_leave, version) {
                    (true, _) => (igmp::Saying::V2Leave, igmp::ALL_ROUTERS),
                    (false, 1) => (igmp::Saying::V1Member, group),
                    (false, _) => (igmp::Saying::V2Member, group),
                };
                self.send_igmp(on.link, dst, &saying.message(group), fx);
            }
            IpAddr::V6(group) => {
                let (kind, dst) = if is_leave {
                    (mld::V1_DONE, mld::ALL_ROUTERS)
                } else {
                    (mld::V1_REPORT, group)
                };
                let message = Icmpv6Message {
                    kind: Icmpv6Kind::Other { kind, code: 0 },
                    body: &group.octets(),
                };
                self.send_mld(on, dst, &message, fx);
            }
        }
    }

    /// A link without an address of ours sends nothing (RFC 3376 4.2.13).
    fn send_igmp(&mut self, link: u16, dst: Ipv4Addr, message: &[u8], fx: &mut impl Effects) {
        let src = self.net.routes.first_of(link);
        let src = src.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let mut header = vec![0; IPV4_HEADERS - igmp::HEADER_LEN];
        EthernetHeader {
            dst: ethernet::multicast_v4(dst),
            src: self.net.macs.on(link),
            ethertype: EtherType::IPV4,
        }
        .emit(&mut header);
        Ipv4Header {
            tos: TOS,
            total_len: (ALERT_HEADER_LEN + message.len()) as u16,
            identification: 0,
            dont_fragment: true,
            ttl: 1,
            protocol: protocol::IGMP,
            src,
            dst,
        }
        .emit_with_alert(&mut header[ethernet::HEADER_LEN..]);
        self.counters.bump(Counter::TxIgmpReports);
        let frame = FrameOut {
            header: &header,
            payload: Payload::Inline(message),
            offload: TxOffload::on(link),
            local: false,
        };
        transmit(frame, self.counters, fx);
    }

    fn send_mld(
        &mut self,
        on: On,
        dst: Ipv6Addr,
        message: &Icmpv6Message<'_>,
        fx: &mut impl Effects,
    ) {
        let On { link, now, .. } = on;
        // RFC 3810 5.2.13: from a link-local address, or from none.
        let src = self
            .net
            .routes6
            .link_local_of(link)
            .unwrap_or(Ipv6Addr::UNSPECIFIED);
        self.counters.bump(Counter::TxMldReports);
        let mut header = [0; 8 + icmpv6::HEADER_LEN];
        header[..8].copy_from_slice(&mld::hop_by_hop(protocol::ICMPV6));
        header[8..].copy_from_slice(&message.header(src, dst));
        let packet = OutPacket {
            src: src.into(),
            dst: dst.into(),
            protocol: ipv6_extensions::HOP_BY_HOP,
            ports: (0, 0),
            tos: 0,
            ttl: 1,
            dont_fragment: true,
            choice: Choice {
                link: Choice::link_of(link),
                ..Choice::NONE
            },
        };
        let segment = OutSegment {
            header: &header,
            payload: Payload::Inline(message.body),
            checksum_at: None,
            gso_mss: None,
        };
        self.output(now, &packet, &mut None, segment, fx);
    }
}
