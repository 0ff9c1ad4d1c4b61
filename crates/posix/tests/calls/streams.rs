//! TCP calls: the result of each in each state.

use std::time::Duration;

use slipstack_posix::{Divert, Errno};

use crate::world::{NONBLOCK, OWN, SILENT_PORT, STREAM, World, addr_of, bytes_of, fails, v4};

#[test]
fn bytes_go_both_ways_and_fin_ends_them() {
    let world = World::new();
    let (client, server) = world.pair();
    assert_eq!(world.send(client, b"question"), Ok(8));
    assert_eq!(world.recv(server, 100, 0).unwrap(), b"question");
    assert_eq!(world.send(server, b"answer"), Ok(6));
    world.process.shutdown(server, libc::SHUT_WR).unwrap();
    assert_eq!(world.recv(client, 100, libc::MSG_PEEK).unwrap(), b"answer");
    assert_eq!(world.recv(client, 3, 0).unwrap(), b"ans");
    assert_eq!(world.recv(client, 100, 0).unwrap(), b"wer");
    assert_eq!(world.recv(client, 100, 0).unwrap(), b"");
    assert_eq!(world.send(server, b"x"), Err(Divert::Pipe));
}

#[test]
fn calls_on_a_fresh_socket_fail_as_on_linux() {
    let world = World::new();
    let fd = world.socket(STREAM);
    fails(world.recv(fd, 1, 0), Errno::ENOTCONN);
    assert_eq!(world.send(fd, b"x"), Err(Divert::Pipe));
    fails(world.process.shutdown(fd, libc::SHUT_WR), Errno::ENOTCONN);
    fails(world.process.getpeername(fd), Errno::ENOTCONN);
    fails(world.process.accept4(fd, 0).map(|it| it.fd), Errno::EINVAL);
    let name = world.process.getsockname(fd).unwrap();
    assert_eq!(addr_of(name), "0.0.0.0:0".parse().unwrap());
    assert_eq!(
        world.poll_in(fd, libc::POLLIN | libc::POLLOUT),
        libc::POLLOUT | libc::POLLHUP
    );
}

#[test]
fn a_refused_connection_is_reported_once() {
    let world = World::new();
    let fd = world.socket(STREAM);
    fails(
        world.process.connect(fd, &v4(OWN.octets(), 1)),
        Errno::ECONNREFUSED,
    );
    assert_eq!(world.int_option(fd, libc::SOL_SOCKET, libc::SO_ERROR), 0);
    // Linux lets the same socket try again.
    fails(
        world.process.connect(fd, &v4(OWN.octets(), 1)),
        Errno::ECONNREFUSED,
    );
}

#[test]
fn a_nonblocking_connect_ends_with_writability_and_so_error() {
    let world = World::new();
    let fd = world.socket(STREAM | NONBLOCK);
    let silent = v4(OWN.octets(), SILENT_PORT);
    fails(world.process.connect(fd, &silent), Errno::EINPROGRESS);
    fails(world.process.connect(fd, &silent), Errno::EALREADY);
    assert_eq!(world.poll_in(fd, libc::POLLOUT), 0);
    fails(world.recv(fd, 1, 0), Errno::EAGAIN);
    fails(world.send(fd, b"x"), Errno::EAGAIN);
}

