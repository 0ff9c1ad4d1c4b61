//! Connections between two engines, seen from the programs.

mod pair;

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use pair::World;
use slipstack_channel::{
    CloseMode, Command, EventKind, LeftConnection, PortRange, Reason, Reply, SockId, SocketOption,
    State, Transport,
};

fn pattern(seed: u64, offset: usize, out: &mut [u8]) {
    for (at, byte) in out.iter_mut().enumerate() {
        let word = (offset + at) as u64 / 8 + seed;
        *byte = (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> ((offset + at) % 8 * 8)) as u8;
    }
}

struct Flow {
    from: (usize, SockId),
    to: (usize, SockId),
    seed: u64,
    sent: usize,
    received: usize,
}

impl Flow {
    fn pump(&mut self, world: &World, total: usize, chunk: usize) {
        let mut bytes = vec![0; chunk.min(total - self.sent)];
        pattern(self.seed, self.sent, &mut bytes);
        let (host, sock) = self.from;
        self.sent += world.hosts[host]
            .program
            .send(sock, &[IoSlice::new(&bytes)], false);
        let (host, sock) = self.to;
        let mut out = vec![0; chunk];
        let len = world.hosts[host]
            .program
            .recv(sock, &mut [IoSliceMut::new(&mut out)]);
        let mut expected = vec![0; len];
        pattern(self.seed, self.received, &mut expected);
        assert!(out[..len] == expected[..], "at {}", self.received);
        self.received += len;
    }
}

#[test]
fn a_hundred_megabytes_each_way_arrive_in_order() {
    const TOTAL: usize = 100 << 20;
    let mut world = World::new();
    let listener = world.listen(1, 8080);
    let (client, server) = world.connect(listener, 8080);
    let flow = |from, to, seed| Flow {
        from,
        to,
        seed,
        sent: 0,
        received: 0,
    };
    let mut flows = [
        flow((0, client), (1, server), 1),
        flow((1, server), (0, client), 2),
    ];
    let mut steps = 0u64;
    while flows.iter().any(|flow| flow.received < TOTAL) {
        for flow in &mut flows {
            flow.pump(&world, TOTAL, 256 << 10);
        }
        world.step();
        steps += 1;
        assert!(steps < 200_000, "stuck at {:?}", flows.map(|f| f.received));
    }
    for (host, sock) in [(0, client), (1, server)] {
        world.hosts[host].program.close(sock, CloseMode::Orderly);
    }
    world.settle(1_000_000_000);
    assert!(world.has_event(0, client, EventKind::Released));
    assert!(world.has_event(1, server, EventKind::Released));
    for host in &world.hosts {
        host.program.release_idle();
        assert_eq!(host.program.tx_memory(), 0);
        assert_eq!(host.engine.rx_memory(), 0);
        assert_eq!(host.engine.counters().clients_lied, 0);
        assert_eq!(host.engine.flow_count(), 0);
    }
}

#[test]
fn a_ring_that_a_stalled_reader_made_large_is_replaced_when_it_reads_again() {
    const TOTAL: usize = 200 << 20;
    const WRITE: usize = 64 << 10;
    let mut world = World::new();
    let listener = world.listen(1, 8080);
    let (client, server) = world.connect(listener, 8080);
    let mut flow = Flow {
        from: (0, client),
        to: (1, server),
        seed: 3,
        sent: 0,
        received: 0,
    };
    while flow.received < TOTAL / 2 {
        flow.pump(&world, TOTAL, 1 << 20);
        world.step();
    }
    // Nothing is read until the window and the ring are full.
    let mut bytes = vec![0; WRITE];
    loop {
        pattern(flow.seed, flow.sent, &mut bytes);
        let count = world.hosts[0]
            .program
            .send(client, &[IoSlice::new(&bytes)], false);
        flow.sent += count;
        world.settle(1_000_000);
        if count == 0 {
            break;
        }
    }
    let stalled = world.hosts[0].program.tx_memory();
    assert!(stalled > 1 << 20, "{stalled}");
    while flow.received < TOTAL {
        let unread = flow.sent - flow.received;
        if unread >= WRITE || flow.sent == TOTAL {
            read(&world, &mut flow);
        } else {
            flow.pump(&world, TOTAL, WRITE);
        }
        world.step();
        if flow.sent < TOTAL {
            let memory = world.hosts[0].program.tx_memory();
            assert!(memory <= 2 * stalled, "{memory}");
        }
        if flow.received > TOTAL - (1 << 20) && flow.received < TOTAL - WRITE {
            let memory = world.hosts[0].program.tx_memory();
            assert!(memory <= 512 << 10, "{memory} of {stalled}");
            let memory = world.hosts[1].engine.rx_memory();
            assert!(memory <= 512 << 10, "{memory}");
        }
    }
}

