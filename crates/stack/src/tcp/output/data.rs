//! Data and FIN: lost data first, then new data.
//!
//! RFC 9293 3.8.6 (window), RFC 5681 3.1 (cwnd), RFC 6675 5 (NextSeg), RFC 5681 4.1 (restart after
//! idle).

use slipstack_wire::tcp::TcpFlags;

use super::emit::{self, Span};
use super::{ack_policy, nagle};
use crate::counters::Counter;
use crate::effects::Effects;
use crate::network_layer::Cx;
use crate::tcp::assembler::Range;
use crate::tcp::connection::Connection;
use crate::tcp::figures::Pace;
use crate::tcp::mtu_search::{self, Step};
use crate::tcp::recovery::state::State;
use crate::tcp::timers::Resend;
use crate::tcp::{isn, records, resend_timer, urgent, user_timeout};
use crate::time::Instant;

/// Super-frames of up to an initial window are not measured against the pacing rate.
const SMALL_SEGMENTS: u64 = 10;

/// One new segment.
struct New {
    len: u32,
    has_fin: bool,
}

/// Reason why no more new data leaves.
enum Stop {
    Nothing,
    Congestion,
    Window,
    Tail,
    Pacing,
}

/// Sends as much as congestion window, peer's window and Nagle allow.
#[inline]
pub fn transmit(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    if !conn.phase.may_transmit() {
        return;
    }
    if conn.opts.manner.may_say_more() {
        say_more(conn, now, cx, fx);
    }
    let has_lost = conn
        .flight
        .as_ref()
        .is_some_and(|f| f.board.lost_bytes() > 0);
    if has_lost {
        repair(conn, now, cx, fx);
    }
    if !conn.snd.has_unsent() {
        return;
    }
    if !conn.has_outstanding() {
        restart_after_idle(conn, now, cx);
    }
    let mut has_sent = false;
    let stop = loop {
        if conn.cc.is_paced && conn.pacing_holds(now) {
            break Stop::Pacing;
        }
        // A connection without `kept` has no MTU search.
        if conn.kept.is_some() {
            match mtu_search::next(conn, now, cx) {
                Step::Nothing => {}
                Step::AwaitCongestion => break Stop::Congestion,
                Step::AwaitWindow => break Stop::Window,
                Step::Probe(len) => {
                    send_probe(conn, now, len, cx, fx);
                    has_sent = true;
                    continue;
                }
            }
        }
        match next_new(conn) {
            Ok(new) => {
                send_new(conn, now, &new, cx, fx);
                has_sent = true;
                if !conn.snd.has_unsent() {
                    break Stop::Nothing;
                }
            }
            Err(stop) => break stop,
        }
    };
    if conn.cc.is_paced
        && !matches!(stop, Stop::Pacing)
        && let Some(flight) = conn.flight.as_deref_mut()
    {
        flight.pacer.settle();
    }
    if has_lost && !has_sent {
        has_sent = push_instead(conn, now, &stop, cx, fx);
    }
    after_new(conn, now, has_sent, &stop, cx);
}

/// Urgent data may have been acknowledged, and segments that are full leave no room for the user
/// timeout.
#[cold]
fn say_more(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    urgent::settle(conn);
    if user_timeout::needs_an_ack(conn) {
        ack_policy::send_ack(conn, now, cx, fx);
    }
}

/// Retransmits lost data, unless new data is sent in its place.
fn repair(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    let flight = conn.flight.as_deref();
    if flight.is_some_and(|f| !f.recovery.prefers_new()) {
        resend_lost(conn, now, cx, fx);
    }
}

