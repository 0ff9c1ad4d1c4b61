//! The time at which an ACK without data leaves.
//!
//! RFC 9293 3.8.6.3 (every second full segment, never later than 0.5 s), RFC 5681 4.2 (at once for
//! gaps), quick ACKs while the peer's slow start needs them. The ACK of a small request is delayed
//! a moment, so that the answer can carry it.
//!
//! The delay adapts to peer and program, as Linux's `ato` does: to the gaps between the peer's
//! segments, to timers that fired before the answer, and to the time that the program takes to
//! answer.

use slipstack_wire::tcp::TcpFlags;

use super::emit::{self, Span};
use super::window;
use crate::effects::Effects;
use crate::network_layer::Cx;
use crate::tcp::connection::{AckState, Connection};
use crate::tcp::resend_timer;
use crate::time::{Instant, Tick};

/// Segments acknowledged one by one at the start and after a gap (Linux: TCP_MAX_QUICKACKS).
pub const QUICK_SEGMENTS: u8 = 16;
/// Time for which a small segment waits for its answer while the connection is not known to be
/// interactive. Linux waits for the program to read it.
const ANSWER_NS: u64 = 1_000_000;
/// Time for which it waits after that for a program that has not even read the segment.
const UNREAD_NS: u64 = 2_000_000;
/// Time for which a burst waits for the program to read it. Linux waits for `ato`, in which the
/// peer's tail loss probe comes.
const READ_NS: u64 = 4_000_000;
/// Initial estimate (Linux: TCP_ATO_MIN); a bulk transfer's ACK waits for no longer than
/// this or a round trip.
const ATO_MIN_MS: u16 = 40;
const MS: u64 = 1_000_000;
const ATO_MIN_NS: u64 = ATO_MIN_MS as u64 * MS;
/// Milliseconds after which sent data is not taken for an answer.
const LATE_MS: u16 = 160;

/// Handles `len` bytes of in-order data.
#[inline]
pub fn on_in_order(conn: &mut Connection, now: Instant, len: u64, is_gso: bool, cx: &Cx<'_>) {
    // Joined segments do not say how long they were: as long as the peer may make them.
    let largest = match is_gso {
        true => conn.opts.full_segment().into(),
        false => len.min(u64::from(conn.opts.mss_max)),
    };
    if largest > u64::from(conn.rcv.mss) {
        conn.rcv.mss = largest as u16;
    }
    let gap = conn.rcv.data_at.nanos_until(now);
    conn.rcv.data_at = Tick::of(now);
    // Linux: tcp_event_data_recv.
    if gap <= ATO_MIN_NS / 2 && conn.rcv.ato_ms != 0 {
        conn.rcv.ato_ms = conn.rcv.ato_ms / 2 + ATO_MIN_MS / 2;
    } else {
        on_long_gap(conn, gap, cx);
    }
    owe(conn, len);
}

/// The first data, or the first for a while.
#[cold]
fn on_long_gap(conn: &mut Connection, gap: u64, cx: &Cx<'_>) {
    if conn.rcv.ato_ms == 0 {
        conn.rcv.ato_ms = ATO_MIN_MS;
        return begin_quick(conn);
    }
    let timeout = resend_timer::base_timeout_ns(conn, cx);
    if gap < u64::from(conn.rcv.ato_ms) * MS {
        let grown = u64::from(conn.rcv.ato_ms / 2) + gap / MS;
        conn.rcv.ato_ms = as_ms(grown.min(timeout / MS));
    } else if gap > timeout {
        // The peer begins again with a small window (RFC 5681 4.1).
        begin_quick(conn);
    }
}

/// Linux: tcp_incr_quickack. No more than half of the window is acknowledged segment by segment.
fn begin_quick(conn: &mut Connection) {
    let half = conn.rcv.window() / (2 * u32::from(conn.rcv.mss).max(1));
    let quick = half.clamp(2, QUICK_SEGMENTS.into()) as u8;
    conn.rcv.quick = conn.rcv.quick.max(quick);
}

fn as_ms(ms: u64) -> u16 {
    u16::try_from(ms).unwrap_or(u16::MAX)
}

/// Notes the ACK owed for `len` bytes of data, if the size of the peer's segments is known.
#[inline]
pub fn owe(conn: &mut Connection, len: u64) {
    let rcv = &mut conn.rcv;
    let mss = u64::from(rcv.mss);
    // RFC 9293 3.8.6.3: at least every second full-sized segment.
    let owed = if rcv.nxt - rcv.acked >= 2 * mss {
        AckState::Due
    } else if rcv.is_interactive {
        AckState::Delayed
    } else if len < mss {
        AckState::Soon
    } else if rcv.quick > 0 {
        rcv.quick -= 1;
        AckState::Due
    } else {
        AckState::Delayed
    };
    rcv.ack = rcv.ack.max(owed);
}

/// RFC 5681 4.2: out-of-order segments, and those that fill a gap, are acknowledged at once.
pub fn on_gap(conn: &mut Connection) {
    conn.rcv.ack = AckState::Now;
    conn.rcv.quick = QUICK_SEGMENTS;
}

