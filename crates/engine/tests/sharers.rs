//! Datagrams of a socket that several programs of one engine have.

mod pair;

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use pair::{World, sent_to};
use slipstack_channel::{Command, EngineEnd, ProgramEnd, Reply, SockId, SocketOption, Transport};
use slipstack_engine::{ClientId, Instant};

const PORT: u16 = 53;
const OWN: &str = "10.9.0.2:53";
const BROADCAST: &str = "10.9.0.255:53";
const MS: u64 = 1_000_000;
/// Bytes of a datagram, which begins with its number.
const LEN: usize = 1400;

/// A program that has the socket, on the engine of host 1.
struct Sharer {
    client: ClientId,
    program: ProgramEnd,
    sock: SockId,
}

impl Sharer {
    fn new(world: &mut World, cookie: u64, port: u16) -> Sharer {
        let end = EngineEnd::create().unwrap();
        let program = ProgramEnd::open(end.region().clone()).unwrap();
        let client = world.hosts[1].engine.attach_client(end, None);
        let sock = program.open_socket(Transport::Udp).unwrap();
        let sharer = Sharer {
            client,
            program,
            sock,
        };
        let option = SocketOption::Cookie(cookie);
        assert_eq!(
            sharer.request(world, Command::SetOption { sock, option }),
            Reply::Done
        );
        let bind = Command::Bind {
            sock,
            addr: SocketAddr::from(([0, 0, 0, 0], port)),
            reuse_addr: true,
            reuse_port: false,
            v6_only: false,
        };
        assert!(matches!(sharer.request(world, bind), Reply::Bound { .. }));
        sharer
    }

    fn request(&self, world: &mut World, command: Command) -> Reply {
        let ticket = self.program.request(command);
        world.hosts[1].engine.commands(Instant(world.now));
        self.program.reply(ticket).unwrap().unwrap()
    }

    /// The program waits in a call.
    fn sleep(&self) {
        while self.program.poll_event().is_some() {}
        assert!(self.program.prepare_sleep());
    }

    fn next(&self) -> Option<u32> {
        let mut number = [0; 4];
        let mut bufs = [IoSliceMut::new(&mut number)];
        self.program.udp_recv(self.sock, &mut bufs, false)?;
        Some(u32::from_le_bytes(number))
    }

    fn numbers(&self) -> Vec<u32> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

/// Sends datagrams with these numbers from host 0.
struct Peer(SockId);

impl Peer {
    fn new(world: &World) -> Peer {
        Peer(world.hosts[0].program.open_socket(Transport::Udp).unwrap())
    }

    fn send(&self, world: &mut World, to: &str, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            let mut bytes = [0; LEN];
            bytes[..4].copy_from_slice(&number.to_le_bytes());
            let to = sent_to(to.parse().unwrap());
            let sent = world.hosts[0]
                .program
                .udp_send(self.0, &to, &[IoSlice::new(&bytes)]);
            assert_eq!(sent, Ok(LEN));
        }
        for _ in 0..10 {
            world.step();
        }
    }
}

/// Lets time pass; `sharers` wait all the while, as far as they have nothing.
fn pass(world: &mut World, ns: u64, sharers: &[&Sharer]) {
    let until = world.now + ns;
    while world.now < until {
        for sharer in sharers {
            if sharer.program.udp_next_len(sharer.sock).is_none() {
                sharer.sleep();
            }
        }
        world.step();
        world.now += MS / 10;
    }
}

#[test]
fn a_process_that_waits_gets_the_datagram() {
    let mut world = World::new();
    let [busy, waiting] = [7, 7].map(|cookie| Sharer::new(&mut world, cookie, PORT));
    let peer = Peer::new(&world);
    for number in 0..10 {
        waiting.sleep();
        peer.send(&mut world, OWN, [number]);
        assert_eq!((busy.numbers(), waiting.numbers()), (vec![], vec![number]));
    }
}

#[test]
fn unread_datagrams_go_in_their_order_to_a_process_that_waits() {
    let mut world = World::new();
    let late = Sharer::new(&mut world, 7, PORT);
    let peer = Peer::new(&world);
    peer.send(&mut world, OWN, 0..10);
    assert_eq!(late.program.udp_next_len(late.sock), Some(LEN));
    let waiting = Sharer::new(&mut world, 7, PORT);
    let mut came = Vec::new();
    for _ in 0..100 {
        pass(&mut world, MS, &[&waiting]);
        came.extend(waiting.numbers());
    }
    assert_eq!(came, Vec::from_iter(0..10));
    assert_eq!(late.numbers(), Vec::<u32>::new());
    // It reads again, and is as good as the other one.
    late.sleep();
    peer.send(&mut world, OWN, [10]);
    assert_eq!(late.numbers().len() + waiting.numbers().len(), 1);
}

