//! IPv4 and ICMP input: each malformed packet has its counter and no other effect.
//!
//! RFC 1122 3.2.1.3, 3.2.1.8, 3.2.2 and 3.2.2.6, RFC 1812 5.3.7.

use std::net::Ipv4Addr;

use crate::support::*;
use proptest::prelude::*;
use slipstack_stack::{
    Counter, DatagramIn, DatagramOut, Effects, Event, FrameOut, Instant, Reason, Role, RxMeta,
};
use slipstack_wire::icmpv4::{IcmpKind, IcmpMessage, code};
use slipstack_wire::protocol;

fn echo(src: Ipv4Addr, dst: Ipv4Addr) -> Vec<u8> {
    icmp_frame(src, dst, IcmpKind::EchoRequest([0, 1, 0, 2]), b"ping")
}

#[test]
fn an_echo_is_answered_with_its_data() {
    let mut table = Table::new();
    table.introduce_peer();
    table.input(&echo(PEER, IP));
    let frames = table.take_frames();
    let packet = ip_of(&frames[0]);
    assert_eq!((packet.header.src, packet.header.dst), (IP, PEER));
    let reply = IcmpMessage::parse(packet.payload).unwrap();
    assert_eq!(
        reply,
        IcmpMessage {
            kind: IcmpKind::EchoReply([0, 1, 0, 2]),
            body: b"ping"
        }
    );
}

#[test]
fn an_engine_does_not_answer_echos() {
    let mut table = Table::with(|config| config.role = Role::Engine);
    table.introduce_peer();
    table.input(&echo(PEER, IP));
    assert!(table.take_frames().is_empty());
    assert_eq!(table.count(Counter::DropIcmpRole), 1);
}

/// Each frame is dropped for exactly the reason given, and nothing else happens.
fn assert_drops(cases: impl IntoIterator<Item = (Vec<u8>, Counter)>) {
    for (frame, counter) in cases {
        let mut table = Table::new();
        table.introduce_peer();
        table.fx.events.clear();
        table.input(&frame);
        assert_eq!(table.count(counter), 1, "{counter:?}");
        assert_eq!(table.stack.counters().dropped(), 1, "{counter:?}");
        assert!(table.take_frames().is_empty(), "{counter:?}");
        assert!(table.fx.events.is_empty(), "{counter:?}");
    }
}

fn with_byte(mut frame: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    frame[at] = value;
    frame
}

