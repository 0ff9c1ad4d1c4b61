//! A device with two ports: each has its link-layer address, its networks and its neighbours.

use std::net::Ipv4Addr;

use crate::support::*;
use slipstack_stack::*;
use slipstack_wire::arp::ArpOperation;
use slipstack_wire::ipv4::Ipv4Header;
use slipstack_wire::{LinkId, ethernet, protocol};

const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 5];
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 5);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 9);
const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 1, 9];
const PORT: LinkId = LinkId::new(1, 0);

fn table(change: impl FnOnce(&mut NetworkState)) -> Table {
    let mut network = NetworkState::of(1500, vec![(IP.into(), 24)], &[]);
    network.interfaces.push(Interface {
        link: PORT.0,
        mac: OTHER_MAC,
        mtu: 1400,
        addresses: vec![(OTHER.into(), 24)],
        ..Interface::default()
    });
    change(&mut network);
    Table::with(|config| {
        config.network = network.into();
        config.tso_max = 65_000;
    })
}

fn input(table: &mut Table, link: LinkId, frame: &[u8]) {
    let meta = RxMeta {
        link: link.0,
        ..RxMeta::UNKNOWN
    };
    table.stack.on_frame(table.now, frame, meta, &mut table.fx);
}

/// The frames since the last call, with their links.
fn taken(table: &mut Table) -> Vec<(LinkId, Vec<u8>)> {
    let links = std::mem::take(&mut table.fx.links);
    links
        .into_iter()
        .map(LinkId)
        .zip(table.take_frames())
        .collect()
}

/// A frame as it would come to a port with this address.
fn to(mac: [u8; 6], mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&mac);
    frame
}

#[test]
fn each_interface_answers_with_its_own_link_layer_address() {
    let mut table = table(|_| {});
    let table_of = [
        (LinkId::new(0, 0), PEER_MAC, PEER, IP, MAC),
        (PORT, FAR_MAC, FAR, OTHER, OTHER_MAC),
    ];
    for (link, mac, asks, own, own_mac) in table_of {
        let question = arp_frame(ArpOperation::Request, mac, asks, own);
        input(&mut table, link, &question);
        let frames = taken(&mut table);
        assert_eq!(frames.len(), 1, "{own}");
        assert_eq!(frames[0].0, link);
        assert_eq!(frames[0].1[6..12], own_mac);
        assert_eq!(arp_of(&frames[0].1).sender_mac, own_mac);
    }
}

#[test]
fn a_neighbour_is_asked_for_by_its_port_again_and_again() {
    let mut table = table(|_| {});
    let socket = table.bind("0.0.0.0:4000");
    let datagram = DatagramOut::new(Some((FAR, 7).into()), b"x");
    let Table { stack, now, fx } = &mut table;
    stack.udp_send(*now, socket, &datagram, fx).unwrap();
    table.pass(1500);
    let frames = taken(&mut table);
    assert!(frames.len() >= 2, "{}", frames.len());
    for (link, frame) in frames {
        let arp = arp_of(&frame);
        assert_eq!((link, arp.sender_mac), (PORT, OTHER_MAC));
        assert_eq!((arp.sender_ip, arp.target_ip), (OTHER, FAR));
    }
    let answer = arp_frame(ArpOperation::Reply, FAR_MAC, FAR, OTHER);
    input(&mut table, PORT, &to(OTHER_MAC, answer));
    let sent = taken(&mut table);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].0, PORT);
    assert_eq!(sent[0].1[..12], [FAR_MAC, OTHER_MAC].concat());
}

#[test]
fn packets_for_others_pass_from_one_port_to_the_other() {
    let mut table = table(|network| network.is_forwarding = true);
    table.introduce_peer();
    let far = arp_frame(ArpOperation::Request, FAR_MAC, FAR, OTHER);
    input(&mut table, PORT, &far);
    taken(&mut table);
    let there = to(MAC, udp_frame((PEER, 4000), (FAR, 7), &[1; 1300]));
    input(&mut table, LinkId::new(0, 0), &there);
    let sent = taken(&mut table);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].0, PORT);
    assert_eq!(sent[0].1[..12], [FAR_MAC, OTHER_MAC].concat());
    let back = to(OTHER_MAC, udp_frame((FAR, 7), (PEER, 4000), &[1; 9]));
    input(&mut table, PORT, &back);
    let sent = taken(&mut table);
    assert_eq!(sent[0].0, LinkId::new(0, 0));
    assert_eq!(sent[0].1[..12], [PEER_MAC, MAC].concat());
}

/// A segment as the kernel joins them: its checksum is left to the segmenting device.
fn joined(len: usize) -> Vec<u8> {
    let mut tcp = [0; 32];
    tcp[..4].copy_from_slice(&[0x0f, 0xa0, 0, 80]);
    tcp[12] = 8 << 4;
    let segment = [&tcp[..], &vec![7; len]].concat();
    let mut frame = ip_frame(protocol::TCP, PEER, FAR, &segment);
    let header = ip_of(&frame).header;
    Ipv4Header {
        dont_fragment: true,
        ..header
    }
    .emit(&mut frame[14..34]);
    to(MAC, frame)
}

