//! The sockets of a forked child. (The fork itself is the preload layer's; here the child's
//! half runs in place of the parent's.)

use slipstack_posix::Errno;

use crate::world::{NONBLOCK, World, bytes_of, fails};

#[test]
fn after_a_fork_the_child_borrows_connections_and_has_listeners_of_its_own() {
    let world = World::new();
    let (listener, addr) = world.listener(NONBLOCK);
    world.poll_in(listener, libc::POLLIN);
    let (client, _server) = world.pair();
    world.process.fork_prepare();
    world.process.fork_child();
    fails(world.recv(client, 1, 0), Errno::ENOTCONN);
    fails(world.send(client, b"x"), Errno::ENOTCONN);
    assert_eq!(world.warnings.lock().unwrap().len(), 1);
    world.process.close(client).unwrap();
    // The listener listens on an engine of the child's own.
    world.poll_in(listener, libc::POLLIN);
    let again = world.socket(libc::SOCK_STREAM);
    world.process.connect(again, &bytes_of(addr)).unwrap();
    let accepted = world.process.accept4(listener, 0).unwrap();
    assert!(world.process.is_ours(accepted.fd));
}

#[test]
fn a_fork_changes_nothing_for_the_parent() {
    let world = World::new();
    let (client, server) = world.pair();
    world.process.fork_prepare();
    drop(world.process.fork_parent());
    world.send(client, b"x").unwrap();
    assert_eq!(world.recv(server, 1, 0).unwrap(), b"x");
}

#[test]
fn of_two_threads_that_fork_each_lends_to_its_own_child() {
    let world = World::new();
    let _connection = world.pair();
    world.process.fork_prepare();
    let lends = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            world.process.fork_prepare();
            world.process.fork_parent().is_some()
        });
        std::thread::sleep(std::time::Duration::from_millis(5));
        [world.process.fork_parent().is_some(), other.join().unwrap()]
    });
    assert_eq!(lends, [true, true]);
}

#[test]
fn a_listener_survives_exec_by_its_description() {
    let world = World::new();
    let (listener, addr) = world.listener(NONBLOCK);
    let text = world.process.before_exec(true).unwrap();
    let inode = world.process.inode(listener).unwrap();
    assert_eq!(text, format!("l{listener}n/{inode},k0"), "and its family");
    let next = World::new();
    next.process.inherit(&text);
    assert!(next.process.is_ours(listener));
    assert_eq!(next.process.inode(listener), Some(inode));
    next.poll_in(listener, libc::POLLIN);
    let client = next.socket(libc::SOCK_STREAM);
    next.process.connect(client, &bytes_of(addr)).unwrap();
    assert!(next.process.accept4(listener, 0).is_ok());
}

#[test]
fn a_program_with_only_an_inherited_connection_does_not_get_the_family() {
    let world = World::new();
    let (_client, server) = world.pair();
    world.process.fork_prepare();
    world.process.fork_child();
    let told = world.process.before_exec(true).unwrap_or_default();
    assert!(told.contains(&format!("h{server}/")), "{told}");
    assert!(!told.contains('k'), "{told}");
}

#[test]
fn a_dead_engine_ends_its_connections_and_not_its_listeners() {
    let world = World::new();
    let (listener, addr) = world.listener(NONBLOCK);
    world.poll_in(listener, libc::POLLIN);
    let (client, _server) = world.pair();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| world.recv(client, 1, 0));
        std::thread::sleep(std::time::Duration::from_millis(10));
        world.engine().die();
        fails(reader.join().unwrap(), Errno::ECONNRESET);
    });
    let hung_up = libc::POLLHUP | libc::POLLERR;
    assert_eq!(
        world.poll_in(client, 0) & libc::POLLHUP,
        hung_up & libc::POLLHUP
    );
    // The next wait finds another engine.
    world.poll_in(listener, libc::POLLIN);
    let again = world.socket(libc::SOCK_STREAM);
    world.process.connect(again, &bytes_of(addr)).unwrap();
    assert!(world.process.accept4(listener, 0).is_ok());
}

#[test]
fn a_thread_that_makes_an_engine_is_inside_a_call() {
    // A keeper that it starts would be taken for a program of the program's otherwise.
    let world = World::new();
    let (listener, _) = world.listener(NONBLOCK);
    world.poll_in(listener, libc::POLLIN);
    assert!(world.was_asked_inside_a_call());
}