/// An echo whose IP header has one word of options.
fn with_options(options: [u8; 4]) -> Vec<u8> {
    let mut frame = echo(PEER, IP);
    frame.splice(34..34, options);
    frame[14] = 0x46;
    frame[17] += 4;
    frame[24..26].fill(0);
    let sum = slipstack_wire::checksum::of(&frame[14..38]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn each_malformed_header_has_its_counter() {
    let good = || echo(PEER, IP);
    let patched = |at: usize, value: u8| patch_ip(good(), |header| header[at] = value);
    assert_drops([
        (good()[..10].to_vec(), Counter::DropEthernetShort),
        (with_byte(good(), 5, 0x77), Counter::DropEthernetNotOurs),
        (with_byte(good(), 12, 0x88), Counter::DropEthernetType),
        (good()[..30].to_vec(), Counter::DropIpv4Malformed),
        (patched(0, 0x55), Counter::DropIpv4Malformed),
        (patched(0, 0x44), Counter::DropIpv4Malformed),
        (patched(2, 0x40), Counter::DropIpv4Malformed),
        (with_byte(good(), 24, 0x01), Counter::DropIpv4Checksum),
        (with_options([131, 3, 4, 0]), Counter::DropIpv4SourceRoute),
        (with_options([7, 1, 0, 0]), Counter::DropIpv4Options),
    ]);
}

#[test]
fn each_wrong_address_has_its_counter() {
    // RFC 1122 3.3.6 and 4.1.3.6.
    let from = |a, b, c, d| echo(Ipv4Addr::new(a, b, c, d), IP);
    let to = |a, b, c, d| echo(PEER, Ipv4Addr::new(a, b, c, d));
    let mut link_group = echo(PEER, IP);
    link_group[..6].fill(0xff);
    assert_drops([
        (from(127, 0, 0, 1), Counter::DropIpv4Martian),
        (from(0, 0, 0, 0), Counter::DropIpv4Martian),
        (from(224, 0, 0, 1), Counter::DropIpv4Martian),
        (from(255, 255, 255, 255), Counter::DropIpv4Martian),
        (from(10, 0, 0, 255), Counter::DropIpv4Martian),
        (from(250, 1, 1, 1), Counter::DropIpv4Martian),
        (from(10, 0, 0, 5), Counter::DropIpv4Spoofed),
        (to(10, 0, 0, 6), Counter::DropIpv4NotOurs),
        (to(127, 0, 0, 1), Counter::DropIpv4NotOurs),
        (to(224, 0, 0, 9), Counter::DropIpv4NotOurs),
        (to(224, 0, 0, 1), Counter::DropIcmpGroup),
        (link_group, Counter::DropIpv4LinkGroup),
        (to(10, 0, 0, 255), Counter::DropIcmpGroup),
    ]);
}

#[test]
fn each_wrong_icmp_message_has_its_counter() {
    let quote = |body: &[u8]| {
        let kind = IcmpKind::DestinationUnreachable { code: 1, mtu: 0 };
        icmp_frame(GATEWAY, IP, kind, body)
    };
    assert_drops([
        (
            with_byte(echo(PEER, IP), 40, 0xff),
            Counter::DropIcmpChecksum,
        ),
        (
            ip_frame(protocol::ICMP, PEER, IP, &[8, 0, 0]),
            Counter::DropIcmpMalformed,
        ),
        (
            icmp_frame(PEER, IP, IcmpKind::Other { kind: 13, code: 0 }, b""),
            Counter::DropIcmpType,
        ),
        (quote(b"short"), Counter::DropIcmpQuote),
        (quote(&echo(PEER, IP)[14..]), Counter::DropIcmpQuote),
    ]);
}

#[test]
fn harmless_options_are_accepted() {
    let mut table = Table::new();
    table.introduce_peer();
    table.input(&with_options([148, 4, 0, 0]));
    assert_eq!(table.take_frames().len(), 1);
}

#[test]
fn an_error_reaches_the_socket_that_is_connected_to_its_peer() {
    // RFC 1122 3.2.2.1.
    let mut table = Table::new();
    table.introduce_peer();
    let udp = table.bind("0.0.0.0:1000");
    table.stack.udp_connect(udp, Some(at(PEER, 7))).unwrap();
    table
        .stack
        .udp_send(
            table.now,
            udp,
            &DatagramOut::new(None, b"hello"),
            &mut table.fx,
        )
        .unwrap();
    let sent = table.take_frames().remove(0);
    table.fx.events.clear();
    let kind = IcmpKind::DestinationUnreachable {
        code: code::PORT_UNREACHABLE,
        mtu: 0,
    };
    table.input(&icmp_frame(PEER, IP, kind, &sent[14..42]));
    assert_eq!(
        table.fx.events,
        [Event::UdpFailed {
            udp,
            reason: Reason::Refused
        }]
    );
    assert_eq!(table.count(Counter::RxIcmpErrors), 1);

    table.stack.udp_connect(udp, Some(at(PEER, 8))).unwrap();
    table.input(&icmp_frame(PEER, IP, kind, &sent[14..42]));
    assert_eq!(table.fx.events.len(), 1, "not about the present peer");
}

#[test]
fn packets_from_our_own_address_are_accepted_only_if_looped_back() {
    let mut table = Table::new();
    let udp = table.bind("0.0.0.0:1000");
    table
        .stack
        .udp_send(
            table.now,
            udp,
            &DatagramOut::new(Some(at(IP, 1000)), b"self"),
            &mut table.fx,
        )
        .unwrap();
    assert_eq!(table.fx.local, [true]);
    let frame = table.take_frames().remove(0);
    table.input(&frame);
    assert_eq!(table.count(Counter::DropIpv4Spoofed), 1);
    table
        .stack
        .on_frame(table.now, &frame, RxMeta::LOCAL, &mut table.fx);
    assert_eq!(
        table.fx.datagrams,
        [(udp, at(IP, 1000), at(IP, 1000), b"self".to_vec())]
    );
}

/// Takes everything, keeps nothing.
struct Sink;

impl Effects for Sink {
    fn transmit(&mut self, _: FrameOut<'_>) {}

    fn store(&mut self, _: slipstack_stack::ConnId, _: u64, _: &[u8]) -> bool {
        true
    }

    fn datagram(&mut self, _: slipstack_stack::UdpId, _: &DatagramIn<'_>) {}

    fn event(&mut self, _: Event) {}
}

/// A good frame with some bytes changed and the IP checksum mostly repaired, so that mutations
/// reach the deeper layers.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let seeds = prop_oneof![
        Just(echo(PEER, IP)),
        Just(udp_frame((PEER, 7), (IP, 1000), b"payload")),
        Just(arp_frame(
            slipstack_wire::arp::ArpOperation::Request,
            PEER_MAC,
            PEER,
            IP
        )),
        Just(icmp_frame(
            PEER,
            IP,
            IcmpKind::DestinationUnreachable { code: 3, mtu: 0 },
            &udp_frame((IP, 1000), (PEER, 7), b"")[14..],
        )),
        Just(ip_frame(protocol::TCP, PEER, IP, &[0x50; 40])),
    ];
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    (
        seeds,
        changes,
        any::<prop::sample::Index>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(mut frame, changes, end, cut, repair)| {
            for (index, value) in changes {
                let len = frame.len();
                frame[index.index(len)] = value;
            }
            if repair && frame.len() >= 34 {
                frame = patch_ip(frame, |_| {});
            }
            if cut {
                frame.truncate(end.index(frame.len() + 1));
            }
            frame
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_frame_is_survived_and_counted_once(
        frames in proptest::collection::vec(mutated(), 1..8),
        partial: bool,
    ) {
        let mut table = Table::new();
        table.introduce_peer();
        table.bind("0.0.0.0:1000");
        table.stack.tcp_listen(at(IP, 0x5050), slipstack_stack::ListenOptions::default()).ok();
        let meta = if partial { RxMeta::VERIFIED } else { RxMeta::UNKNOWN };
        for frame in &frames {
            let before = table.stack.counters().dropped();
            table.stack.on_frame(table.now, frame, meta, &mut Sink);
            table.stack.flush(table.now, &mut Sink);
            let dropped = table.stack.counters().dropped() - before;
            // A frame is dropped for one reason; its answer may be refused for another.
            prop_assert!(dropped <= 2, "{dropped} drops for one frame");
        }
        table.stack.on_timers(Instant(table.now.0 + 5_000_000_000), &mut Sink);
    }
}

#[test]
fn segments_to_or_from_groups_are_dropped_silently() {
    // RFC 9293 3.9.2.3.
    let syn = [&[0, 9, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2][..], &[0; 6]].concat();
    let group = Ipv4Addr::new(224, 0, 0, 1);
    for (src, dst, why) in [
        (PEER, group, Counter::DropTcpGroup),
        (PEER, Ipv4Addr::new(10, 0, 0, 255), Counter::DropTcpGroup),
        (PEER, Ipv4Addr::BROADCAST, Counter::DropTcpGroup),
        (group, IP, Counter::DropIpv4Martian),
        (Ipv4Addr::BROADCAST, IP, Counter::DropIpv4Martian),
    ] {
        let mut table = Table::new();
        table.introduce_peer();
        table.input(&ip_frame(protocol::TCP, src, dst, &syn));
        assert_eq!(table.count(why), 1, "{src} to {dst}");
        assert!(table.take_frames().is_empty());
    }
}
