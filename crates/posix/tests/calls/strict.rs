//! `--strict`: nothing falls back to the kernel silently.

use std::io::IoSlice;

use slipstack_posix::{Divert, Errno};

use crate::world::{DGRAM, NONBLOCK, STREAM, World, fails, v4};

/// Reason why the kernel socket under `fd` has no connection.
fn kernel_accepts(fd: i32) -> Option<Errno> {
    let number = slipstack_mem::Descriptor::new(fd).unwrap();
    rustix::net::accept(number.as_fd()).err().map(Errno::from)
}

#[test]
fn connecting_to_an_unreachable_address_is_an_error_that_says_why() {
    let world = World::strict();
    for kind in [STREAM, DGRAM, DGRAM] {
        let fd = world.socket(kind);
        fails(
            world.process.connect(fd, &v4([198, 51, 100, 1], 9)),
            Errno::ENETUNREACH,
        );
    }
    // One for each kind: a repetition is not logged.
    let warnings = world.warnings.lock().unwrap();
    assert_eq!(warnings.len(), 2);
    assert!(warnings[0].contains("198.51.100.1:9") && warnings[0].contains("no route"));
}

#[test]
fn binding_one_of_the_kernels_addresses_is_an_error() {
    let world = World::strict();
    let fd = world.socket(STREAM);
    fails(
        world.process.bind(fd, &v4([198, 51, 100, 1], 0)),
        Errno::EADDRNOTAVAIL,
    );
}

#[test]
fn the_loopback_network_stays_with_the_kernel() {
    let world = World::strict();
    let fd = world.socket(STREAM);
    assert_eq!(world.process.bind(fd, &v4([127, 0, 0, 1], 0)), Ok(()));
    let fd = world.socket(STREAM);
    fails(
        world.process.connect(fd, &v4([127, 0, 0, 1], 9)),
        Errno::ECONNREFUSED,
    );
    assert!(world.warnings.lock().unwrap().is_empty());
}

#[test]
fn without_strict_the_kernel_takes_over() {
    let world = World::new();
    let fd = world.socket(STREAM);
    assert_eq!(
        world.process.connect(fd, &v4([198, 51, 100, 1], 9)),
        Err(Divert::Kernel)
    );
}

#[test]
fn a_listener_without_an_engine_fails_at_listen() {
    let world = World::strict();
    world.has_no_engine(true);
    let fd = world.socket(STREAM);
    world.process.bind(fd, &v4([0, 0, 0, 0], 0)).unwrap();
    fails(world.process.listen(fd, 16), Errno::ENETDOWN);
    let warnings = world.warnings.lock().unwrap().clone();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("no engine for the test"));
    // The kernel does not listen either.
    assert_eq!(kernel_accepts(fd), Some(Errno::EINVAL));
    world.has_no_engine(false);
    assert_eq!(world.process.listen(fd, 16), Ok(()));
    assert_eq!(kernel_accepts(fd), Some(Errno(libc::EAGAIN)));
}

#[test]
fn a_listener_that_the_engine_refuses_is_taken_from_the_kernel_too() {
    let world = World::strict();
    world.is_full();
    let fd = world.socket(STREAM);
    world.process.bind(fd, &v4([0, 0, 0, 0], 0)).unwrap();
    fails(world.process.listen(fd, 16), Errno::EADDRINUSE);
    assert_eq!(world.warnings.lock().unwrap().len(), 1);
    assert_eq!(kernel_accepts(fd), Some(Errno::EINVAL));
    fails(world.process.listen(fd, 16), Errno::EADDRINUSE);
}

#[test]
fn a_refusal_is_reported_even_if_another_engine_has_ended_since() {
    let world = World::strict();
    let (listener, _) = world.listener(NONBLOCK);
    let client = world.socket(STREAM | NONBLOCK);
    world.has_no_engine(true);
    world.engine().die();
    world.poll_in(client, libc::POLLIN);
    assert_eq!(world.poll_in(listener, libc::POLLIN), libc::POLLIN);
    world.has_no_engine(false);
    let _ = world.process.connect(client, &v4([10, 77, 0, 9], 9));
    world.engine().die();
    world.poll_in(client, libc::POLLIN);
    assert_eq!(world.poll_in(listener, libc::POLLIN), libc::POLLIN);
    let told = world
        .process
        .accept4(listener, 0)
        .map(|accepted| accepted.fd);
    fails(told, Errno::ENETDOWN);
}

#[test]
fn a_datagram_socket_without_an_engine_fails_at_bind() {
    let world = World::strict();
    world.has_no_engine(true);
    let fd = world.socket(DGRAM);
    fails(
        world.process.bind(fd, &v4([0, 0, 0, 0], 0)),
        Errno::ENETDOWN,
    );
    assert_eq!(world.warnings.lock().unwrap().len(), 1);
    world.has_no_engine(false);
    assert_eq!(world.process.bind(fd, &v4([0, 0, 0, 0], 0)), Ok(()));
}

#[test]
fn a_connection_without_an_engine_fails_with_one_sentence() {
    let world = World::strict();
    world.has_no_engine(true);
    let fd = world.socket(STREAM);
    fails(
        world.process.connect(fd, &v4([10, 77, 0, 9], 9)),
        Errno::ENETUNREACH,
    );
    let warnings = world.warnings.lock().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("10.77.0.9:9") && warnings[0].contains("no engine for the test"));
}

#[test]
fn datagrams_to_unreachable_addresses_do_not_go_to_the_kernel() {
    let world = World::strict();
    let fd = world.socket(DGRAM);
    let send = |to: [u8; 4]| {
        let to = v4(to, 9);
        world
            .process
            .sendmsg(fd, &[IoSlice::new(b"x")], Some(&to), &[], 0)
    };
    fails(send([198, 51, 100, 1]), Errno::ENETUNREACH);
    assert!(world.warnings.lock().unwrap()[0].contains("198.51.100.1:9"));
    assert_eq!(send([127, 0, 0, 1]), Err(Divert::KernelFirst));
}

#[test]
fn socket_types_that_only_the_kernel_has_are_refused_unless_allowed() {
    let world = World::strict();
    for (kind, protocol) in [
        (libc::SOCK_RAW, libc::IPPROTO_ICMP),
        (DGRAM, libc::IPPROTO_ICMP),
        (STREAM, libc::IPPROTO_MPTCP),
    ] {
        fails(
            world.process.socket(libc::AF_INET, kind, protocol),
            Errno::EPROTONOSUPPORT,
        );
        let kernel = kind | slipstack_posix::Process::SOCK_KERNEL;
        let asked = world.process.socket(libc::AF_INET, kernel, protocol);
        assert_eq!(asked, Err(Divert::Kernel));
    }
    let other = world.process.socket(libc::AF_NETLINK, libc::SOCK_RAW, 0);
    assert_eq!(other, Err(Divert::Kernel));
    assert_eq!(world.warnings.lock().unwrap().len(), 3);
}
