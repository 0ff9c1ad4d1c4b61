use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use slipstack_channel::control::net::{Interface, NetworkState};
use slipstack_channel::control::{DeviceSummary, TimeWaitEntry};
use slipstack_device::loopback::{self, Loopback};
use slipstack_device::{Device, Flow, Port, RxMeta, Steering, Transport};
use slipstack_mem::RawSlice;
use slipstack_stack::{
    DatagramIn, Effects, FrameOut, IpMeta, Payload, SocketError, TcpSizes, TxOffload,
};
use slipstack_wire::PartialChecksum;
use slipstack_wire::arp::ArpPacket;
use slipstack_wire::checksum;
use slipstack_wire::ethernet::{self, EthernetHeader};

use super::frame_input::FrameSource;
use super::{Net, Shared};
use crate::neighbours::Neighbours;
use crate::network::Network;
use crate::orphans::{self, Orphans};
use crate::regions::{Inboxes, SlotWords};

fn net() -> Net {
    joined().0
}

/// With the other end of its link.
fn joined() -> (Net, Loopback) {
    let (device, peer) = loopback::pair(1500).unwrap();
    (on(device), peer)
}

fn on(device: Loopback) -> Net {
    with_steering(device, None)
}

/// With a slot for itself and one for each of two engines.
fn with_steering(device: Loopback, steering: Option<Steering>) -> Net {
    let network = Network {
        device: DeviceSummary::default(),
        mac: [2, 0, 0, 0, 0, 1],
        tso_max: 0,
        has_udp_segmentation: false,
        slaac: None,
        tunables: Vec::new(),
        state: NetworkState {
            interfaces: vec![Interface {
                index: 1,
                mtu: 1500,
                addresses: vec![("10.0.0.1".parse().unwrap(), 24)],
                ..Interface::default()
            }],
            ..NetworkState::default()
        },
    };
    let shared = Shared {
        inboxes: Inboxes::create(3).unwrap(),
        neighbours: Neighbours::create().unwrap(),
        records: Orphans::open(orphans::create().unwrap()),
        sequence_key: [7, 8],
        limits: SlotWords::create().unwrap().limits(0),
    };
    Net::new(&network, Box::new(device), steering, shared, [7; 32], 1)
}

#[test]
fn a_keeper_announces_its_address_as_it_begins_and_once_more() {
    // RFC 5227 2.3.
    const INTERVAL_NS: u64 = 2_000_000_000;
    let (mut net, mut link) = joined();
    for (now, want) in [
        (1, 1),
        (INTERVAL_NS, 0),
        (INTERVAL_NS + 1, 1),
        (u64::MAX / 2, 0),
    ] {
        net.turn(now);
        let mut announced = 0;
        link.rx(16, &mut |frame: &[u8], _: RxMeta| {
            let (header, rest) = EthernetHeader::parse(frame).unwrap();
            let arp = ArpPacket::parse(rest).unwrap();
            let is_broadcast = header.dst == ethernet::BROADCAST;
            announced += usize::from(is_broadcast && arp.sender_ip == arp.target_ip);
        });
        assert_eq!(announced, want, "at {now} ns");
    }
}

#[test]
fn engines_are_told_of_each_change_of_the_network_at_once() {
    let mut net = net();
    net.effects.strays.set_engines(vec![1, 2]);
    for revision in 1..4 {
        let state = NetworkState {
            revision,
            ..NetworkState::default()
        };
        net.set_network(5, &state);
        assert_eq!(net.announced.left, [0; 0]);
    }
}

#[test]
fn loopback_packets_are_processed_before_a_sleep() {
    let mut net = net();
    assert!(net.prepare_sleep());
    net.finish_sleep();
    net.effects.transmit(FrameOut {
        header: &[0; 60],
        payload: Payload::None,
        offload: TxOffload::NONE,
        local: true,
    });
    assert!(!net.prepare_sleep());
    net.turn(2);
    assert!(net.prepare_sleep());
}

