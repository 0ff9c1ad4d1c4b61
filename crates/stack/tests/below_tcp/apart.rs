//! Segmentation in software of forwarded packets: the device does not segment, or the path takes
//! smaller ones.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::support::*;
use slipstack_stack::*;
use slipstack_wire::checksum;
use slipstack_wire::ipv6::Ipv6Packet;
use slipstack_wire::tcp::TcpSegment;
use slipstack_wire::{LinkId, protocol};

const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 5];
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 5);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 9);
const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 1, 9];
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
const FAR6: Ipv6Addr = Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 9);
const CWR: u8 = 0x80;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const FIN: u8 = 0x01;

/// A router whose second link has an MTU of `mtu` bytes, and whose device does not segment.
fn router(mtu: u16) -> Table {
    let mut table = Table::with(|config| {
        let own = vec![(IP.into(), 24), ("fd00::5".parse().unwrap(), 64)];
        let network = config.network_mut();
        *network = NetworkState::of(1500, own, &[]);
        network.is_forwarding = true;
        network.interfaces.push(Interface {
            link: LinkId::new(1, 0).0,
            mac: OTHER_MAC,
            mtu,
            addresses: vec![(OTHER.into(), 24), ("fd01::5".parse().unwrap(), 64)],
            ..Interface::default()
        });
    });
    let Table { stack, now, fx } = &mut table;
    for ip in [FAR.into(), FAR6.into()] {
        stack.on_neighbour(*now, ip, FAR_MAC, fx);
    }
    table.take_frames();
    table
}

fn pass(table: &mut Table, frame: &[u8], segment: u16) -> Vec<Vec<u8>> {
    let meta = RxMeta {
        checksum: RxChecksum::Partial,
        gso: true,
        segment,
        ..RxMeta::UNKNOWN
    };
    table.stack.on_frame(table.now, frame, meta, &mut table.fx);
    let frames = table.take_frames();
    assert!(
        frames
            .iter()
            .all(|frame| frame[..12] == [FAR_MAC, OTHER_MAC].concat())
    );
    frames
}

/// Payload with a recognisable pattern.
fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

fn segment(flags: u8, len: usize) -> Vec<u8> {
    let mut tcp = [0; 32];
    tcp[..4].copy_from_slice(&[0x0f, 0xa0, 0, 80]);
    tcp[4..8].copy_from_slice(&(u32::MAX - 1000).to_be_bytes());
    (tcp[12], tcp[13]) = (8 << 4, flags);
    [&tcp[..], &payload(len)].concat()
}

/// Checks that these are the segments of `segment(flags, len)`, `mss` bytes each.
fn check_segments(segments: &[&[u8]], flags: u8, (len, mss): (usize, usize)) {
    assert_eq!(segments.len(), len.div_ceil(mss));
    let mut bytes = Vec::new();
    for (at, segment) in segments.iter().enumerate() {
        let parsed = TcpSegment::parse(segment).unwrap();
        let sequence = (u32::MAX - 1000).wrapping_add(bytes.len() as u32);
        assert_eq!(parsed.header.seq, sequence);
        let is_first = at == 0;
        let is_last = at + 1 == segments.len();
        let kept_back = if is_first { 0 } else { CWR } | if is_last { 0 } else { FIN | PSH };
        assert_eq!(segment[13], flags & !kept_back, "segment {at}");
        bytes.extend_from_slice(&segment[32..]);
    }
    assert_eq!(bytes, payload(len));
}

