//! Connections that go to another program.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use slipstack_mem::Descriptor;
use slipstack_posix::{Passing, Process, is_passed};

use crate::world::World;

/// The process, for ever: stewards outlive the test's borrow of it.
fn forever(world: &World) -> &'static Process {
    Box::leak(Box::new(std::sync::Arc::clone(&world.process)))
}

/// A copy of number `fd`, as another program would get it.
fn copy(fd: i32) -> UnixStream {
    let number = Descriptor::new(fd).unwrap();
    number.as_fd().try_clone_to_owned().unwrap().into()
}

#[test]
fn another_program_uses_the_connection_passed_to_it() {
    let world = World::new();
    let (client, server) = world.pair();
    let mut passing = Passing::default();
    let end = world.process.prepare_passing(&mut passing, server, true);
    assert!(is_passed(end.unwrap()), "its name says what it is");
    let mut theirs = copy(end.unwrap());
    forever(&world).end_passing(passing, true);
    world.process.close(server).unwrap();
    world.send(client, b"question").unwrap();
    let mut got = [0; 8];
    theirs.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"question");
    theirs.write_all(b"answer").unwrap();
    assert_eq!(world.recv(client, 6, libc::MSG_WAITALL).unwrap(), b"answer");
    drop(theirs);
    assert_eq!(
        world.recv(client, 1, 0).unwrap(),
        b"",
        "with its last number"
    );
}

#[test]
fn a_connection_that_could_not_be_passed_stays_as_it_was() {
    let world = World::new();
    let (client, server) = world.pair();
    let mut passing = Passing::default();
    let end = world.process.prepare_passing(&mut passing, server, true);
    world.send(client, b"question").unwrap();
    forever(&world).end_passing(passing, false);
    assert!(end.is_some());
    let got = world.recv(server, 8, libc::MSG_WAITALL);
    assert_eq!(got.unwrap(), b"question");
    world.process.close(server).unwrap();
    assert_eq!(world.recv(client, 1, 0).unwrap(), b"");
}

#[test]
fn two_descriptors_of_a_connection_are_passed_as_one_end() {
    let world = World::new();
    let (_client, server) = world.pair();
    let other = world.process.dup(server).unwrap();
    let mut passing = Passing::default();
    let ends = [server, other].map(|fd| world.process.prepare_passing(&mut passing, fd, false));
    assert!(ends[0].is_some());
    assert_eq!(ends[0], ends[1]);
    forever(&world).end_passing(passing, false);
}

#[test]
fn a_listener_is_passed_without_a_control_socket() {
    let world = World::new();
    let (listener, _) = world.listener(0);
    let mut passing = Passing::default();
    let end = world.process.prepare_passing(&mut passing, listener, true);
    assert_eq!(end, None);
    assert!(passing.is_empty());
    assert!(is_passed(listener), "its own number is known elsewhere");
}
