//! A socket whose rings and memory somebody else writes too.

use std::os::unix::fs::FileExt;

use slipstack_mem::RawSlice;
use slipstack_wire::TxOffload;

use super::super::sys::{MmapOffsets, RingOffset};
use super::*;

const CHUNK: u32 = 2048;
const LEN: u64 = (RX_FRAMES + TX_FRAMES) as u64 * CHUNK as u64;
/// The rings are in one file, each where the kernel has it in a socket.
const RINGS_LEN: u64 = 0x1_9000_0000;

/// A socket without a kernel, and the file of its memory.
struct World {
    socket: Socket,
    memory: std::fs::File,
    counters: DeviceCounters,
}

impl World {
    fn new() -> World {
        let file = |len| {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            let file = std::fs::File::from(rustix::fs::memfd_create("rings", flags).unwrap());
            file.set_len(len).unwrap();
            file
        };
        let (rings, memory) = (file(RINGS_LEN), file(LEN + u64::from(TX_FRAMES)));
        let ring = RingOffset {
            producer: 0,
            consumer: 64,
            flags: 128,
            desc: 192,
        };
        let offsets = MmapOffsets {
            rx: ring,
            tx: ring,
            fill: ring,
            completion: ring,
        };
        let params = SocketParams {
            chunk: CHUNK,
            has_metadata: false,
            has_partial: false,
            is_zero_copy: false,
            busy_poll: 0,
            len_in_pieces: 9018,
        };
        let mapped = Rings::at(rings.as_fd(), &offsets, RX_FRAMES, TX_FRAMES).unwrap();
        let fds = (rings.into(), memory.try_clone().unwrap().into());
        World {
            socket: Socket::with_rings(mapped, fds, params).unwrap(),
            memory,
            counters: DeviceCounters::default(),
        }
    }

    /// Adds a received entry, as the kernel does.
    fn arrive(&mut self, addr: u64, len: u32, options: u32) {
        let rx = &self.socket.rings.rx;
        let next = rx.producer();
        rx.write(next, Desc { addr, len, options });
        rx.set_producer(next.wrapping_add(1));
    }

    fn received(&mut self, budget: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut sink = |frame: &[u8], _: RxMeta| frames.push(frame.to_vec());
        let done = self.socket.rx(budget, &mut sink, &mut self.counters);
        assert!(done <= budget);
        frames
    }

    fn send(&mut self, len: usize) -> bool {
        let bytes = vec![7; len];
        let payload = [RawSlice::of(&bytes), RawSlice::EMPTY];
        let none = TxOffload::NONE;
        self.socket.tx(&[1; 14], payload, &none, &mut self.counters)
    }

    /// A frame that is in order arrives, as the only one.
    fn assert_sound(&mut self, what: &str) {
        self.memory.write_all_at(what.as_bytes(), 256).unwrap();
        self.arrive(256, what.len() as u32, 0);
        assert_eq!(self.received(64), [what.as_bytes()], "{what}");
    }
}

#[test]
fn entries_outside_of_the_chunks_that_receive_are_counted_and_passed_over() {
    let mut world = World::new();
    let receiving = u64::from(RX_FRAMES * CHUNK);
    for (what, addr, len) in [
        ("behind the memory", LEN, 60),
        ("at the last address", u64::MAX, 60),
        ("beyond the end of the memory", LEN - 10, 60),
        ("longer than a chunk", 0, CHUNK + 1),
        ("as long as numbers are", 256, u32::MAX),
        ("across two chunks", u64::from(CHUNK) - 10, 60),
        ("of the half that sends", receiving + 256, 60),
    ] {
        let before = world.counters.rx_malformed;
        let given = world.socket.rings.fill.producer();
        world.arrive(addr, len, 0);
        assert!(world.received(64).is_empty(), "{what}");
        assert_eq!(world.counters.rx_malformed, before + 1, "{what}");
        // The kernel gets no chunk that is not its to receive into.
        let fill = &world.socket.rings.fill;
        let is_given = (given..fill.producer()).all(|at| fill.read(at) < receiving);
        assert!(is_given, "{what}");
        world.assert_sound(what);
    }
}

#[test]
fn a_frame_in_more_pieces_than_there_can_be_is_dropped_without_its_end() {
    let mut world = World::new();
    for pieces in [PIECES_MAX + 1, RX_FRAMES as usize] {
        for piece in 0..pieces {
            world.arrive(piece as u64 * u64::from(CHUNK), 100, OPTION_CONTINUED);
        }
        assert!(world.received(64).is_empty());
        world.assert_sound("afterwards");
    }
    // The end of a frame may come later.
    world.arrive(0, 3, OPTION_CONTINUED);
    assert!(world.received(64).is_empty());
    world.arrive(u64::from(CHUNK), 2, 0);
    assert_eq!(world.received(64)[0].len(), 5);
}

/// xorshift64
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Writes one word, entry or mark that nobody should.
fn lie(socket: &Socket, state: &mut u64) {
    let Rings {
        rx,
        tx,
        fill,
        completion,
    } = &socket.rings;
    let (at, word) = (next_random(state) as u32, next_random(state));
    let near = word & 0x3f_ffff;
    let desc = Desc {
        addr: if word & 1 == 0 { near } else { word },
        len: next_random(state) as u32 >> (word % 32),
        options: next_random(state) as u32 & 3,
    };
    match word >> 8 & 15 {
        0 => rx.set_producer(at),
        1 => rx.set_consumer(at),
        2 => tx.set_producer(at),
        3 => tx.set_consumer(at),
        4 => fill.set_producer(at),
        5 => fill.set_consumer(at),
        6 => completion.set_producer(at),
        7 => completion.set_consumer(at),
        8 => completion.write(at, near),
        9 => completion.write(at, word),
        10 => tx.write(at, desc),
        11 => {
            let mark = socket.memory.mark((at % TX_FRAMES) as usize);
            mark.unwrap().store(at as u8, Ordering::Relaxed);
        }
        _ => rx.write(rx.consumer().wrapping_add(at % 64), desc),
    }
}

#[test]
fn rings_and_marks_of_random_numbers_cost_no_more_than_their_frames() {
    let mut world = World::new();
    let mut state = 1;
    for round in 0..400 {
        for _ in 0..8 {
            lie(&world.socket, &mut state);
        }
        let most = PIECES_MAX * CHUNK as usize;
        let frames = world.received(64);
        assert!(frames.iter().all(|it| it.len() <= most), "{round}");
        for len in [46, 1500, 8000] {
            world.send(len);
        }
        world.socket.flush(&mut world.counters);
        assert!(world.socket.free.len() <= TX_FRAMES as usize, "{round}");
    }
    // The kernel's own counts hold as soon as it writes them.
    let Rings {
        rx,
        tx,
        fill,
        completion,
    } = &world.socket.rings;
    for ring in [rx, tx] {
        ring.set_producer(5);
        ring.set_consumer(5);
    }
    for ring in [fill, completion] {
        ring.set_producer(5);
        ring.set_consumer(5);
    }
    world.assert_sound("afterwards");
}
