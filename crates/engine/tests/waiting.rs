//! Datagrams for which the device has no room.

mod pair;

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pair::{World, bind, host_with, sent_to};
use slipstack_channel::{CloseMode, SockId, Transport};
use slipstack_device::loopback::{self, Loopback};
use slipstack_device::{Device, DeviceInfo, Sink, TxFull, TxOffload, datagram_cost};
use slipstack_engine::Instant;
use slipstack_mem::RawSlice;

/// A device with as much room for datagrams as the test says.
struct Narrow {
    device: Loopback,
    room: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
}

impl Device for Narrow {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        self.device.rx(budget, sink)
    }

    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        self.device.tx(header, payload, offload)
    }

    fn flush(&mut self) {
        self.device.flush();
    }

    fn poll_fd(&self) -> RawFd {
        self.device.poll_fd()
    }

    fn has_rx(&self) -> bool {
        self.device.has_rx()
    }

    /// Gives all room at once.
    fn datagram_room(&mut self, _now_ns: u64, _taken: u64) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.room.swap(0, Ordering::Relaxed)
    }
}

struct Slow {
    world: World,
    room: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
    to: SocketAddr,
    server: SockId,
}

impl Slow {
    /// The first host's device has no room, and knows its neighbour.
    fn new() -> Slow {
        let (left, right) = loopback::pair(1500).unwrap();
        let (room, asked) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)));
        let narrow = Narrow {
            device: left,
            room: Arc::clone(&room),
            asked: Arc::clone(&asked),
        };
        let mut world = World {
            hosts: [host_with(1, narrow, None), host_with(2, right, None)],
            now: 1_000_000,
        };
        let server = bind(&mut world, 1, 53);
        let to = "10.9.0.2:53".parse().unwrap();
        let mut slow = Slow {
            world,
            room,
            asked,
            to,
            server,
        };
        let first = slow.socket();
        slow.send(first, 9, 1);
        slow.world.settle(10_000_000);
        assert_eq!(slow.received(), [9]);
        slow
    }

    fn socket(&mut self) -> SockId {
        let program = &self.world.hosts[0].program;
        program.open_socket(Transport::Udp).unwrap()
    }

    fn send(&mut self, sock: SockId, name: u8, count: usize) {
        for _ in 0..count {
            let bytes = [name; 1000];
            let sent = self.world.hosts[0].program.udp_send(
                sock,
                &sent_to(self.to),
                &[IoSlice::new(&bytes)],
            );
            assert_eq!(sent, Ok(1000));
        }
    }

    /// Lets datagrams of this length leave.
    fn make_room(&mut self, count: u64) {
        let room = count * datagram_cost(1000);
        self.room.store(room, Ordering::Relaxed);
        self.world.settle(10_000_000);
    }

    /// The first bytes of the datagrams that have come.
    fn received(&mut self) -> Vec<u8> {
        let mut names = Vec::new();
        let mut bytes = [0; 1];
        let program = &self.world.hosts[1].program;
        while program
            .udp_recv(
                self.server,
                &mut [std::io::IoSliceMut::new(&mut bytes)],
                false,
            )
            .is_some()
        {
            names.push(bytes[0]);
        }
        names
    }
}

#[test]
fn datagrams_wait_for_room() {
    let mut slow = Slow::new();
    let sock = slow.socket();
    slow.send(sock, 1, 30);
    slow.world.settle(10_000_000);
    assert!(slow.received().is_empty());
    slow.make_room(10);
    assert_eq!(slow.received(), [1; 10]);
    slow.make_room(100);
    assert_eq!(slow.received(), [1; 20]);
    let engine = &slow.world.hosts[0].engine;
    assert!(!engine.has_work() && slow.world.hosts[0].program.tx_unacked(sock) == 0);
}

#[test]
fn a_device_without_room_is_not_asked_for_each_datagram() {
    let mut slow = Slow::new();
    let sock = slow.socket();
    let before = slow.asked.load(Ordering::Relaxed);
    for _ in 0..100 {
        slow.send(sock, 1, 1);
        slow.world.hosts[0].engine.commands(Instant(slow.world.now));
    }
    assert!(slow.asked.load(Ordering::Relaxed) - before <= 1);
}

#[test]
fn sockets_that_wait_send_by_turns() {
    let mut slow = Slow::new();
    let (flood, other) = (slow.socket(), slow.socket());
    slow.send(flood, 1, 150);
    slow.send(other, 2, 3);
    slow.world.settle(10_000_000);
    slow.make_room(20);
    let names = slow.received();
    assert_eq!(
        names.iter().filter(|name| **name == 2).count(),
        3,
        "{names:?}"
    );
    assert!((20..=22).contains(&names.len()), "{names:?}");
}

#[test]
fn new_room_is_for_those_that_wait_already() {
    let mut slow = Slow::new();
    let (waits, other) = (slow.socket(), slow.socket());
    slow.send(waits, 1, 30);
    slow.world.settle(10_000_000);
    slow.send(other, 2, 5);
    slow.room.store(5 * datagram_cost(1000), Ordering::Relaxed);
    slow.world.now += 10_000_000;
    slow.world.hosts[0].engine.commands(Instant(slow.world.now));
    slow.world.settle(10_000_000);
    assert_eq!(slow.received(), [1; 5]);
    slow.make_room(100);
    let names = slow.received();
    assert_eq!(
        names.iter().filter(|name| **name == 2).count(),
        5,
        "{names:?}"
    );
}

#[test]
fn a_closed_socket_frees_its_port_and_still_sends() {
    let mut slow = Slow::new();
    let sock = bind(&mut slow.world, 0, 1000);
    slow.send(sock, 1, 30);
    slow.world.settle(10_000_000);
    slow.world.hosts[0].program.close(sock, CloseMode::Orderly);
    slow.world.settle(10_000_000);
    assert_ne!(slow.world.hosts[0].engine.sockets(8).len(), 0);
    let again = bind(&mut slow.world, 0, 1000);
    // It receives in the place of the other.
    let back = sent_to("10.9.0.1:1000".parse().unwrap());
    let server = slow.server;
    let answered = slow.world.hosts[1].program.udp_send(server, &back, &[]);
    assert_eq!(answered, Ok(0));
    slow.world.settle(10_000_000);
    assert_eq!(slow.world.hosts[0].program.udp_next_len(again), Some(0));
    slow.make_room(100);
    assert_eq!(slow.received(), [1; 30]);
    slow.world.hosts[0].program.close(again, CloseMode::Orderly);
    slow.world.settle(10_000_000);
}

#[test]
fn datagrams_to_our_own_address_need_no_room() {
    let mut slow = Slow::new();
    let own = bind(&mut slow.world, 0, 1000);
    let (waits, sock) = (slow.socket(), slow.socket());
    slow.send(waits, 1, 5);
    slow.to = "10.9.0.1:1000".parse().unwrap();
    slow.send(sock, 3, 2);
    slow.world.settle(10_000_000);
    assert!(slow.received().is_empty());
    for _ in 0..2 {
        let program = &slow.world.hosts[0].program;
        assert!(program.udp_recv(own, &mut [], false).is_some());
    }
}
