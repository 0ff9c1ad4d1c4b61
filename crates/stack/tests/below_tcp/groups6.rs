//! IPv6 multicast groups, and the effect of older queriers (RFC 2710, RFC 3810, RFC 3493).

use std::net::Ipv6Addr;

use crate::support::*;
use slipstack_stack::{Counter, DatagramOut, GroupChange, MulticastOption, UdpId, UdpOptions};
use slipstack_wire::icmpv6::Icmpv6Kind;
use slipstack_wire::ipv6::Ipv6Packet;

const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const GROUPS: usize = 8;
const REPORT: u8 = 131;
const DONE: u8 = 132;
const REPORT_V2: u8 = 143;

fn group(n: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, n as u16 + 1)
}

fn table() -> (Table, UdpId) {
    let mut table = Table::with(|config| {
        config
            .network_mut()
            .own_mut()
            .addresses
            .push((OWN.into(), 64))
    });
    let any = (Ipv6Addr::UNSPECIFIED, 1000).into();
    let udp = table.stack.udp_bind(any, UdpOptions::default()).unwrap();
    (table, udp)
}

fn change(table: &mut Table, udp: UdpId, n: usize, change: GroupChange) {
    let option = MulticastOption::Group {
        group: group(n).into(),
        link: 0,
        change,
    };
    table.set_multicast(udp, option).unwrap();
}

/// Which messages of multicast listeners have left, about groups of [`group`].
fn said(table: &mut Table) -> Vec<u8> {
    let frames = table.take_frames();
    let of_v6 = frames.iter().filter(|frame| frame[12..14] == [0x86, 0xdd]);
    // Behind the hop-by-hop header; the group of the first record, or of the message.
    let messages = of_v6
        .filter(|frame| frame[20] == 0)
        .map(|frame| &frame[62..]);
    let is_ours = |message: &&[u8]| {
        let at = if message[0] == REPORT_V2 { 12 } else { 8 };
        message[at..at + 2] == [0xff, 0x0e]
    };
    messages.filter(is_ours).map(|message| message[0]).collect()
}

fn hear_version_1(table: &mut Table) {
    // Ten seconds for the answer, about all groups.
    let query = Icmpv6Kind::MldQuery([0x27, 0x10, 0, 0]);
    table.input(&icmpv6(PEER_MAC, (ROUTER, ALL_NODES), 1, query, &[0; 16]));
    assert_eq!(table.count(Counter::DropMldMalformed), 0);
}

#[test]
fn an_older_router_gets_version_1_until_it_has_been_silent_for_long_enough() {
    // RFC 3810 8.2.1 and 9.12: twice 125 s, and the ten seconds of the query.
    let (mut table, udp) = table();
    hear_version_1(&mut table);
    change(&mut table, udp, 0, GroupChange::Join);
    table.pass(20_000);
    assert_eq!(said(&mut table), [REPORT; 2]);
    change(&mut table, udp, 0, GroupChange::Leave);
    table.pass(0);
    assert_eq!(said(&mut table), [DONE]);
    table.pass(239_000);
    said(&mut table);
    change(&mut table, udp, 1, GroupChange::Join);
    table.pass(0);
    assert_eq!(said(&mut table), [REPORT]);
    table.pass(1_500);
    said(&mut table);
    change(&mut table, udp, 2, GroupChange::Join);
    table.pass(0);
    assert_eq!(said(&mut table), [REPORT_V2]);
}

#[test]
fn unsolicited_reports_to_an_older_router_are_repeated_within_ten_seconds() {
    // RFC 2710 7.10. Version 2 repeats it within one second (RFC 3810 9.11).
    let (mut table, udp) = table();
    for (within_a_second, is_old) in [(GROUPS, false), (0, true)] {
        if is_old {
            hear_version_1(&mut table);
            table.pass(20_000);
            said(&mut table);
        }
        for n in 0..GROUPS {
            change(&mut table, udp, n, GroupChange::Join);
            table.pass(0);
            assert_eq!(said(&mut table).len(), 1);
        }
        table.pass(1_001);
        let soon = said(&mut table).len();
        table.pass(9_000);
        let late = said(&mut table).len();
        if is_old {
            assert_eq!(soon + late, GROUPS);
            assert!(late > GROUPS / 2, "{late}");
        } else {
            assert!(
                (1..=within_a_second).contains(&soon) && late == 0,
                "{soon} {late}"
            );
        }
        for n in 0..GROUPS {
            change(&mut table, udp, n, GroupChange::Leave);
        }
        table.pass(20_000);
        said(&mut table);
    }
}

#[test]
fn multicast_has_a_ttl_of_one_and_is_looped_back_by_default() {
    // RFC 3493 5.2: IPV6_MULTICAST_HOPS and IPV6_MULTICAST_LOOP; joining and leaving.
    let (mut table, udp) = table();
    let out = DatagramOut::new(Some((group(0), 1000).into()), b"x");
    let send = |table: &mut Table| {
        table.fx.local.clear();
        let sent = table.stack.udp_send(table.now, udp, &out, &mut table.fx);
        sent.unwrap();
        let local = std::mem::take(&mut table.fx.local);
        let frame = table.take_frames().pop().unwrap();
        let packet = Ipv6Packet::parse(&frame[14..]).unwrap();
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
        (packet.header.hop_limit, local)
    };
    change(&mut table, udp, 0, GroupChange::Join);
    table.pass(2_000);
    table.take_frames();
    assert_eq!(send(&mut table), (1, vec![true, false]));
    let is_v6 = true;
    let set = |table: &mut Table, option| table.set_multicast(udp, option).unwrap();
    set(&mut table, MulticastOption::Ttl { is_v6, ttl: 9 });
    set(&mut table, MulticastOption::Loop { is_v6, on: false });
    assert_eq!(send(&mut table), (9, vec![false]));
    let datagram = packet6(PEER_MAC, 17, (ROUTER, group(0)), 1, &[0; 8]);
    change(&mut table, udp, 0, GroupChange::Leave);
    table.input(&datagram);
    assert_eq!(table.count(Counter::DropIpv6NotOurs), 1);
}

#[test]
fn a_flow_has_one_label_and_another_flow_another() {
    // RFC 6437 3.
    let (mut table, udp) = table();
    let mut label = |port: u16| {
        let out = DatagramOut::new(Some((group(0), port).into()), b"x");
        let sent = table.stack.udp_send(table.now, udp, &out, &mut table.fx);
        sent.unwrap();
        let frame = table.take_frames().pop().unwrap();
        Ipv6Packet::parse(&frame[14..]).unwrap().header.flow_label
    };
    let labels: Vec<u32> = [7, 7, 8, 9, 7].into_iter().map(&mut label).collect();
    assert!(labels.iter().all(|label| *label != 0 && *label < 1 << 20));
    assert!(labels[0] == labels[1] && labels[0] == labels[4]);
    assert!(labels[0] != labels[2] && labels[0] != labels[3] && labels[2] != labels[3]);
}
