//! Sets: level, edge, ONESHOT, mixed members, fairness, sleeping threads.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::pipe::pipe;
use slipstack_posix::Errno;

use crate::world::{NONBLOCK, STREAM, World, addr_of, bytes_of, fails};

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;

impl World {
    fn set(&self) -> i32 {
        self.process.epoll_create1(libc::EPOLL_CLOEXEC).unwrap()
    }

    fn add(&self, set: i32, fd: i32, events: u32, data: u64) {
        let event = Some(libc::epoll_event { events, u64: data });
        self.process
            .epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, event)
            .unwrap();
    }

    fn modify(&self, set: i32, fd: i32, events: u32, data: u64) {
        let event = Some(libc::epoll_event { events, u64: data });
        self.process
            .epoll_ctl(set, libc::EPOLL_CTL_MOD, fd, event)
            .unwrap();
    }

    fn wait(&self, set: i32, max: usize, ms: i64) -> Vec<(u32, u64)> {
        let mut out = vec![libc::epoll_event { events: 0, u64: 0 }; max];
        let timeout = u64::try_from(ms).ok().map(Duration::from_millis);
        let count = match self.process.epoll_wait(set, &mut out, timeout, None) {
            Ok(count) => count,
            // A set of kernel members only, in a process without an engine.
            Err(slipstack_posix::Divert::Kernel) => panic!("left to the kernel"),
            Err(other) => panic!("{other:?}"),
        };
        out[..count].iter().map(|it| (it.events, it.u64)).collect()
    }
}

#[test]
fn level_triggered_members_are_reported_while_they_are_ready() {
    let world = World::new();
    let (client, server) = world.pair();
    let set = world.set();
    world.add(set, server, IN, 0);
    assert_eq!(world.wait(set, 8, 0), []);
    world.send(client, b"abc").unwrap();
    for _ in 0..3 {
        assert_eq!(world.wait(set, 8, 0), [(IN, 0)], "data 0 is data too");
    }
    world.recv(server, 10, 0).unwrap();
    assert_eq!(world.wait(set, 8, 0), []);
}

#[test]
fn an_edge_is_reported_once_per_arrival() {
    let world = World::new();
    let (client, server) = world.pair();
    let set = world.set();
    world.add(set, server, IN | EDGE, 7);
    world.send(client, b"a").unwrap();
    assert_eq!(world.wait(set, 8, 0), [(IN, 7)]);
    assert_eq!(world.wait(set, 8, 0), []);
    world.send(client, b"b").unwrap();
    assert_eq!(world.wait(set, 8, 0), [(IN, 7)], "unread bytes or not");
    world.modify(set, server, IN | EDGE, 8);
    assert_eq!(world.wait(set, 8, 0), [(IN, 8)], "MOD looks again");
}

#[test]
fn an_edge_triggered_writer_gets_an_event_after_a_full_ring() {
    let world = World::new();
    let (client, server) = world.pair();
    world.nonblock(client);
    let set = world.set();
    world.add(set, client, IN | OUT | EDGE, 1);
    assert_eq!(world.wait(set, 8, 0), [(OUT, 1)]);
    world.send(server, b"x").unwrap();
    assert_eq!(world.wait(set, 8, 0), [(IN | OUT, 1)]);
    let mut sent = 0;
    while let Ok(count) = world.send(client, &[0; 10_000]) {
        sent += count;
    }
    assert_eq!(world.wait(set, 8, 0), []);
    while sent > 0 {
        sent -= world.recv(server, 1 << 16, 0).unwrap().len();
    }
    assert_eq!(world.wait(set, 8, 0), [(IN | OUT, 1)]);
    assert_eq!(world.wait(set, 8, 0), []);
}

#[test]
fn one_shot_members_rest_until_they_are_modified() {
    let world = World::new();
    let (client, server) = world.pair();
    let set = world.set();
    world.add(set, server, IN | ONE_SHOT, 3);
    world.send(client, b"a").unwrap();
    assert_eq!(world.wait(set, 8, 0), [(IN, 3)]);
    world.send(client, b"b").unwrap();
    assert_eq!(world.wait(set, 8, 0), []);
    world.modify(set, server, IN | ONE_SHOT, 4);
    assert_eq!(world.wait(set, 8, 0), [(IN, 4)]);
}

