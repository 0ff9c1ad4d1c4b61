//! Listeners: wildcard, IPv6, closing, blocking accept from both sides.

use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use slipstack_posix::{Divert, Errno, Process};

use crate::world::{DGRAM, NONBLOCK, OWN, STREAM, World, addr_of, bytes_of, fails, v4};

/// Returns whether a blocked accept returns a socket of ours once `connect` has run.
fn accepts_while(world: &World, listener: i32, connect: impl FnOnce()) -> bool {
    std::thread::scope(|scope| {
        let acceptor = scope.spawn(|| world.process.accept4(listener, 0).unwrap());
        std::thread::sleep(Duration::from_millis(5));
        connect();
        world.process.is_ours(acceptor.join().unwrap().fd)
    })
}

#[test]
fn a_wildcard_listener_accepts_from_the_kernel_and_the_stack() {
    let world = World::new();
    let listener = world.socket(STREAM);
    world.process.bind(listener, &v4([0; 4], 0)).unwrap();
    world.process.listen(listener, 8).unwrap();
    let name = addr_of(world.process.getsockname(listener).unwrap());
    assert!(name.ip().is_unspecified() && name.port() != 0);
    let first = accepts_while(&world, listener, || {
        drop(TcpStream::connect(("127.0.0.1", name.port())).unwrap());
    });
    let second = accepts_while(&world, listener, || {
        let to = v4(OWN.octets(), name.port());
        world.process.connect(world.socket(STREAM), &to).unwrap();
    });
    assert_eq!([first, second], [false, true]);
}

#[test]
fn a_dual_stack_listener_shows_mapped_addresses() {
    let world = World::new();
    let listener = world.process.socket(libc::AF_INET6, STREAM, 0).unwrap();
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    world.process.bind(listener, &bytes_of(any)).unwrap();
    world.process.listen(listener, 8).unwrap();
    let port = addr_of(world.process.getsockname(listener).unwrap()).port();
    world.poll_in(listener, libc::POLLIN);
    let client = world.process.socket(libc::AF_INET6, STREAM, 0).unwrap();
    let to = SocketAddr::from((OWN.to_ipv6_mapped(), port));
    world.process.connect(client, &bytes_of(to)).unwrap();
    let accepted = world.process.accept4(listener, 0).unwrap();
    assert_eq!(accepted.peer.as_bytes().len(), 28);
    let peer = world.process.getpeername(client).unwrap();
    assert_eq!(peer.as_bytes().len(), 28);
    assert_eq!(addr_of(peer), SocketAddr::from((OWN, port)));
}

#[test]
fn a_listener_for_ipv6_only_waits_for_addresses_that_come_later() {
    let world = World::new();
    let fd = world.process.socket(libc::AF_INET6, STREAM, 0).unwrap();
    let on = 1i32.to_ne_bytes();
    world
        .process
        .setsockopt(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &on)
        .unwrap();
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    world.process.bind(fd, &bytes_of(any)).unwrap();
    assert!(
        world.process.is_ours(fd),
        "the stack has no IPv6 address yet"
    );
}

#[test]
fn unreachable_ipv6_and_loopback_addresses_go_to_the_kernel() {
    let world = World::new();
    let fd = world.process.socket(libc::AF_INET6, STREAM, 0).unwrap();
    let to: SocketAddr = "[2001:db8::1]:80".parse().unwrap();
    assert_eq!(
        world.process.connect(fd, &bytes_of(to)),
        Err(Divert::Kernel)
    );
    let fd = world.socket(STREAM);
    world.process.bind(fd, &v4([127, 0, 0, 1], 0)).unwrap();
    assert!(!world.process.is_ours(fd));
}

#[test]
fn shutting_a_listener_down_ends_a_blocked_accept() {
    let world = World::new();
    let (listener, _) = world.listener(0);
    std::thread::scope(|scope| {
        let acceptor = scope.spawn(|| world.process.accept4(listener, 0).map(|it| it.fd));
        std::thread::sleep(Duration::from_millis(10));
        let _ = world.process.shutdown(listener, libc::SHUT_RD);
        fails(acceptor.join().unwrap(), Errno::EINVAL);
    });
}