#[test]
fn frames_have_their_checksums_where_the_device_fills_in_none() {
    let partial = PartialChecksum {
        start: 34,
        offset: 16,
    };
    for has_checksum in [true, false] {
        let (device, mut link) = loopback::pair(1500).unwrap();
        let mut net = on(match has_checksum {
            true => device,
            false => device.without_checksums(),
        });
        net.effects.transmit(FrameOut {
            header: &[3; 60],
            payload: Payload::Inline(&[5; 7]),
            offload: TxOffload {
                checksum: Some(partial),
                ..TxOffload::NONE
            },
            local: false,
        });
        let mut expected = [3; 60];
        if !has_checksum {
            partial.complete(&mut expected, [&[5; 7][..]]);
        }
        let mut frames = Vec::new();
        link.rx(8, &mut |frame: &[u8], _: RxMeta| {
            frames.push(frame.to_vec())
        });
        // Behind the announcement of its address.
        assert_eq!(frames.last(), Some(&[&expected[..], &[5; 7]].concat()));
    }
}

/// A former connection of an engine that ends.
const FORMER: TimeWaitEntry = TimeWaitEntry {
    local: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80),
    remote: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 40_000),
    snd_nxt: 1,
    rcv_nxt: 2,
    window: 3,
    stamps: Some((4, 5)),
    left_ms: 30_000,
};
const FLOW: Flow = Flow {
    proto: Transport::Tcp,
    local: FORMER.local,
    remote: FORMER.remote,
};

#[test]
fn the_keeper_continues_time_wait_of_an_ended_engine_for_its_remaining_time() {
    let mut net = net();
    assert_eq!(net.adopt_time_wait(&FORMER, 1), Ok(()));
    let elsewhere = TimeWaitEntry {
        local: "10.0.0.9:80".parse().unwrap(),
        ..FORMER
    };
    let refused = Err(SocketError::AddrNotAvailable);
    assert_eq!(net.adopt_time_wait(&elsewhere, 1), refused);
    for (now, want) in [(29_000_000_000, 1), (31_000_000_000, 0)] {
        net.turn(now);
        let wanted = TcpSizes {
            time_wait: want,
            ..TcpSizes::default()
        };
        assert_eq!(net.stack.tcp_sizes(), wanted, "at {now} ns");
        for (bound, is_there) in [
            ("10.0.0.1:80", true),
            ("0.0.0.0:80", true),
            ("10.0.0.1:81", false),
            ("10.0.0.9:80", false),
        ] {
            let has_port = net.has_port(bound.parse().unwrap(), false);
            assert_eq!(has_port, is_there && want == 1, "{bound} at {now} ns");
        }
    }
}

#[test]
fn a_time_wait_entry_is_dropped_when_its_flow_dies_again() {
    let mut net = net();
    assert_eq!(net.adopt_time_wait(&FORMER, 1), Ok(()));
    net.reset([FLOW], 2);
    assert_eq!(net.stack.tcp_sizes(), TcpSizes::default());
    let refused = Err(SocketError::FlowExists);
    assert_eq!(net.adopt_time_wait(&FORMER, 3), refused);
}

/// A port of two engines, and more flows that the first one refuses than can be searched for.
fn flooded(proto: Transport, mut refuse: impl FnMut(&mut Net, SocketAddr) -> bool) -> Net {
    let steering = Steering::create_apart(7).unwrap();
    steering.set_group(1, &[1]).unwrap();
    steering.set_port(proto, 53, Port::Group(1)).unwrap();
    let (device, _) = loopback::pair(1500).unwrap();
    let mut net = with_steering(device, Some(steering));
    net.effects.strays.set_engines(vec![1, 2]);
    net.effects.coming = Some(FrameSource::here(1, Some(1)));
    for port in 1..=5000 {
        let from = SocketAddr::from(([10, 0, 0, 2], port));
        assert!(refuse(&mut net, from), "answered to {from}");
    }
    net
}

const SHARED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 53);

fn refuse_datagram(net: &mut Net, from: SocketAddr) -> bool {
    let datagram = DatagramIn {
        from,
        to: SHARED,
        payload: b"for another",
        tos: 0,
        ttl: 64,
        segment: None,
        link: 1,
        is_to_group: false,
        is_copy: false,
    };
    net.effects.on_stray_datagram(&datagram, false)
}

