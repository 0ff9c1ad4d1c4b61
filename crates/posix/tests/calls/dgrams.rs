//! UDP: both sides on one descriptor, connected sockets, truncation.

use std::io::{IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use slipstack_posix::{Divert, Errno};

use crate::world::{DGRAM, NONBLOCK, OWN, World, addr_of, bytes_of, fails, v4};

impl World {
    fn send_to(&self, fd: i32, bytes: &[u8], to: &[u8]) -> slipstack_posix::Outcome<usize> {
        self.process
            .sendmsg(fd, &[IoSlice::new(bytes)], Some(to), &[], 0)
    }
}

#[test]
fn datagrams_keep_their_borders_and_their_senders() {
    let world = World::new();
    let server = world.socket(DGRAM);
    world.process.bind(server, &v4(OWN.octets(), 0)).unwrap();
    let addr = world.process.getsockname(server).unwrap();
    let client = world.socket(DGRAM | NONBLOCK);
    world.poll_in(server, libc::POLLIN);
    assert_eq!(world.send_to(client, b"one", addr.as_bytes()), Ok(3));
    assert_eq!(world.send_to(client, b"", addr.as_bytes()), Ok(0));
    let mut bytes = [0; 2];
    let got = world
        .process
        .recvmsg(
            server,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut [],
            libc::MSG_TRUNC,
        )
        .unwrap();
    assert_eq!((got.len, got.flags, &bytes), (3, libc::MSG_TRUNC, b"on"));
    let from = got.from.unwrap();
    assert_eq!(world.recv(server, 10, 0).unwrap(), b"");
    assert_eq!(world.send_to(server, b"back", from.as_bytes()), Ok(4));
    assert_eq!(world.recv(client, 10, 0).unwrap(), b"back");
}

#[test]
fn a_connected_socket_sends_without_a_destination() {
    let world = World::new();
    let server = world.socket(DGRAM | NONBLOCK);
    world.process.bind(server, &v4(OWN.octets(), 0)).unwrap();
    let addr = addr_of(world.process.getsockname(server).unwrap());
    fails(world.recv(server, 10, 0), Errno::EAGAIN);
    let client = world.socket(DGRAM);
    fails(world.send(client, b"x"), Errno::EDESTADDRREQ);
    world.process.connect(client, &bytes_of(addr)).unwrap();
    assert_eq!(world.send(client, b"hello"), Ok(5));
    assert_eq!(world.recv(server, 10, 0).unwrap(), b"hello");
    let peer = addr_of(world.process.getpeername(client).unwrap());
    assert_eq!(peer, addr);
}

#[test]
fn a_wildcard_socket_receives_from_the_stack_and_the_kernel() {
    let world = World::new();
    let server = world.socket(DGRAM);
    world.process.bind(server, &v4([0; 4], 0)).unwrap();
    let port = addr_of(world.process.getsockname(server).unwrap()).port();
    // Bound on the stack with the first wait.
    world.poll_in(server, libc::POLLIN);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let stack = world.recv(server, 10, 0).unwrap();
            // The preload layer makes the kernel's call when the outcome says so.
            let kernel = world.recv(server, 10, 0);
            (stack, kernel)
        });
        std::thread::sleep(Duration::from_millis(5));
        let client = world.socket(DGRAM);
        let to = v4(OWN.octets(), port);
        assert_eq!(world.send_to(client, b"stack", &to), Ok(5));
        std::thread::sleep(Duration::from_millis(5));
        let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
        outside.send_to(b"kernel", ("127.0.0.1", port)).unwrap();
        let (stack, kernel) = receiver.join().unwrap();
        assert_eq!(stack, b"stack");
        assert_eq!(kernel, Err(Divert::KernelFirst));
    });
    let to = v4([127, 0, 0, 1], 9);
    assert_eq!(world.send_to(server, b"x", &to), Err(Divert::KernelFirst));
}

