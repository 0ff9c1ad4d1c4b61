//! Frames of kernel clients reach the slot that the table names, on both back ends, and
//! [`Steering::find_slot`] knows it beforehand.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SendFlags, SocketType};

use crate::net::{self, L4, Namespace, PEER, Pair, STACK};
use slipstack_device::{
    Device, DeviceError, Flow, Port, RecentFlows, RingPosition, Slots, Steering, Transport, iface,
};

pub(crate) const SLOTS: u16 = 4;
/// Longest time between the sending and the arrival of a frame.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(20);

/// All slots of a device, and the kernel peer that sends to it.
pub(crate) struct Bench {
    slots: Slots,
    devices: Vec<Box<dyn Device>>,
    pub(crate) peer: Namespace,
    ours: Option<Namespace>,
}

impl Bench {
    pub(crate) fn new(slots: Slots, peer: Namespace, ours: Option<Namespace>) -> Bench {
        let steering = slots.steering();
        steering.set_own(&[(STACK.into(), 24)]).unwrap();
        for slot in 0..SLOTS {
            steering.set_alive(slot, true).unwrap();
        }
        let open = |slot| slots.adopt(slot, RingPosition::private()).unwrap();
        Bench {
            devices: (0..SLOTS).map(open).collect(),
            slots,
            peer,
            ours,
        }
    }

    fn packet(tag: &str) -> Bench {
        let pair = Pair::new(tag);
        let slots = Slots::of_kind("packet", "slip-v", SLOTS).unwrap();
        pair.announce(slots.link().mac);
        Bench::new(slots, pair.peer, Some(pair.ours))
    }

    fn tap(tag: &str) -> Bench {
        let peer = Namespace::new(tag);
        peer.enter();
        let slots = Slots::of_kind("tap", "slip0", SLOTS).unwrap();
        iface::add_address("slip0", PEER.into(), 24).unwrap();
        iface::set_up("slip0").unwrap();
        net::announce(&peer, "slip0", slots.link().mac);
        Bench::new(slots, peer, None)
    }

    pub(crate) fn steering(&self) -> &Steering {
        self.slots.steering()
    }

    /// Sends one datagram from each of `count` ports to the stack's `port`.
    fn send_from_many(&self, count: u16, port: u16) {
        self.peer.run(move || {
            // All at once, so that no port is used twice.
            let sockets: Vec<_> = (0..count)
                .map(|_| UdpSocket::bind((PEER, 0)).unwrap())
                .collect();
            for socket in sockets {
                socket.send_to(b"steer me", (STACK, port)).unwrap();
            }
        });
    }

    /// As [`Bench::arrivals`], of at least so many frames: on a busy machine the kernel delivers
    /// some of them long after they were sent.
    pub(crate) fn arrivals_of(&mut self, count: usize) -> HashMap<(SocketAddr, SocketAddr), u16> {
        let mut seen = self.arrivals();
        let limit = Instant::now() + ARRIVAL_LIMIT;
        while seen.len() < count && Instant::now() < limit {
            seen.extend(self.arrivals());
        }
        seen
    }

    /// Which slot each UDP or TCP frame came to, by its source and destination.
    pub(crate) fn arrivals(&mut self) -> HashMap<(SocketAddr, SocketAddr), u16> {
        let mut seen = HashMap::new();
        for (device, slot) in self.devices.iter_mut().zip(0u16..) {
            for (frame, _) in net::drain(&mut **device, Duration::from_millis(30)) {
                if net::is_udp(&frame) || net::is_tcp(&frame) {
                    seen.insert(net::endpoints(&frame), slot);
                }
            }
        }
        seen
    }

    /// Sends from many ports and checks every arrival against [`Steering::find_slot`]; how many
    /// came to each slot.
    pub(crate) fn check(&mut self, count: u16, port: u16) -> [usize; SLOTS as usize] {
        self.send_from_many(count, port);
        let arrivals = self.arrivals_of(count.into());
        assert_eq!(arrivals.len(), usize::from(count), "to port {port}");
        let mut load = [0; SLOTS as usize];
        for ((remote, local), slot) in arrivals {
            let expected = self.steering().find_slot(Transport::Udp, local, remote);
            assert_eq!(slot, expected, "{remote} to {local}");
            load[usize::from(slot)] += 1;
        }
        load
    }
}

fn for_each_back_end(test: &str, body: fn(&mut Bench)) {
    if net::may_run(test) {
        body(&mut Bench::packet(&format!("{test}-p")));
        body(&mut Bench::tap(&format!("{test}-t")));
    }
}

