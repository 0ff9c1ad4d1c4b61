//! The whole stack's input: frames, calls and time in any order.
//!
//! The input is a list of steps. Half of the frames get a valid Ethernet and IP header, so that the
//! fuzzer spends its bytes on TCP and UDP.
#![no_main]

use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use slipstack_fuzz::{PEER, World, framed, framed6, stack, take};
use slipstack_stack::{CloseMode, Instant, RxMeta, SocketOptions, Stack};

/// More frames than this from one step is a storm.
const STORM: usize = 128;

fuzz_target!(|data: &[u8]| {
    let mut now = Instant(1_000_000_000);
    let mut world = World {
        is_tight: true,
        ..World::default()
    };
    let mut stack = stack(now, &mut world);
    let mut rest = data;
    while let [kind, len, tail @ ..] = rest {
        rest = tail;
        let body = take(&mut rest, usize::from(*len) * 2);
        world.frames = 0;
        step(*kind, body, &mut now, &mut stack, &mut world);
        stack.flush(now, &mut world);
        assert!(
            world.frames <= STORM,
            "one step caused {} frames",
            world.frames
        );
    }
});

/// The identification and the offset's bits are the first bytes of the payload too.
fn be_fragment(frame: &mut [u8]) {
    let ip = slipstack_wire::ethernet::HEADER_LEN;
    let [id, high, low] = frame
        .get(ip + 20..ip + 23)
        .map_or([0; 3], |b| [b[0], b[1], b[2]]);
    frame[ip + 5] = id & 3;
    frame[ip + 6..ip + 8].copy_from_slice(&[high & 0x3f, low]);
    frame[ip + 10..ip + 12].fill(0);
    let sum = slipstack_wire::checksum::of(&frame[ip..ip + 20]);
    frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
}

fn step(kind: u8, body: &[u8], now: &mut Instant, stack: &mut Stack, world: &mut World) {
    let conn = world.pick(kind >> 4);
    match (kind & 15, conn) {
        (0..=2, _) => stack.on_frame(*now, body, RxMeta::UNKNOWN, world),
        (3..=8, _) if kind & 0x80 != 0 => {
            let next_header = [6, 17, 58, 0, 43, 44, 60, 58][usize::from(kind >> 4 & 7)];
            stack.on_frame(*now, &framed6(next_header, body), RxMeta::VERIFIED, world);
        }
        (3..=8, _) => {
            let protocol = [6, 17, 1, 17][usize::from(kind >> 4 & 3)];
            let mut frame = framed(protocol, body);
            if kind >> 4 & 3 == 3 {
                be_fragment(&mut frame);
            }
            stack.on_frame(*now, &frame, RxMeta::VERIFIED, world);
        }
        (9, Some(conn)) => {
            let known = world.known(conn);
            known.written = known.written.max(u64::from(body.len() as u32) << 7);
            stack.tcp_written(conn, world.known(conn).written, false);
        }
        (10, Some(conn)) => {
            let received = world.known(conn).received;
            stack.tcp_consumed(*now, conn, received);
        }
        (11, Some(conn)) => stack.tcp_shutdown(*now, conn, world),
        (12, Some(conn)) => {
            let mode = if body.is_empty() {
                CloseMode::Abort
            } else {
                CloseMode::Orderly
            };
            stack.tcp_close(*now, conn, mode, body.len() > 8, world);
        }
        (13, _) => {
            let remote = SocketAddr::from((PEER, u16::from(kind) + 1));
            if let Ok(conn) =
                stack.tcp_connect(*now, None, remote, &SocketOptions::default(), world)
            {
                world.known(conn);
            }
        }
        _ => {
            now.0 += 1 << (body.len() % 40);
            stack.on_timers(*now, world);
        }
    }
}
