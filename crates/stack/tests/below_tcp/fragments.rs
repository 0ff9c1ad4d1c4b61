//! Fragments of both families, frame by frame.
//!
//! RFC 791 3.2, RFC 1122 3.3.2, RFC 5722 4, RFC 8200 4.5.

use std::net::Ipv6Addr;

use crate::support::*;
use slipstack_stack::{Counter, RxMeta};
use slipstack_wire::ethernet::{EtherType, EthernetHeader};
use slipstack_wire::icmpv4::{IcmpKind, IcmpMessage};
use slipstack_wire::ipv6::Ipv6Header;
use slipstack_wire::ipv6_extensions as extensions;
use slipstack_wire::{checksum, protocol, udp};

const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);
const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);
/// Payload bytes of each fragment but the last.
const PIECE: usize = 1472;

fn table() -> Table {
    let mut table = Table::with(|config| {
        config
            .network_mut()
            .own_mut()
            .addresses
            .push((OWN6.into(), 64))
    });
    table.introduce_peer();
    table
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 / 8) as u8).collect()
}

/// A UDP datagram from port 7 to port 1000, with its checksum.
fn datagram_v6(len: usize) -> Vec<u8> {
    let mut bytes = [&udp::header(7, 1000, len)[..], &payload(len)].concat();
    let mut sum = checksum::pseudo_v6(PEER6, OWN6, protocol::UDP, bytes.len() as u32);
    sum.add_bytes(&bytes);
    bytes[6..8].copy_from_slice(&sum.finish().to_be_bytes());
    bytes
}

fn fragment_v4(identification: u8, offset: usize, has_more: bool, bytes: &[u8]) -> Vec<u8> {
    patch_ip(ip_frame(protocol::UDP, PEER, IP, bytes), |header| {
        header[5] = identification;
        let word = (offset / 8) as u16 | if has_more { 0x2000 } else { 0 };
        header[6..8].copy_from_slice(&word.to_be_bytes());
    })
}

fn fragment_v6(identification: u8, offset: usize, has_more: bool, bytes: &[u8]) -> Vec<u8> {
    fragment_of(protocol::UDP, identification, offset, has_more, bytes)
}

fn fragment_of(first: u8, id: u8, offset: usize, has_more: bool, bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 54];
    let ethernet = EthernetHeader {
        dst: MAC,
        src: PEER_MAC,
        ethertype: EtherType::IPV6,
    };
    ethernet.emit(&mut frame);
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: 8 + bytes.len() as u16,
        next_header: extensions::FRAGMENT,
        hop_limit: 64,
        src: PEER6,
        dst: OWN6,
    };
    header.emit(&mut frame[14..]);
    let word = offset as u16 | u16::from(has_more);
    frame.extend([first, 0]);
    frame.extend(word.to_be_bytes());
    frame.extend([0, 0, 0, id]);
    frame.extend_from_slice(bytes);
    frame
}

/// The fragments of a datagram of `len` bytes.
fn parts(is_v6: bool, identification: u8, len: usize) -> Vec<Vec<u8>> {
    let whole = if is_v6 {
        datagram_v6(len)
    } else {
        udp_frame((PEER, 7), (IP, 1000), &payload(len))[34..].to_vec()
    };
    let make = if is_v6 { fragment_v6 } else { fragment_v4 };
    let parts = whole.chunks(PIECE).enumerate();
    parts
        .map(|(at, bytes)| {
            let has_more = at * PIECE + bytes.len() < whole.len();
            make(identification, at * PIECE, has_more, bytes)
        })
        .collect()
}

#[test]
fn fragments_in_any_order_make_the_datagram() {
    for (is_v6, longest) in [(false, 65_507), (true, 65_527)] {
        for len in [1500, 5000, longest] {
            let mut table = table();
            table.bind(if is_v6 { "[::]:1000" } else { "0.0.0.0:1000" });
            let mut frames = parts(is_v6, 1, len);
            frames.reverse();
            frames.swap(0, 1);
            for frame in &frames {
                assert!(table.fx.datagrams.is_empty());
                // The device's checksum verdict on a fragment does not count for the datagram.
                table
                    .stack
                    .on_frame(table.now, frame, RxMeta::UNKNOWN, &mut table.fx);
            }
            assert_eq!(table.fx.datagrams.len(), 1, "{is_v6} {len}");
            assert_eq!(table.fx.datagrams[0].3, payload(len));
            let count = frames.len() as u64;
            assert_eq!(table.count(Counter::RxFragments), count);
            assert_eq!(table.count(Counter::RxReassembled), 1);
            assert_eq!(table.stack.counters().dropped(), 0);
        }
    }
}

#[test]
fn a_reassembled_checksum_is_verified_in_spite_of_the_devices_flag() {
    for is_v6 in [false, true] {
        let mut table = table();
        table.bind("[::]:1000");
        let mut frames = parts(is_v6, 1, 3000);
        let last = frames.last_mut().and_then(|frame| frame.last_mut());
        *last.unwrap() ^= 1;
        for frame in &frames {
            table
                .stack
                .on_frame(table.now, frame, RxMeta::VERIFIED, &mut table.fx);
        }
        assert!(table.fx.datagrams.is_empty());
        assert_eq!(table.count(Counter::DropUdpChecksum), 1);
    }
}