#[test]
fn the_program_and_its_rust_model_steer_alike_by_ports_groups_and_dead_slots() {
    for_each_back_end("steer", |bench| {
        assert_eq!(bench.check(10, 999), [10, 0, 0, 0]);
        bench
            .steering()
            .set_port(Transport::Udp, 1000, Port::Slot(2))
            .unwrap();
        assert_eq!(bench.check(10, 1000), [0, 0, 10, 0]);
        assert_eq!(bench.check(10, 1001), [10, 0, 0, 0]);

        let group = Port::Group(7);
        bench
            .steering()
            .set_port(Transport::Udp, 2000, group)
            .unwrap();
        bench.steering().set_group(7, &[1, 2, 3]).unwrap();
        let load = bench.check(200, 2000);
        assert_eq!(load[0], 0);
        assert!(load[1..].iter().all(|&n| n > 30), "{load:?}");

        bench.steering().set_alive(2, false).unwrap();
        let load = bench.check(200, 2000);
        assert_eq!(load[2], 0);
        assert!(load[1] > 50 && load[3] > 50, "{load:?}");

        bench
            .steering()
            .set_port(Transport::Udp, 2000, Port::Keeper)
            .unwrap();
        assert_eq!(bench.check(10, 2000), [10, 0, 0, 0]);
    });
}

#[test]
fn flows_stay_with_the_successors_of_a_dead_slot() {
    for_each_back_end("heirs", |bench| {
        let steering = bench.steering();
        steering.set_group(1, &[1, 2, 3]).unwrap();
        steering
            .set_port(Transport::Tcp, 80, Port::Group(1))
            .unwrap();
        let local = SocketAddr::from((STACK, 80));
        let slot_of =
            |port| steering.find_slot(Transport::Tcp, local, SocketAddr::from((PEER, port)));
        steering.set_alive(3, false).unwrap();
        let before: Vec<u16> = (1024..5000).map(slot_of).collect();
        steering.set_group(1, &[1, 2]).unwrap();
        let after: Vec<u16> = (1024..5000).map(slot_of).collect();
        let moved = before
            .iter()
            .zip(&after)
            .filter(|(a, b)| **a != 0 && a != b);
        assert_eq!(moved.count(), 0);
    });
}

#[test]
fn exceptions_override_the_port_until_they_are_removed() {
    for_each_back_end("except", |bench| {
        let socket = bench.peer.run(|| UdpSocket::bind((PEER, 0)).unwrap());
        let remote = socket.local_addr().unwrap();
        let local = SocketAddr::from((STACK, 1000));
        bench
            .steering()
            .set_port(Transport::Udp, 1000, Port::Slot(1))
            .unwrap();
        let flow = Flow {
            proto: Transport::Udp,
            local,
            remote,
        };
        let send_and_see = |bench: &mut Bench| {
            socket.send_to(b"x", local).unwrap();
            let slot = bench.arrivals_of(1).get(&(remote, local)).copied();
            assert_eq!(
                slot,
                Some(bench.steering().find_slot(Transport::Udp, local, remote))
            );
            slot.unwrap()
        };
        assert_eq!(send_and_see(bench), 1);
        bench
            .steering()
            .add_exceptions(&[(flow, 3), (flow, 2)])
            .unwrap();
        assert_eq!(bench.steering().exceptions(), 1);
        assert_eq!(send_and_see(bench), 2);
        bench.steering().remove_exception(&flow).unwrap();
        bench.steering().remove_exception(&flow).unwrap();
        assert_eq!(bench.steering().exceptions(), 0);
        assert_eq!(send_and_see(bench), 1);
    });
}

/// Sends an ICMP echo request, and resolves the neighbour first if necessary.
fn ping(to: Ipv4Addr) {
    let (family, kind) = (AddressFamily::INET, SocketType::RAW);
    let socket = rustix::net::socket(family, kind, Some(rustix::net::ipproto::ICMP)).unwrap();
    let request = [8, 0, 0xf7, 0xfc, 0, 1, 0, 2];
    let to = SocketAddr::from((to, 0));
    rustix::net::sendto(&socket, &request, SendFlags::empty(), &to).unwrap();
}

#[test]
fn frames_without_a_port_go_to_the_keeper() {
    for_each_back_end("rest", |bench| {
        let steering = bench.steering();
        steering
            .set_ports(Transport::Udp, 0..=u16::MAX, Port::Slot(3))
            .unwrap();
        steering
            .set_ports(Transport::Tcp, 0..=u16::MAX, Port::Slot(3))
            .unwrap();
        bench.peer.run(|| ping(STACK));
        bench.peer.run(|| ping(Ipv4Addr::new(10, 99, 0, 77)));
        bench.peer.run(|| {
            // Three fragments of one datagram.
            let socket = UdpSocket::bind((PEER, 0)).unwrap();
            socket.send_to(&[0; 4000], (STACK, 1000)).unwrap();
        });
        let keeper = net::drain(&mut *bench.devices[0], Duration::from_millis(50));
        let is_icmp = |frame: &Vec<u8>| frame[12..14] == [8, 0] && frame[23] == 1;
        let is_arp = |frame: &Vec<u8>| frame[12..14] == [8, 6];
        let is_fragment = |frame: &Vec<u8>| net::is_udp(frame) && frame[20] & 0x3f | frame[21] != 0;
        let count = |of: &dyn Fn(&Vec<u8>) -> bool| keeper.iter().filter(|f| of(&f.0)).count();
        assert_eq!(count(&is_icmp), 1);
        assert!(count(&is_arp) >= 1);
        assert_eq!(count(&is_fragment), 3);
        let engine = net::drain(&mut *bench.devices[3], Duration::from_millis(20));
        assert!(engine.is_empty());
    });
}

