//! Expiry of the retransmission timer: timeout, tail loss probe, reordering window, zero-window
//! probe.
//!
//! RFC 6298 5, RFC 8985 7 (TLP), RFC 9293 3.8.6.1 (persist), RFC 9293 3.8.3 (R2), TCP_USER_TIMEOUT.

use slipstack_wire::tcp::TcpFlags;

use super::connection::Connection;
use super::in_flight::InFlight;
use super::output::data;
use super::output::emit::{self, Span};
use super::phase::Phase;
use super::recovery;
use super::recovery::state::AckFacts;
use super::scoreboard::Delivered;
use super::timers::Resend;
use super::verdict::Verdict;
use super::{mtu_search, pmtud, resend_timer, urgent, user_timeout};
use crate::counters::Counter;
use crate::effects::Effects;
use crate::error::Reason;
use crate::network_layer::Cx;
use crate::time::{Instant, Tick};

/// The soonest that a timer comes again.
const AGAIN_NS: u64 = 4;

/// The slot's deadline has come.
pub fn on_due(
    conn: &mut Connection,
    now: Instant,
    kind: Resend,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Verdict {
    match kind {
        Resend::Timeout => on_timeout(conn, now, cx, fx),
        Resend::Probe => {
            on_probe(conn, now, cx, fx);
            Verdict::Alive
        }
        Resend::Reorder => {
            on_reorder(conn, now, cx);
            Verdict::Alive
        }
        Resend::Persist => on_persist(conn, now, cx, fx),
    }
}

/// R2 of RFC 9293 3.8.3, or the user timeout: has nothing come back for too long?
fn gives_up(conn: &mut Connection, now: Instant, cx: &Cx<'_>) -> bool {
    if conn.stalled_at == Tick::NONE {
        let sent_at = conn.flight.as_ref().and_then(|f| f.board.first_sent_at());
        conn.stalled_at = Tick::of(sent_at.map_or(now, Instant));
    }
    let stalled = conn.stalled_at.nanos_until(now);
    if conn.opts.user_timeout_ms != 0 {
        return stalled >= u64::from(conn.opts.user_timeout_ms) * 1_000_000;
    }
    if conn.is_orphan {
        return stalled >= resend_timer::budget_ns(conn, cx.config.tcp.orphan_retries, cx);
    }
    stalled >= user_timeout::adopted_ns(conn, resend_timer::retries_ns(conn, cx), cx)
        && !answers_probes(conn, now, cx)
}

/// Returns whether the peer answers retransmissions beyond its closed window, which act as probes:
/// as long as it does, the connection stays (RFC 9293 3.8.6.1; Linux: tcp_rtx_probe0_timed_out).
fn answers_probes(conn: &Connection, now: Instant, cx: &Cx<'_>) -> bool {
    conn.snd.wnd == 0 && now.nanos_since(conn.rcv.last_at) <= 2 * conn.rto_max_ns(&cx.config.tcp)
}

fn failure(conn: &Connection) -> Verdict {
    Verdict::Failed(conn.soft_error.unwrap_or(Reason::TimedOut))
}

#[cold]
#[inline(never)]
fn on_timeout(
    conn: &mut Connection,
    now: Instant,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Verdict {
    if !conn.phase.is_synchronized() {
        return super::connect::on_timeout(conn, now, cx, fx);
    }
    if !conn.has_outstanding() {
        return Verdict::Alive;
    }
    if gives_up(conn, now, cx) {
        return failure(conn);
    }
    cx.counters.bump(Counter::TcpTimeouts);
    let is_first = conn.backoff.count() == 0;
    conn.figures_mut().on_timeout(now, is_first);
    let has_probe = mtu_search::on_timeout(conn);
    recovery::on_timeout(conn, has_probe);
    match is_linear(conn) {
        true => conn.backoff.stay(),
        false => conn.backoff.double(),
    }
    pmtud::on_silence(conn, now, cx);
    let mss = u64::from(conn.snd.mss);
    data::resend_once(conn, now, mss, cx, fx);
    let wait = resend_timer::timeout_ns(conn, cx).min(resend_timer::patience_ns(conn, now));
    conn.timers
        .set_resend(Resend::Timeout, now.plus_nanos(wait));
    Verdict::Alive
}

/// TCP_THIN_LINEAR_TIMEOUTS: whether the timeout of a thin stream stays as it is
/// (tcp_retransmit_timer()).
#[cold]
fn is_linear(conn: &Connection) -> bool {
    const SEGMENTS: u32 = 4;
    const RETRIES: u8 = 6;
    let mss = u64::from(conn.snd.mss).max(1);
    let outstanding = |flight: &InFlight| flight.board.counts(conn.snd.written, mss).outstanding;
    let is_thin = |flight: &InFlight| outstanding(flight) < SEGMENTS;
    conn.bounds().is_linear
        && conn.phase == Phase::Established
        && conn.backoff.count() < RETRIES
        && conn.flight.as_deref().is_some_and(is_thin)
}

/// RFC 8985 7.3: new data if there is any, else the last segment again.
fn on_probe(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    if !conn.has_outstanding() {
        return;
    }
    // RFC 8985 7.2: not while a loss is known (a path whose MTU has shrunk): its repair is due, and
    // serves as a probe.
    if conn.flight_mut().board.lost_bytes() > 0 {
        return resend_timer::arm_timeout(conn, now, cx);
    }
    cx.counters.bump(Counter::TxTcpTailProbes);
    let end = conn.snd.nxt;
    let is_new = data::force_one(conn, now, cx, fx);
    if is_new || resend_tail(conn, now, cx, fx) {
        let end = end.max(conn.snd.nxt);
        conn.flight_mut().recovery.on_probe_sent(end, !is_new);
    }
    resend_timer::arm_timeout(conn, now, cx);
}

#[cold]
#[inline(never)]
fn resend_tail(
    conn: &mut Connection,
    now: Instant,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> bool {
    let mss = u64::from(conn.snd.mss);
    let written = conn.snd.written;
    let Some(last) = conn.flight_mut().board.last().copied() else {
        return false;
    };
    let start = last.start.max(last.end.saturating_sub(mss));
    let tail = super::assembler::Range {
        start,
        end: last.end,
    };
    let Some(range) = data::within_window(conn, tail) else {
        return false;
    };
    let una = conn.snd.una;
    let flight = conn.flight_mut();
    let stamp = flight.stamp(now, range.end - range.start, una);
    flight.board.mark_resent(range, now.0, stamp);
    let len = range.end.min(written).saturating_sub(start);
    flight.figures.resent_bytes += len;
    let flags = if range.end > written {
        TcpFlags::FIN | TcpFlags::PSH
    } else {
        TcpFlags::PSH
    };
    mtu_search::on_resent(conn, range);
    let len = len as u32;
    data::note_resent(conn, len);
    emit::segment(conn, now, Span { start, len }, flags, cx, fx);
    true
}

/// RFC 8985 6.2 step 5: the reordering timer fired.
fn on_reorder(conn: &mut Connection, now: Instant, cx: &Cx<'_>) {
    let rtt = conn.rtt;
    let flight = conn.flight_mut();
    let in_recovery = flight.recovery.state().is_repair();
    let detection = flight
        .rack
        .detect(now, &mut flight.board, &rtt, in_recovery);
    if detection.newly_lost > 0 {
        flight.delivery.on_lost(detection.newly_lost);
        let facts = AckFacts {
            delivered: Delivered::default(),
            has_advanced: false,
            newly_lost: detection.newly_lost,
            is_duplicate: false,
            echo: None,
            dsacked: None,
            rtt_ns: 0,
            is_marked: false,
        };
        recovery::on_ack(conn, now, &facts);
    }
    match detection.recheck_at {
        // There is more to judge. A timer's lowest bits are not time: never the same moment again.
        Some(at) => {
            let at = at.max(now.plus_nanos(AGAIN_NS));
            conn.timers.set_resend(Resend::Reorder, at);
        }
        None => resend_timer::arm_timeout(conn, now, cx),
    }
}

/// Zero-window probe, or the end of a cork.
///
/// DEVIATION(RFC 9293 3.8.6.1): the probe carries an old sequence number and no byte, as Linux's:
/// it is answered with an ACK all the same, and nothing has to be taken back.
#[cold]
#[inline(never)]
fn on_persist(
    conn: &mut Connection,
    now: Instant,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Verdict {
    if conn.has_outstanding() || !conn.snd.has_unsent() {
        return Verdict::Alive;
    }
    if data::force_one(conn, now, cx, fx) {
        return Verdict::Alive;
    }
    if gives_up(conn, now, cx) {
        return failure(conn);
    }
    if conn.is_orphan && conn.backoff.count() >= cx.config.tcp.orphan_retries {
        return Verdict::Failed(Reason::TimedOut);
    }
    cx.counters.bump(Counter::TxTcpWindowProbes);
    conn.keep_sent = conn.keep_sent.saturating_add(1);
    // RFC 9293 3.8.5: the pointer is announced although the window is closed.
    if urgent::end(conn).is_some() {
        let next = conn.snd.una;
        emit::segment(conn, now, Span::empty(next), TcpFlags::NONE, cx, fx);
    }
    let old = conn.snd.una - 1;
    emit::segment(conn, now, Span::empty(old), TcpFlags::NONE, cx, fx);
    conn.backoff.double();
    let wait = resend_timer::timeout_ns(conn, cx).min(resend_timer::patience_ns(conn, now));
    conn.timers
        .set_resend(Resend::Persist, now.plus_nanos(wait));
    Verdict::Alive
}
