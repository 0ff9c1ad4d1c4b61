use slipstack_channel::control::{DeviceKind, LearntTold};
use slipstack_device::loopback::{self, Loopback};
use slipstack_device::{Device, RxMeta};
use slipstack_stack::{Effects, FrameOut, Payload, TxOffload};
use slipstack_wire::arp::ArpPacket;
use slipstack_wire::ethernet::{self, EthernetHeader};

use super::{Net, Shared};
use crate::neighbours::Neighbours;
use crate::orphans::{self, Orphans};
use crate::regions::Inboxes;
use crate::world::Network;

fn net() -> Net {
    joined().0
}

/// With the other end of its link.
fn joined() -> (Net, Loopback) {
    let network = Network {
        kind: DeviceKind::Tap,
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1500,
        tso_max: 0,
        interface_index: 1,
        addresses: vec![("10.0.0.1".parse().unwrap(), 24)],
        hosts: Vec::new(),
        gateways: Vec::new(),
        routes: Vec::new(),
        rules: Vec::new(),
        is_forwarding: false,
        slaac: None,
        learnt: LearntTold::default(),
    };
    let shared = Shared {
        inboxes: Inboxes::create(1).unwrap(),
        neighbours: Neighbours::create().unwrap(),
        records: Orphans::open(orphans::create().unwrap()),
    };
    let (device, peer) = loopback::pair(1500).unwrap();
    let net = Net::new(&network, Box::new(device), None, shared, [7; 32], 1);
    (net, peer)
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
fn what_the_stack_says_to_itself_is_heard_before_a_sleep() {
    let mut net = net();
    assert!(net.prepare_sleep());
    net.finish_sleep();
    net.world.transmit(FrameOut {
        header: &[0; 60],
        payload: Payload::None,
        offload: TxOffload::NONE,
        local: true,
    });
    assert!(!net.prepare_sleep());
    net.turn(2);
    assert!(net.prepare_sleep());
}
