//! A program that writes anything anywhere in its shared memory harms nobody but itself.

mod pair;

use core::sync::atomic::Ordering;
use std::io::{IoSlice, IoSliceMut};

use pair::World;
use slipstack_channel::{
    CloseMode, Command, EngineEnd, EventKind, ProgramEnd, SockId, SocketOption, Transport,
};
use slipstack_engine::Instant;
use slipstack_mem::Region;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 8) % n
    }

    /// Small numbers, page multiples, huge ones and noise.
    fn word(&mut self) -> u64 {
        match self.below(6) {
            0 => self.below(4),
            1 => self.below(1 << 16),
            2 => self.below(1 << 31),
            3 => u64::MAX - self.below(4),
            4 => self.next() & 0xffff_ffff_ffff_f000,
            _ => self.next(),
        }
    }
}

/// Bytes before the arenas that are used for few sockets.
const HEADER: u64 = 4096;
const COMMANDS_AT: u64 = slipstack_channel::COMMANDS_AT as u64;
const COMMANDS: u64 = 4096 * 64;
const CELLS_AT: u64 = slipstack_channel::CELLS_AT as u64;
const ENGINE_HALF_AT: u64 = CELLS_AT + 16_384 * 256;

/// Overwrites words where the engine reads.
fn scribble(region: &Region, random: &mut Random, count: u64) {
    for _ in 0..count {
        let at = match random.below(5) {
            0 => random.below(HEADER),
            1 => COMMANDS_AT + random.below(COMMANDS),
            2 => ENGINE_HALF_AT + random.below(8 * 256),
            _ => CELLS_AT + random.below(8 * 256),
        };
        let word = region.u64(at as usize & !7).unwrap();
        word.store(random.word(), Ordering::Relaxed);
    }
}

/// A command that decodes, with arguments that may be anything.
fn command(random: &mut Random) -> Command {
    let sock = SockId {
        index: random.below(8) as u32,
        generation: random.below(3) as u32,
    };
    let addr = format!("10.9.0.{}:{}", random.below(4), random.below(4) * 40)
        .parse()
        .unwrap();
    let kind = if random.below(2) == 0 {
        Transport::Tcp
    } else {
        Transport::Udp
    };
    match random.below(13) {
        0 | 1 => Command::Open { sock, kind },
        2 => Command::Bind {
            sock,
            addr,
            reuse_addr: true,
            reuse_port: random.below(2) == 0,
            v6_only: random.below(2) == 0,
        },
        3 => Command::Listen { sock, backlog: 4 },
        4 => Command::Connect { sock, remote: addr },
        5 | 6 => Command::Send { sock },
        7 if random.below(2) == 0 => Command::Urgent {
            sock,
            upto: random.word(),
        },
        7 => Command::Consumed { sock },
        8 => Command::Shutdown {
            sock,
            is_full: random.below(2) == 0,
        },
        9 => Command::Close {
            sock,
            mode: CloseMode::Orderly,
            unread: random.below(2) == 0,
        },
        10 => Command::SetOption {
            sock,
            option: SocketOption::RcvBuf(random.next() as u32),
        },
        11 => Command::Extent {
            sock,
            at: random.word(),
            place: random.word(),
            len: random.word(),
        },
        _ if random.below(2) == 0 => Command::TellSent { sock },
        _ => Command::Info { sock },
    }
}

/// The honest program's connection still carries bytes.
fn exchange(world: &mut World, client: SockId, server: SockId) {
    let [left, right] = [0, 1].map(|host| world.hosts[host].program.clone());
    assert_eq!(left.send(client, &[IoSlice::new(b"still here")], false), 10);
    let mut out = [0; 16];
    for _ in 0..200_000 {
        world.step();
        let len = right.recv(server, &mut [IoSliceMut::new(&mut out)]);
        if len > 0 {
            assert_eq!(&out[..len], b"still here");
            return;
        }
    }
    panic!("the honest program is starved");
}