#[test]
fn a_syn_and_the_rest_of_its_connection_reach_the_same_slot() {
    for_each_back_end("syn", |bench| {
        bench.steering().set_group(0, &[1, 2, 3]).unwrap();
        bench
            .steering()
            .set_port(Transport::Tcp, 80, Port::Group(0))
            .unwrap();
        bench.steering().set_alive(1, false).unwrap();
        let client = bench.peer.spawn(|| {
            for _ in 0..20 {
                let address = SocketAddr::from((STACK, 80));
                let _ = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(15));
            }
        });
        client.join().unwrap();
        let arrivals = bench.arrivals_of(20);
        assert_eq!(arrivals.len(), 20);
        for ((remote, local), slot) in arrivals {
            assert_eq!(
                slot,
                bench.steering().find_slot(Transport::Tcp, local, remote)
            );
            assert!(slot == 2 || slot == 3);
        }
    });
}

#[test]
fn an_engine_reads_the_tables_and_cannot_write_them() {
    for_each_back_end("ro", |bench| {
        let writer = bench.steering();
        let reader = Steering::from_fds(writer.read_only_fds().unwrap()).unwrap();
        writer.set_port(Transport::Tcp, 80, Port::Group(9)).unwrap();
        assert_eq!(reader.port(Transport::Tcp, 80), Port::Group(9));
        let local = SocketAddr::from((STACK, 80));
        let remote = SocketAddr::from((PEER, 5555));
        writer.set_group(9, &[1, 3]).unwrap();
        let slot = writer.find_slot(Transport::Tcp, local, remote);
        assert_eq!(reader.find_slot(Transport::Tcp, local, remote), slot);
        let flow = Flow {
            proto: Transport::Tcp,
            local,
            remote,
        };
        writer.add_exceptions(&[(flow, 2)]).unwrap();
        assert_eq!(reader.find_slot(Transport::Tcp, local, remote), 2);
        let refused = reader.set_port(Transport::Tcp, 80, Port::Keeper);
        assert!(matches!(refused, Err(DeviceError::ReadOnly)));
        assert!(reader.fds().is_none());
        let [_, _, mirror] = writer.fds().unwrap();
        assert!(
            Steering::from_fds([
                mirror.try_clone_to_owned().unwrap(),
                std::fs::File::open("/dev/null").unwrap().into(),
            ])
            .is_ok_and(|view| view.fds().is_none())
        );
    });
}

#[test]
fn an_engine_that_remembers_flows_follows_each_change_of_their_exceptions() {
    for_each_back_end("recent", |bench| {
        let writer = bench.steering();
        let reader = Steering::from_fds(writer.read_only_fds().unwrap()).unwrap();
        let mut recent = RecentFlows::default();
        let flow_from = |port| Flow {
            proto: Transport::Tcp,
            local: SocketAddr::from((STACK, 80)),
            remote: SocketAddr::from((PEER, port)),
        };
        let flow = flow_from(5555);
        writer.set_port(Transport::Tcp, 80, Port::Slot(1)).unwrap();
        assert_eq!(recent.find_slot(&reader, &flow), 1);
        for slot in [2, 3] {
            writer.add_exceptions(&[(flow, slot)]).unwrap();
            assert_eq!(
                [(); 2].map(|()| recent.find_slot(&reader, &flow)),
                [slot; 2]
            );
        }
        // More than are remembered.
        for port in 10_000..20_000 {
            assert_eq!(recent.find_slot(&reader, &flow_from(port)), 1);
        }
        assert_eq!(recent.find_slot(&reader, &flow), 3);
        writer.remove_exception(&flow).unwrap();
        assert_eq!(recent.find_slot(&reader, &flow), 1);
        writer.add_exceptions(&[(flow_from(5556), 2)]).unwrap();
        assert_eq!(recent.find_slot(&reader, &flow), 1, "it has none any more");
        writer.set_port(Transport::Tcp, 80, Port::Slot(3)).unwrap();
        assert_eq!(recent.find_slot(&reader, &flow), 3);
        assert_eq!(recent.find_slot(&reader, &flow_from(5556)), 2);
    });
}

