//! Listeners: wildcard, IPv6, closing, blocking accept from both sides.

use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use slipstack_posix::{Divert, Errno};

use crate::world::{NONBLOCK, OWN, STREAM, World, addr_of, bytes_of, fails, v4};

#[test]
fn a_wildcard_listener_accepts_from_the_kernel_and_the_stack() {
    let world = World::new();
    let listener = world.socket(STREAM);
    world.process.bind(listener, &v4([0; 4], 0)).unwrap();
    world.process.listen(listener, 8).unwrap();
    let name = addr_of(world.process.getsockname(listener).unwrap());
    assert!(name.ip().is_unspecified() && name.port() != 0);
    std::thread::scope(|scope| {
        let acceptor = scope.spawn(|| {
            let two = [(); 2].map(|()| world.process.accept4(listener, 0).unwrap());
            two.map(|it| world.process.is_ours(it.fd))
        });
        std::thread::sleep(Duration::from_millis(5));
        let _kernel = TcpStream::connect(("127.0.0.1", name.port())).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        let client = world.socket(STREAM);
        let to = v4(OWN.octets(), name.port());
        world.process.connect(client, &to).unwrap();
        assert_eq!(acceptor.join().unwrap(), [false, true]);
    });
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
fn a_listener_for_ipv6_only_is_the_kernels() {
    let world = World::new();
    let fd = world.process.socket(libc::AF_INET6, STREAM, 0).unwrap();
    let on = 1i32.to_ne_bytes();
    world
        .process
        .setsockopt(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &on)
        .unwrap();
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    world.process.bind(fd, &bytes_of(any)).unwrap();
    assert!(!world.process.is_ours(fd));
}

#[test]
fn real_ipv6_and_loopback_stay_with_the_kernel() {
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

#[test]
fn who_takes_one_of_two_connections_leaves_the_other_to_others() {
    let world = World::new();
    let (listener, addr) = world.listener(0);
    world.poll_in(listener, 0);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let accepted = world.process.accept4(listener, 0).unwrap();
            // Serves it, while nobody looks at the listener.
            let mut fds = [libc::pollfd {
                fd: accepted.fd,
                events: libc::POLLIN,
                revents: 0,
            }];
            let while_busy = Some(Duration::from_millis(50));
            world.process.poll(&mut fds, while_busy, None)
        });
        // Both come while the accepting thread sleeps.
        std::thread::sleep(Duration::from_millis(10));
        world.engine().call(addr, 2);
        assert_eq!(server.join().unwrap(), Ok(0));
    });
    assert!(world.engine().yields_asked() > 0);
}

/// Whether a listener yields after `comes`, which happens while another one is being looked for.
fn yields_though(comes: impl FnOnce(&World, i32, SocketAddr)) -> bool {
    let world = World::new();
    let (listener, addr) = world.listener(0);
    let (client, _server) = world.pair();
    world.poll_in(listener, 0);
    world.engine().let_yield(Duration::from_millis(100));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut fds = [libc::pollfd {
                fd: client,
                events: libc::POLLIN,
                revents: 0,
            }];
            let awhile = Some(Duration::from_millis(500));
            world.process.poll(&mut fds, awhile, None)
        });
        std::thread::sleep(Duration::from_millis(20));
        world.engine().call(addr, 1);
        // The patience of the thread that sleeps is over, and it asks.
        std::thread::sleep(Duration::from_millis(30));
        comes(&world, listener, addr);
        assert!(world.engine().yields_asked() > 0);
        world.engine().is_yielding()
    })
}

#[test]
fn a_listener_that_a_thread_accepts_from_while_it_is_left_to_others_comes_back() {
    let mut is_yielding = true;
    yields_though(|world, listener, addr| {
        std::thread::scope(|scope| {
            let acceptor = scope.spawn(|| world.process.accept4(listener, 0).unwrap().fd);
            std::thread::sleep(Duration::from_millis(300));
            is_yielding = world.engine().is_yielding();
            world.engine().call(addr, 1);
            acceptor.join().unwrap();
        });
    });
    assert!(!is_yielding);
}

#[test]
fn a_listener_that_comes_into_a_set_while_it_is_left_to_others_comes_back() {
    assert!(!yields_though(|world, listener, _| {
        let set = world.process.epoll_create1(0).unwrap();
        let mut events = [libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: 0,
        }];
        let add = world
            .process
            .epoll_ctl(set, libc::EPOLL_CTL_ADD, listener, Some(events[0]));
        assert_eq!(add, Ok(()));
        let waited = world
            .process
            .epoll_wait(set, &mut events, Some(Duration::ZERO), None);
        assert_eq!(waited, Ok(1));
        std::thread::sleep(Duration::from_millis(300));
    }));
}

#[test]
fn an_address_of_nobody_is_not_available() {
    let world = World::new();
    let fd = world.socket(STREAM);
    // Not the stack's: the kernel says EADDRNOTAVAIL when it is asked.
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
