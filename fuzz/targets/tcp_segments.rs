//! TCP from a peer that knows the sequence numbers: each segment is expressed relative to the
//! stack's last one in its flow, so that the input passes the sequence checks.
#![no_main]

use std::net::SocketAddr;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use slipstack_fuzz::{OWN, PEER, Sent, World, framed, number, stack, take};
use slipstack_stack::{CloseMode, Instant, KeepAlive, RxMeta, SocketOption, SocketOptions, Stack};
use slipstack_wire::tcp::{HEADER_LEN, OPTIONS_MAX, TcpFlags, TcpHeader};

/// More bytes than this are never unacknowledged.
const UNSENT_MAX: u64 = 1 << 16;
/// More frames than this from one step is a storm: all that is unsent in the smallest segments.
const STORM: usize = 2048;
const FLOWS: usize = 8;

fuzz_target!(|data: &[u8]| {
    let mut now = Instant(1_000_000_000);
    let mut world = World::default();
    let mut stack = stack(now, &mut world);
    let mut rest = data;
    while !rest.is_empty() {
        world.frames = 0;
        let kind = number(&mut rest, 1) as u8;
        if kind & 1 == 0 {
            segment(kind >> 1, &mut rest, now, &mut stack, &mut world);
        } else {
            stack.end_burst(now, &mut world);
            call(kind >> 1, &mut rest, &mut now, &mut stack, &mut world);
        }
        if kind & 0x40 == 0 {
            stack.end_burst(now, &mut world);
            stack.flush(now, &mut world);
        }
        assert!(
            world.frames <= STORM,
            "one step caused {} frames",
            world.frames
        );
    }
});

/// A step of 0 to 7 bytes back or forth, a jump of a few segments, or any distance.
fn distance(code: u8, rest: &mut &[u8]) -> u32 {
    match code & 3 {
        0 | 1 => 0,
        2 => number(rest, 1) as i8 as i32 as u32,
        _ => number(rest, 4) as u32,
    }
}

fn segment(kind: u8, rest: &mut &[u8], now: Instant, stack: &mut Stack, world: &mut World) {
    let which = number(rest, 1) as u8;
    let new = Sent {
        own_port: if which & 8 == 0 { 80 } else { 8080 },
        peer_port: 1000 + u16::from(which),
        next: 0,
        ack: 0x7fff_fff0,
    };
    let known = world.sent.len().min(FLOWS);
    let flow = match usize::from(which & 7) {
        0 => new,
        at => *world
            .sent
            .iter()
            .rev()
            .nth(at % known.max(1))
            .unwrap_or(&new),
    };
    let flags = number(rest, 1) as u8;
    let shape = number(rest, 1) as u8;
    let header = TcpHeader {
        src_port: flow.peer_port,
        dst_port: flow.own_port,
        seq: flow.ack.wrapping_add(distance(kind, rest)),
        ack: flow.next.wrapping_add(distance(kind >> 2, rest)),
        flags: TcpFlags(flags),
        window: number(rest, 2) as u16,
        urgent: u16::from(shape),
    };
    let options = take(rest, usize::from(shape & 7) * 6);
    let options_len = options.len().next_multiple_of(4).min(OPTIONS_MAX);
    let payload_len = [0, 1, 5, 100, 536, 1460][usize::from(shape >> 3) % 6];
    let mut bytes = vec![0; HEADER_LEN + options_len + payload_len];
    header.emit(options_len, &mut bytes);
    let taken = options.len().min(options_len);
    bytes[HEADER_LEN..HEADER_LEN + taken].copy_from_slice(&options[..taken]);
    stack.on_burst_frame(now, &framed(6, &bytes), RxMeta::VERIFIED, world);
}

fn call(kind: u8, rest: &mut &[u8], now: &mut Instant, stack: &mut Stack, world: &mut World) {
    let argument = number(rest, 1) as u8;
    let Some(conn) = world.pick(argument >> 4) else {
        connect(argument, *now, stack, world);
        return;
    };
    let known = world.known(conn);
    match kind & 15 {
        0 | 1 => {
            let more = u64::from(argument) << 6;
            known.written = (known.written + more)
                .min(known.acked() + UNSENT_MAX)
                .max(known.written);
            let written = known.written;
            stack.tcp_written(conn, written, argument & 1 == 1);
        }
        2 | 3 => {
            let upto = known
                .received
                .saturating_sub(u64::from(argument & 15) * 100);
            stack.tcp_consumed(*now, conn, upto);
        }
        4 => stack.tcp_shutdown(*now, conn, world),
        5 => {
            let mode = if argument & 3 == 0 {
                CloseMode::Abort
            } else {
                CloseMode::Orderly
            };
            stack.tcp_close(*now, conn, mode, argument & 4 != 0, world);
        }
        6 => connect(argument, *now, stack, world),
        7 => {
            let _ = stack.tcp_set_option(*now, conn, option(argument, rest), world);
        }
        8 => move_away_and_back(conn, *now, stack, world),
        9 => {
            let _ = stack.tcp_info(*now, conn);
        }
        _ => {
            now.0 += 1 << (20 + argument % 20);
            stack.on_timers(*now, world);
        }
    }
}

fn connect(argument: u8, now: Instant, stack: &mut Stack, world: &mut World) {
    // Port 80 of the own address, too: a connection to ourselves.
    let to = if argument & 8 == 0 { PEER } else { OWN };
    let remote = SocketAddr::from((to, 80 + u16::from(argument & 7)));
    if let Ok(conn) = stack.tcp_connect(now, None, remote, &SocketOptions::default(), world) {
        world.known(conn);
    }
}

fn option(argument: u8, rest: &mut &[u8]) -> SocketOption {
    let value = number(rest, 4) as u32;
    match argument & 7 {
        0 => SocketOption::NoDelay(value & 1 == 1),
        1 => SocketOption::Cork(value & 1 == 1),
        2 => SocketOption::KeepAlive(KeepAlive {
            idle: Duration::from_millis(u64::from(value)),
            ..KeepAlive::default()
        }),
        3 => SocketOption::UserTimeout(Some(Duration::from_millis(u64::from(value)))),
        4 => SocketOption::RcvBuf(value),
        5 => SocketOption::SndBuf(value),
        6 => SocketOption::MaxSeg(Some(value as u16)),
        _ => SocketOption::Linger2(Some(Duration::from_millis(u64::from(value)))),
    }
}

/// A connection that leaves its stack and comes back is the same connection.
fn move_away_and_back(
    conn: slipstack_stack::ConnId,
    now: Instant,
    stack: &mut Stack,
    world: &mut World,
) {
    let Some(image) = stack.tcp_detach(conn) else {
        return;
    };
    let known = world
        .conns
        .remove(&(conn.index, conn.generation))
        .unwrap_or_default();
    let again = stack
        .tcp_adopt(now, &image, world)
        .expect("its own image is sound");
    world.conns.insert((again.index, again.generation), known);
}
