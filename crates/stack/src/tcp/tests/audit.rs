//! The audit finds each violation: a sound connection, and one with a single defect.

use super::harness::*;
use crate::tcp::connection::Connection;
use crate::tcp::scoreboard::Record;

type Spoil = fn(&mut Connection);

/// Faults put into a connection with two segments in flight, and the audit's sentence for each.
const FAULTS: &[(&str, Spoil)] = &[
    ("SND.UNA is beyond SND.NXT", |conn| {
        conn.snd.una = conn.snd.nxt + 1;
    }),
    ("SND.NXT is beyond what was written", |conn| {
        conn.snd.written -= 1;
    }),
    ("nothing is known of what is in flight", |conn| {
        conn.flight = None;
    }),
    ("the scoreboard lacks what is in flight", |conn| {
        conn.flight_mut().board.take_all();
        conn.flight_mut().board.whole_mut().clear();
    }),
    ("the scoreboard does not begin at SND.UNA", |conn| {
        record(conn, 0).start += 1;
    }),
    ("the scoreboard has a gap", |conn| {
        record(conn, 0).end -= 1;
    }),
    ("the scoreboard has a gap", |conn| {
        let first = record(conn, 0);
        first.end = first.start;
    }),
    ("the scoreboard does not end at SND.NXT", |conn| {
        record(conn, 1).end += 1;
    }),
    ("the scoreboard does not end at SND.NXT", |conn| {
        record(conn, 1).end -= 1;
    }),
    ("a loss will never be found", |conn| {
        let first = record(conn, 0);
        first.is_lost = true;
        let len = first.end - first.start;
        *conn.flight_mut().board.sums_mut().1 += len;
    }),
    ("the scoreboard's sums are wrong", |conn| {
        *conn.flight_mut().board.sums_mut().0 += 1;
    }),
    ("the scoreboard's sums are wrong", |conn| {
        *conn.flight_mut().board.sums_mut().1 += 1;
    }),
    ("RCV.NXT is beyond the window", |conn| {
        conn.rcv.edge = conn.rcv.nxt - 1;
    }),
    ("more was acknowledged than came", |conn| {
        conn.rcv.acked = conn.rcv.nxt + 1;
    }),
    ("more was read than came", |conn| {
        conn.rcv.consumed = conn.rcv.nxt + 1;
    }),
    ("orphans are miscounted", |conn| {
        conn.is_orphan = true;
    }),
];

fn record(conn: &mut Connection, index: usize) -> &mut Record {
    &mut conn.flight_mut().board.whole_mut()[index]
}

fn with_two_segments_in_flight() -> World {
    let mut world = established();
    world.write(700);
    world.write(1_700);
    world.peer(ACK, b"request");
    world
}

#[test]
fn each_fault_is_found_and_nothing_else() {
    // RFC 9293 3.3.1.
    for &(what, spoil) in FAULTS {
        let mut world = with_two_segments_in_flight();
        assert_eq!(world.stack.tcp_audit(), Ok(()), "{what}");
        let index = world.conn.unwrap().index;
        spoil(world.stack.tcp.conns.at_mut(index).unwrap());
        let found = world.stack.tcp_audit().map_err(|(_, what)| what);
        assert_eq!(found, Err(what));
    }
}
