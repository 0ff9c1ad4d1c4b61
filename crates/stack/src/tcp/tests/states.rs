//! RFC 9293 3.10.7: the answer and the next state for every state and every kind of segment.
//!
//! RFC 9293 3.3.2, 3.10.7.1, 3.10.7.2, 3.10.7.3, 3.10.7.4, 3.5.2 and 3.5.3.

use super::harness::*;
use crate::options::SocketOptions;
use crate::{SocketState, TcpSizes};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddr;
use slipstack_wire::tcp::TcpFlags;
use slipstack_wire::tcp_options::TcpOptions;

/// An arriving segment. Numbers are relative to RCV.NXT and SND.NXT.
#[derive(Clone, Copy)]
struct Kind {
    flags: TcpFlags,
    /// SEG.SEQ - RCV.NXT.
    seq: u32,
    /// SEG.ACK - SND.NXT.
    ack: i32,
    payload: usize,
}

const fn kind(flags: TcpFlags, seq: u32, ack: i32, payload: usize) -> Kind {
    Kind {
        flags,
        seq,
        ack,
        payload,
    }
}

const FAR: u32 = 1 << 24;
const NONE: TcpFlags = TcpFlags::NONE;
const SYN_ACK: TcpFlags = TcpFlags(0x12);
const FIN_ACK: TcpFlags = TcpFlags(0x11);

/// The columns.
const KINDS: [(&str, Kind); 11] = [
    ("rst", kind(RST, 0, 0, 0)),
    ("rst+10", kind(RST, 10, 0, 0)),
    ("rst far", kind(RST, FAR, 0, 0)),
    ("syn", kind(SYN, 0, 0, 0)),
    ("syn-ack", kind(SYN_ACK, 0, 0, 0)),
    ("ack+100", kind(ACK, 0, 100, 0)),
    ("ack old", kind(ACK, 0, -(1 << 24), 0)),
    ("far", kind(ACK, FAR, 0, 5)),
    ("no ack", kind(NONE, 0, 0, 5)),
    ("data", kind(ACK, 0, 0, 5)),
    ("fin", kind(FIN_ACK, 0, 0, 0)),
];

/// Answer and state afterwards for each column, in order. `-` = nothing, `=` = the same state.
///
/// CLOSED and LISTEN: 3.10.7.1 and 3.10.7.2; SYN-SENT: 3.10.7.3; the rest: 3.10.7.4, with RFC 5961
/// for RST, SYN and ACK, and RFC 1337 for RSTs in TIME-WAIT.
const TABLE: [(&str, [&str; 11]); 12] = [
    (
        "CLOSED",
        [
            "- =", "- =", "- =", "R =", "R =", "R =", "R =", "R =", "R =", "R =", "R =",
        ],
    ),
    (
        "LISTEN",
        [
            "- =",
            "- =",
            "- =",
            "S SYN-RECEIVED",
            "R =",
            "R =",
            "R =",
            "R =",
            "- =",
            "R =",
            "R =",
        ],
    ),
    // A RST without ACK, and a segment without SYN, is dropped; a wrong ACK is reset.
    (
        "SYN-SENT",
        [
            "- =",
            "- =",
            "- =",
            "S SYN-RECEIVED",
            "A ESTABLISHED",
            "R =",
            "R =",
            "- =",
            "- =",
            "- =",
            "- =",
        ],
    ),
    (
        "SYN-RECEIVED",
        [
            "- LISTEN",
            "A =",
            "- =",
            "A =",
            "A =",
            "R =",
            "R =",
            "A =",
            "- =",
            "A ESTABLISHED",
            "A CLOSE-WAIT",
        ],
    ),
    // SYN-RECEIVED after a simultaneous open: there is no listener to go back to, and the SYN-ACK
    // is the ACK that a challenge or an unacceptable segment is answered with.
    (
        "SYN-RECEIVED'",
        [
            "- CLOSED",
            "S =",
            "- =",
            "S =",
            "S =",
            "R =",
            "R =",
            "S =",
            "- =",
            "A ESTABLISHED",
            "A CLOSE-WAIT",
        ],
    ),
    (
        "ESTABLISHED",
        [
            "- CLOSED",
            "A =",
            "- =",
            "A =",
            "A =",
            "A =",
            "A =",
            "A =",
            "- =",
            "A =",
            "A CLOSE-WAIT",
        ],
    ),
    (
        "FIN-WAIT-1",
        [
            "- CLOSED",
            "A =",
            "- =",
            "A =",
            "A =",
            "A =",
            "A =",
            "A =",
            "- =",
            "A FIN-WAIT-2",
            "A TIME-WAIT",
        ],
    ),
    (
        "FIN-WAIT-2",
        [
            "- CLOSED",
            "A =",
            "- =",
            "A =",
            "A =",
            "A =",
            "A =",
            "A =",
            "- =",
            "A =",
            "A TIME-WAIT",
        ],
    ),
    // Text after the peer's FIN is ignored.
    (
        "CLOSE-WAIT",
        [
            "- CLOSED", "A =", "- =", "A =", "A =", "A =", "A =", "A =", "- =", "- =", "A =",
        ],
    ),
    (
        "CLOSING",
        [
            "- CLOSED",
            "A =",
            "- =",
            "A =",
            "A =",
            "A =",
            "A =",
            "A =",
            "- =",
            "A TIME-WAIT",
            "A TIME-WAIT",
        ],
    ),
    (
        "LAST-ACK",
        [
            "- CLOSED", "A =", "- =", "A =", "A =", "A =", "A =", "A =", "- =", "- CLOSED",
            "- CLOSED",
        ],
    ),
    (
        "TIME-WAIT",
        [
            "- =", "- =", "- =", "A =", "A =", "- =", "- =", "A =", "A =", "A =", "A =",
        ],
    ),
];