/// Reads the received bytes, and compares them.
fn read(world: &World, flow: &mut Flow) {
    let sent = flow.sent;
    flow.pump(world, sent, 1 << 20);
}

#[test]
fn an_idle_connection_owns_no_ring() {
    let mut world = World::new();
    let listener = world.listen(1, 80);
    let (client, server) = world.connect(listener, 80);
    let program = world.hosts[0].program.clone();
    assert_eq!(program.send(client, &[IoSlice::new(b"hello")], false), 5);
    world.settle(100_000_000);
    let mut out = [0; 16];
    let server_end = world.hosts[1].program.clone();
    let mut bufs = [IoSliceMut::new(&mut out)];
    assert_eq!(server_end.peek(server, &mut bufs, 1), 4);
    assert_eq!(server_end.recv(server, &mut bufs), 5);
    assert_eq!(&out[..5], b"hello");
    world.settle(100_000_000);
    program.release_idle();
    assert_eq!(program.tx_memory(), 0);
    assert_eq!(world.hosts[1].engine.rx_memory(), 0);
}

#[test]
fn end_of_stream_follows_the_last_byte_and_half_closed_directions_work() {
    let mut world = World::new();
    let listener = world.listen(1, 80);
    let (client, server) = world.connect(listener, 80);
    let [left, right] = [0, 1].map(|host| world.hosts[host].program.clone());
    left.send(client, &[IoSlice::new(b"request")], false);
    left.push(Command::Shutdown {
        sock: client,
        is_full: false,
    });
    world.settle(10_000_000);
    let mut out = [0; 32];
    assert_eq!(right.recv(server, &mut [IoSliceMut::new(&mut out)]), 7);
    assert!(right.state(server).contains(State::RDHUP));
    assert!(!right.state(server).contains(State::HUP));
    right.send(server, &[IoSlice::new(b"answer")], false);
    right.close(server, CloseMode::Orderly);
    world.settle(10_000_000);
    assert_eq!(left.recv(client, &mut [IoSliceMut::new(&mut out)]), 6);
    assert!(left.state(client).contains(State::RDHUP | State::HUP));
    assert_eq!(left.take_error(client), None);
}

#[test]
fn a_closed_port_refuses_and_an_aborted_connection_resets() {
    let mut world = World::new();
    let program = world.hosts[0].program.clone();
    let sock = program.open_socket(Transport::Tcp).unwrap();
    let remote: SocketAddr = "10.9.0.2:9".parse().unwrap();
    assert!(world.request(0, Command::Connect { sock, remote }).is_ok());
    world.settle(10_000_000);
    assert!(program.state(sock).contains(State::ERR | State::HUP));
    assert_eq!(program.take_error(sock), Some(Reason::Refused));
    assert_eq!(program.take_error(sock), None);

    let listener = world.listen(1, 80);
    let (client, server) = world.connect(listener, 80);
    world.hosts[1].program.close(server, CloseMode::Abort);
    world.settle(10_000_000);
    assert_eq!(program.peek_error(client), Some(Reason::Reset));
    assert!(world.has_event(1, server, EventKind::Released));
    program.close(client, CloseMode::Orderly);
    world.settle(10_000_000);
    assert!(world.has_event(0, client, EventKind::Released));
}