#[test]
fn a_datagram_that_an_engine_may_have_is_not_answered_by_an_error_in_a_flood() {
    let mut net = flooded(Transport::Udp, refuse_datagram);
    assert!(net.effects.strays.counts.lost >= 900);
    // One that the other engine has refused too is nobody's.
    net.effects.coming = Some(FrameSource::here(2, Some(2)));
    let searched_for = SocketAddr::from(([10, 0, 0, 2], 1));
    assert!(!refuse_datagram(&mut net, searched_for));
}

/// An ACK, and with `flags` more. Returns `false` if it is to be answered with a reset.
fn refuse_segment(net: &mut Net, from: SocketAddr, flags: u8) -> bool {
    let mut segment = [0; 20];
    segment[..2].copy_from_slice(&from.port().to_be_bytes());
    segment[2..4].copy_from_slice(&SHARED.port().to_be_bytes());
    segment[12..14].copy_from_slice(&[0x50, 0x10 | flags]);
    let ip = IpMeta {
        src: from.ip(),
        dst: SHARED.ip(),
        tos: 0,
        ttl: 64,
        group: false,
        local: false,
        link: 1,
    };
    net.effects.send_stray(&ip, &segment)
}

#[test]
fn a_segment_that_an_engine_may_have_is_not_reset_in_a_flood() {
    let net = flooded(Transport::Tcp, |net, from| refuse_segment(net, from, 0));
    assert!(net.effects.strays.counts.lost >= 900);
}

#[test]
fn a_fin_for_a_port_that_was_left_is_reset_once_no_engine_knows_its_connection() {
    let steering = Steering::create_apart(7).unwrap();
    let (device, _) = loopback::pair(1500).unwrap();
    let mut net = with_steering(device, Some(steering));
    net.effects.strays.set_engines(vec![1, 2]);
    let send_fin = |net: &mut Net, origin| {
        net.effects.coming = Some(FrameSource::here(2, origin));
        refuse_segment(net, SocketAddr::from(([10, 0, 0, 2], 1)), 1)
    };
    assert!(
        !send_fin(&mut net, None),
        "the port has never had a program"
    );
    net.note_left(SHARED.port(), true, 1);
    assert!(
        send_fin(&mut net, None),
        "one of the engines may be in TIME-WAIT"
    );
    assert!(send_fin(&mut net, Some(1)), "the other may be");
    assert!(!send_fin(&mut net, Some(2)));
    assert_eq!(net.effects.strays.counts.passed, 2);
}

#[test]
fn a_syn_that_has_waited_for_a_listener_in_vain_is_answered() {
    const MS: u64 = 1_000_000;
    let (mut net, mut link) = joined();
    net.turn(1);
    net.note_moving(7220, 1);
    let mut syn = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    syn.extend([0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0]);
    syn.extend([10, 0, 0, 2, 10, 0, 0, 1]);
    syn.extend([0x9c, 0x40, 0x1c, 0x34, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2]);
    syn.extend([0xff, 0xff, 0, 0, 0, 0]);
    let sum = checksum::of(&syn[14..34]);
    syn[24..26].copy_from_slice(&sum.to_be_bytes());
    let tcp = &syn[34..];
    let mut sum = checksum::pseudo_v4([10, 0, 0, 2].into(), [10, 0, 0, 1].into(), 6, 20);
    sum.add_bytes(tcp);
    let sum = sum.finish();
    syn[50..52].copy_from_slice(&sum.to_be_bytes());
    link.tx(&syn, [RawSlice::EMPTY; 2], TxOffload::NONE)
        .unwrap();
    // The reset waits for the link-layer address of its receiver.
    let asked = |link: &mut Loopback| {
        let mut asked = false;
        link.rx(16, &mut |frame: &[u8], _: RxMeta| {
            let (_, rest) = EthernetHeader::parse(frame).unwrap();
            let arp = ArpPacket::parse(rest).unwrap();
            asked |= arp.target_ip == Ipv4Addr::new(10, 0, 0, 2);
        });
        asked
    };
    let at = (1..1000).find(|ms| {
        net.turn(ms * MS);
        asked(&mut link)
    });
    assert!(at.is_some_and(|ms| (500..600).contains(&ms)), "{at:?}");
}
