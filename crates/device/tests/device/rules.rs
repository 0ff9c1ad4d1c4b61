//! Rules that choose by the first frame of a flow, in place of the hash.

use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use slipstack_device::{Description, Port, Row, Rule, Slots, Steering, Transport, find, iface};

use crate::net::{self, Namespace, PEER, Pair, STACK};
use crate::steering::{Bench, SLOTS};

/// A second address of the peer's.
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 7);

fn slots(kind: &str, interface: &str, rule: Rule) -> Slots {
    let (backend, argument) = find(kind).unwrap();
    let description = Description {
        interface,
        argument,
        slots: SLOTS,
        ..Description::default()
    };
    Slots::open_ports(backend, &[description], Some(rule)).unwrap()
}

fn packet(tag: &str, rule: Rule) -> Bench {
    let pair = Pair::new(tag);
    let slots = slots("packet", "slip-v", rule);
    pair.announce(slots.link().mac);
    pair.peer.ip(&format!("addr add {OTHER}/24 dev peer-v"));
    Bench::new(slots, pair.peer, Some(pair.ours))
}

fn tap(tag: &str, rule: Rule) -> Bench {
    let peer = Namespace::new(tag);
    peer.enter();
    let slots = slots("tap", "slip0", rule);
    iface::add_address("slip0", PEER.into(), 24).unwrap();
    iface::add_address("slip0", OTHER.into(), 24).unwrap();
    iface::set_up("slip0").unwrap();
    net::announce(&peer, "slip0", slots.link().mac);
    Bench::new(slots, peer, None)
}

fn for_each_back_end(test: &str, rule: fn() -> Rule, body: fn(&mut Bench)) {
    if net::may_run(test) {
        body(&mut packet(&format!("{test}-p"), rule()));
        body(&mut tap(&format!("{test}-t"), rule()));
    }
}

fn serve(steering: &Steering, transport: Transport, port: u16, slots: &[u16]) {
    steering.set_group(3, slots).unwrap();
    steering.set_port(transport, port, Port::Group(3)).unwrap();
}

/// Connects from many ports to the stack, where nobody answers.
fn knock(bench: &Bench, count: usize) {
    bench.peer.run(move || {
        for _ in 0..count {
            let address = SocketAddr::from((STACK, 80));
            let _ = TcpStream::connect_timeout(&address, Duration::from_millis(5));
        }
    });
}

#[test]
fn flows_take_the_slots_by_turns_and_stay() {
    for_each_back_end(
        "turns",
        || Rule::Turns,
        |bench| {
            serve(bench.steering(), Transport::Udp, 2000, &[1, 2, 3]);
            assert_eq!(bench.check(90, 2000), [0, 30, 30, 30]);
            // A slot that is not alive is passed over.
            bench.steering().set_alive(2, false).unwrap();
            let load = bench.check(90, 2000);
            assert_eq!(load[2], 0, "{load:?}");
            bench.steering().set_alive(2, true).unwrap();

            let socket = bench.peer.run(|| UdpSocket::bind((PEER, 0)).unwrap());
            let ends = (
                socket.local_addr().unwrap(),
                SocketAddr::from((STACK, 2000)),
            );
            let send = |bench: &mut Bench| {
                socket.send_to(b"x", ends.1).unwrap();
                bench.arrivals_of(1)[&ends]
            };
            let first = send(bench);
            assert_eq!([send(bench), send(bench)], [first, first]);
            // One that serves the port no more is left.
            let others: Vec<u16> = (1..4).filter(|slot| *slot != first).collect();
            bench.steering().set_group(3, &others).unwrap();
            assert!(others.contains(&send(bench)));
        },
    );
}

#[test]
fn connections_take_the_slots_by_turns() {
    for_each_back_end(
        "syns",
        || Rule::Turns,
        |bench| {
            serve(bench.steering(), Transport::Tcp, 80, &[1, 3]);
            knock(bench, 20);
            let arrivals = bench.arrivals_of(20);
            let of = |slot| arrivals.values().filter(|it| **it == slot).count();
            assert_eq!((of(1), of(3)), (10, 10));
            // An engine's view knows it too.
            let steering = bench.steering();
            let reader = Steering::from_fds(steering.read_only_fds().unwrap()).unwrap();
            let reader = reader.with_chosen(steering.chosen_fd().unwrap().unwrap());
            for ((remote, local), slot) in arrivals {
                assert_eq!(reader.find_slot(Transport::Tcp, local, remote), slot);
            }
        },
    );
}

#[test]
fn a_table_assigns_senders_to_engines() {
    let row = |network: Ipv4Addr, prefix_len, engine| Row {
        network: network.into(),
        prefix_len,
        engine,
    };
    let rule = || Rule::Table(vec![row(PEER, 24, 1), row(OTHER, 32, 2)]);
    if !net::may_run("table") {
        return;
    }
    for mut bench in [packet("table-p", rule()), tap("table-t", rule())] {
        let bench = &mut bench;
        serve(bench.steering(), Transport::Udp, 2000, &[1, 2, 3]);
        assert_eq!(bench.check(10, 2000), [0, 0, 10, 0]);
        let socket = bench.peer.run(|| UdpSocket::bind((OTHER, 0)).unwrap());
        let ends = (
            socket.local_addr().unwrap(),
            SocketAddr::from((STACK, 2000)),
        );
        socket.send_to(b"x", ends.1).unwrap();
        assert_eq!(bench.arrivals_of(1)[&ends], 3);
    }
}

#[test]
fn a_kind_of_device_that_the_kernel_does_not_see_has_no_such_rules() {
    let (backend, argument) = find("null").unwrap();
    let description = Description {
        interface: "null",
        argument,
        slots: SLOTS,
        ..Description::default()
    };
    let refused = Slots::open_ports(backend, &[description], Some(Rule::Turns));
    let text = refused.err().unwrap().to_string();
    assert!(text.contains("use hash, port or shares"), "{text}");
}
