//! AF_XDP: frames that bypass the kernel's stack, frames that are left to it, and removal of the
//! program.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::frames::echo;
use crate::net::{self, PEER, Pair, STACK};
use slipstack_device::{Device, DeviceError, Port, RingPosition, RxMeta, Slots, Transport};
use slipstack_mem::Region;

const OURS: u16 = 7;

/// A device of which slot 1 has one port.
fn open(pair: &Pair, kind: &str) -> Slots {
    let slots = Slots::of_kind(kind, "slip-v", 3).unwrap();
    pair.announce(slots.link().mac);
    let steering = slots.steering();
    steering.set_own(&[(STACK.into(), 24)]).unwrap();
    steering
        .set_port(Transport::Udp, OURS, Port::Slot(1))
        .unwrap();
    slots
}

fn send(pair: &Pair, port: u16, count: u32) {
    pair.peer.run(move || {
        let socket = UdpSocket::bind((PEER, 0)).unwrap();
        for number in 0..count {
            socket
                .send_to(&number.to_be_bytes(), (STACK, port))
                .unwrap();
        }
    });
}

fn numbers(device: &mut dyn Device, count: usize) -> Vec<u32> {
    let mut numbers = Vec::new();
    net::receive_until(device, |frame, _| {
        if net::is_udp(frame) {
            numbers.push(u32::from_be_bytes(frame[42..46].try_into().unwrap()));
        }
        numbers.len() >= count
    });
    numbers
}

#[test]
fn a_slot_with_a_queue_receives_past_the_kernel_and_others_by_packet_sockets() {
    if !net::may_run("xdp") {
        return;
    }
    for kind in ["xdp:native", "xdp:generic"] {
        let pair = Pair::new("xdp");
        let slots = open(&pair, kind);
        let mut first = slots.adopt(1, RingPosition::private()).unwrap();
        let mut second = slots.adopt(2, RingPosition::private()).unwrap();
        let steering = slots.steering();
        steering.set_port(Transport::Udp, 8, Port::Slot(2)).unwrap();
        send(&pair, OURS, 3000);
        let expected: Vec<u32> = (0..2048).collect();
        // One that the receiver did not keep up with is lost.
        assert_eq!(numbers(&mut *first, 2048), expected, "{kind}");
        assert_eq!(first.counters().rx_bypassed, 2048, "{kind}");
        send(&pair, 8, 3);
        assert_eq!(numbers(&mut *second, 3), [0, 1, 2], "{kind}");
        assert_eq!(second.counters().rx_bypassed, 0);
    }
}

#[test]
fn the_kernel_keeps_traffic_that_the_steering_does_not_name() {
    if !net::may_run("xdp") {
        return;
    }
    let pair = Pair::new("xdpk");
    pair.ours.ip("addr add 10.99.0.3/24 dev slip-v");
    let mut slots = open(&pair, "xdp:native");
    slots.install_ingress_drop().unwrap();
    let answered = pair.peer.exec("ping -c 1 -W 5 10.99.0.3");
    assert!(answered.contains(" 1 received"), "{answered}");
}

#[test]
fn a_successor_has_every_frame_and_goes_on_where_the_last_holder_stopped() {
    if !net::may_run("xdp") {
        return;
    }
    let pair = Pair::new("xdps");
    let slots = open(&pair, "xdp:native");
    let region = Region::create("xdp", 4096).unwrap();
    let adopt = || {
        let position = RingPosition::new(region.clone(), 0).unwrap();
        slots.adopt(1, position).unwrap()
    };
    // More rounds than either half of the memory has frames.
    for _ in 0..30 {
        let mut holder = adopt();
        send(&pair, OURS, 100);
        assert_eq!(numbers(&mut *holder, 100), (0..100).collect::<Vec<_>>());
        let frame = net::broadcast();
        for _ in 0..100 {
            net::send(&mut *holder, &frame, &[], slipstack_device::TxOffload::NONE);
        }
        holder.flush();
        assert_eq!(holder.counters().tx_bypassed, 100);
    }
}

#[test]
fn the_xdp_program_is_detached_with_its_last_descriptor() {
    if !net::may_run("xdp") {
        return;
    }
    let pair = Pair::new("xdpg");
    let has_program = || pair.ours.exec("ip link show slip-v").contains("prog/xdp");
    let slots = open(&pair, "xdp:native");
    assert!(has_program());
    let second = Slots::of_kind("xdp:native", "slip-v", 2).err().unwrap();
    assert!(matches!(second, DeviceError::Unsuitable(_)), "{second}");
    drop(slots);
    assert!(!has_program());
    // The queue is free again, if not at once.
    let again = open(&pair, "xdp:native");
    assert_eq!(again.mode(), Some("native"));
    assert_eq!(again.slot_fds(1).count(), 3);
    assert!(
        again
            .slot_fds(0)
            .next()
            .unwrap()
            .as_fd()
            .try_clone_to_owned()
            .is_ok()
    );
    let wrong = Slots::of_kind("xdp:turbo", "slip-v", 2).err().unwrap();
    assert!(wrong.to_string().contains("native, generic"), "{wrong}");
}