#[test]
fn a_closing_listener_resets_unaccepted_connections() {
    let mut world = World::new();
    let listener = world.listen(1, 80);
    let client = world.hosts[0].program.open_socket(Transport::Tcp).unwrap();
    let remote: SocketAddr = "10.9.0.2:80".parse().unwrap();
    let connect = Command::Connect {
        sock: client,
        remote,
    };
    assert!(world.request(0, connect).is_ok());
    world.settle(10_000_000);
    world.hosts[1].program.close(listener, CloseMode::Orderly);
    world.settle(10_000_000);
    assert_eq!(
        world.hosts[0].program.peek_error(client),
        Some(Reason::Reset)
    );
    let again = world.listen(1, 80);
    assert_ne!(again, listener);
}

#[test]
fn a_connection_to_our_own_address_works() {
    let mut world = World::new();
    let listener = world.listen(0, 80);
    let program = world.hosts[0].program.clone();
    let client = program.open_socket(Transport::Tcp).unwrap();
    let remote: SocketAddr = "10.9.0.1:80".parse().unwrap();
    let connect = Command::Connect {
        sock: client,
        remote,
    };
    assert!(world.request(0, connect).is_ok());
    world.settle(10_000_000);
    let server = program.accept(listener).unwrap();
    let mut bytes = vec![0; 60_000];
    pattern(3, 0, &mut bytes);
    assert_eq!(program.send(client, &[IoSlice::new(&bytes)], false), 60_000);
    let mut received = Vec::new();
    for _ in 0..200 {
        world.step();
        let mut out = vec![0; 4096];
        let len = program.recv(server, &mut [IoSliceMut::new(&mut out)]);
        received.extend_from_slice(&out[..len]);
    }
    assert!(received == bytes, "{} bytes", received.len());
}

#[test]
fn a_waiting_writer_is_woken_by_room() {
    let mut world = World::new();
    let listener = world.listen(1, 80);
    let (client, server) = world.connect(listener, 80);
    let [left, right] = [0, 1].map(|host| world.hosts[host].program.clone());
    let bytes = vec![7; 1 << 20];
    for _ in 0..1000 {
        left.send(client, &[IoSlice::new(&bytes)], false);
        world.step();
    }
    assert!(!left.is_writable(client));
    world.hosts[0].events.clear();
    let mut out = vec![0; 1 << 20];
    for _ in 0..2000 {
        right.recv(server, &mut [IoSliceMut::new(&mut out)]);
        world.step();
    }
    assert!(left.is_writable(client));
    assert!(world.has_event(0, client, EventKind::Changed));
}

#[test]
fn thousands_of_short_connections_leave_no_state() {
    let mut world = World::new();
    let listener = world.listen(1, 80);
    for round in 0..3000 {
        let (client, server) = world.connect(listener, 80);
        let [left, right] = [0, 1].map(|host| world.hosts[host].program.clone());
        left.send(client, &[IoSlice::new(b"GET")], false);
        world.step();
        world.step();
        let mut out = [0; 8];
        assert_eq!(
            right.recv(server, &mut [IoSliceMut::new(&mut out)]),
            3,
            "round {round}"
        );
        right.send(server, &[IoSlice::new(b"OK")], false);
        right.close(server, CloseMode::Orderly);
        world.step();
        world.step();
        assert_eq!(left.recv(client, &mut [IoSliceMut::new(&mut out)]), 2);
        left.close(client, CloseMode::Orderly);
        world.step();
        world.step();
    }
    world.settle(200_000_000);
    for host in &world.hosts {
        host.program.release_idle();
        assert_eq!(host.engine.counters().clients_lied, 0);
    }
    assert_eq!(world.hosts[0].engine.sockets(100).len(), 0);
    assert_eq!(world.hosts[1].engine.sockets(100).len(), 1);
}