#[test]
fn the_end_of_the_stream_and_the_hang_up_are_events() {
    let world = World::new();
    let (client, server) = world.pair();
    let set = world.set();
    world.add(set, server, IN | RDHUP | EDGE, 5);
    world.process.close(client).unwrap();
    assert_eq!(world.wait(set, 8, 0), [(IN | RDHUP, 5)]);
    world.process.shutdown(server, libc::SHUT_WR).unwrap();
    let hang_up = libc::EPOLLHUP as u32;
    assert_eq!(world.wait(set, 8, 0), [(IN | RDHUP | hang_up, 5)]);
}

#[test]
fn errors_of_epoll_ctl_are_linuxs() {
    let world = World::new();
    let (_client, server) = world.pair();
    let set = world.set();
    let event = Some(libc::epoll_event { events: IN, u64: 0 });
    let ctl = |op, fd, event| world.process.epoll_ctl(set, op, fd, event);
    fails(ctl(libc::EPOLL_CTL_MOD, server, event), Errno::ENOENT);
    fails(ctl(libc::EPOLL_CTL_DEL, server, None), Errno::ENOENT);
    ctl(libc::EPOLL_CTL_ADD, server, event).unwrap();
    fails(ctl(libc::EPOLL_CTL_ADD, server, event), Errno::EEXIST);
    fails(ctl(libc::EPOLL_CTL_ADD, set, event), Errno::EINVAL);
    fails(ctl(libc::EPOLL_CTL_ADD, server, None), Errno::EFAULT);
    fails(ctl(libc::EPOLL_CTL_ADD, 999_999, event), Errno::EBADF);
    fails(ctl(99, server, event), Errno::EINVAL);
}

#[test]
fn kernel_descriptors_share_a_set_without_starvation() {
    let world = World::new();
    let (client, server) = world.pair();
    let (reader, writer) = pipe().unwrap();
    let set = world.set();
    world.add(set, server, IN, 1);
    world.add(set, reader.as_raw_fd(), IN, 2);
    world.send(client, b"x").unwrap();
    rustix::io::write(&writer, b"x").unwrap();
    let mut seen = [false; 3];
    let begun = Instant::now();
    while !(seen[1] && seen[2]) {
        assert!(begun.elapsed() < Duration::from_secs(1), "{seen:?}");
        for (events, data) in world.wait(set, 1, 0) {
            assert_eq!(events, IN);
            seen[data as usize] = true;
        }
    }
}

#[test]
fn kernel_descriptors_get_the_room_that_the_stack_does_not_need() {
    let world = World::new();
    let (client, server) = world.pair();
    let set = world.set();
    world.add(set, server, IN, 0);
    world.send(client, b"x").unwrap();
    let pipes: Vec<_> = (1..=8).map(|data| (data, pipe().unwrap())).collect();
    for (data, (reader, writer)) in &pipes {
        world.add(set, reader.as_raw_fd(), IN, *data);
        rustix::io::write(writer, b"x").unwrap();
    }
    assert_eq!(world.wait(set, 8, 0).len(), 8);
}

#[test]
fn a_closed_member_leaves_the_set() {
    let world = World::new();
    let (client, server) = world.pair();
    let set = world.set();
    world.add(set, server, IN, 1);
    let copy = world.process.dup(server).unwrap();
    world.process.close(server).unwrap();
    world.send(client, b"x").unwrap();
    assert_eq!(world.wait(set, 8, 0), [(IN, 1)], "the description lives");
    world.process.close(copy).unwrap();
    assert_eq!(world.wait(set, 8, 0), []);
}

#[test]
fn a_member_whose_socket_goes_to_the_kernel_stays_in_the_set() {
    let world = World::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = server.local_addr().unwrap();
    let fd = world.socket(STREAM | NONBLOCK);
    let set = world.set();
    world.add(set, fd, IN | OUT, 42);
    assert_eq!(
        world.process.connect(fd, &bytes_of(addr)),
        Err(slipstack_posix::Divert::Kernel)
    );
    // The preload layer does this with that answer.
    let number = slipstack_mem::Descriptor::new(fd).unwrap();
    let _ = rustix::net::connect(number.as_fd(), &addr);
    let (_peer, _) = server.accept().unwrap();
    assert_eq!(world.wait(set, 8, 1_000), [(OUT, 42)]);
    number.close();
}

#[test]
fn timeouts_end_neither_early_nor_much_too_late() {
    let world = World::new();
    let (_client, server) = world.pair();
    let set = world.set();
    world.add(set, server, IN, 1);
    let begun = Instant::now();
    assert_eq!(world.wait(set, 8, 30), []);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(30) && took < Duration::from_millis(500));
}