#[test]
fn overlapping_fragments_discard_their_packet() {
    for is_v6 in [false, true] {
        let mut table = table();
        table.bind("[::]:1000");
        let frames = parts(is_v6, 1, 3000);
        let make = if is_v6 { fragment_v6 } else { fragment_v4 };
        table.input(&frames[0]);
        table.input(&make(1, PIECE - 8, true, &[0; 16]));
        table.input(&frames[1]);
        table.input(&frames[2]);
        assert!(table.fx.datagrams.is_empty() && table.take_frames().is_empty());
        assert_eq!(table.count(Counter::DropFragmentOverlap), 4);
        // Another packet of the same sender is none the worse for it.
        for frame in parts(is_v6, 2, 3000) {
            table.input(&frame);
        }
        assert_eq!(table.fx.datagrams.len(), 1);
    }
}

/// Linux: pskb_trim_rcsum() in ip_frag_queue().
#[test]
fn an_ipv4_fragment_that_is_not_the_last_is_cut_to_multiples_of_eight() {
    let mut table = table();
    table.bind("0.0.0.0:1000");
    let whole = udp_frame((PEER, 7), (IP, 1000), &payload(9))[34..].to_vec();
    table.input(&fragment_v4(1, 16, false, &whole[16..]));
    table.input(&fragment_v4(1, 0, true, &whole));
    assert_eq!(table.fx.datagrams.len(), 1);
    assert_eq!(table.fx.datagrams[0].3, payload(9));
}

/// Linux: IPFRAG_DUP of inet_frag_queue_insert(). RFC 8200 4.5 accepts only an exact duplicate.
#[test]
fn a_contained_fragment_is_ignored_in_ipv4_and_discards_the_packet_in_ipv6() {
    for (is_v6, arrived) in [(false, 1), (true, 0)] {
        let mut table = table();
        table.bind("[::]:1000");
        let frames = parts(is_v6, 1, 3000);
        let make = if is_v6 { fragment_v6 } else { fragment_v4 };
        table.input(&frames[0]);
        table.input(&frames[1]);
        table.input(&make(1, PIECE - 8, true, &[b'?'; 16]));
        table.input(&frames[2]);
        assert_eq!(table.fx.datagrams.len(), arrived);
        assert!(table.fx.datagrams.iter().all(|it| it.3 == payload(3000)));
    }
}

#[test]
fn malformed_fragments_are_refused() {
    let cases = [
        fragment_v4(1, 8, true, &[0; 7]),
        fragment_v4(1, 65_528, false, &[0; 8]),
        fragment_v4(1, 8, false, &[]),
        fragment_v6(1, 8, false, &[]),
    ];
    for frame in cases {
        let mut table = table();
        table.input(&frame);
        assert_eq!(table.count(Counter::DropFragmentMalformed), 1);
        assert!(table.take_frames().is_empty());
    }
}

#[test]
fn a_first_fragment_without_its_transport_header_gives_an_error() {
    // RFC 7112 5.
    let options = [protocol::TCP, 0, 1, 4, 0, 0, 0, 0];
    let first = |bytes| fragment_of(extensions::DESTINATION_OPTIONS, 1, 0, true, bytes);
    let mut table = table();
    table.input(&first(&options));
    table.input(&first(&[&options[..], &[0; 16]].concat()));
    table.input(&fragment_v6(2, 0, true, &[]));
    assert_eq!(table.count(Counter::DropFragmentMalformed), 3);
    assert_eq!(table.count(Counter::TxIcmpErrors), 3);
}

#[test]
fn a_fragment_header_within_a_reassembled_packet_is_not_followed() {
    let mut table = table();
    // Destination options, and behind them the fragment header of another packet.
    let inner = [
        &[extensions::FRAGMENT, 0, 1, 4, 0, 0, 0, 0][..],
        &[17, 0, 0, 1, 0, 0, 0, 9],
        &[0; 8],
    ];
    let bytes = inner.concat();
    table.input(&fragment_of(
        extensions::DESTINATION_OPTIONS,
        1,
        0,
        true,
        &bytes,
    ));
    table.input(&fragment_of(
        extensions::DESTINATION_OPTIONS,
        1,
        bytes.len(),
        false,
        &[0; 8],
    ));
    assert_eq!(table.count(Counter::DropFragmentMalformed), 1);
    assert_eq!(table.count(Counter::RxReassembled), 0);
}

#[test]
fn a_reassembly_timeout_gives_an_error_to_the_sender_of_the_first_fragment() {
    let mut table = table();
    table.input(&parts(false, 1, 3000)[0]);
    table.input(&parts(false, 2, 3000)[1]);
    table.pass(29_900);
    table.introduce_peer();
    assert!(table.take_frames().is_empty());
    table.pass(200);
    assert_eq!(table.count(Counter::DropFragmentTimeout), 2);
    let frames = table.take_frames();
    assert_eq!(
        frames.len(),
        1,
        "nothing about the packet without a first fragment"
    );
    let packet = ip_of(&frames[0]);
    let error = IcmpMessage::parse(packet.payload).unwrap();
    assert_eq!(error.kind, IcmpKind::TimeExceeded { code: 1 });
    assert_eq!(error.body[..20], parts(false, 1, 3000)[0][14..34]);
}

#[test]
fn waiting_frames_are_bounded_by_the_named_limit() {
    let mut table = Table::with(|config| config.fragments_bytes_max = 64 << 10);
    table.introduce_peer();
    for identification in 0..=255 {
        table.input(&fragment_v4(identification, 8, true, &[1; 1464]));
    }
    let gone = table.count(Counter::DropFragmentMemory);
    // 1464 bytes and their overhead, in 64 KiB.
    assert_eq!(256 - gone, (64 << 10) / (1464 + 64 + 320));
}