#[test]
fn random_words_end_only_the_attachment_of_their_sender() {
    for seed in 1..=60u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut world = World::new();
        let listener = world.listen(1, 80);
        let (client, server) = world.connect(listener, 80);
        let end = EngineEnd::create().unwrap();
        let region = end.region().clone();
        let liar = ProgramEnd::open(region.clone()).unwrap();
        let id = world.hosts[0].engine.attach_client(end, None);
        let sock = liar.open_socket(Transport::Tcp).unwrap();
        let remote = "10.9.0.2:80".parse().unwrap();
        liar.push(Command::Connect { sock, remote });
        for _ in 0..20 {
            world.step();
        }
        for round in 0..200 {
            for _ in 0..random.below(8) {
                liar.push(command(&mut random));
            }
            if round > 20 {
                scribble(&region, &mut random, 40);
            }
            world.step();
            if !world.hosts[0].engine.has_client(id) {
                break;
            }
        }
        exchange(&mut world, client, server);
        assert_eq!(world.hosts[0].engine.counters().clients_lied, 1, "{seed}");
        assert!(!world.hosts[0].engine.has_client(id), "{seed}");
        assert!(liar.is_engine_gone());
    }
}

#[test]
fn a_false_send_ring_position_resets_the_connections_of_its_program() {
    let mut world = World::new();
    let listener = world.listen(1, 80);
    let (client, server) = world.connect(listener, 80);
    let program = world.hosts[0].program.clone();
    program.send(client, &[IoSlice::new(b"x")], false);
    world.step();
    // Line 2 of the cell is the program's: its first word names the send ring.
    let cell = CELLS_AT + u64::from(client.index) * 256 + 128;
    let word = program.region().u64(cell as usize).unwrap();
    word.store(u64::MAX, Ordering::Relaxed);
    program.push(Command::Send { sock: client });
    world.settle(10_000_000);
    assert_eq!(world.hosts[0].engine.counters().clients_lied, 1);
    assert_eq!(
        world.hosts[1].program.peek_error(server),
        Some(slipstack_channel::Reason::Reset)
    );
}

#[test]
fn data_of_a_killed_program_is_delivered_and_followed_by_a_fin() {
    let mut world = World::new();
    let listener = world.listen(1, 80);
    let (client, server) = world.connect(listener, 80);
    let [left, right] = [0, 1].map(|host| world.hosts[host].program.clone());
    let bytes = vec![1; 80_000];
    assert_eq!(left.send(client, &[IoSlice::new(&bytes)], false), 80_000);
    let id = slipstack_engine::ClientId(0);
    // The command that announces the bytes may never have been sent.
    let now = Instant(world.now);
    world.hosts[0].engine.detach_client(now, id);
    let mut received = 0;
    let mut out = vec![0; 100_000];
    for _ in 0..2000 {
        world.step();
        received += right.recv(server, &mut [IoSliceMut::new(&mut out)]);
    }
    assert_eq!(right.peek_error(server), None);
    assert_eq!(received, bytes.len());
    right.close(server, CloseMode::Orderly);
    world.settle(10_000_000_000);
    assert!(!world.hosts[0].engine.has_client(id));
    assert!(world.has_event(1, server, EventKind::Released));
}

#[test]
fn a_killed_program_that_had_not_read_everything_resets() {
    let mut world = World::new();
    let listener = world.listen(1, 80);
    let (client, server) = world.connect(listener, 80);
    let right = world.hosts[1].program.clone();
    right.send(server, &[IoSlice::new(b"unread")], false);
    world.settle(10_000_000);
    assert!(world.hosts[0].program.is_readable(client));
    let now = Instant(world.now);
    let id = slipstack_engine::ClientId(0);
    world.hosts[0].engine.detach_client(now, id);
    world.settle(10_000_000);
    assert_eq!(
        right.peek_error(server),
        Some(slipstack_channel::Reason::Reset)
    );
}
