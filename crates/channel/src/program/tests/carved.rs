use super::*;
use crate::cell::Limits;
use crate::engine_end::EngineEnd;
use crate::layout::{REGION_BYTES, send_arena};
use crate::send_side::SendSide;
use crate::state::State;
use slipstack_terms::Transport;

struct World {
    engine: EngineEnd,
    program: ProgramEnd,
    sock: SockId,
    side: SendSide,
    expected: Vec<u8>,
}

impl World {
    fn new(sndbuf: u32) -> World {
        let mut engine = EngineEnd::create().unwrap();
        let program = ProgramEnd::open(engine.region().clone()).unwrap();
        let sock = program.open_socket(Transport::Tcp).unwrap();
        while engine.next_command().is_some() {}
        let limits = Limits {
            send: sndbuf,
            receive: 4096,
        };
        assert!(engine.begin(sock, limits));
        engine.set_state(sock, State::CONNECTED, None, 0);
        World {
            engine,
            program,
            sock,
            side: SendSide::NEW,
            expected: Vec::new(),
        }
    }

    /// Sends a part of a piece; returns how many bytes were taken.
    fn send_part(&self, piece: &Carved, len: usize) -> usize {
        let source = Source::Piece(piece.place, len);
        self.program
            .send_sources(self.sock, [source].into_iter(), len)
    }

    /// Fills a piece and sends its first `part` bytes.
    fn send_piece(&mut self, len: usize, part: usize) {
        let piece = self.program.carve(len).unwrap();
        let salt = self.expected.len() / 3;
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + salt) as u8).collect();
        assert!(self.program.fill_carved(&piece, 0, &bytes));
        assert_eq!(self.send_part(&piece, part), part);
        self.expected.extend_from_slice(&bytes[..part]);
        self.program.give_carved_back(piece);
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        let sent = self.program.send(self.sock, &[IoSlice::new(bytes)], false);
        assert_eq!(sent, bytes.len());
        self.expected.extend_from_slice(bytes);
    }

    /// The engine takes the commands and looks; returns how far it may gather.
    fn look(&mut self) -> u64 {
        while let Some((command, _)) = self.engine.next_command() {
            if let Command::Extent {
                sock,
                at,
                place,
                len,
            } = command
            {
                self.engine.add_extent(sock, at, place, len);
            }
        }
        self.side.look(&mut self.engine, self.sock).upto
    }

    /// Gathers bytes, which must equal those sent; returns the number of pieces.
    fn gather(&self, at: usize, len: usize) -> usize {
        let pieces = self.side.gather(&self.engine, self.sock, at as u64, len);
        let mut out = vec![0; len];
        let first = pieces[0].copy_to(&mut out);
        pieces[1].copy_to(&mut out[first..]);
        assert!(out == self.expected[at..at + len], "{at} {len}");
        pieces.iter().filter(|piece| !piece.is_empty()).count()
    }

    fn acknowledge(&mut self, upto: usize) {
        self.side.on_acked(&mut self.engine, self.sock, upto as u64);
    }
}

#[test]
fn the_engine_gathers_pieces_in_place_and_their_memory_is_freed() {
    let mut world = World::new(1 << 20);
    world.send_bytes(b"head");
    world.send_piece(16_384, 16_384);
    world.send_piece(16_384, 16_384);
    world.send_bytes(b"tail");
    assert_eq!(world.look(), 32_776);
    assert_eq!(world.gather(4, 32_768), 1, "one stretch");
    assert_eq!(world.gather(0, 1000), 2);
    assert_eq!(world.gather(2, 32_773), 1, "three, copied into the ring");
    world.acknowledge(32_776);
    assert!(world.engine.extents.is_empty());
    world.send_piece(16_384, 5_000);
    assert_eq!(world.program.inner.carvings.lock().blocks.len(), 1);
    assert_eq!(world.look(), 37_776);
    assert_eq!(world.gather(32_776, 5_000), 1);
    world.acknowledge(37_776);
    world.program.release_idle();
    let carvings = world.program.inner.carvings.lock();
    let block = carvings.blocks.first().unwrap();
    assert_eq!((carvings.extents, block.users), (0, 1));
    assert!(world.engine.contradiction().is_none());
}

#[test]
fn a_chain_is_taken_whole_and_the_ring_grows_without_its_bytes() {
    let mut world = World::new(100_000);
    world.send_bytes(&[7; 3000]);
    world.send_piece(1 << 20, 1 << 20);
    assert_eq!(world.program.tx_space(world.sock), 0);
    let piece = world.program.carve(4096).unwrap();
    assert_eq!(world.send_part(&piece, 4096), 0);
    assert_eq!(world.look(), 3000 + (1 << 20));
    world.acknowledge(1 << 20);
    world.send_bytes(&[8; 50_000]);
    world.send_piece(1 << 20, 1 << 20);
    let all = world.expected.len();
    assert_eq!(world.look(), all as u64);
    for at in (1 << 20..all - 60_000).step_by(60_000) {
        world.gather(at, 60_000);
    }
    world.side.settle_extents(&world.engine, world.sock);
    world.engine.extents.forget(world.sock);
    world.gather(1 << 20, all - (1 << 20));
    assert!(world.engine.contradiction().is_none());
}

#[test]
fn an_extent_is_readable_only_after_its_event() {
    let mut world = World::new(1 << 20);
    world.send_bytes(&[1; 100]);
    world.look();
    world.send_piece(8192, 8192);
    world.send_bytes(&[2; 100]);
    let seen = world.side.look(&mut world.engine, world.sock);
    assert_eq!(seen.upto, 100);
    assert_eq!(world.look(), 8392);
    world.gather(50, 8300);
}

#[test]
fn false_extents_are_refused() {
    let arena = send_arena(REGION_BYTES);
    let (start, end) = (arena.start as u64, arena.end as u64);
    let table = [
        (0, start, 1, true),
        (0, end - 1, 1, true),
        (0, end - 1, 2, false),
        (0, start - 1, 2, false),
        (0, start, 0, false),
        (u64::MAX >> 1, start, 1, false),
        (0, u64::MAX, u64::MAX, false),
        (u64::MAX, start, u64::MAX, false),
    ];
    for (at, place, len, is_true) in table {
        let mut world = World::new(1 << 20);
        world.engine.add_extent(world.sock, at, place, len);
        assert_eq!(
            world.engine.contradiction().is_none(),
            is_true,
            "{at} {place} {len}"
        );
    }
    let mut world = World::new(1 << 20);
    world.engine.add_extent(world.sock, 0, start, 100);
    world.engine.add_extent(world.sock, 99, start, 100);
    assert!(world.engine.contradiction().is_some(), "they overlap");
}

#[test]
fn carved_pieces_take_at_most_half_of_the_arena() {
    let world = World::new(1 << 20);
    let carve = |len| world.program.carve(len);
    assert!(carve(0).is_none() && carve(CARVED_MAX + 1).is_none());
    let kept: Vec<_> = core::iter::from_fn(|| carve(CARVED_MAX)).collect();
    assert_eq!(kept.len(), send_arena(REGION_BYTES).len() / 2 / CARVED_MAX);
    for piece in kept {
        world.program.give_carved_back(piece);
    }
    assert!(world.program.tx_memory() <= CARVED_MAX);
}
