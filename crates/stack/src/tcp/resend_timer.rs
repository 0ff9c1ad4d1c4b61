//! Setting of the retransmission timer: timeout, tail loss probe, zero-window probe (RFC 6298 5,
//! RFC 8985 7.2).

use super::connection::Connection;
use super::rto;
use super::timers::Resend;
use crate::network_layer::Cx;
use crate::time::{Instant, Tick, nanos};

/// Shortest wait before a tail loss probe: peers on the same link delay ACKs for longer than two
/// round trips.
const PROBE_MIN_NS: u64 = 10_000_000;
/// Nanoseconds that the probe waits beyond two round trips, because their estimate lags (Linux:
/// TCP_TIMEOUT_MIN_US).
const PROBE_SLACK_NS: u64 = 2_000_000;

/// Nanoseconds by which a [`Tick`] may fall short.
const GRAIN_NS: u64 = 2_000_000;

/// RTO without back-off.
#[inline]
pub fn base_timeout_ns(conn: &Connection, cx: &Cx<'_>) -> u64 {
    let tcp = &cx.config.tcp;
    conn.rtt.timeout_ns(
        nanos(tcp.rto_initial),
        conn.rto_min_ns(tcp),
        conn.rto_max_ns(tcp),
    )
}

/// RTO with back-off.
pub fn timeout_ns(conn: &Connection, cx: &Cx<'_>) -> u64 {
    conn.backoff
        .apply(base_timeout_ns(conn, cx), conn.rto_max_ns(&cx.config.tcp))
}

/// RFC 6298 5.1 and 5.3.
pub fn arm_timeout(conn: &mut Connection, now: Instant, cx: &Cx<'_>) {
    let at = now.plus_nanos(timeout_ns(conn, cx));
    conn.timers.set_resend(Resend::Timeout, at);
}

/// New data left.
#[inline(always)]
pub fn arm_after_new(conn: &mut Connection, now: Instant, cx: &Cx<'_>) {
    let running = conn.timers.resend();
    if may_probe(conn) {
        let longest = match running {
            Some(Resend::Probe) => until_timeout_ns(conn, now, cx),
            _ => base_timeout_ns(conn, cx),
        };
        arm_probe(conn, now, longest, cx);
        return;
    }
    match running {
        // RFC 6298 5.1: a running timer is left alone.
        Some(Resend::Timeout | Resend::Reorder) => {}
        Some(Resend::Probe | Resend::Persist) | None => arm_timeout(conn, now, cx),
    }
}

/// The cumulative ACK advanced (RFC 6298 5.2 and 5.3).
#[inline]
pub fn rearm_after_ack(conn: &mut Connection, now: Instant, cx: &Cx<'_>) {
    if !conn.has_outstanding() {
        conn.timers.clear_resend();
    } else if may_probe(conn) {
        arm_probe(conn, now, base_timeout_ns(conn, cx), cx);
    } else {
        arm_timeout(conn, now, cx);
    }
}

/// Restarts the timeout after the segment at SND.UNA was retransmitted (RFC 6675 6). A hole whose
/// repair is lost too is found by later SACKs; the timeout would retransmit everything behind it.
pub fn on_head_resent(conn: &mut Connection, now: Instant, cx: &Cx<'_>) {
    if conn.timers.resend() == Some(Resend::Timeout) {
        arm_timeout(conn, now, cx);
    }
}

/// RFC 8985 7.2: only while nothing is thought lost and no probe is out.
#[inline]
fn may_probe(conn: &Connection) -> bool {
    conn.opts.has_sack
        && conn.backoff.count() == 0
        && conn.rtt.has_sample()
        && conn
            .flight
            .as_ref()
            .is_some_and(|f| f.recovery.may_probe() && f.board.sacked_bytes() == 0)
}

/// RFC 8985 7.2: PTO = 2 SRTT, plus the peer's delayed ACK for a single segment; replaced by the
/// timeout if that is earlier.
#[inline]
fn arm_probe(conn: &mut Connection, now: Instant, longest_ns: u64, cx: &Cx<'_>) {
    let mut wait = (2 * conn.rtt.smoothed_ns() + PROBE_SLACK_NS).max(PROBE_MIN_NS);
    if conn.snd.nxt - conn.snd.una <= u64::from(conn.snd.mss) {
        wait += conn.rto_min_ns(&cx.config.tcp);
    }
    conn.timers
        .set_resend(Resend::Probe, now.plus_nanos(wait.min(longest_ns)));
}

/// RFC 8985 7.2: newer data postpones the probe no longer than until the timeout of the oldest
/// segment (Linux: tcp_rto_delta_us).
fn until_timeout_ns(conn: &Connection, now: Instant, cx: &Cx<'_>) -> u64 {
    let timeout = base_timeout_ns(conn, cx);
    let sent_at = conn.flight.as_ref().and_then(|f| f.board.first_sent_at());
    let age = now.nanos_since(Instant(sent_at.unwrap_or(now.0)));
    if age < timeout {
        timeout - age
    } else {
        timeout
    }
}

/// RFC 9293 3.8.6.1: the first probe after one timeout, then with back-off.
pub fn arm_persist(conn: &mut Connection, now: Instant, cx: &Cx<'_>) {
    conn.timers
        .set_resend(Resend::Persist, now.plus_nanos(timeout_ns(conn, cx)));
}

/// R2: how long data is sent again.
pub fn retries_ns(conn: &Connection, cx: &Cx<'_>) -> u64 {
    budget_ns(conn, cx.config.tcp.retries, cx)
}

pub fn budget_ns(conn: &Connection, retries: u8, cx: &Cx<'_>) -> u64 {
    let tcp = &cx.config.tcp;
    rto::budget_ns(nanos(tcp.rto_min), conn.rto_max_ns(tcp), retries)
}

/// Returns the nanoseconds left of the user timeout, so that no back-off lasts beyond it.
pub fn patience_ns(conn: &Connection, now: Instant) -> u64 {
    match u64::from(conn.opts.user_timeout_ms) * 1_000_000 {
        0 => u64::MAX,
        limit => limit.saturating_sub(conn.stalled_at.nanos_until(now)) + GRAIN_NS,
    }
}

/// Handles a window that opens with data outstanding. Retransmissions while it was closed were
/// window probes, and all were answered, so the retransmission count restarts. Data that the peer
/// has refused is retransmitted at once.
#[cold]
pub fn on_reopened(conn: &mut Connection, now: Instant, cx: &Cx<'_>) {
    if conn.opts.user_timeout_ms == 0 {
        conn.stalled_at = Tick::NONE;
    }
    if conn.backoff.count() == 0 {
        return;
    }
    conn.backoff.reset();
    arm_timeout(conn, now, cx);
    let (mss, srtt) = (conn.snd.mss, conn.rtt.smoothed_ns());
    let flight = conn.flight_mut();
    // The answers of probes were no duplicates.
    flight.recovery.forget_duplicates();
    // This ACK does not concern segments sent since.
    let sent_at = flight.board.first_sent_at().map_or(now, Instant);
    if now.nanos_since(sent_at) >= srtt {
        flight.board.mark_first_lost(mss.into());
    }
}
