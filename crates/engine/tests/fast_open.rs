//! TCP Fast Open between two engines, seen from the programs.

mod pair;

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use pair::World;
use slipstack_channel::{Command, SockId, SocketOption, State, Transport};

fn set(world: &mut World, host: usize, sock: SockId, option: SocketOption) {
    assert!(
        world
            .request(host, Command::SetOption { sock, option })
            .is_ok()
    );
}

/// A listener that takes data with the SYN.
fn listen(world: &mut World) -> SockId {
    let sock = world.hosts[1].program.open_socket(Transport::Tcp).unwrap();
    set(world, 1, sock, SocketOption::FastOpen(5));
    let bind = Command::Bind {
        sock,
        addr: SocketAddr::new(world.hosts[1].addr.into(), 80),
        reuse_addr: true,
        reuse_port: false,
        v6_only: false,
    };
    assert!(world.request(1, bind).is_ok());
    let listen = Command::Listen { sock, backlog: 16 };
    assert!(world.request(1, listen).is_ok());
    sock
}

fn connect(world: &mut World) -> SockId {
    let sock = world.hosts[0].program.open_socket(Transport::Tcp).unwrap();
    set(world, 0, sock, SocketOption::FastOpenConnect(true));
    let remote = SocketAddr::new(world.hosts[1].addr.into(), 80);
    assert!(world.request(0, Command::Connect { sock, remote }).is_ok());
    sock
}

#[test]
fn the_second_connection_brings_its_request_with_the_syn() {
    let mut world = World::new();
    let listener = listen(&mut world);
    let [client, server] = [0, 1].map(|host| world.hosts[host].program.clone());
    // The first one fetches the cookie, after a handshake.
    let first = connect(&mut world);
    assert!(!client.state(first).contains(State::CONNECTED));
    world.settle(10_000_000);
    assert!(client.state(first).contains(State::CONNECTED));
    assert!(server.accept(listener).is_some());
    // The second one may write at once, and nothing has left.
    let second = connect(&mut world);
    world.step();
    let opening = State::CONNECTED | State::OPENING;
    assert!(client.state(second).contains(opening));
    world.settle(10_000_000);
    assert_eq!(server.accept(listener), None);
    assert_eq!(client.send(second, &[IoSlice::new(b"request")], false), 7);
    let mut accepted = None;
    let mut turns = 0;
    while accepted.is_none() && turns < 3 {
        world.step();
        turns += 1;
        accepted = server.accept(listener);
    }
    let accepted = accepted.expect("a connection with the SYN");
    let mut bytes = [0; 16];
    let got = server.recv(accepted, &mut [IoSliceMut::new(&mut bytes)]);
    assert_eq!(&bytes[..got], b"request");
    // The answer goes out before the handshake is done.
    assert_eq!(server.send(accepted, &[IoSlice::new(b"answer")], false), 6);
    world.settle(10_000_000);
    let got = client.recv(second, &mut [IoSliceMut::new(&mut bytes)]);
    assert_eq!(&bytes[..got], b"answer");
    assert!(!client.state(second).contains(State::OPENING));
}