/// The ring is freed between the messages; reading the program's position for that must not move
/// the mark from which the stack is notified.
#[test]
fn a_trickle_that_is_read_at_once_never_closes_the_window() {
    let mut world = World::new();
    let listener = world.listen(1, 8080);
    let (client, server) = world.connect(listener, 8080);
    for round in 0..3000 {
        let sent = world.hosts[0]
            .program
            .send(client, &[IoSlice::new(&[7; 700])], false);
        assert_eq!(sent, 700, "round {round}");
        world.settle(45_000_000);
        let mut out = [0; 1000];
        let len = world.hosts[1]
            .program
            .recv(server, &mut [IoSliceMut::new(&mut out)]);
        assert_eq!(len, 700, "round {round}");
        world.settle(200_000_000);
    }
}

/// The connections that the program of host 1 has heard of at a listener, and has not lost since.
fn announced(world: &World, listener: SockId) -> usize {
    let events = &world.hosts[1].events;
    let count = |kind| events.iter().filter(|event| event.kind == kind).count();
    count(EventKind::Accepted { listener }) - count(EventKind::Withdrawn { listener })
}

#[test]
fn connections_that_a_closing_listener_did_not_accept_go_to_its_sibling() {
    let mut world = World::new();
    let listeners = [(); 2].map(|()| world.listen_shared(1, 80, true));
    let program = world.hosts[0].program.clone();
    let remote: SocketAddr = "10.9.0.2:80".parse().unwrap();
    let clients: Vec<SockId> = (0..12)
        .map(|_| {
            let sock = program.open_socket(Transport::Tcp).unwrap();
            assert!(world.request(0, Command::Connect { sock, remote }).is_ok());
            sock
        })
        .collect();
    world.settle(1_000_000);
    for sock in &clients {
        program.send(*sock, &[IoSlice::new(b"early")], false);
    }
    world.hosts[0]
        .engine
        .turn(slipstack_engine::Instant(world.now));
    // The program of host 1 has taken only a part of its events.
    world.hosts[1]
        .engine
        .turn(slipstack_engine::Instant(world.now));
    let server = world.hosts[1].program.clone();
    let waiting = announced(&world, listeners[0]);
    assert!(waiting > 0 && waiting < 12, "{waiting}");
    server.close(listeners[0], CloseMode::Orderly);
    world.settle(10_000_000);
    let mut accepted = 0;
    while let Some(sock) = server.accept(listeners[1]) {
        let mut out = [0; 16];
        assert_eq!(server.recv(sock, &mut [IoSliceMut::new(&mut out)]), 5);
        assert_eq!(&out[..5], b"early");
        server.send(sock, &[IoSlice::new(b"answer")], false);
        accepted += 1;
    }
    assert_eq!(accepted, 12);
    world.settle(10_000_000);
    for sock in clients {
        assert_eq!(program.rx_available(sock), 6);
        assert_eq!(program.peek_error(sock), None);
    }
    assert!(world.has_event(1, listeners[0], EventKind::Released));
}

#[test]
fn unaccepted_connections_go_to_another_listener_until_theirs_waits_again() {
    let mut world = World::new();
    let [away, there] = [(); 2].map(|()| world.listen_shared(1, 80, true));
    let program = world.hosts[0].program.clone();
    let server = world.hosts[1].program.clone();
    let remote: SocketAddr = "10.9.0.2:80".parse().unwrap();
    let call = |world: &mut World| {
        let sock = program.open_socket(Transport::Tcp).unwrap();
        assert!(world.request(0, Command::Connect { sock, remote }).is_ok());
        world.settle(1_000_000);
    };
    (0..8).for_each(|_| call(&mut world));
    let mut accepted = 0;
    for _ in 0..10 {
        world.now += 3_000_000;
        world.settle(1_000_000);
        accepted += std::iter::from_fn(|| server.accept(there)).count();
    }
    assert_eq!(accepted, 8);
    assert_eq!(announced(&world, away), 0);
    let withdrawn = EventKind::Withdrawn { listener: away };
    let events = world.hosts[1].events.clone();
    assert!(events.iter().any(|event| event.kind == withdrawn));
    assert_eq!(server.accept(away), None);
    (0..8).for_each(|_| call(&mut world));
    assert_eq!(announced(&world, there), 16);
    server.push(Command::Resume { sock: away });
    (0..8).for_each(|_| call(&mut world));
    assert!(announced(&world, away) > 0);
}