#[test]
fn super_frames_are_segmented_if_the_device_does_not() {
    let mut table = router(1500);
    let flags = CWR | ACK | PSH | FIN;
    let frame = patch_ip(
        ip_frame(protocol::TCP, PEER, FAR, &segment(flags, 4000)),
        |header| {
            (header[4], header[5], header[6]) = (0xff, 0xff, 0x40);
        },
    );
    let frames = pass(&mut table, &frame, 1448);
    let mut segments = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        let packet = ip_of(frame);
        assert_eq!((packet.header.ttl, packet.header.dont_fragment), (63, true));
        assert_eq!(
            packet.header.identification,
            0xffff_u16.wrapping_add(at as u16)
        );
        assert!(checksum::is_valid_l4_v4(
            PEER,
            FAR,
            protocol::TCP,
            packet.payload
        ));
        segments.push(packet.payload);
    }
    check_segments(&segments, flags, (4000, 1448));
    assert_eq!(table.count(Counter::ForwardApart), 1);
    assert_eq!(table.count(Counter::Forwarded), 1);
}

#[test]
fn super_frames_over_ipv6_are_segmented_too() {
    let mut table = router(1500);
    let segment = segment(ACK | PSH, 3000);
    let frame = packet6(PEER_MAC, protocol::TCP, (PEER6, FAR6), 9, &segment);
    let frames = pass(&mut table, &frame, 1428);
    let mut segments = Vec::new();
    for frame in &frames {
        let packet = Ipv6Packet::parse(&frame[14..]).unwrap();
        assert_eq!(packet.header.hop_limit, 8);
        assert!(checksum::is_valid_l4_v6(
            PEER6,
            FAR6,
            protocol::TCP,
            packet.payload
        ));
        segments.push(packet.payload);
    }
    check_segments(&segments, ACK | PSH, (3000, 1428));
}

#[test]
fn joined_datagrams_are_split_with_a_length_and_a_checksum_each() {
    let mut table = router(1500);
    let whole = payload(2500);
    let frame = udp_frame((PEER, 4000), (FAR, 53), &whole);
    let frames = pass(&mut table, &frame, 1000);
    let mut bytes = Vec::new();
    for frame in &frames {
        let packet = ip_of(frame);
        let len = u16::from_be_bytes([packet.payload[4], packet.payload[5]]);
        assert_eq!(usize::from(len), packet.payload.len());
        assert!(checksum::is_valid_l4_v4(
            PEER,
            FAR,
            protocol::UDP,
            packet.payload
        ));
        bytes.extend_from_slice(&packet.payload[8..]);
    }
    assert_eq!((frames.len(), bytes), (3, whole));
}

#[test]
fn segments_that_may_be_fragmented_are_fragmented_for_a_small_mtu() {
    let mut table = router(600);
    let frame = ip_frame(protocol::TCP, PEER, FAR, &segment(ACK, 2000));
    let frames = pass(&mut table, &frame, 1000);
    let (mut whole, mut segments) = (Vec::new(), Vec::new());
    for frame in &frames {
        let packet = ip_of(frame);
        assert!(packet.header.total_len <= 600);
        assert_eq!(usize::from(packet.fragment_offset), whole.len());
        whole.extend_from_slice(packet.payload);
        if !packet.has_more {
            assert!(checksum::is_valid_l4_v4(PEER, FAR, protocol::TCP, &whole));
            segments.push(std::mem::take(&mut whole));
        }
    }
    let segments: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
    check_segments(&segments, ACK, (2000, 1000));
    // One that is no joined one is given its checksum before it is cut.
    let frame = ip_frame(protocol::TCP, PEER, FAR, &segment(ACK, 1000));
    let meta = RxMeta {
        checksum: RxChecksum::Partial,
        ..RxMeta::UNKNOWN
    };
    table.stack.on_frame(table.now, &frame, meta, &mut table.fx);
    let parts: Vec<u8> = table
        .take_frames()
        .iter()
        .flat_map(|frame| ip_of(frame).payload.to_vec())
        .collect();
    assert!(checksum::is_valid_l4_v4(PEER, FAR, protocol::TCP, &parts));
}

#[test]
fn the_mtu_of_the_first_link_does_not_limit_another() {
    let mut table = router(9000);
    let frame = udp_frame((PEER, 7), (FAR, 53), &payload(8000));
    table.input(&frame);
    let frames = table.take_frames();
    assert_eq!((frames.len(), frames[0].len()), (1, frame.len()));
}