#[test]
fn a_datagram_that_was_looked_at_and_taken_back_is_not_read() {
    let mut world = World::new();
    let late = Sharer::new(&mut world, 7, PORT);
    let peer = Peer::new(&world);
    peer.send(&mut world, OWN, [1, 2]);
    let first = late.program.udp_recv(late.sock, &mut [], true).unwrap();
    let waiting = Sharer::new(&mut world, 7, PORT);
    pass(&mut world, 2 * MS, &[&waiting]);
    assert_eq!(waiting.numbers(), [1]);
    let second = late.program.udp_recv(late.sock, &mut [], true).unwrap();
    assert_eq!((first.full_len, second.full_len), (LEN, LEN));
    assert_eq!(late.numbers(), [2]);
}

#[test]
fn each_datagram_is_read_once_beside_an_engine_that_takes_them_back() {
    const ROUNDS: u32 = 2000;
    const BURST: u32 = 16;
    let mut world = World::new();
    let [busy, waiting] = [7, 7].map(|cookie| Sharer::new(&mut world, cookie, PORT));
    let peer = Peer::new(&world);
    let round = AtomicU32::new(0);
    let mut came = Vec::new();
    let others = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut came = Vec::new();
            for number in 1..=ROUNDS {
                while round.load(Ordering::Acquire) < number {
                    std::hint::spin_loop();
                }
                came.extend(busy.numbers());
            }
            came
        });
        for number in 0..ROUNDS {
            peer.send(&mut world, OWN, number * BURST..(number + 1) * BURST);
            came.extend(waiting.numbers());
            waiting.sleep();
            // Its own have been unread for long.
            world.now += 5 * MS;
            round.store(number + 1, Ordering::Release);
            world.step();
            came.extend(waiting.numbers());
        }
        reader.join().unwrap()
    });
    came.extend(waiting.numbers());
    came.extend(others);
    came.extend(busy.numbers());
    came.sort_unstable();
    let sent = Vec::from_iter(0..ROUNDS * BURST);
    assert!(came == sent, "{} of {}", came.len(), sent.len());
}

#[test]
fn a_datagram_to_all_comes_to_each_socket_once() {
    let mut world = World::new();
    let sharers = [7, 7, 8, 8, 9].map(|cookie| Sharer::new(&mut world, cookie, PORT));
    let peer = Peer::new(&world);
    let mut came = BTreeMap::<(usize, u32), u32>::new();
    for number in 0..20 {
        peer.send(&mut world, BROADCAST, [number]);
        for (at, sharer) in sharers.iter().enumerate() {
            for number in sharer.numbers() {
                *came.entry((at / 2, number)).or_default() += 1;
            }
        }
    }
    assert_eq!(came.len(), 3 * 20);
    assert!(came.values().all(|count| *count == 1), "{came:?}");
}

#[test]
fn an_unread_datagram_to_all_goes_to_a_process_of_the_same_socket() {
    let mut world = World::new();
    let late = Sharer::new(&mut world, 7, PORT);
    let other = Sharer::new(&mut world, 8, PORT);
    let peer = Peer::new(&world);
    peer.send(&mut world, BROADCAST, 0..3);
    peer.send(&mut world, OWN, [3]);
    let before = other.numbers();
    assert!(before.starts_with(&[0, 1, 2]), "{before:?}");
    let own = late.program.udp_next_len(late.sock);
    assert_eq!(own, Some(LEN));
    let waiting = Sharer::new(&mut world, 7, PORT);
    let mut came = Vec::new();
    for _ in 0..100 {
        pass(&mut world, MS, &[&waiting]);
        came.extend(waiting.next());
    }
    assert!(came.starts_with(&[0, 1, 2]), "{came:?}");
    assert_eq!(late.numbers(), Vec::<u32>::new());
    // None has come to it again.
    assert_eq!(before.len() + other.numbers().len() + came.len(), 3 + 3 + 1);
}

#[test]
fn a_program_in_the_place_of_a_killed_one_has_no_part_in_its_socket() {
    let mut world = World::new();
    let [killed, other] = [7, 7].map(|cookie| Sharer::new(&mut world, cookie, PORT));
    let now = Instant(world.now);
    world.hosts[1].engine.detach_client(now, killed.client);
    let gone = |world: &World| !world.hosts[1].engine.has_client(killed.client);
    for _ in 0..1000 {
        if gone(&world) {
            break;
        }
        world.step();
    }
    assert!(gone(&world));
    let new = Sharer::new(&mut world, 9, PORT + 1);
    assert_eq!((new.client, new.sock), (killed.client, killed.sock));
    let peer = Peer::new(&world);
    for number in 0..10 {
        new.sleep();
        peer.send(&mut world, OWN, [number]);
        pass(&mut world, 10 * MS, &[&new]);
        assert_eq!((new.numbers(), other.numbers()), (vec![], vec![number]));
    }
}
