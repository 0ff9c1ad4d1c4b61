//! Step seven: payload goes straight to its offset in the receive ring, in order or not.

use crate::counters::{Counter, Counters};
use crate::effects::{Effects, Event};
use crate::network_layer::Cx;
use crate::tcp::assembler::Range;
use crate::tcp::connection::Connection;
use crate::tcp::output::ack_policy;
use crate::tcp::segment::Segment;
use crate::tcp::seq;
use crate::time::Instant;

/// The result of processing a segment's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Taken,
    Dropped(Counter),
}

impl Outcome {
    #[inline]
    pub fn count(self, counters: &mut Counters) {
        match self {
            Outcome::Taken => counters.bump(Counter::RxTcpTaken),
            Outcome::Dropped(why) => counters.bump(why),
        }
    }
}

/// Processes a segment's text. New data after the program has closed is [`Counter::DropTcpClosed`]
/// (RFC 9293 3.6.1: a reset informs the peer that it is lost).
#[inline]
pub fn on_text(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    start: u64,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Outcome {
    if !conn.phase.may_receive() {
        // RFC 9293 3.10.7.4: after the peer's FIN there is no text; ignore it.
        return Outcome::Dropped(Counter::DropTcpState);
    }
    let end = start + segment.payload.len() as u64;
    // RFC 9293 3.10.7.4 (first): only data within the window is processed.
    let last = if conn.rcv.fin_at == 0 {
        conn.rcv.edge
    } else {
        last_before_fin(conn, start, end)
    };
    let fresh = Range {
        start: start.max(conn.rcv.nxt),
        end: end.min(last),
    };
    if fresh.start >= fresh.end {
        conn.owe_ack();
        return match segment.flags.is_fin() {
            // The text was known, its end is new.
            true => Outcome::Taken,
            false => Outcome::Dropped(Counter::DropTcpWindow),
        };
    }
    if conn.rcv.is_shut {
        return Outcome::Dropped(Counter::DropTcpClosed);
    }
    let skip = (fresh.start - start) as usize;
    let len = (fresh.end - fresh.start) as usize;
    let bytes = &segment.payload[skip..skip + len];
    let is_in_order = fresh.start == conn.rcv.nxt;
    if !is_in_order
        && conn
            .rcv
            .assembler
            .as_ref()
            .is_some_and(|a| !a.has_room(fresh))
    {
        return Outcome::Dropped(Counter::DropTcpReassembly);
    }
    if !fx.store(conn.id, seq::offset(fresh.start), bytes) {
        return Outcome::Dropped(Counter::DropTcpNoRoom);
    }
    conn.is_dirty = true;
    conn.rcv.last_at = now;
    if skip > 0 && conn.opts.has_sack {
        // RFC 2883 4: the duplicate part.
        conn.rcv
            .assembler
            .get_or_insert_default()
            .note_duplicate(Range {
                start,
                end: fresh.start,
            });
    }
    if is_in_order {
        advance(conn, now, fresh, segment.is_gso, cx, fx);
    } else {
        hold(conn, fresh, cx);
    }
    Outcome::Taken
}

/// Nothing follows a FIN, unless in-order text extends beyond an early FIN: then that FIN was
/// invalid (as on Linux).
#[cold]
fn last_before_fin(conn: &mut Connection, start: u64, end: u64) -> u64 {
    let rcv = &mut conn.rcv;
    if start <= rcv.nxt && end > rcv.fin_at {
        rcv.fin_at = 0;
        if let Some(assembler) = &mut rcv.assembler {
            assembler.forget_fin();
        }
        return rcv.edge;
    }
    rcv.edge.min(rcv.fin_at)
}

#[inline]
fn advance(
    conn: &mut Connection,
    now: Instant,
    fresh: Range,
    is_gso: bool,
    cx: &Cx<'_>,
    fx: &mut impl Effects,
) {
    let mut edge = fresh.end;
    let mut filled_gap = false;
    if let Some(assembler) = conn.rcv.assembler.as_deref_mut() {
        filled_gap = !assembler.is_empty();
        edge = assembler.advance(edge);
        if assembler.is_idle() {
            conn.rcv.assembler = None;
        }
    }
    conn.rcv.nxt = edge;
    fx.event(Event::Received {
        conn: conn.id,
        upto: seq::offset(edge),
    });
    ack_policy::on_in_order(conn, now, fresh.end - fresh.start, is_gso, cx);
    if filled_gap {
        ack_policy::on_gap(conn);
    }
}

#[cold]
fn hold(conn: &mut Connection, fresh: Range, cx: &mut Cx<'_>) {
    cx.counters.bump(Counter::RxTcpOutOfOrder);
    let figures = conn.figures_mut();
    figures.out_of_order = figures.out_of_order.wrapping_add(1);
    // Cannot be full: checked before the bytes were stored.
    let _ = conn.rcv.assembler.get_or_insert_default().insert(fresh);
    ack_policy::on_gap(conn);
}
