//! Header prediction: the next in-order segment of an open connection in its ordinary state.
//!
//! The result is that of the steps of [`super`], with their conditions tested together. RFC 9293
//! 3.10.7.4 allows any order of the checks that gives the same result.

use slipstack_wire::tcp::TcpFlags;

use crate::effects::{Effects, Event};
use crate::network_layer::Cx;
use crate::tcp::cc::Ack;
use crate::tcp::connection::{AckState, Connection};
use crate::tcp::figures::Pace;
use crate::tcp::output::{ack_policy, window};
use crate::tcp::phase::Phase;
use crate::tcp::segment::Segment;
use crate::tcp::seq;
use crate::time::{Instant, Tick};

/// `false`: take the long way; nothing has been touched.
#[inline]
pub fn try_take(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> bool {
    let flags = segment.flags.0 & !TcpFlags::PSH.0;
    let rcv = &conn.rcv;
    if conn.phase != Phase::Established
        || flags != TcpFlags::ACK.0
        || !segment.is_plain
        || (segment.mark | conn.ecn.echo) != TcpFlags::NONE
        || segment.seq != seq::to_wire(rcv.irs, rcv.nxt)
        || rcv.assembler.is_some()
        || rcv.fin_at != 0
        || segment.text_len() as u64 > rcv.edge - rcv.nxt
        || segment.timestamps().is_some() != conn.opts.has_timestamps
    {
        return false;
    }
    if let Some(timestamps) = segment.timestamps()
        && seq::is_older(timestamps.value, rcv.ts_recent)
    {
        return false;
    }
    let outstanding = (conn.snd.nxt - conn.snd.una) as u32;
    let acked = segment
        .ack
        .wrapping_sub(seq::to_wire(conn.snd.iss, conn.snd.una));
    // Either nothing new, or everything.
    let acks_all = acked == outstanding && outstanding != 0;
    if !(acks_all && is_undisturbed(conn)
        || acked == 0 && is_no_duplicate(conn, segment, outstanding))
    {
        return false;
    }
    let has_text = segment.text_len() > 0;
    if has_text && !deliver(conn, segment, fx) {
        return false;
    }
    take_header(conn, now, segment, acked);
    if acks_all {
        take_ack(conn, now, cx, fx);
    }
    if has_text {
        take_text(conn, now, segment, cx);
    }
    true
}

#[inline(always)]
fn deliver(conn: &Connection, segment: &Segment<'_>, fx: &mut impl Effects) -> bool {
    let offset = seq::offset(conn.rcv.nxt);
    if segment.absent.len == 0 {
        return fx.deliver(conn.id, offset, segment.payload);
    }
    let is_stored = fx.fetch(conn.id, offset, segment.absent);
    if is_stored {
        let upto = offset + segment.absent.len as u64;
        let conn = conn.id;
        fx.event(Event::Received { conn, upto });
    }
    is_stored
}

/// Returns whether a segment is neither a duplicate ACK nor the end of a closed window.
#[inline(always)]
fn is_no_duplicate(conn: &Connection, segment: &Segment<'_>, outstanding: u32) -> bool {
    if outstanding == 0 {
        // A segment without text ends the state that a probe has left.
        let may_settle = segment.text_len() == 0 && conn.flight.is_some();
        conn.timers.resend().is_none() && !may_settle
    } else {
        segment.text_len() > 0 && conn.snd.wnd != 0
    }
}

/// Nothing is lost, suspect or probed.
#[inline(always)]
fn is_undisturbed(conn: &Connection) -> bool {
    !conn.cc.wants_samples
        && conn
            .flight
            .as_ref()
            .is_some_and(|flight| flight.recovery.is_undisturbed() && flight.board.is_clean())
}

#[inline(always)]
fn take_header(conn: &mut Connection, now: Instant, segment: &Segment<'_>, acked: u32) {
    // RFC 7323 4.3 (2): the segment begins at RCV.NXT, which is at most Last.ACK.sent only when all
    // is acknowledged.
    if let Some(timestamps) = segment.timestamps()
        && conn.rcv.nxt <= conn.rcv.acked
    {
        conn.rcv.ts_recent = timestamps.value;
    }
    conn.rcv.last_at = now;
    conn.segments.on_received(segment, conn.rcv.mss);
    conn.keep_sent = 0;
    let ack = conn.snd.una + u64::from(acked);
    let snd = &mut conn.snd;
    // RFC 9293 3.10.7.4 (fifth): an empty segment with a higher number may have announced a newer
    // window.
    if snd.wl1 > conn.rcv.nxt {
        return;
    }
    let wnd = u32::from(segment.window) << snd.shift;
    snd.wl1 = conn.rcv.nxt;
    snd.wl2 = ack;
    snd.edge = ack + u64::from(wnd);
    if wnd != snd.wnd {
        snd.wnd = wnd;
        snd.wnd_max = snd.wnd_max.max(wnd);
        if snd.has_unsent() {
            conn.is_dirty = true;
        }
    }
}

/// Everything outstanding is acknowledged.
#[inline(always)]
fn take_ack(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    let acked = conn.snd.nxt - conn.snd.una;
    conn.snd.una = conn.snd.nxt;
    let mut measured = 0;
    if let Some(flight) = conn.flight.as_deref_mut() {
        flight.figures.set_pace(now, Pace::Idle);
        if let Some(newest) = flight.board.newest_clean() {
            measured = now.0.saturating_sub(newest.sent_at);
            let (una, stamp) = (conn.snd.una, &newest.stamp);
            flight.delivery.on_all_delivered(una, stamp, measured);
            conn.rtt.sample_ns(now, measured);
        }
        flight.board.take_all();
    }
    conn.backoff.reset();
    conn.stalled_at = Tick::NONE;
    conn.timers.clear_resend();
    if conn.cc.is_limited {
        conn.cc.on_ack(&Ack {
            now,
            bytes: acked.min(u64::from(u32::MAX)) as u32,
            rtt_ns: measured,
            srtt_ns: conn.rtt.smoothed_ns(),
            una: conn.snd.una,
            nxt: conn.snd.nxt,
            delivered: conn.snd.una,
            burst: conn.tso_max,
            is_after_timeout: false,
        });
    }
    crate::tcp::acknowledged::report(conn, cx, fx);
    if conn.snd.has_unsent() {
        conn.is_dirty = true;
    }
}

#[inline(always)]
fn take_text(conn: &mut Connection, now: Instant, segment: &Segment<'_>, cx: &Cx<'_>) {
    let len = segment.text_len() as u64;
    conn.rcv.nxt += len;
    ack_policy::on_in_order(conn, now, len, segment.is_gso, cx);
    settle_ack(conn, now, cx);
}

/// Segments of the same shape that followed the last one, all stored: RCV.NXT is `nxt` now, SEG.SEQ
/// of the last was `last`.
#[inline]
pub fn take_followers(conn: &mut Connection, now: Instant, last: u64, nxt: u64, cx: &Cx<'_>) {
    let len = nxt - conn.rcv.nxt;
    conn.rcv.nxt = nxt;
    conn.snd.wl1 = conn.snd.wl1.max(last);
    ack_policy::owe(conn, len);
    settle_ack(conn, now, cx);
}

#[inline(always)]
fn settle_ack(conn: &mut Connection, now: Instant, cx: &Cx<'_>) {
    // Nothing to say at the end of this turn: the ACK rides on the answer or waits for its timer.
    let may_wait = !cx.config.tcp.delayed_ack.is_zero() && !window::is_low(conn);
    if conn.rcv.ack < AckState::Due && may_wait {
        ack_policy::delay(conn, now, cx);
    } else {
        conn.is_dirty = true;
    }
}