/// Sends an ACK for each gap. One turn processes many segments, and one ACK would report only the
/// last of them: three SACK blocks, one D-SACK, and without SACK one duplicate ACK in place of many
/// (RFC 5681 3.2). Data would carry the ACK without any block, and is no duplicate ACK: a peer that
/// receives data all the time would learn of its losses only by a timeout.
#[inline]
pub fn tell_of_gaps(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    if let Some(assembler) = conn.rcv.assembler.as_deref()
        && conn.rcv.ack == AckState::Now
        && (assembler.fills_an_ack() || !conn.opts.has_sack || says_more(conn))
    {
        send_ack(conn, now, cx, fx);
    }
}

/// Data may leave before the ACK does.
fn says_more(conn: &Connection) -> bool {
    let flight = conn.flight.as_deref();
    conn.snd.has_unsent() || flight.is_some_and(|flight| flight.board.lost_bytes() > 0)
}

/// The peer's FIN: the program's own, which it sends soon, carries the ACK.
pub fn on_fin(conn: &mut Connection, now: Instant) {
    let owed = if conn.rcv.is_interactive {
        conn.timers.set_ack(now.plus_nanos(ATO_MIN_NS));
        AckState::Delayed
    } else {
        AckState::Soon
    };
    conn.rcv.ack = conn.rcv.ack.max(owed);
}

/// Data leaves. If it answers data, the peer's next request needs no ACK of its own.
#[inline]
pub fn on_data_sent(conn: &mut Connection, now: Instant) {
    let age = conn.rcv.data_at.nanos_until(now);
    if age < u64::from(conn.rcv.ato_ms) * MS {
        conn.rcv.is_interactive = true;
        conn.rcv.is_unanswered = false;
    } else if age < u64::from(LATE_MS) * MS {
        on_late_answer(conn, age);
    }
}

/// A program that answers later than the ACK waits makes it wait longer. Linux keeps to the gaps
/// between requests and to round trips, and on short paths acknowledges each request of such a
/// program on its own.
#[cold]
fn on_late_answer(conn: &mut Connection, age: u64) {
    if !core::mem::take(&mut conn.rcv.is_unanswered) {
        return;
    }
    // A round trip of less than a millisecond may have left none.
    let mut ato_ms = conn.rcv.ato_ms.max(ATO_MIN_MS);
    while u64::from(ato_ms) * MS <= age {
        ato_ms *= 2;
    }
    conn.rcv.ato_ms = ato_ms;
    conn.rcv.is_interactive = true;
}

/// The timer has fired: nothing has carried the ACK (Linux: tcp_delack_timer_handler).
#[cold]
pub fn on_due(conn: &mut Connection, now: Instant, cx: &Cx<'_>, fx: &mut impl Effects) {
    // The answer comes when the program gets to it, and saving a frame helps it then.
    if conn.rcv.ack == AckState::Soon && fx.has_unread(conn.id) {
        conn.rcv.ack = AckState::Unread;
        return conn.timers.set_ack(now.plus_nanos(UNREAD_NS));
    }
    if conn.rcv.ack == AckState::Delayed {
        if conn.rcv.is_interactive {
            conn.rcv.is_interactive = false;
            conn.rcv.ato_ms = ATO_MIN_MS;
        } else {
            let doubled = 2 * u64::from(conn.rcv.ato_ms);
            conn.rcv.ato_ms = as_ms(doubled.min(resend_timer::base_timeout_ns(conn, cx) / MS));
        }
    }
    conn.owe_ack();
}

/// Last step of a flush: sends an ACK that nothing has carried, or sees that it leaves in time.
#[inline]
pub fn finish(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    match conn.rcv.ack {
        AckState::Now => send_ack(conn, now, cx, fx),
        AckState::Due if !window::is_stuck(conn) => send_ack(conn, now, cx, fx),
        _ if window::is_update_due(conn) => send_ack(conn, now, cx, fx),
        AckState::None => {}
        _ if cx.config.tcp.delayed_ack.is_zero() => send_ack(conn, now, cx, fx),
        // DEVIATION(RFC 9293 3.8.6.3): the ACK of more than two full segments is delayed a moment
        // if it could only announce a closing window, as on Linux (__tcp_ack_snd_check): the
        // program's read opens the window and sends the ACK.
        AckState::Delayed | AckState::Soon | AckState::Unread | AckState::Due => {
            delay(conn, now, cx);
        }
    }
}

/// The ACK waits for something that carries it, or for its timer.
#[inline]
pub fn delay(conn: &mut Connection, now: Instant, cx: &Cx<'_>) {
    let wait = if conn.rcv.ack == AckState::Soon {
        ANSWER_NS
    } else if conn.rcv.ack == AckState::Unread {
        UNREAD_NS
    } else if conn.rcv.ack == AckState::Due {
        READ_NS
    } else {
        let most = if conn.rcv.is_interactive {
            u64::MAX
        } else {
            conn.rtt.smoothed_ns().max(ATO_MIN_NS)
        };
        (u64::from(conn.rcv.ato_ms.max(ATO_MIN_MS)) * MS).min(most)
    };
    let longest = conn.ack_delay_max_ns(&cx.config.tcp);
    conn.timers.set_ack(now.plus_nanos(wait.min(longest)));
}

/// An ACK without data.
pub fn send_ack(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    conn.rcv.is_unanswered = conn.rcv.ato_ms != 0;
    let nxt = conn.snd.nxt;
    emit::segment(conn, now, Span::empty(nxt), TcpFlags::NONE, cx, fx);
}