#[test]
fn sleeping_threads_are_each_woken_for_their_own_set() {
    let world = World::new();
    let pairs: Vec<(i32, i32)> = (0..4).map(|_| world.pair()).collect();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = pairs
            .iter()
            .map(|(_, server)| {
                let world = &world;
                scope.spawn(move || {
                    let set = world.set();
                    world.add(set, *server, IN, 1);
                    for _ in 0..50 {
                        assert_eq!(world.wait(set, 8, 5_000), [(IN, 1)]);
                        let bytes = world.recv(*server, 100, 0).unwrap();
                        world.send(*server, &bytes).unwrap();
                    }
                })
            })
            .collect();
        for round in 0..50 {
            for (client, _) in &pairs {
                world.send(*client, &[round]).unwrap();
            }
            for (client, _) in &pairs {
                assert_eq!(world.recv(*client, 1, 0).unwrap(), [round]);
            }
        }
        for thread in waiting {
            thread.join().unwrap();
        }
    });
}

#[test]
fn room_that_comes_while_the_bytes_before_it_are_copied_gives_an_event() {
    let world = World::new();
    let (client, server) = world.pair();
    world.nonblock(client);
    let set = world.set();
    world.add(set, client, OUT | EDGE, 1);
    let is_over = AtomicBool::new(false);
    let is_reported = std::thread::scope(|scope| {
        // Another thread reads, and hands out the events.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                world.poll_in(server, libc::POLLIN);
                let _ = world.recv(server, 1 << 20, libc::MSG_DONTWAIT);
            }
        });
        let bytes = vec![7; 1 << 20];
        let is_reported = (0..2_000).all(|_| {
            // A part of them, or none: in both cases room is awaited.
            let _ = world.send(client, &bytes);
            world.wait(set, 8, 2_000) == [(OUT, 1)]
        });
        is_over.store(true, Ordering::Relaxed);
        is_reported
    });
    assert!(is_reported);
}

#[test]
fn a_set_inside_a_set_reports_stack_members_too() {
    let world = World::new();
    let (client, server) = world.pair();
    let (inner, outer) = (world.set(), world.set());
    world.add(inner, server, IN, 1);
    world.add(outer, inner, IN, 2);
    assert_eq!(world.wait(outer, 8, 0), []);
    world.send(client, b"x").unwrap();
    assert_eq!(world.wait(outer, 8, 0), [(IN, 2)]);
    assert_eq!(world.poll_in(outer, libc::POLLIN), libc::POLLIN);
    world.recv(server, 10, 0).unwrap();
    assert_eq!(world.wait(outer, 8, 0), []);
    assert_eq!(world.poll_in(outer, libc::POLLIN), 0);
    // The inner set was not examined since.
    world.send(client, b"y").unwrap();
    assert_eq!(world.wait(outer, 8, 0), [(IN, 2)]);
}

#[test]
fn waiting_on_a_set_starts_the_listeners_of_sets_inside_it() {
    let world = World::new();
    let (listener, addr) = world.listener(NONBLOCK);
    let (inner, outer, outermost) = (world.set(), world.set(), world.set());
    world.add(outer, inner, IN, 2);
    world.add(outermost, outer, IN, 3);
    world.add(inner, listener, IN, 1);
    assert_eq!(world.wait(outermost, 8, 0), []);
    world.engine().call(addr, 1);
    assert_eq!(world.wait(outermost, 8, 100), [(IN, 3)]);
    // Added last, by the next engine.
    world.engine().die();
    let late = world.set();
    world.add(late, inner, IN, 4);
    assert_eq!(world.wait(late, 8, 0), []);
    assert_eq!(world.wait(late, 8, 0), []);
    world.engine().call(addr, 1);
    assert_eq!(world.wait(late, 8, 100), [(IN, 4)]);
}

#[test]
fn events_of_listeners_are_the_last_of_a_batch() {
    let world = World::new();
    let (client, server) = world.pair();
    let (listener, addr) = world.listener(STREAM | NONBLOCK);
    let set = world.set();
    world.add(set, listener, IN, 1);
    world.add(set, server, IN, 2);
    let other = world.socket(STREAM);
    world.process.connect(other, &bytes_of(addr)).unwrap();
    assert_eq!(world.wait(set, 8, 1_000), [(IN, 1)]);
    world.send(client, b"later").unwrap();
    assert_eq!(world.wait(set, 8, 1_000), [(IN, 2), (IN, 1)]);
    assert_eq!(world.wait(set, 1, 0).len(), 1);
    assert_eq!(world.wait(set, 8, 0), [(IN, 2), (IN, 1)]);
}