#[test]
fn a_thread_that_waits_for_room_is_woken_by_any_thread_that_drives_the_engine() {
    /// With their headers just more than the send buffer of the test's engine.
    const COUNT: usize = 63;
    let world = World::new();
    let sender = world.socket(DGRAM);
    world.process.bind(sender, &v4([0; 4], 0)).unwrap();
    world.poll_in(sender, libc::POLLIN);
    let mut limit = [0; 16];
    limit[0] = 2;
    world
        .process
        .setsockopt(sender, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &limit)
        .unwrap();
    let reader = world.socket(DGRAM);
    world.process.bind(reader, &v4(OWN.octets(), 0)).unwrap();
    let addr = world.process.getsockname(reader).unwrap();
    world.engine().hold_datagrams(true);
    let took = std::thread::scope(|scope| {
        let driver = scope.spawn(|| world.recv(reader, 10, 0).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        let nobody = v4(OWN.octets(), 7);
        let world = &world;
        let waiting = scope.spawn(move || {
            let sends = |_| world.send_to(sender, &[0; 1000], &nobody) == Ok(1000);
            (0..COUNT).all(sends)
        });
        std::thread::sleep(Duration::from_millis(50));
        let begun = Instant::now();
        world.engine().hold_datagrams(false);
        assert!(waiting.join().unwrap());
        let took = begun.elapsed();
        let last = world.socket(DGRAM);
        assert_eq!(world.send_to(last, b"end", addr.as_bytes()), Ok(3));
        assert_eq!(driver.join().unwrap(), b"end");
        took
    });
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn too_long_datagrams_are_refused() {
    let world = World::new();
    let client = world.socket(DGRAM);
    let to = v4(OWN.octets(), 5);
    fails(
        world.send_to(client, &vec![0; 65_508], &to),
        Errno::EMSGSIZE,
    );
}

impl World {
    /// A server and a client, and the server's address.
    fn dgram_pair(&self) -> (i32, i32, Vec<u8>) {
        let [server, client] = [(); 2].map(|()| self.socket(DGRAM | NONBLOCK));
        for fd in [server, client] {
            self.process.bind(fd, &v4(OWN.octets(), 0)).unwrap();
        }
        let addr = self.process.getsockname(server).unwrap();
        let to = addr.as_bytes().to_vec();
        self.poll_in(server, libc::POLLOUT);
        (server, client, to)
    }

    /// Reads what has arrived at a socket, without driving the engine; the number of datagrams.
    fn count_arrived(&self, fd: i32) -> usize {
        let has_one = || {
            let mut next = 0;
            self.process.ioctl(fd, libc::FIONREAD, &mut next).unwrap();
            next > 0
        };
        let mut count = 0;
        while has_one() {
            self.recv(fd, 10, 0).unwrap();
            count += 1;
        }
        count
    }
}

#[test]
fn the_messages_of_one_sendmmsg_leave_together_also_after_a_single_event() {
    let world = World::new();
    let (server, client, to) = world.dgram_pair();
    let set = world.process.epoll_create1(0).unwrap();
    let event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 0,
    };
    let add = libc::EPOLL_CTL_ADD;
    world
        .process
        .epoll_ctl(set, add, server, Some(event))
        .unwrap();
    world.send_to(client, b"asks", &to).unwrap();
    let back = addr_of(world.process.getsockname(client).unwrap());
    let mut out = [libc::epoll_event { events: 0, u64: 0 }; 4];
    let wait = Some(Duration::from_secs(5));
    let found = world.process.epoll_wait(set, &mut out, wait, None);
    assert_eq!(found, Ok(1));
    world.recv(server, 10, 0).unwrap();
    world.process.begin_burst();
    for _ in 0..5 {
        let back = v4(OWN.octets(), back.port());
        assert_eq!(world.send_to(server, b"x", &back), Ok(1));
    }
    assert_eq!(world.count_arrived(client), 0);
    world.process.end_burst(server, 5);
    assert_eq!(world.count_arrived(client), 5);
}

#[test]
fn answers_that_are_held_leave_when_nothing_is_left_to_be_read() {
    let world = World::new();
    let (server, client, to) = world.dgram_pair();
    for round in 1..5 {
        for _ in 0..2 * round {
            world.send_to(client, b"asks", &to).unwrap();
        }
        let back = addr_of(world.process.getsockname(client).unwrap());
        let back = v4(OWN.octets(), back.port());
        // Every other datagram is answered, the last one not.
        for at in 0..2 * round {
            assert_eq!(world.recv(server, 10, 0).unwrap(), b"asks");
            if at % 2 == 0 {
                world.send_to(server, b"answer", &back).unwrap();
            }
        }
        fails(world.recv(server, 10, 0), Errno::EAGAIN);
        assert_eq!(world.count_arrived(client), round);
    }
}