#[test]
fn receive_timeouts_and_dontwait_give_eagain() {
    let world = World::new();
    let (client, _server) = world.pair();
    fails(world.recv(client, 1, libc::MSG_DONTWAIT), Errno::EAGAIN);
    let mut timeval = [0u8; 16];
    timeval[8..].copy_from_slice(&20_000i64.to_ne_bytes());
    world
        .process
        .setsockopt(client, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeval)
        .unwrap();
    let begun = std::time::Instant::now();
    fails(world.recv(client, 1, 0), Errno::EAGAIN);
    assert!(begun.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_close_that_lingers_ends_with_the_last_acknowledgement_whichever_thread_drives_the_engine() {
    /// More than the reader's buffer takes: the rest waits to be acknowledged.
    const LEN: usize = 80_000;
    let world = World::new();
    let (client, server) = world.pair();
    let (other, reader) = world.pair();
    let linger: Vec<u8> = [1i32, 3].into_iter().flat_map(i32::to_ne_bytes).collect();
    world
        .process
        .setsockopt(client, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
        .unwrap();
    assert_eq!(world.send(client, &[1; LEN]), Ok(LEN));
    let took = std::thread::scope(|scope| {
        let driver = scope.spawn(|| world.recv(reader, 1, 0).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        let closing = scope.spawn(|| world.process.close(client).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!closing.is_finished(), "it lingers");
        let begun = std::time::Instant::now();
        assert_eq!(
            world.recv(server, LEN, libc::MSG_WAITALL).unwrap().len(),
            LEN
        );
        closing.join().unwrap();
        let took = begun.elapsed();
        world.send(other, b"x").unwrap();
        driver.join().unwrap();
        took
    });
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_blocked_reader_is_woken_by_another_threads_send() {
    let world = World::new();
    let (client, server) = world.pair();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| world.recv(server, 10, libc::MSG_WAITALL).unwrap());
        for part in [&b"01234"[..], b"56789"] {
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(world.send(client, part), Ok(5));
        }
        assert_eq!(reader.join().unwrap(), b"0123456789");
    });
}

#[test]
fn a_blocking_send_larger_than_the_buffers_arrives_whole() {
    let world = World::new();
    let (client, server) = world.pair();
    let sent: Vec<u8> = (0..600_000u32).map(|i| (i % 251) as u8).collect();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            assert_eq!(world.send(client, &sent), Ok(sent.len()));
            world.process.close(client).unwrap();
        });
        let mut got = Vec::new();
        loop {
            let part = world.recv(server, 10_000, 0).unwrap();
            if part.is_empty() {
                break;
            }
            got.extend(part);
        }
        assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
        writer.join().unwrap();
    });
}

#[test]
fn a_full_ring_gives_eagain_and_room_gives_writability() {
    let world = World::new();
    let (client, server) = world.pair();
    world.nonblock(client);
    let chunk = vec![7; 50_000];
    let mut sent = 0;
    while let Ok(count) = world.send(client, &chunk) {
        sent += count;
    }
    fails(world.send(client, &chunk), Errno::EAGAIN);
    assert_eq!(world.poll_in(client, libc::POLLOUT), 0);
    let mut got = 0;
    while got < sent {
        got += world.recv(server, 1 << 16, 0).unwrap().len();
    }
    assert_eq!(world.poll_in(client, libc::POLLOUT), libc::POLLOUT);
}

#[test]
fn a_reset_is_reported_once_and_hangs_up() {
    let world = World::new();
    let (client, server) = world.pair();
    let peer = addr_of(world.process.getpeername(client).unwrap());
    world.engine().reset(peer);
    let all = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
    assert_eq!(
        world.poll_in(client, all),
        all | libc::POLLERR | libc::POLLHUP
    );
    fails(world.recv(client, 1, 0), Errno::ECONNRESET);
    assert_eq!(world.recv(client, 1, 0).unwrap(), b"");
    assert_eq!(world.send(client, b"x"), Err(Divert::Pipe));
    let _ = server;
}

#[test]
fn poll_tells_half_and_full_close() {
    let world = World::new();
    let (client, server) = world.pair();
    let asked = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
    assert_eq!(world.poll_in(client, asked), libc::POLLOUT);
    world.process.shutdown(server, libc::SHUT_WR).unwrap();
    assert_eq!(world.poll_in(client, asked), asked);
    world.process.shutdown(client, libc::SHUT_WR).unwrap();
    assert_eq!(world.poll_in(client, asked), asked | libc::POLLHUP);
}

