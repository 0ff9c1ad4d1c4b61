//! Datagrams between two engines.

mod pair;

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use pair::{World, bind, sent_to};
use slipstack_channel::{CloseMode, Command, Envelope, Reply, SockId, SocketOption, Transport};
use slipstack_engine::Instant;

#[test]
fn datagrams_keep_their_bounds_and_addresses() {
    let mut world = World::new();
    let server = bind(&mut world, 1, 53);
    let [left, right] = [0, 1].map(|host| world.hosts[host].program.clone());
    let client = left.open_socket(Transport::Udp).unwrap();
    let to: SocketAddr = "10.9.0.2:53".parse().unwrap();
    for len in [0, 1, 100, 1400] {
        let bytes = vec![len as u8; len];
        assert_eq!(
            left.udp_send(client, &sent_to(to), &[IoSlice::new(&bytes)]),
            Ok(len)
        );
    }
    world.settle(10_000_000);
    let mut out = [0; 1000];
    for len in [0, 1, 100, 1400] {
        assert_eq!(right.udp_next_len(server), Some(len));
        let got = right
            .udp_recv(server, &mut [IoSliceMut::new(&mut out)], false)
            .unwrap();
        assert_eq!((got.full_len, got.len), (len, len.min(1000)));
        assert_eq!(got.to, to);
        assert_eq!(got.from.ip().to_string(), "10.9.0.1");
        assert!(out[..got.len].iter().all(|byte| *byte == len as u8));
        let answer = [IoSlice::new(b"answer")];
        assert_eq!(right.udp_send(server, &sent_to(got.from), &answer), Ok(6));
    }
    world.settle(10_000_000);
    for _ in 0..4 {
        let got = left
            .udp_recv(client, &mut [IoSliceMut::new(&mut out)], false)
            .unwrap();
        assert_eq!((got.len, got.from), (6, to));
    }
    assert_eq!(left.udp_recv(client, &mut [], false), None);
}

#[test]
fn a_connected_socket_needs_no_destination() {
    let mut world = World::new();
    let server = bind(&mut world, 1, 53);
    let [left, right] = [0, 1].map(|host| world.hosts[host].program.clone());
    let client = left.open_socket(Transport::Udp).unwrap();
    let remote = Some("10.9.0.2:53".parse().unwrap());
    let connect = Command::UdpConnect {
        sock: client,
        remote,
    };
    let Ok(Reply::Bound { local }) = world.request(0, connect) else {
        panic!("not connected");
    };
    assert_eq!(local.ip().to_string(), "10.9.0.1");
    assert_eq!(left.remote(client), remote);
    left.udp_send(client, &Envelope::default(), &[IoSlice::new(b"q")])
        .unwrap();
    world.settle(10_000_000);
    let got = right.udp_recv(server, &mut [], true).unwrap();
    assert_eq!((got.full_len, got.from), (1, local));
}

#[test]
fn a_reader_that_does_not_read_loses_datagrams_but_nothing_else() {
    let mut world = World::new();
    let server = bind(&mut world, 1, 53);
    let [left, right] = [0, 1].map(|host| world.hosts[host].program.clone());
    let client = left.open_socket(Transport::Udp).unwrap();
    let to: SocketAddr = "10.9.0.2:53".parse().unwrap();
    let bytes = [5; 1000];
    for _ in 0..500 {
        while left
            .udp_send(client, &sent_to(to), &[IoSlice::new(&bytes)])
            .is_err()
        {
            world.step();
        }
    }
    world.settle(10_000_000);
    let mut received = 0;
    while right.udp_recv(server, &mut [], false).is_some() {
        received += 1;
    }
    assert!(received > 100 && received < 500, "{received}");
    assert!(world.hosts[1].engine.counters().rx_datagrams_lost > 0);
}

/// Datagrams that an engine sends for a socket at a time.
const AT_A_TIME: usize = 4096;

fn with_datagrams(world: &mut World, count: usize) -> SockId {
    let sock = bind(world, 0, 1000);
    let option = SocketOption::SndBuf(1 << 20);
    world
        .request(0, Command::SetOption { sock, option })
        .unwrap();
    let to = sent_to("10.9.0.2:53".parse().unwrap());
    for _ in 0..count {
        assert_eq!(world.hosts[0].program.udp_send(sock, &to, &[]), Ok(0));
    }
    sock
}

/// Datagrams that the engine of the first host has taken.
fn sent(world: &World) -> u64 {
    let rows = world.hosts[0].engine.counter_rows();
    let sent = rows.iter().find(|(name, _)| name.ends_with("tx_udp"));
    sent.map_or(0, |(_, count)| *count)
}

#[test]
fn data_beyond_the_budget_of_a_turn_leaves_with_the_next() {
    let mut world = World::new();
    let sock = with_datagrams(&mut world, AT_A_TIME + 900);
    world.hosts[0].engine.commands(Instant(world.now));
    assert_ne!(world.hosts[0].program.tx_unacked(sock), 0);
    assert!(world.hosts[0].engine.has_work());
    world.step();
    assert_eq!(world.hosts[0].program.tx_unacked(sock), 0);
    assert_eq!(sent(&world), AT_A_TIME as u64 + 900);
    world.settle(10_000_000);
    assert!(!world.hosts[0].engine.has_work());
}

#[test]
fn data_beyond_the_budget_of_a_turn_leaves_before_the_close() {
    let mut world = World::new();
    let sock = with_datagrams(&mut world, 3 * AT_A_TIME);
    world.hosts[0].program.close(sock, CloseMode::Orderly);
    world.hosts[0].engine.commands(Instant(world.now));
    assert_eq!(sent(&world), 3 * AT_A_TIME as u64);
}