#[test]
fn joined_segments_leave_joined_if_each_fits() {
    let mut table = table(|network| network.is_forwarding = true);
    table.introduce_peer();
    let far = arp_frame(ArpOperation::Request, FAR_MAC, FAR, OTHER);
    input(&mut table, PORT, &far);
    taken(&mut table);
    // The link takes 1400 bytes, of which 52 are headers.
    for (segment, passes) in [(1348, true), (1349, false), (0, false)] {
        let meta = RxMeta {
            checksum: RxChecksum::Partial,
            gso: true,
            segment,
            ..RxMeta::UNKNOWN
        };
        let frame = joined(4000);
        table.stack.on_frame(table.now, &frame, meta, &mut table.fx);
        let sent = taken(&mut table);
        match (segment, passes) {
            (_, true) => {
                assert_eq!((sent.len(), sent[0].0), (1, PORT));
                assert_eq!(sent[0].1.len(), frame.len());
                let cut = table.fx.cuts.last().copied().flatten().unwrap();
                assert_eq!((cut.mss, cut.header_len), (1348, 14 + 20 + 32));
            }
            // Its sender is informed of the link's MTU.
            (1349, _) => assert_eq!((sent.len(), sent[0].0), (1, LinkId::new(0, 0))),
            _ => assert!(sent.is_empty()),
        }
    }
    assert_eq!(table.count(Counter::Forwarded), 1);
    assert_eq!(table.count(Counter::DropForwardTooBig), 1);
    assert_eq!(table.count(Counter::DropForwardJoined), 1);
}

/// Returns the links by which reports have left, with their source link-layer addresses.
fn reports(table: &mut Table) -> Vec<(LinkId, Vec<u8>)> {
    let sent = taken(table).into_iter();
    sent.map(|(link, frame)| (link, frame[6..12].to_vec()))
        .collect()
}

#[test]
fn a_group_is_reported_and_received_only_on_the_port_that_joined_it() {
    let mut table = table(|_| {});
    let socket = table.bind("0.0.0.0:4000");
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let first = LinkId::new(0, 0);
    let mut heard = Vec::new();
    for (link, mac) in [(PORT, OTHER_MAC), (first, MAC)] {
        let join = MulticastOption::Group {
            group: group.into(),
            link: link.0,
            change: GroupChange::Join,
        };
        table.set_multicast(socket, join).unwrap();
        table.pass(1);
        assert_eq!(reports(&mut table), [(link, mac.to_vec())]);
        heard.push(link);
        for by in [first, PORT] {
            let mut frame = udp_frame((FAR, 7), (group, 4000), b"x");
            frame[..6].copy_from_slice(&ethernet::multicast_v4(group));
            let before = table.fx.datagrams.len();
            input(&mut table, by, &frame);
            let count = usize::from(heard.contains(&by));
            assert_eq!(table.fx.datagrams.len() - before, count, "{by:?}");
        }
    }
    table.pass(3000);
    taken(&mut table);
    // A query is answered by the link that it came by.
    let query = [0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];
    let sum = slipstack_wire::checksum::of(&query);
    let mut query = query.to_vec();
    query[2..4].copy_from_slice(&sum.to_be_bytes());
    let frame = ip_frame(protocol::IGMP, FAR, Ipv4Addr::new(224, 0, 0, 1), &query);
    let mut frame = patch_ip(frame, |header| header[8] = 1);
    frame[..6].copy_from_slice(&ethernet::multicast_v4(Ipv4Addr::new(224, 0, 0, 1)));
    input(&mut table, PORT, &frame);
    table.pass(1500);
    assert_eq!(reports(&mut table), [(PORT, OTHER_MAC.to_vec())]);
}

#[test]
fn datagrams_to_a_group_leave_by_the_chosen_port_or_that_of_the_source() {
    let mut table = table(|_| {});
    let socket = table.bind("0.0.0.0:4000");
    let group = Ipv4Addr::new(239, 1, 2, 3);
    for (source, link) in [(IP, LinkId::new(0, 0)), (OTHER, PORT)] {
        let option = MulticastOption::Source(source.into());
        table.set_multicast(socket, option).unwrap();
        let datagram = DatagramOut::new(Some((group, 7).into()), b"x");
        let Table { stack, now, fx } = &mut table;
        stack.udp_send(*now, socket, &datagram, fx).unwrap();
        let sent = taken(&mut table);
        assert!(
            sent.iter()
                .any(|(by, frame)| *by == link && frame.ends_with(b"x"))
        );
    }
    let option = MulticastOption::Source(Ipv4Addr::UNSPECIFIED.into());
    table.set_multicast(socket, option).unwrap();
    for (chosen, source) in [(LinkId::new(0, 0), IP), (PORT, OTHER)] {
        let option = MulticastOption::Leaves {
            is_v6: false,
            is_to_group: true,
            link: Some(chosen.0),
        };
        table.set_multicast(socket, option).unwrap();
        let datagram = DatagramOut::new(Some((group, 7).into()), b"z");
        let Table { stack, now, fx } = &mut table;
        stack.udp_send(*now, socket, &datagram, fx).unwrap();
        let sent = taken(&mut table);
        let out = sent.iter().find(|(_, frame)| frame.ends_with(b"z"));
        assert!(sent.iter().all(|(by, _)| *by == chosen), "{chosen:?}");
        assert_eq!(ip_of(&out.unwrap().1).header.src, source);
    }
    // One datagram may choose for itself.
    let datagram = DatagramOut {
        link: Some(PORT.0),
        src: Some(IP.into()),
        ..DatagramOut::new(Some((group, 7).into()), b"y")
    };
    let Table { stack, now, fx } = &mut table;
    stack.udp_send(*now, socket, &datagram, fx).unwrap();
    let sent = taken(&mut table);
    assert!(
        sent.iter()
            .any(|(by, frame)| *by == PORT && frame.ends_with(b"y"))
    );
}