#[test]
fn a_dup_keeps_the_connection_open() {
    let world = World::new();
    let (client, server) = world.pair();
    let copy = world.process.dup(client).unwrap();
    world.process.close(client).unwrap();
    assert!(!world.process.is_ours(client));
    assert_eq!(world.send(copy, b"still"), Ok(5));
    assert_eq!(world.recv(server, 10, 0).unwrap(), b"still");
    world.nonblock(copy);
    let third = world.process.dup(copy).unwrap();
    let flags = world.process.fcntl(third, libc::F_GETFL, 0).unwrap();
    assert_eq!(flags, libc::O_RDWR | libc::O_NONBLOCK);
    world.process.close(copy).unwrap();
    world.process.close(third).unwrap();
    assert_eq!(world.recv(server, 10, 0).unwrap(), b"");
}

#[test]
fn accept_returns_the_peer_and_applies_its_flags() {
    let world = World::new();
    let (listener, addr) = world.listener(NONBLOCK);
    fails(
        world.process.accept4(listener, 0).map(|it| it.fd),
        Errno::EAGAIN,
    );
    let client = world.socket(STREAM);
    world.process.connect(client, &bytes_of(addr)).unwrap();
    assert_eq!(world.poll_in(listener, libc::POLLIN), libc::POLLIN);
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let accepted = world.process.accept4(listener, flags).unwrap();
    let name = addr_of(world.process.getsockname(client).unwrap());
    assert_eq!(addr_of(accepted.peer), name);
    let flags = world.process.fcntl(accepted.fd, libc::F_GETFL, 0).unwrap();
    assert_eq!(flags, libc::O_RDWR | libc::O_NONBLOCK);
    fails(
        world.process.connect(client, &bytes_of(addr)),
        Errno::EISCONN,
    );
    assert_eq!(
        world.int_option(listener, libc::SOL_SOCKET, libc::SO_ACCEPTCONN),
        1
    );
}

#[test]
fn two_listeners_on_one_address_are_in_use_at_once() {
    let world = World::new();
    let (_first, addr) = world.listener(0);
    let second = world.socket(STREAM);
    fails(
        world.process.bind(second, &bytes_of(addr)),
        Errno::EADDRINUSE,
    );
}

#[test]
fn a_port_with_a_connection_is_bound_only_by_a_socket_that_shares_it() {
    let world = World::new();
    let (listener, addr) = world.listener(NONBLOCK);
    world.poll_in(listener, libc::POLLIN);
    let client = world.socket(STREAM);
    world.process.connect(client, &bytes_of(addr)).unwrap();
    let own = addr_of(world.process.getsockname(client).unwrap());
    let second = world.socket(STREAM);
    fails(
        world.process.bind(second, &bytes_of(own)),
        Errno::EADDRINUSE,
    );
    let on = 1i32.to_ne_bytes();
    let (level, name) = (libc::SOL_SOCKET, libc::SO_REUSEADDR);
    world.process.setsockopt(second, level, name, &on).unwrap();
    world.process.bind(second, &bytes_of(own)).unwrap();
}

#[test]
fn loopback_and_foreign_addresses_go_to_the_kernel() {
    let world = World::new();
    for addr in [v4([127, 0, 0, 1], 1), v4([192, 0, 2, 1], 1)] {
        let fd = world.socket(STREAM | NONBLOCK);
        assert!(world.process.is_ours(fd));
        assert_eq!(world.process.connect(fd, &addr), Err(Divert::Kernel));
        assert!(!world.process.is_ours(fd));
        let number = slipstack_mem::Descriptor::new(fd).unwrap();
        let flags = rustix::fs::fcntl_getfl(number.as_fd()).unwrap();
        assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
        number.close();
    }
}