/// F-RTO prefers new data, and none was sent: data held by Nagle, a cork or silly window avoidance
/// is sent, or else lost data (Linux: tcp_xmit_recovery).
#[cold]
fn push_instead(
    conn: &mut Connection,
    now: Instant,
    stop: &Stop,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> bool {
    let nxt = conn.snd.nxt;
    if !conn.flight_mut().recovery.awaits_new(nxt) || matches!(stop, Stop::Pacing) {
        return false;
    }
    if matches!(stop, Stop::Tail | Stop::Window) && force_one(conn, now, cx, fx) {
        return true;
    }
    conn.flight_mut().recovery.stop_preferring_new();
    resend_lost(conn, now, cx, fx);
    false
}

/// RFC 5681 4.1, RFC 2861 3.
#[inline]
pub fn restart_after_idle(conn: &mut Connection, now: Instant, cx: &Cx<'_>) {
    let idle = now.nanos_since(conn.snd.last_at);
    // No timeout is shorter.
    if idle > conn.rto_min_ns(&cx.config.tcp) {
        restart_after(conn, now, idle, cx);
    }
}

#[inline(never)]
fn restart_after(conn: &mut Connection, now: Instant, idle: u64, cx: &Cx<'_>) {
    if conn.rtt.has_sample() && idle > resend_timer::base_timeout_ns(conn, cx) {
        conn.cc.on_idle(now, cx.config.tcp.initial_cwnd);
    }
}

#[inline]
fn next_new(conn: &Connection) -> Result<New, Stop> {
    let snd = &conn.snd;
    let mss = u64::from(snd.mss);
    let unsent = snd.written - snd.nxt.min(snd.written);
    let may_fin = snd.is_fin_queued && !snd.is_fin_sent;
    if unsent == 0 {
        // RFC 9293 3.10.4: a FIN occupies no window that matters.
        return if may_fin {
            Ok(New {
                len: 0,
                has_fin: true,
            })
        } else {
            Err(Stop::Nothing)
        };
    }
    let allowed = snd.edge.saturating_sub(snd.nxt);
    if allowed == 0 {
        return Err(Stop::Window);
    }
    let quota = u64::from(conn.cc.window.cwnd).saturating_sub(conn.in_flight());
    if quota == 0 || conn.flight.as_ref().is_some_and(|f| f.board.is_full()) {
        return Err(Stop::Congestion);
    }
    let room = unsent.min(allowed).min(quota);
    let mut most = u64::from(conn.tso_max).max(mss);
    if room > SMALL_SEGMENTS * mss || conn.cc.is_paced {
        most = conn.burst(most);
    }
    if conn.opts.manner.may_have_marks() {
        // Each segment has an urgent pointer of its own.
        if urgent::end(conn).is_some() {
            most = mss;
        }
        if let Some(len) = records::next(conn, room.min(most)) {
            return Ok(without_fin(len));
        }
    }
    let len = room.min(most);
    let is_tail = len == unsent;
    let full = len - len % mss;
    if full == len {
        return Ok(New {
            len: len as u32,
            has_fin: is_tail && may_fin,
        });
    }
    if is_tail && nagle::may_send_tail(conn) {
        return Ok(New {
            len: len as u32,
            has_fin: may_fin,
        });
    }
    if full > 0 {
        return Ok(without_fin(full));
    }
    // A tail that fills the window is as large as a segment can be.
    if is_tail && len < allowed {
        return Err(Stop::Tail);
    }
    if len == quota {
        // Less than a segment of congestion window: wait for more of it.
        return Err(Stop::Congestion);
    }
    match nagle::may_send_cut(conn, len) {
        true => Ok(without_fin(len)),
        false => Err(Stop::Window),
    }
}

fn without_fin(len: u64) -> New {
    New {
        len: len as u32,
        has_fin: false,
    }
}

fn send_new(
    conn: &mut Connection,
    now: Instant,
    new: &New,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) {
    let start = conn.snd.nxt;
    let end = start + u64::from(new.len);
    let mut flags = TcpFlags::NONE;
    // RFC 9293 3.9.1.2 (MUST-60, MUST-61): PSH at the end of the written data.
    if new.len > 0 && end == conn.snd.written {
        flags |= TcpFlags::PSH;
    }
    if new.has_fin {
        flags |= TcpFlags::FIN;
        conn.snd.is_fin_sent = true;
    }
    if !new.len.is_multiple_of(u32::from(conn.snd.mss)) {
        conn.snd.small_end = end;
    }
    let next = end + u64::from(new.has_fin);
    conn.snd.nxt = next;
    if new.len > 0 {
        ack_policy::on_data_sent(conn, now);
        conn.snd.last_at = now;
    }
    let una = conn.snd.una;
    let flight = conn.flight_mut();
    let stamp = flight.stamp(now, next - start, una);
    flight.board.push(start, next, now.0, stamp);
    flight.recovery.on_sent(next - start);
    if conn.cc.is_paced {
        conn.pace(now, next - start);
    }
    let span = Span {
        start,
        len: new.len,
    };
    if conn.opts.manner.may_say_more() {
        emit::talkative_data(conn, now, span, flags, cx, fx);
    } else {
        emit::new_data(conn, now, span, flags, cx, fx);
    }
}

/// A packet larger than the path is known to take; the device must not cut it.
#[cold]
fn send_probe(
    conn: &mut Connection,
    now: Instant,
    len: u16,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) {
    let start = conn.snd.nxt;
    let mss = core::mem::replace(&mut conn.snd.mss, len);
    let new = New {
        len: len.into(),
        has_fin: false,
    };
    send_new(conn, now, &new, cx, fx);
    conn.snd.mss = mss;
    mtu_search::on_sent(conn, start, len, cx);
}

/// RFC 7661 4.5.3 (Linux: in slow start half of the window must be used).
#[inline]
fn is_window_used(conn: &Connection, in_flight: u64) -> bool {
    let factor = if conn.cc.window.is_slow_start() { 2 } else { 1 };
    in_flight * factor >= u64::from(conn.cc.window.cwnd)
}

/// Everything that was written has left, and nothing else is in flight.
#[inline(always)]
pub fn after_all(conn: &mut Connection, now: Instant, in_flight: u64, cx: &Cx<'_>) {
    note_pace(conn, now, &Stop::Nothing);
    conn.cc.is_limited = is_window_used(conn, in_flight);
    if in_flight < u64::from(conn.cc.window.cwnd) {
        note_app_limited(conn, in_flight);
    }
    resend_timer::arm_after_new(conn, now, cx);
}

fn after_new(conn: &mut Connection, now: Instant, has_sent: bool, stop: &Stop, cx: &Cx<'_>) {
    note_pace(conn, now, stop);
    if has_sent {
        let in_flight = conn.in_flight();
        let is_full = is_window_used(conn, in_flight);
        conn.cc.is_limited = match stop {
            Stop::Congestion => true,
            // The window is used as fast as pacing allows.
            Stop::Pacing => conn.cc.is_limited || is_full,
            _ => is_full,
        };
        if in_flight < u64::from(conn.cc.window.cwnd)
            && !matches!(stop, Stop::Congestion | Stop::Pacing)
        {
            note_app_limited(conn, in_flight);
        }
        resend_timer::arm_after_new(conn, now, cx);
        return;
    }
    if matches!(stop, Stop::Congestion) {
        conn.cc.is_limited = true;
    }
    // RFC 9293 3.8.6.1: no data in flight will cause an ACK, so the window must be probed.
    if !conn.has_outstanding() && conn.timers.resend().is_none() {
        match stop {
            Stop::Window => resend_timer::arm_persist(conn, now, cx),
            // A corked tail is held for a timeout, as on Linux (tcp_probe0_base); tcp(7) says 200
            // ms, the shortest.
            Stop::Tail => {
                let timeout = resend_timer::base_timeout_ns(conn, cx);
                conn.timers
                    .set_resend(Resend::Persist, now.plus_nanos(timeout));
            }
            Stop::Nothing | Stop::Congestion | Stop::Pacing => {}
        }
    }
}

/// Notes the reason that holds the sender back from now on.
#[inline]
fn note_pace(conn: &mut Connection, now: Instant, stop: &Stop) {
    let unacknowledged = conn.snd.written.saturating_sub(conn.snd.una);
    let pace = match stop {
        Stop::Window => Pace::Window,
        Stop::Nothing if unacknowledged >= u64::from(conn.snd.limit) => Pace::Buffer,
        _ => Pace::Busy,
    };
    if let Some(flight) = conn.flight.as_deref_mut() {
        flight.figures.set_pace(now, pace);
    }
}

/// draft-ietf-ccwg-bbr 4.1.2.4: the path could carry more than there is.
#[inline]
fn note_app_limited(conn: &mut Connection, in_flight: u64) {
    let una = conn.snd.una;
    if let Some(flight) = conn.flight.as_deref_mut()
        && flight.board.lost_bytes() == 0
    {
        let delivered = una + flight.board.sacked_bytes();
        flight.delivery.on_app_limited(delivered, in_flight);
    }
}

/// Sends a held tail, even past a cork, which continues to hold later writes (Linux: TCP_NODELAY
/// pushes queued data).
#[cold]
pub fn push_held(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    let unsent = conn.snd.written.saturating_sub(conn.snd.nxt);
    let has_room = conn.in_flight() + unsent <= u64::from(conn.cc.window.cwnd);
    let may_send = conn.phase.is_synchronized() && conn.phase.may_transmit();
    if may_send && unsent < u64::from(conn.snd.mss) && has_room {
        force_one(conn, now, cx, fx);
    }
}

/// Sends a held tail or a cut segment regardless of Nagle and SWS avoidance (the override of RFC
/// 9293 3.8.6.2.1).
pub fn force_one(
    conn: &mut Connection,
    now: Instant,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> bool {
    let unsent = conn.snd.written - conn.snd.nxt.min(conn.snd.written);
    let allowed = conn.snd.edge.saturating_sub(conn.snd.nxt);
    let len = unsent.min(allowed).min(u64::from(conn.snd.mss));
    if len == 0 {
        return false;
    }
    let has_fin = conn.snd.is_fin_queued && len == unsent && !conn.snd.is_fin_sent;
    send_new(
        conn,
        now,
        &New {
            len: len as u32,
            has_fin,
        },
        cx,
        fx,
    );
    resend_timer::arm_after_new(conn, now, cx);
    true
}

/// Lost bytes leave again while cwnd has room.
fn resend_lost(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    let mss = u64::from(conn.snd.mss);
    loop {
        let quota = u64::from(conn.cc.window.cwnd).saturating_sub(conn.in_flight());
        if quota < mss && conn.in_flight() > 0 {
            // Lost data waits for the window just as new data does, and there may be none.
            conn.cc.is_limited = true;
            break;
        }
        if conn.cc.is_paced && conn.pacing_holds(now) {
            break;
        }
        let mut most = quota.min(u64::from(conn.tso_max)).max(mss);
        if conn.cc.is_paced {
            most = conn.burst(most);
        }
        if !resend_once(conn, now, most - most % mss, cx, fx) {
            break;
        }
    }
    if conn.timers.resend().is_none() {
        resend_timer::arm_timeout(conn, now, cx);
    }
}

/// Counts segments that leave again.
pub fn note_resent(conn: &mut Connection, len: u32) {
    let count = len.div_ceil(u32::from(conn.snd.mss).max(1));
    conn.retransmitted = conn.retransmitted.wrapping_add(count);
    if count == 0 {
        conn.figures_mut().bare_resent += 1;
    }
}

/// Returns the part of a range that may be retransmitted: nothing goes beyond a window that has
/// shrunk but the segment that the peer waits for, which then probes it (RFC 9293 3.8.6; Linux:
/// tcp_retransmit_skb).
#[cold]
#[inline(never)]
pub fn within_window(conn: &Connection, range: Range) -> Option<Range> {
    let snd = &conn.snd;
    if range.end.min(snd.written) <= snd.edge && range.start <= snd.edge {
        return Some(range);
    }
    let mss = u64::from(snd.mss);
    let len = match snd.edge.saturating_sub(range.start) {
        0 if range.start == snd.una => mss,
        0 => return None,
        room if room < mss => room,
        room => room - room % mss,
    };
    Some(Range {
        end: range.end.min(range.start + len),
        ..range
    })
}

/// Sends the first run of lost bytes again, at most `most` of them.
pub fn resend_once(
    conn: &mut Connection,
    now: Instant,
    most: u64,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> bool {
    let our_time = isn::timestamp(now, conn.opts.ts_offset);
    let (una, written) = (conn.snd.una, conn.snd.written);
    let Some(range) = conn.flight_mut().board.find_lost(most) else {
        return false;
    };
    let Some(range) = within_window(conn, range) else {
        return false;
    };
    let flight = conn.flight_mut();
    let stamp = flight.stamp(now, range.end - range.start, una);
    flight.board.mark_resent(range, now.0, stamp);
    flight.recovery.on_sent(range.end - range.start);
    flight.recovery.on_resent(range, our_time);
    let is_loss = flight.recovery.state() == State::Loss;
    let data_end = range.end.min(written);
    flight.figures.resent_bytes += data_end.saturating_sub(range.start);
    let mut flags = TcpFlags::NONE;
    if data_end == written {
        flags |= TcpFlags::PSH;
    }
    if range.end > written {
        flags |= TcpFlags::FIN;
    }
    cx.counters.bump(if is_loss {
        Counter::TxTcpResentTimeout
    } else {
        Counter::TxTcpResentFast
    });
    if conn.cc.is_paced {
        conn.pace(now, range.end - range.start);
    }
    conn.snd.last_at = now;
    mtu_search::on_resent(conn, range);
    let len = data_end.saturating_sub(range.start) as u32;
    note_resent(conn, len);
    let start = range.start;
    emit::segment(conn, now, Span { start, len }, flags, cx, fx);
    if range.start == una {
        resend_timer::on_head_resent(conn, now, cx);
    }
    true
}