#[test]
fn a_flow_is_looked_up_only_where_its_bucket_has_an_exception() {
    let (writer, other) = (Steering::create(None), Steering::create(None));
    let (writer, other) = (writer.unwrap(), other.unwrap());
    let [mirror, _] = writer.read_only_fds().unwrap();
    let [_, exceptions] = other.read_only_fds().unwrap();
    // A lookup would find the exceptions of other tables.
    let reader = Steering::from_fds([mirror, exceptions]).unwrap();
    let flow_from = |port| Flow {
        proto: Transport::Tcp,
        local: SocketAddr::from((STACK, 80)),
        remote: SocketAddr::from((PEER, port)),
    };
    let bucket = |flow: Flow| writer.bucket(flow.local, flow.remote);
    let near = flow_from(1000);
    let mut others = (1001..u16::MAX).map(flow_from);
    let far = others.find(|flow| bucket(*flow) != bucket(near)).unwrap();
    let twin = others.find(|flow| bucket(*flow) == bucket(near)).unwrap();
    let found = |flow: Flow| {
        let mut recent = RecentFlows::default();
        let slot = reader.find_slot(flow.proto, flow.local, flow.remote);
        assert_eq!(recent.find_slot(&reader, &flow), slot);
        slot
    };
    writer.set_port(Transport::Tcp, 80, Port::Slot(1)).unwrap();
    other.add_exceptions(&[(near, 3), (far, 3)]).unwrap();
    assert_eq!([near, far].map(found), [1, 1]);
    writer.add_exceptions(&[(near, 2), (near, 2)]).unwrap();
    assert_eq!([near, far].map(found), [3, 1]);
    writer.add_exceptions(&[(twin, 2)]).unwrap();
    writer.remove_exception(&near).unwrap();
    writer.remove_exception(&near).unwrap();
    assert_eq!(found(near), 3, "another flow of the bucket has one");
    writer.remove_exception(&twin).unwrap();
    assert_eq!([near, far].map(found), [1, 1]);
}

#[test]
fn slots_keep_their_numbers_when_the_link_flaps() {
    for_each_back_end("flap", |bench| {
        for slot in 0..SLOTS {
            let port = 3000 + slot;
            bench
                .steering()
                .set_port(Transport::Udp, port, Port::Slot(slot))
                .unwrap();
        }
        for _ in 0..3 {
            match &bench.ours {
                Some(ours) => {
                    ours.ip("link set slip-v down");
                    ours.ip("link set slip-v up");
                    net::announce(&bench.peer, "peer-v", bench.slots.link().mac);
                }
                None => {
                    bench.peer.ip("link set slip0 down");
                    bench.peer.ip("link set slip0 up");
                    net::announce(&bench.peer, "slip0", bench.slots.link().mac);
                }
            }
            for slot in 0..SLOTS {
                let mut expected = [0; SLOTS as usize];
                expected[usize::from(slot)] = 5;
                assert_eq!(bench.check(5, 3000 + slot), expected);
            }
        }
    });
}

#[test]
fn the_keeper_does_not_wake_for_frames_that_are_the_kernels() {
    if !net::may_run("filter") {
        return;
    }
    let bench = &mut Bench::packet("filter");
    let ours = bench.ours.as_ref().unwrap();
    ours.ip("addr add 10.99.0.3/24 dev slip-v");
    bench.peer.run(|| {
        let socket = UdpSocket::bind((PEER, 0)).unwrap();
        socket.set_broadcast(true).unwrap();
        socket
            .send_to(b"kernel", (Ipv4Addr::new(10, 99, 0, 3), 1))
            .unwrap();
        socket
            .send_to(b"all", (Ipv4Addr::new(10, 99, 0, 255), 2))
            .unwrap();
        socket.send_to(b"stack", (STACK, 3)).unwrap();
    });
    // The device does not receive frames that the kernel itself sends.
    bench.ours.as_ref().unwrap().run(|| {
        let socket = UdpSocket::bind(("10.99.0.3", 0)).unwrap();
        socket.send_to(b"from our own kernel", (PEER, 4)).unwrap();
        socket.set_broadcast(true).unwrap();
        let all = Ipv4Addr::new(10, 99, 0, 255);
        socket.send_to(b"from our own kernel", (all, 5)).unwrap();
    });
    let frames = net::drain(&mut *bench.devices[0], Duration::from_millis(50));
    let mut seen: Vec<u16> = frames
        .iter()
        .filter(|(frame, _)| net::is_udp(frame))
        .map(|(frame, _)| u16::from_be_bytes([frame[L4 + 2], frame[L4 + 3]]))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [2, 3]);
}