/// The keeper passes on what the directory describes, should the process be killed at any instant.
#[test]
fn connections_that_move_to_another_listener_are_described_with_their_new_sockets() {
    let mut world = World::new();
    for _ in 0..2 {
        world.listen_shared(1, 80, true);
    }
    let [program, server] = [0, 1].map(|host| world.hosts[host].program.clone());
    let remote: SocketAddr = "10.9.0.2:80".parse().unwrap();
    for _ in 0..8 {
        let sock = program.open_socket(Transport::Tcp).unwrap();
        assert!(world.request(0, Command::Connect { sock, remote }).is_ok());
        world.settle(1_000_000);
        program.send(sock, &[IoSlice::new(b"question")], false);
        world.settle(1_000_000);
    }
    assert!(slipstack_channel::half_open_records(server.region()).is_empty());
    for _ in 0..10 {
        let flows = slipstack_channel::flows(server.region());
        let left = flows.iter().filter_map(|entry| {
            assert!(!entry.is_leaving);
            LeftConnection::look(server.region(), &entry.opened?)
        });
        let left: Vec<_> = left.map(|it| (it.is_unaccepted, it.received)).collect();
        assert_eq!(left, [(true, 8); 8]);
        world.now += 3_000_000;
        world.settle(1_000_000);
    }
}

#[test]
fn a_half_open_connection_is_on_record_before_its_syn_ack_leaves() {
    let mut world = World::new();
    world.listen(1, 80);
    let [program, server] = [0, 1].map(|host| world.hosts[host].program.clone());
    let remote: SocketAddr = "10.9.0.2:80".parse().unwrap();
    let sock = program.open_socket(Transport::Tcp).unwrap();
    assert!(world.request(0, Command::Connect { sock, remote }).is_ok());
    let mut counts = Vec::new();
    for _ in 0..8 {
        world.step();
        counts.push(slipstack_channel::half_open_records(server.region()).len());
    }
    counts.dedup();
    assert!(counts.ends_with(&[1, 0]), "{counts:?}");
}

/// nginx's pair of listeners: `listen 80` and `listen [::]:80 ipv6only=on`.
#[test]
fn unaccepted_connections_of_a_closing_listener_go_only_to_one_of_their_address() {
    for (sibling, v6_only, is_heir) in [
        ("[::]:80", true, false),
        ("[::]:80", false, true),
        ("0.0.0.0:80", false, true),
        ("10.9.0.2:80", false, true),
    ] {
        let mut world = World::new();
        let closing = world.listen_at(1, "0.0.0.0:80".parse().unwrap(), true, false);
        let client = world.hosts[0].program.open_socket(Transport::Tcp).unwrap();
        let connect = Command::Connect {
            sock: client,
            remote: "10.9.0.2:80".parse().unwrap(),
        };
        assert!(world.request(0, connect).is_ok());
        world.settle(10_000_000);
        let sibling = world.listen_at(1, sibling.parse().unwrap(), true, v6_only);
        let server = world.hosts[1].program.clone();
        assert_eq!(announced(&world, closing), 1);
        server.close(closing, CloseMode::Orderly);
        world.settle(10_000_000);
        assert_eq!(server.accept(sibling).is_some(), is_heir, "{sibling:?}");
        let error = world.hosts[0].program.peek_error(client);
        assert_eq!(error, (!is_heir).then_some(Reason::Reset));
    }
}

