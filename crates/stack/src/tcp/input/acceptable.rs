//! Step one: old duplicates by timestamp (RFC 7323 5), then the sequence number (RFC 9293 3.4 table
//! 6).

use super::rst_syn;
use crate::counters::Counter;
use crate::effects::Effects;
use crate::network_layer::Cx;
use crate::rate::RateLimit;
use crate::tcp::assembler::Range;
use crate::tcp::connection::Connection;
use crate::tcp::establish;
use crate::tcp::output::{ack_policy, control};
use crate::tcp::phase::Phase;
use crate::tcp::segment::Segment;
use crate::tcp::{resend_timer, seq};
use crate::time::Instant;

/// RFC 7323 5.5: the timestamp of a peer that was silent for longer is not used any more.
const STALE_NS: u64 = 24 * 24 * 3600 * 1_000_000_000;

/// `false`: the segment was answered and is dropped.
#[inline]
pub fn check(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    start: u64,
    challenges: &mut RateLimit,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> bool {
    if conn.opts.has_timestamps
        && !passes_timestamp(conn, now, segment)
        && !is_taken_late(conn, now, segment, start, cx)
    {
        return false;
    }
    let end = start + segment.len();
    let rcv = &conn.rcv;
    // RFC 9293 3.4; an empty segment exactly at the right edge is accepted, as by every stack: it
    // has the peer's SND.NXT when the window is full.
    let is_acceptable = if end == start {
        rcv.nxt <= start && start <= rcv.edge
    } else {
        start < rcv.edge && end > rcv.nxt
    };
    // A closed window accepts no text, but the ACK is processed (RFC 9293 3.10.7.4).
    if is_acceptable || (start == rcv.nxt && rcv.nxt == rcv.edge) {
        return true;
    }
    if segment.flags.is_rst() && rst_syn::is_at_fin(conn, start) {
        return true;
    }
    let span = Range { start, end };
    reject(conn, now, segment, span, challenges, cx, fx);
    false
}

/// RFC 9293 3.10.7.4 (first): an unacceptable segment is answered with an ACK, unless it is a RST.
#[cold]
fn reject(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    Range { start, end }: Range,
    challenges: &mut RateLimit,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) {
    cx.counters.bump(Counter::DropTcpOutOfWindow);
    if segment.flags.is_rst() {
        return;
    }
    if segment.flags.is_syn() {
        match conn.phase {
            Phase::SynReceived if ends_simultaneous_open(conn, segment, end) => {
                establish::on_second_syn_ack(conn, now, segment, cx, fx);
            }
            // The peer's SYN again: our SYN-ACK was lost.
            Phase::SynReceived => conn.owe_ack(),
            _ => rst_syn::challenge(conn, now, challenges, cx),
        }
        return;
    }
    // RFC 2883 4: report the duplicate.
    let upto = end.min(conn.rcv.nxt);
    if conn.opts.has_sack && start < upto && !segment.payload.is_empty() {
        conn.rcv
            .assembler
            .get_or_insert_default()
            .note_duplicate(Range { start, end: upto });
    }
    acknowledge(conn, now, segment, cx);
    ack_policy::tell_of_gaps(conn, now, cx, fx);
}

/// RFC 9293 3.5 figure 8: the SYN of the SYN-ACK is known already, only its ACK counts.
fn ends_simultaneous_open(conn: &Connection, segment: &Segment<'_>, end: u64) -> bool {
    !conn.is_passive
        && segment.flags.is_ack()
        && end == conn.rcv.nxt
        && segment.ack == conn.wire_seq(conn.snd.nxt)
}

/// Sends the ACK for an unacceptable segment. Two sides that find each other's ACKs unacceptable
/// would answer for ever: empty segments are answered at the rate of challenge ACKs (Linux:
/// tcp_invalid_ratelimit).
#[cold]
fn acknowledge(conn: &mut Connection, now: Instant, segment: &Segment<'_>, cx: &mut Cx<'_>) {
    let is_empty = segment.payload.is_empty() && !segment.flags.is_fin();
    if is_empty && !control::may_challenge(conn, now) {
        cx.counters.bump(Counter::TcpAcksHeld);
        return;
    }
    conn.owe_ack();
}

#[inline]
fn passes_timestamp(conn: &Connection, now: Instant, segment: &Segment<'_>) -> bool {
    // RFC 7323 5.2: RSTs are not tested.
    if segment.flags.is_rst() {
        return true;
    }
    let Some(timestamps) = segment.timestamps() else {
        // DEVIATION(RFC 7323 3.2): SHOULD be dropped; taken, as on Linux, which helps a peer behind
        // a bad middlebox.
        return true;
    };
    // DEVIATION(RFC 7323 5.3 R1): one tick older passes, as on Linux (TCP_PAWS_WINDOW): segments
    // that left one after the other may overtake each other. No sequence number comes again within
    // a tick.
    !seq::is_older(timestamps.value.wrapping_add(1), conn.rcv.ts_recent) || is_stale(conn, now)
}

/// RFC 7323 5.5: TS.Recent is too old for a comparison.
fn is_stale(conn: &Connection, now: Instant) -> bool {
    now.nanos_since(conn.rcv.last_at) > STALE_NS
}

/// Returns whether a segment of an older timestamp is taken all the same; one that is not is
/// answered, if anything, and dropped.
#[cold]
fn is_taken_late(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    start: u64,
    cx: &mut Cx<'_>,
) -> bool {
    let is_pure_ack = segment.flags.is_ack() && segment.len() == 0;
    // DEVIATION(RFC 7323 5.3 R1): a duplicate ACK that others have overtaken still shows that a
    // segment has arrived (Linux: tcp_disordered_ack).
    if is_pure_ack && is_late_duplicate(conn, segment, start, cx) {
        return true;
    }
    cx.counters.bump(Counter::DropTcpPaws);
    // An ACK that text has overtaken as well need not be answered (as on Linux).
    if !is_pure_ack || start >= conn.rcv.nxt {
        // RFC 7323 5.3 R1: send an acknowledgment and drop.
        acknowledge(conn, now, segment, cx);
    }
    false
}

/// Returns whether it is a pure ACK without news, at most 1.2 timeouts older than its predecessor:
/// an older one may be from before the sequence numbers wrapped.
fn is_late_duplicate(conn: &Connection, segment: &Segment<'_>, start: u64, cx: &Cx<'_>) -> bool {
    let (snd, rcv) = (&conn.snd, &conn.rcv);
    let Some(timestamps) = segment.timestamps() else {
        return false;
    };
    if start != rcv.nxt || segment.ack != conn.wire_seq(snd.una) {
        return false;
    }
    let wnd = u32::from(segment.window) << snd.shift;
    if start > snd.wl1 || wnd > snd.wnd || wnd == 0 {
        return false;
    }
    // Timestamps of peers tick in milliseconds or slower.
    let age_ms = rcv.ts_recent.wrapping_sub(timestamps.value);
    u64::from(age_ms) <= resend_timer::timeout_ns(conn, cx) / 1_000_000 * 6 / 5
}

/// RFC 7323 4.3 (2): TS.Recent follows segments that reach Last.ACK.sent.
#[inline]
pub fn take_timestamp(conn: &mut Connection, now: Instant, segment: &Segment<'_>, start: u64) {
    if !conn.opts.has_timestamps {
        return;
    }
    if let Some(timestamps) = segment.timestamps()
        && start <= conn.rcv.acked
        && (!seq::is_older(timestamps.value, conn.rcv.ts_recent) || is_stale(conn, now))
    {
        conn.rcv.ts_recent = timestamps.value;
    }
}