#[test]
fn a_refused_or_disconnected_socket_can_be_used_again() {
    let world = World::new();
    let (listener, addr) = world.listener(NONBLOCK);
    world.poll_in(listener, libc::POLLIN);
    let fd = world.socket(STREAM);
    let nobody = v4(OWN.octets(), 99);
    let here = v4(OWN.octets(), 0);
    fails(world.process.connect(fd, &nobody), Errno::ECONNREFUSED);
    world.process.bind(fd, &here).unwrap();
    world.process.listen(fd, 1).unwrap();
    let none = [0; 16];
    world.process.connect(fd, &none).unwrap();
    fails(world.process.accept4(fd, 0).map(|it| it.fd), Errno::EINVAL);
    world.process.listen(fd, 1).unwrap();
    world.process.shutdown(fd, libc::SHUT_WR).unwrap();

    let client = world.socket(STREAM);
    let copy = world.process.dup(client).unwrap();
    for _ in 0..2 {
        world.process.connect(client, &bytes_of(addr)).unwrap();
        assert!(world.process.getpeername(copy).is_ok());
        world.process.connect(copy, &none).unwrap();
        fails(world.process.getpeername(client), Errno::ENOTCONN);
        fails(world.recv(client, 1, 0), Errno::ECONNRESET);
        fails(world.recv(client, 1, 0), Errno::ENOTCONN);
        assert_eq!(world.send(client, b"x"), Err(Divert::Pipe));
    }
}

#[test]
fn a_connect_ends_with_an_error_when_its_socket_is_shut_down() {
    let world = World::new();
    let fd = world.socket(STREAM | NONBLOCK);
    let silent = v4(OWN.octets(), SILENT_PORT);
    fails(world.process.connect(fd, &silent), Errno::EINPROGRESS);
    world.process.shutdown(fd, libc::SHUT_RD).unwrap();
    let error = || world.int_option(fd, libc::SOL_SOCKET, libc::SO_ERROR);
    assert_eq!([error(), error()], [libc::ECONNRESET, 0]);
    fails(world.process.connect(fd, &silent), Errno::EINPROGRESS);
}

#[test]
fn sendfile_sends_from_the_offset_and_moves_it() {
    let world = World::new();
    let (client, server) = world.pair();
    let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&file, b"0123456789").unwrap();
    let file = std::os::fd::AsRawFd::as_raw_fd(&file);
    let mut offset = 4;
    let sent = world.process.sendfile(client, file, Some(&mut offset), 100);
    assert_eq!((sent, offset), (Ok(6), 10));
    assert_eq!(world.recv(server, 100, 0).unwrap(), b"456789");
    let mut out = 0;
    world.send(server, b"abc").unwrap();
    assert_eq!(world.poll_in(client, libc::POLLIN), libc::POLLIN);
    world
        .process
        .ioctl(client, libc::FIONREAD, &mut out)
        .unwrap();
    assert_eq!(out, 3);
}

#[test]
fn a_longjmp_out_of_a_blocked_call_leaves_no_state() {
    let world = World::new();
    let (client, server) = world.pair();
    world
        .jumps
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let jumped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = world.recv(server, 1, 0);
    }));
    assert!(jumped.is_err());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(10));
            world.send(client, b"x").unwrap();
        });
        // This thread has the lead again.
        assert_eq!(world.recv(server, 1, 0).unwrap(), b"x");
    });
    world.process.close(server).unwrap();
    assert_eq!(world.recv(client, 1, 0).unwrap(), b"", "FIN was sent");
}

#[test]
fn a_send_that_has_sent_something_leaves_the_error_to_the_next() {
    let world = World::new();
    let (client, server) = world.pair();
    std::thread::scope(|scope| {
        let bytes = vec![0; 64 << 20];
        let process = &world;
        let sender = scope.spawn(move || process.send(client, &bytes));
        std::thread::sleep(Duration::from_millis(30));
        world.engine().die();
        let sent = sender.join().unwrap().unwrap();
        assert!(sent > 0 && sent < 64 << 20);
    });
    fails(world.send(client, b"x"), Errno::ECONNRESET);
    assert_eq!(world.send(client, b"x"), Err(Divert::Pipe));
    let _ = server;
}