/// A world in a state, with RCV.NXT in `seq` and SND.NXT in `ack`.
fn world_in(state: &str) -> World {
    let offer = TcpOptions::default();
    match state {
        "CLOSED" => return World::new(config()),
        "LISTEN" | "SYN-RECEIVED" => {
            let mut world = World::new(config());
            world.listen();
            if state == "SYN-RECEIVED" {
                world.inject((PEER_PORT, PORT), ISS, 0, SYN, &offer, &[]);
                world.seq = ISS + 1;
                world.ack = world.only().header.seq.wrapping_add(1);
            }
            return world;
        }
        "SYN-SENT" | "SYN-RECEIVED'" => {
            let mut world = World::new(config());
            let local = SocketAddr::from((OURS, PORT));
            let options = SocketOptions::default();
            let conn =
                world
                    .stack
                    .tcp_connect(world.now, Some(local), peer(), &options, &mut world.fx);
            world.conn = conn.ok();
            world.ack = world.only().header.seq.wrapping_add(1);
            if state == "SYN-RECEIVED'" {
                world.inject((PEER_PORT, PORT), ISS, 0, SYN, &offer, &[]);
                world.seq = ISS + 1;
            }
            return world;
        }
        _ => {}
    }
    let mut world = established();
    let conn = world.conn.unwrap();
    if matches!(state, "CLOSE-WAIT" | "LAST-ACK") {
        world.peer(FIN | ACK, &[]);
        world.sleep(50 * MS);
    }
    if !matches!(state, "ESTABLISHED" | "CLOSE-WAIT") {
        world.stack.tcp_shutdown(world.now, conn, &mut world.fx);
        world.flush();
    }
    match state {
        "FIN-WAIT-2" => world.acknowledge(1),
        "TIME-WAIT" => {
            world.acknowledge(1);
            world.peer(FIN | ACK, &[]);
        }
        "CLOSING" => {
            world.peer(FIN | ACK, &[]);
            world.ack = world.ack.wrapping_add(1);
        }
        "FIN-WAIT-1" | "LAST-ACK" => world.ack = world.ack.wrapping_add(1),
        _ => {}
    }
    world.flush();
    world
}

fn state_of(world: &World) -> String {
    let info = world
        .conn
        .and_then(|conn| world.stack.tcp_info(world.now, conn));
    let TcpSizes {
        half_open,
        time_wait: waiting,
        ..
    } = world.stack.tcp_sizes();
    match info.map(|info| info.state) {
        Some(SocketState::Established) => "ESTABLISHED",
        Some(SocketState::SynSent) => "SYN-SENT",
        Some(SocketState::SynReceived) => "SYN-RECEIVED",
        Some(SocketState::FinWait1) => "FIN-WAIT-1",
        Some(SocketState::FinWait2) => "FIN-WAIT-2",
        Some(SocketState::CloseWait) => "CLOSE-WAIT",
        Some(SocketState::LastAck) => "LAST-ACK",
        Some(SocketState::Closing) => "CLOSING",
        Some(SocketState::TimeWait | SocketState::Listen) => panic!("no connection"),
        None if waiting > 0 => "TIME-WAIT",
        None if half_open > 0 => "SYN-RECEIVED",
        None | Some(SocketState::Closed) => "CLOSED",
    }
    .to_string()
}

/// R, S, A or -, by the first segment sent.
fn answer_of(sent: &[Sent]) -> &'static str {
    match sent {
        [] => "-",
        [first, ..] if first.is(RST) => "R",
        [first, ..] if first.is(SYN) => "S",
        _ => "A",
    }
}

#[test]
fn every_state_answers_every_segment_as_the_rfc_says() {
    let mut wrong = Vec::new();
    for (state, row) in TABLE {
        for ((name, kind), want) in KINDS.into_iter().zip(row) {
            let mut world = world_in(state);
            world.clear();
            let before = state.trim_end_matches('\'');
            let seq = world.seq.wrapping_add(kind.seq);
            let ack = world.ack.wrapping_add_signed(kind.ack);
            let payload = [7; 5];
            world.inject(
                (PEER_PORT, PORT),
                seq,
                ack,
                kind.flags,
                &TcpOptions::default(),
                &payload[..kind.payload],
            );
            world.conn = world.conn.or_else(|| {
                world.fx.events.iter().find_map(|event| match event {
                    crate::Event::Accepted { conn, .. } => Some(*conn),
                    _ => None,
                })
            });
            // Delayed ACKs leave, retransmissions do not.
            world.sleep(50 * MS);
            let mut after = state_of(&world);
            if after == "CLOSED" && matches!(state, "LISTEN" | "SYN-RECEIVED") {
                after = "LISTEN".into();
            }
            let after = if after == before { "=" } else { &after };
            let got = format!("{} {after}", answer_of(&world.take_sent()));
            if got != want {
                wrong.push(format!("{state} × {name}: {got}, not {want}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
