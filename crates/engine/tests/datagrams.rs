//! Datagrams between two engines.

mod pair;

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use pair::World;
use slipstack_channel::{Command, Envelope, Kind, Reply, SockId};

fn sent_to(peer: SocketAddr) -> Envelope {
    Envelope {
        peer: Some(peer),
        ..Envelope::default()
    }
}

fn bind(world: &mut World, host: usize, port: u16) -> SockId {
    let sock = world.hosts[host].program.open_socket(Kind::Udp).unwrap();
    let addr = SocketAddr::new(world.hosts[host].addr.into(), port);
    let bind = Command::Bind {
        sock,
        addr,
        reuse_addr: false,
        reuse_port: false,
        v6_only: false,
    };
    assert_eq!(world.request(host, bind), Ok(Reply::Bound { local: addr }));
    sock
}

#[test]
fn datagrams_keep_their_bounds_and_addresses() {
    let mut world = World::new();
    let server = bind(&mut world, 1, 53);
    let [left, right] = [0, 1].map(|host| world.hosts[host].program.clone());
    let client = left.open_socket(Kind::Udp).unwrap();
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
    let client = left.open_socket(Kind::Udp).unwrap();
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
    let client = left.open_socket(Kind::Udp).unwrap();
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
