//! The kernel neither resets nor forwards frames of the stack.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use crate::net::{self, PEER, Pair, STACK};
use slipstack_device::{DropKind, Flow, Slots, Transport};

/// IPv4 packets that the namespace of the calling thread has received.
fn received_by_kernel() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let values = text
        .lines()
        .filter(|line| line.starts_with("Ip:"))
        .nth(1)
        .unwrap();
    values.split_whitespace().nth(3).unwrap().parse().unwrap()
}

fn send_to_stack(pair: &Pair, port: u16, count: usize) {
    pair.peer.run(move || {
        let socket = UdpSocket::bind((PEER, 0)).unwrap();
        for _ in 0..count {
            // A kernel that refuses makes the next send fail, which is not the point here.
            let _ = socket.send_to(b"for the stack", (STACK, port));
        }
    });
    std::thread::sleep(Duration::from_millis(20));
}

/// Number of ten packets to a port that the kernel gets.
fn leaks(pair: &Pair, port: u16) -> u64 {
    let before = received_by_kernel();
    send_to_stack(pair, port, 10);
    received_by_kernel() - before
}

/// Returns whether the kernel gets all of them within a second. A child of another test has copies
/// of our descriptors until it executes its program.
fn leaks_again(pair: &Pair, port: u16) -> bool {
    (0..50).any(|_| leaks(pair, port) == 10)
}

fn open(tag: &str) -> (Pair, Slots) {
    let pair = Pair::new(tag);
    pair.ours.sysctl("net.ipv4.ip_forward", "1");
    let slots = Slots::of_kind("packet", "slip-v", 1).unwrap();
    pair.announce(slots.link().mac);
    slots.steering().set_own(&[(STACK.into(), 24)]).unwrap();
    (pair, slots)
}

#[test]
fn a_forwarding_kernel_sees_nothing_and_the_drop_goes_with_its_keeper() {
    if !net::may_run("drop") {
        return;
    }
    let (pair, mut slots) = open("drop");
    assert_eq!(leaks(&pair, 7), 10);
    let kind = slots.install_ingress_drop().unwrap();
    assert_ne!(kind, DropKind::None);
    assert_eq!(leaks(&pair, 7), 0);
    // Frames to the kernel's own address stay with the kernel.
    pair.ours.ip("addr add 10.99.0.3/24 dev slip-v");
    let before = received_by_kernel();
    pair.peer.run(|| {
        let socket = UdpSocket::bind((PEER, 0)).unwrap();
        socket
            .send_to(b"x", (Ipv4Addr::new(10, 99, 0, 3), 9))
            .unwrap();
    });
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(received_by_kernel() - before, 1);
    drop(slots);
    assert!(leaks_again(&pair, 7));
}

#[test]
fn on_a_shared_address_the_kernels_ports_and_flows_are_not_dropped() {
    if !net::may_run("share") {
        return;
    }
    let (pair, mut slots) = open("share");
    let steering = slots.steering();
    steering.set_share(true).unwrap();
    steering.set_kernel_port(Transport::Udp, 54, true).unwrap();
    assert!(
        steering.is_kernel_port(Transport::Udp, 54) && !steering.is_kernel_port(Transport::Tcp, 54)
    );
    slots.install_ingress_drop().unwrap();
    assert_eq!(leaks(&pair, 53), 0);
    assert_eq!(leaks(&pair, 54), 10);

    // A flow of ours to a port of the kernel's, and one of the kernel's to a port of ours.
    let flow = |port: u16| Flow {
        proto: Transport::Udp,
        local: (STACK, port).into(),
        remote: (PEER, 4000).into(),
    };
    let leaks_of_flow = |port: u16| {
        let before = received_by_kernel();
        pair.peer.run(move || {
            let socket = UdpSocket::bind((PEER, 4000)).unwrap();
            socket.send_to(b"of one flow", (STACK, port)).unwrap();
        });
        std::thread::sleep(Duration::from_millis(20));
        received_by_kernel() - before
    };
    let steering = slots.steering();
    steering.add_exceptions(&[(flow(54), 0)]).unwrap();
    steering.leave_to_kernel(&[flow(53)]).unwrap();
    assert_eq!((leaks_of_flow(54), leaks_of_flow(53)), (0, 1));
    assert_eq!((leaks(&pair, 54), leaks(&pair, 53)), (10, 0));
    steering.remove_exception(&flow(53)).unwrap();
    assert_eq!(leaks_of_flow(53), 0);
    // Ten packets may fall into one second or into two.
    steering.set_rates([0, 4, 0]).unwrap();
    assert!((4..=8).contains(&leaks(&pair, 54)));
    steering.set_rates([0, 0, 6]).unwrap();
    assert!((6..=10).contains(&leaks(&pair, 54)));
    steering.set_rates([0; 3]).unwrap();
    steering.set_kernel_port(Transport::Udp, 54, false).unwrap();
    assert_eq!(leaks(&pair, 54), 0);
}

#[test]
fn an_old_kernels_drop_fails_open_when_its_keeper_is_gone() {
    if !net::may_run("clsact") {
        return;
    }
    let (pair, mut slots) = open("clsact");
    slots.install_ingress_drop_by_filter().unwrap();
    assert!(slots.needs_beat());
    assert_eq!(leaks(&pair, 7), 0);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(leaks(&pair, 7), 10);
    slots.beat(slipstack_mem::now_ns());
    assert_eq!(leaks(&pair, 7), 0);

    // A keeper that died left its filter behind; the next one takes its place.
    slots.leave();
    let mut slots = Slots::of_kind("packet", "slip-v", 1).unwrap();
    slots.steering().set_own(&[(STACK.into(), 24)]).unwrap();
    slots.install_ingress_drop_by_filter().unwrap();
    assert_eq!(leaks(&pair, 7), 0);
    drop(slots);
    let filters = pair.ours.exec("tc filter show dev slip-v ingress");
    assert!(filters.trim().is_empty(), "{filters}");
}