#[test]
fn a_sleeper_is_woken_by_either_socket() {
    if !net::may_run("xdp") {
        return;
    }
    let pair = Pair::new("xdpw");
    let slots = open(&pair, "xdp:native");
    let mut device = slots.adopt(1, RingPosition::private()).unwrap();
    let drained = net::drain(&mut *device, Duration::from_millis(20));
    assert!(drained.iter().all(|(frame, _)| !net::is_udp(frame)));
    send(&pair, OURS, 1);
    let fd = slipstack_mem::Descriptor::new(device.poll_fd()).unwrap();
    let flags = rustix::event::PollFlags::IN;
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd.as_fd(), flags)];
    assert_eq!(rustix::event::poll(&mut fds, None).unwrap(), 1);
    let mut metas = Vec::new();
    net::receive_until(&mut *device, |frame: &[u8], meta: RxMeta| {
        metas.extend(net::is_udp(frame).then_some(meta.checksum));
        !metas.is_empty()
    });
    // The kernel at the other end has left it to be filled in.
    assert_eq!(metas, [slipstack_device::RxChecksum::Partial]);
}

#[test]
fn each_queue_serves_its_slot_and_frames_of_others_are_not_lost() {
    if !net::may_run("xdp") {
        return;
    }
    const FLOWS: usize = 32;
    const EACH: u32 = 10;
    let pair = Pair::new("xdpq");
    let is_set = [(&pair.ours, "slip-v"), (&pair.peer, "peer-v")].map(|(namespace, name)| {
        namespace.exec(&format!("ethtool -L {name} rx 2 tx 2"));
        let told = namespace.exec(&format!("ethtool -l {name}"));
        told.lines()
            .rfind(|line| line.trim_start().starts_with("RX:"))
            == Some("RX:\t\t2")
    });
    if is_set != [true; 2] {
        println!("xdp: skipped, a veth pair of this machine has one queue");
        return;
    }
    let slots = open(&pair, "xdp:native");
    assert_eq!(slots.slot_fds(2).count(), 3);
    slots
        .steering()
        .set_port(Transport::Udp, 8, Port::Slot(2))
        .unwrap();
    let mut devices = [1, 2].map(|slot| slots.adopt(slot, RingPosition::private()).unwrap());
    pair.peer.run(|| {
        for _ in 0..FLOWS {
            let socket = UdpSocket::bind((PEER, 0)).unwrap();
            for number in 0..EACH {
                for port in [OURS, 8] {
                    socket
                        .send_to(&number.to_be_bytes(), (STACK, port))
                        .unwrap();
                }
            }
        }
    });
    let all = FLOWS * EACH as usize;
    for device in &mut devices {
        assert_eq!(numbers(&mut **device, all).len(), all);
        let counters = device.counters();
        // The kernel spreads the flows over the queues as it likes: some come by the slot's own.
        assert!(counters.rx_bypassed > 0, "{counters:?}");
        assert!(counters.rx_bypassed < all as u64, "{counters:?}");
    }
}

#[test]
fn frames_of_several_buffers_bypass_the_kernel_in_both_directions() {
    if !net::may_run("xdp") {
        return;
    }
    const ROUNDS: usize = 300;
    for kind in ["xdp:native", "xdp:generic"] {
        let pair = Pair::new("xdpj");
        pair.ours.ip("link set slip-v mtu 9000");
        pair.peer.ip("link set peer-v mtu 9000");
        let slots = open(&pair, kind);
        let mut device = slots.adopt(1, RingPosition::private()).unwrap();
        // One chunk, just so and just not, two, and the longest.
        let lengths = [100, 3798, 3799, 5000, 7638, 8972];
        let asked = pair.peer.spawn(move || {
            let socket = UdpSocket::bind((PEER, 0)).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            let mut buffer = vec![0; 10_000];
            for round in 0..ROUNDS {
                let len = lengths[round % lengths.len()];
                let sent: Vec<u8> = (0..len)
                    .map(|at| (at * 7 + at / 256 + round) as u8)
                    .collect();
                socket.send_to(&sent, (STACK, OURS)).unwrap();
                let len = socket.recv(&mut buffer).expect("an answer");
                assert!(buffer[..len] == sent, "{len} bytes in round {round}");
            }
        });
        let mut answered = 0;
        while answered < ROUNDS {
            let mut frames = Vec::new();
            net::receive_until(&mut *device, |frame, _| {
                frames.extend(net::is_udp(frame).then(|| frame.to_vec()));
                !frames.is_empty()
            });
            assert!(!frames.is_empty(), "{kind}: {answered} answered");
            for frame in &frames {
                echo(&mut *device, frame, true);
            }
            answered += frames.len();
        }
        asked.join().expect("all answers are right");
        let counters = device.counters();
        assert_eq!(counters.rx_bypassed, ROUNDS as u64, "{kind}");
        assert_eq!(counters.tx_bypassed, ROUNDS as u64, "{kind}");
    }
}