/// Whether others still get a listener's connections after `comes`. One had come to it and was
/// taken back.
fn yields_after(comes: impl FnOnce(&World, i32, SocketAddr)) -> bool {
    let world = World::new();
    let (listener, addr) = world.listener(NONBLOCK);
    world.poll_in(listener, 0);
    world.engine().call(addr, 1);
    assert_eq!(world.engine().withdraw(), 1);
    comes(&world, listener, addr);
    // The engine hears of it by a command.
    for _ in 0..100 {
        if !world.engine().is_yielding() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[test]
fn a_connection_that_is_taken_back_is_not_accepted() {
    let world = World::new();
    let (listener, addr) = world.listener(NONBLOCK);
    world.poll_in(listener, 0);
    world.engine().call(addr, 2);
    world.poll_in(listener, libc::POLLIN);
    world.process.accept4(listener, 0).unwrap();
    assert_eq!(world.engine().withdraw(), 1, "one has been accepted");
    fails(world.process.accept4(listener, 0).map(drop), Errno::EAGAIN);
    world.poll_in(listener, 0);
    world.engine().call(addr, 1);
    world.poll_in(listener, libc::POLLIN);
    world.process.accept4(listener, 0).unwrap();
}

#[test]
fn a_yielding_listener_gets_connections_again_after_accept_or_poll() {
    assert!(yields_after(|world, _, _| {
        let (client, _server) = world.pair();
        world.poll_in(client, 0);
    }));
    assert!(!yields_after(|world, listener, _| {
        // The event about the connection that was taken back is seen first.
        fails(world.process.accept4(listener, 0).map(drop), Errno::EAGAIN);
        fails(world.process.accept4(listener, 0).map(drop), Errno::EAGAIN);
    }));
    assert!(!yields_after(|world, listener, _| {
        world.poll_in(listener, 0);
        world.poll_in(listener, 0);
    }));
}

#[test]
fn a_yielding_listener_gets_connections_again_after_a_wait_on_its_set() {
    assert!(!yields_after(|world, listener, _| {
        let set = world.process.epoll_create1(0).unwrap();
        let mut events = [libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        }];
        let add = libc::EPOLL_CTL_ADD;
        let added = world.process.epoll_ctl(set, add, listener, Some(events[0]));
        assert_eq!(added, Ok(()));
        for _ in 0..2 {
            let now = Some(Duration::ZERO);
            let waited = world.process.epoll_wait(set, &mut events, now, None);
            assert_eq!(waited, Ok(0));
        }
    }));
}

#[test]
fn a_thread_that_waits_gets_the_next_connection_though_one_was_taken_back() {
    let world = World::new();
    let (listener, addr) = world.listener(0);
    world.poll_in(listener, 0);
    std::thread::scope(|scope| {
        let acceptor = scope.spawn(|| world.process.accept4(listener, 0).unwrap().fd);
        std::thread::sleep(Duration::from_millis(20));
        // It comes and goes before the thread has looked.
        world.engine().call_and_withdraw(addr);
        for _ in 0..100 {
            if !world.engine().is_yielding() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!world.engine().is_yielding());
        world.engine().call(addr, 1);
        acceptor.join().unwrap();
    });
}

#[test]
fn a_foreign_address_is_not_available() {
    let world = World::new();
    let fd = world.socket(STREAM);
    // Not the stack's: the kernel returns EADDRNOTAVAIL.
    fails(
        world.process.bind(fd, &v4([192, 0, 2, 7], 0)),
        Errno::EADDRNOTAVAIL,
    );
    // A failed attempt decides nothing.
    world.process.bind(fd, &v4(OWN.octets(), 0)).unwrap();
    fails(world.process.bind(fd, &v4(OWN.octets(), 0)), Errno::EINVAL);
}

#[test]
fn a_bound_client_keeps_its_address() {
    let world = World::new();
    let (listener, addr) = world.listener(NONBLOCK);
    world.poll_in(listener, libc::POLLIN);
    let client = world.socket(STREAM);
    world.process.bind(client, &v4(OWN.octets(), 0)).unwrap();
    let bound = addr_of(world.process.getsockname(client).unwrap());
    world.process.connect(client, &bytes_of(addr)).unwrap();
    let named = addr_of(world.process.getsockname(client).unwrap());
    assert_eq!(named, bound, "the program has seen the port");
    let accepted = world.process.accept4(listener, 0).unwrap();
    assert_eq!(addr_of(accepted.peer), bound);
}

/// Binds a socket of this thread, and returns it.
fn bound(world: &World, kind: i32, addr: [u8; 4], port: u16) -> Result<i32, Errno> {
    let fd = world.socket(kind);
    match world.process.bind(fd, &v4(addr, port)) {
        Ok(()) => Ok(fd),
        Err(Divert::Errno(error)) => Err(error),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn each_thread_has_a_port_of_its_own_where_instances_have() {
    const TAKEN: Result<i32, Errno> = Err(Errno::EADDRINUSE);
    for kind in [
        STREAM,
        DGRAM,
        STREAM | Process::SOCK_STACK,
        DGRAM | Process::SOCK_STACK,
    ] {
        for (world, is_shared) in [(World::of_instances(), true), (World::new(), false)] {
            let first = bound(&world, kind, [0; 4], 0).unwrap();
            let port = addr_of(world.process.getsockname(first).unwrap()).port();
            assert_eq!(bound(&world, kind, [0; 4], port), TAKEN, "of one thread");
            for addr in [[0; 4], OWN.octets()] {
                let other = std::thread::scope(|scope| {
                    let bind = scope.spawn(|| bound(&world, kind, addr, port));
                    bind.join().unwrap()
                });
                assert_eq!(other.is_ok(), is_shared, "{kind:x} {addr:?}: {other:?}");
                let Ok(fd) = other else { continue };
                if kind & STREAM != 0 {
                    world.process.listen(fd, 8).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_port_of_another_program_is_taken() {
    let theirs = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = theirs.local_addr().unwrap().port();
    let world = World::of_instances();
    assert_eq!(bound(&world, STREAM, [0; 4], port), Err(Errno::EADDRINUSE));
    // The socket may have another one.
    let fd = world.socket(STREAM);
    fails(world.process.bind(fd, &v4([0; 4], port)), Errno::EADDRINUSE);
    world.process.bind(fd, &v4([0; 4], 0)).unwrap();
}