#[test]
fn a_listener_in_a_set_reports_both_sides_as_one_event() {
    let world = World::new();
    let listener = world.socket(STREAM | NONBLOCK);
    world
        .process
        .bind(listener, &crate::world::v4([0; 4], 0))
        .unwrap();
    world.process.listen(listener, 8).unwrap();
    let port = addr_of(world.process.getsockname(listener).unwrap()).port();
    let set = world.set();
    world.add(set, listener, IN, 9);
    assert_eq!(world.wait(set, 8, 0), []);
    let _kernel = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert_eq!(world.wait(set, 8, 1_000), [(IN, 9)]);
    let client = world.socket(STREAM);
    world
        .process
        .connect(client, &crate::world::v4(crate::world::OWN.octets(), port))
        .unwrap();
    std::thread::sleep(Duration::from_millis(1));
    assert_eq!(world.wait(set, 8, 1_000), [(IN, 9)]);
    let mut accepted = Vec::new();
    while let Ok(it) = world.process.accept4(listener, 0) {
        accepted.push(world.process.is_ours(it.fd));
    }
    accepted.sort_unstable();
    assert_eq!(accepted, [false, true]);
    assert_eq!(world.wait(set, 8, 0), []);
}

#[test]
fn of_one_shot_members_with_the_same_data_the_one_rests_that_has_had_its_event() {
    let world = World::new();
    let listen = || {
        let listener = world.socket(STREAM | NONBLOCK);
        let any = crate::world::v4([0; 4], 0);
        world.process.bind(listener, &any).unwrap();
        world.process.listen(listener, 8).unwrap();
        let port = addr_of(world.process.getsockname(listener).unwrap()).port();
        (listener, port)
    };
    let [(first, first_port), (second, second_port)] = [listen(), listen()];
    let set = world.set();
    for listener in [first, second] {
        world.add(set, listener, IN | ONE_SHOT, 9);
    }
    assert_eq!(world.wait(set, 8, 0), []);
    let _kernel = std::net::TcpStream::connect(("127.0.0.1", second_port)).unwrap();
    assert_eq!(world.wait(set, 8, 1_000), [(IN, 9)]);
    let call = |port| {
        let addr = crate::world::v4(crate::world::OWN.octets(), port);
        let client = world.socket(STREAM);
        world.process.connect(client, &addr).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    };
    call(second_port);
    assert_eq!(world.wait(set, 8, 0), [], "the second one rests");
    call(first_port);
    assert_eq!(
        world.wait(set, 8, 1_000),
        [(IN, 9)],
        "the first one does not"
    );
    assert_eq!(world.wait(set, 8, 0), []);
}

/// The outer set examines the inner one, which is the older, while a fork locks both.
#[test]
fn a_fork_during_a_look_at_a_nested_set_does_not_deadlock() {
    const ROUNDS: usize = 1000;
    /// Time for the rounds: under a sanitizer on a busy machine fewer of them happen.
    const MOST: Duration = Duration::from_secs(5);
    let world: &World = Box::leak(Box::new(World::new()));
    let (client, server) = world.pair();
    let inner = world.set();
    // Sets made between the two, which a fork has to go through.
    let _between: Vec<i32> = (0..200).map(|_| world.set()).collect();
    let outer = world.set();
    world.add(inner, server, IN, 0);
    world.add(outer, inner, IN, 0);
    world.send(client, b"x").unwrap();
    assert_eq!(world.wait(outer, 1, 1000).len(), 1);
    let (done, has_done) = std::sync::mpsc::channel();
    // Left behind if they wait for each other.
    let is_over: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    std::thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            world.wait(outer, 1, 0);
        }
    });
    std::thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            world.process.fork_prepare();
            drop(world.process.fork_parent());
            done.send(()).ok();
        }
    });
    let begun = Instant::now();
    for round in 0..ROUNDS {
        let is_done = has_done.recv_timeout(Duration::from_secs(20)).is_ok();
        assert!(is_done, "fork {round} and the look wait for each other");
        if begun.elapsed() > MOST {
            break;
        }
    }
    is_over.store(true, Ordering::Relaxed);
}

#[test]
fn a_set_that_is_closed_leaves_the_set_that_it_is_in() {
    let world = World::new();
    let (outer, inner) = (world.set(), world.set());
    world.add(outer, inner, IN, 1);
    let look = || {
        let mut out = [libc::epoll_event { events: 0, u64: 0 }; 4];
        let at_once = Some(Duration::ZERO);
        world.process.epoll_wait(outer, &mut out, at_once, None)
    };
    assert_eq!(look(), Ok(0));
    world.process.close(inner).unwrap();
    // Nothing in it is ours any more.
    assert_eq!(look(), Err(slipstack_posix::Divert::Kernel));
}
