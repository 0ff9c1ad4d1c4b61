//! Frames that an engine sends before its program has answered.

mod pair;

use std::io::IoSlice;
use std::sync::Arc;

use pair::{Gathering, World, host_with};
use slipstack_channel::{Command, SockId, Transport};
use slipstack_device::loopback;
use slipstack_engine::Instant;

/// Host 1 gathers; a listener of its.
fn world() -> (World, SockId) {
    let (left, device) = loopback::pair(1500).unwrap();
    let right = Gathering::new(device, Arc::default());
    let hosts = [host_with(1, left, None), host_with(2, right, None)];
    let mut world = World {
        hosts,
        now: 1_000_000,
    };
    let listener = world.listen(1, 8080);
    world.settle(0);
    (world, listener)
}

/// A connection of which host 1 has received what it acknowledges at once, before it has answered.
fn world_with_a_request() -> (World, SockId) {
    let (mut world, listener) = world();
    let (client, server) = world.connect(listener, 8080);
    world.settle(1_000_000);
    let now = Instant(world.now);
    let request = [0; 20_000];
    world.hosts[0]
        .program
        .send(client, &[IoSlice::new(&request)], false);
    world.hosts[0].engine.commands(now);
    world.hosts[1].engine.turn_before_answers(now);
    assert!(world.hosts[1].engine.has_unread_events());
    (world, server)
}

fn frames_at_the_client(world: &mut World) -> usize {
    world.hosts[0].engine.turn(Instant(world.now)).frames
}

#[test]
fn an_acknowledgment_leaves_with_the_answer() {
    let (mut world, server) = world_with_a_request();
    assert_eq!(frames_at_the_client(&mut world), 0);
    let host = &mut world.hosts[1];
    host.program.send(server, &[IoSlice::new(b"bye")], false);
    host.engine.commands(Instant(world.now));
    assert_eq!(frames_at_the_client(&mut world), 2);
}

#[test]
fn it_leaves_when_the_program_waits_again_without_an_answer() {
    let (mut world, _server) = world_with_a_request();
    world.hosts[1].engine.commands(Instant(world.now));
    assert_eq!(frames_at_the_client(&mut world), 1);
}

#[test]
fn it_leaves_with_the_next_turn() {
    let (mut world, _server) = world_with_a_request();
    world.hosts[1].engine.stand_in(Instant(world.now));
    assert_eq!(frames_at_the_client(&mut world), 1);
}

#[test]
fn what_the_program_is_not_told_of_is_answered_at_once() {
    let (mut world, _listener) = world();
    let client = world.hosts[0].program.open_socket(Transport::Tcp).unwrap();
    let remote = (world.hosts[1].addr, 8080).into();
    let connect = Command::Connect {
        sock: client,
        remote,
    };
    assert!(world.request(0, connect).is_ok());
    let now = Instant(world.now);
    for expected in ["the answer to ARP", "the SYN-ACK"] {
        world.hosts[1].engine.turn_before_answers(now);
        assert!(!world.hosts[1].engine.has_unread_events());
        assert_eq!(frames_at_the_client(&mut world), 1, "{expected}");
    }
}
