//! An engine that ends during waits, and its successor.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slipstack_posix::Errno;

use crate::world::{DGRAM, FakeEngine, NONBLOCK, OWN, STREAM, World, bytes_of, fails, v4};

/// Ends the engine while a thread waits for connections to `addr`, and keeps it away for a while.
fn restart(world: &World, addr: SocketAddr) -> Arc<FakeEngine> {
    let old = world.listening(addr, None);
    world.is_away(true);
    old.die();
    std::thread::sleep(Duration::from_millis(150));
    world.is_away(false);
    world.listening(addr, Some(&old))
}

#[test]
fn a_blocked_accept_goes_on_with_the_next_engine() {
    let world = World::new();
    let (listener, addr) = world.listener(0);
    std::thread::scope(|scope| {
        let acceptor = scope.spawn(|| world.process.accept4(listener, 0).is_ok());
        let engine = restart(&world, addr);
        engine.call(addr, 1);
        assert!(acceptor.join().unwrap());
    });
}

#[test]
fn a_poll_goes_on_with_the_next_engine() {
    let world = World::new();
    let (listener, addr) = world.listener(0);
    std::thread::scope(|scope| {
        let poller = scope.spawn(|| {
            let mut fds = [libc::pollfd {
                fd: listener,
                events: libc::POLLIN,
                revents: 0,
            }];
            world.process.poll(&mut fds, None, None)
        });
        let engine = restart(&world, addr);
        engine.call(addr, 1);
        assert_eq!(poller.join().unwrap(), Ok(1));
    });
}

#[test]
fn a_listener_created_while_the_engine_is_down_does_not_go_to_the_kernel() {
    let world = World::new();
    let (listener, addr) = world.listener(0);
    world.poll_in(listener, libc::POLLIN);
    world.is_away(true);
    world.engine().die();
    for _ in 0..3 {
        assert_eq!(world.poll_in(listener, libc::POLLIN), 0);
        std::thread::sleep(Duration::from_millis(110));
    }
    world.is_away(false);
    std::thread::sleep(Duration::from_millis(110));
    world.poll_in(listener, libc::POLLIN);
    world.engine().call(addr, 1);
    assert_eq!(world.poll_in(listener, libc::POLLIN), libc::POLLIN);
}

#[test]
fn a_connection_made_first_takes_the_listeners_along() {
    let world = World::new();
    let (listener, addr) = world.listener(0);
    world.poll_in(listener, libc::POLLIN);
    world.engine().die();
    let client = world.socket(STREAM);
    world.process.connect(client, &bytes_of(addr)).unwrap();
    assert!(world.process.accept4(listener, 0).is_ok());
}

#[test]
fn a_connected_datagram_socket_reports_the_end_once() {
    let world = World::new();
    let fd = world.socket(DGRAM);
    world.process.connect(fd, &v4([10, 77, 0, 9], 9)).unwrap();
    world.poll_in(fd, libc::POLLIN);
    world.engine().die();
    fails(world.recv(fd, 1, 0), Errno::ENETDOWN);
    fails(world.recv(fd, 1, libc::MSG_DONTWAIT), Errno(libc::EAGAIN));
    assert_eq!(world.send(fd, b"x"), Ok(1));
}

#[test]
fn a_blocked_accept_goes_on_after_an_exec_that_failed() {
    let world = World::new();
    let (listener, addr) = world.listener(0);
    std::thread::scope(|scope| {
        let acceptor = scope.spawn(|| world.process.accept4(listener, 0).is_ok());
        let old = world.listening(addr, None);
        world.process.before_exec(true);
        world.process.exec_failed();
        let engine = world.listening(addr, Some(&old));
        engine.call(addr, 1);
        assert!(acceptor.join().unwrap());
    });
}

#[test]
fn a_socket_filter_applies_on_the_next_engine_too() {
    let world = World::new();
    let fd = world.socket(DGRAM | NONBLOCK);
    world.process.bind(fd, &v4(OWN.octets(), 0)).unwrap();
    let own = world.process.getsockname(fd).unwrap();
    world.process.connect(fd, own.as_bytes()).unwrap();
    // Datagrams that arrived before the filter was set are not filtered.
    assert_eq!(world.send(fd, b"before"), Ok(6));
    world
        .process
        .setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &[0; 16])
        .unwrap();
    assert_eq!(world.recv(fd, 10, 0).unwrap(), b"before");
    world.engine().die();
    world.poll_in(fd, libc::POLLIN);
    fails(world.recv(fd, 10, 0), Errno::ENETDOWN);
    assert_eq!(world.send(fd, b"after"), Ok(5));
    fails(world.recv(fd, 10, 0), Errno(libc::EAGAIN));
}

#[test]
fn after_a_slow_failed_attempt_the_next_call_fails_at_once() {
    let world = World::new();
    let (listener, _) = world.listener(NONBLOCK);
    world.poll_in(listener, libc::POLLIN);
    world.is_away(true);
    world.takes(Duration::from_millis(300));
    world.engine().die();
    world.poll_in(listener, libc::POLLIN);
    let accept = || {
        let begun = Instant::now();
        assert!(world.process.accept4(listener, 0).is_err());
        begun.elapsed()
    };
    assert!(accept() >= Duration::from_millis(300));
    assert!(accept() < Duration::from_millis(150));
}

#[test]
fn a_listener_whose_engine_ends_during_listen_listens_on_the_next() {
    let world = World::new();
    let (first, _) = world.listener(NONBLOCK);
    world.poll_in(first, libc::POLLIN);
    let other = world.socket(STREAM | NONBLOCK);
    let old = world.engine();
    let (process, ending) = (Arc::clone(&world.process), Arc::clone(&old));
    let warnings = Arc::clone(&world.warnings);
    old.at_bind(move || {
        ending.end_at_work();
        let waiting = Arc::clone(&process);
        // One thread notices the end, another one has the next engine before this one notices.
        std::thread::spawn(move || {
            let mut fds = [libc::pollfd {
                fd: first,
                events: libc::POLLIN,
                revents: 0,
            }];
            let _ = waiting.poll(&mut fds, Some(Duration::ZERO), None);
        });
        while warnings.lock().unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = process.connect(other, &v4([10, 77, 0, 9], 9));
    });
    let (second, addr) = world.listener(NONBLOCK);
    assert!(!Arc::ptr_eq(&world.engine(), &old));
    std::thread::sleep(Duration::from_millis(30));
    world.poll_in(second, libc::POLLIN);
    world.engine().call(addr, 1);
    assert_eq!(world.poll_in(second, libc::POLLIN), libc::POLLIN);
}
