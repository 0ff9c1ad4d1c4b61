use slipstack_channel::control::{DeviceKind, LearntTold};
use slipstack_device::loopback;
use slipstack_stack::{Effects, FrameOut, Payload, TxOffload};

use super::{Net, Shared};
use crate::neighbours::Neighbours;
use crate::orphans::{self, Orphans};
use crate::regions::Inboxes;
use crate::world::Network;

fn net() -> Net {
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
    let (device, _) = loopback::pair(1500).unwrap();
    Net::new(&network, Box::new(device), None, shared, [7; 32], 1)
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
