//! Sizes of a connection's buffers (SO_SNDBUF, SO_RCVBUF) over the channel.

mod pair;

use std::io::{IoSlice, IoSliceMut};

use pair::World;
use slipstack_channel::{Command, SockId, SocketOption, Transport};

/// Send and receive buffer.
fn limits(world: &World, host: usize, sock: SockId) -> (usize, usize) {
    let program = &world.hosts[host].program;
    (program.tx_limit(sock), program.rx_limit(sock))
}

/// A bulk transfer from host 0, whose reader keeps up.
fn transfer(world: &mut World, from: SockId, to: SockId) {
    let (data, mut out) = (vec![1; 1 << 20], vec![0; 1 << 20]);
    for _ in 0..1_000 {
        world.hosts[0]
            .program
            .send(from, &[IoSlice::new(&data)], false);
        world.step();
        world.hosts[1]
            .program
            .recv(to, &mut [IoSliceMut::new(&mut out)]);
    }
}

#[test]
fn buffers_that_grow_are_seen_by_the_programs() {
    let mut world = World::new();
    let listener = world.listen(1, 8080);
    let (client, server) = world.connect(listener, 8080);
    let fresh = limits(&world, 0, client);
    assert_eq!(fresh, (87_040, 131_072));
    assert_eq!(limits(&world, 1, server), fresh);
    transfer(&mut world, client, server);
    let (sender, receiver) = (limits(&world, 0, client), limits(&world, 1, server));
    assert!(sender.0 > 4 * fresh.0, "{sender:?}");
    assert!(receiver.1 > 4 * fresh.1, "{receiver:?}");
    // No data was sent in the other direction.
    assert_eq!((receiver.0, sender.1), fresh);
}

#[test]
fn buffers_that_are_set_stay_as_they_are_and_accepted_connections_have_their_listeners() {
    let mut world = World::new();
    let listener = world.listen(1, 8080);
    for option in [SocketOption::SndBuf(10_000), SocketOption::RcvBuf(20_000)] {
        let sock = listener;
        let set = world.request(1, Command::SetOption { sock, option });
        assert!(set.is_ok());
    }
    let (client, server) = world.connect(listener, 8080);
    let set = (10_000 + 10_000 / 4 + 2 * 1448, 2 * 20_000);
    assert_eq!(limits(&world, 1, server), set);
    let sock = client;
    let option = SocketOption::RcvBuf(300_000);
    assert!(
        world
            .request(0, Command::SetOption { sock, option })
            .is_ok()
    );
    assert_eq!(limits(&world, 0, client), (87_040, 600_000));
    transfer(&mut world, client, server);
    assert_eq!(limits(&world, 1, server), set);
    assert_eq!(limits(&world, 0, client).1, 600_000);
}

#[test]
fn a_socket_that_the_engine_has_not_seen_has_no_size_yet() {
    let world = World::new();
    let sock = world.hosts[0].program.open_socket(Transport::Tcp).unwrap();
    assert_eq!(world.hosts[0].program.rx_limit(sock), 0);
}