#[test]
fn unaccepted_connections_of_a_closing_listener_go_only_to_one_of_their_link() {
    // Numbers plus one; 0 = any link.
    for (link, siblings_link) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut world = World::new();
        let listen = |world: &mut World, link: u16| {
            let sock = world.hosts[1].program.open_socket(Transport::Tcp).unwrap();
            let option = SocketOption::Link(link);
            world.hosts[1]
                .program
                .push(Command::SetOption { sock, option });
            world.listen_with(1, sock, "0.0.0.0:80".parse().unwrap());
            sock
        };
        let closing = listen(&mut world, link);
        let client = world.hosts[0].program.open_socket(Transport::Tcp).unwrap();
        let connect = Command::Connect {
            sock: client,
            remote: "10.9.0.2:80".parse().unwrap(),
        };
        assert!(world.request(0, connect).is_ok());
        world.settle(10_000_000);
        let sibling = listen(&mut world, siblings_link);
        let server = world.hosts[1].program.clone();
        assert_eq!(announced(&world, closing), 1);
        server.close(closing, CloseMode::Orderly);
        world.settle(10_000_000);
        let is_heir = link == siblings_link;
        assert_eq!(
            server.accept(sibling).is_some(),
            is_heir,
            "{link} {siblings_link}"
        );
        let error = world.hosts[0].program.peek_error(client);
        assert_eq!(error, (!is_heir).then_some(Reason::Reset));
    }
}

#[test]
fn program_and_instance_both_learn_that_they_share_a_processor_and_when_it_ends() {
    let world = World::new();
    let host = &world.hosts[0];
    assert!(!host.program.meet(0), "the engine has not said where it is");
    assert!(host.engine.meets_programs(0));
    assert!(host.program.meet(0));
    assert!(!host.program.meet(1));
    assert!(!host.engine.meets_programs(0));
}

/// The keeper may never get it: a program that is killed while it ends, a message that is lost.
#[test]
fn a_handed_over_connection_stays_in_the_directory_until_the_keeper_has_it() {
    let mut world = World::new();
    let listener = world.listen(1, 8080);
    world.connect(listener, 8080);
    let host = &mut world.hosts[0];
    let flows = |region| slipstack_channel::flows(region);
    let before = flows(host.program.region());
    assert_eq!(before.len(), 1);
    let now = slipstack_engine::Instant(world.now);
    let handovers = host.engine.hand_over(now);
    let handed: Vec<u32> = handovers.iter().map(|it| it.images()).collect();
    assert_eq!(handed, [1]);
    assert_eq!(flows(&handovers[0].region), before);
    host.engine.forget(&handovers[0]);
    assert_eq!(flows(&handovers[0].region), []);
}

#[test]
fn a_connection_from_a_picked_port_shares_it_with_none_to_the_same_peer() {
    let mut world = World::new();
    world.listen(1, 8080);
    let (own, remote) = (world.hosts[0].addr, world.hosts[1].addr);
    // As many connections as there are ports.
    for count in 0..10 {
        let sock = world.hosts[0].program.open_socket(Transport::Tcp).unwrap();
        let option = SocketOption::PortRange(PortRange {
            first: 40_000,
            last: 40_009,
        });
        let set = world.request(0, Command::SetOption { sock, option });
        assert_eq!(set, Ok(Reply::Done));
        let bind = Command::Bind {
            sock,
            addr: SocketAddr::new(own.into(), 0),
            reuse_addr: false,
            reuse_port: false,
            v6_only: false,
        };
        world.request(0, bind).unwrap();
        let remote = SocketAddr::new(remote.into(), 8080);
        let connect = Command::Connect { sock, remote };
        assert!(world.request(0, connect).is_ok(), "connection {count}");
        world.step();
    }
}
