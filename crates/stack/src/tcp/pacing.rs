//! Pacing: segments are spread over the round trip instead of leaving in bursts.
//!
//! Each segment moves the time at which the next one may leave by its share of the pacing rate. Timers are coarse:
//! up to [`CREDIT_NS`] of lateness is caught up. What was due at a time that the engine has let pass (the program
//! is away, and its ticker slow) is caught up further; what ACKs let go that came late is not.

use super::connection::Connection;
use crate::time::Instant;

/// A super-frame holds about this much of the pacing rate (Linux: `sk_pacing_shift`, 1 ms), and as much may leave late.
const QUANTUM_NS: u64 = 1_000_000;
const CREDIT_NS: u64 = 1_000_000;
/// What may be caught up of a deadline that was missed.
const MISSED_NS: u64 = 10_000_000;

/// Must new and lost data wait? Then the connection's deadline knows.
pub fn holds(conn: &mut Connection, now: Instant) -> bool {
    let Some(flight) = conn.flight.as_deref_mut() else {
        return false;
    };
    let was_awaited = flight.is_pace_awaited;
    flight.is_pace_awaited = flight.pace_next > now;
    flight.is_pace_missed = !flight.is_pace_awaited && (flight.is_pace_missed || was_awaited);
    flight.is_pace_awaited
}

/// Nothing is left that pacing could hold back.
pub fn settle(conn: &mut Connection) {
    if let Some(flight) = conn.flight.as_deref_mut() {
        flight.is_pace_missed = false;
    }
}

/// What waited may go: said once.
pub fn take_due(conn: &mut Connection, now: Instant) -> bool {
    let Some(flight) = conn.flight.as_deref_mut() else {
        return false;
    };
    let is_due = flight.is_pace_awaited && flight.pace_next <= now;
    flight.is_pace_awaited &= !is_due;
    flight.is_pace_missed |= is_due;
    is_due
}

/// The earliest of the timers and of what pacing holds back.
pub fn next_deadline(conn: &Connection) -> Option<Instant> {
    let paced = conn
        .flight
        .as_ref()
        .filter(|f| f.is_pace_awaited)
        .map(|f| f.pace_next);
    match (conn.timers.next(), paced) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Data left.
pub fn on_sent(conn: &mut Connection, now: Instant, len: u64) {
    let rate = conn.cc.pacing_rate(conn.rtt.smoothed_ns());
    let Some(gap) = (len * 1_000_000_000).checked_div(rate) else {
        return;
    };
    let flight = conn.flight_mut();
    let credit = if flight.is_pace_missed {
        MISSED_NS
    } else {
        CREDIT_NS
    };
    let earliest = Instant(now.0.saturating_sub(credit));
    flight.pace_next = flight.pace_next.max(earliest).plus_nanos(gap);
}

/// Largest super-frame: a quantum of the rate, at least two segments. Without pacing too (Linux: tcp_tso_autosize): a
/// super-frame leaves at the speed of the device, and a shallow queue would lose most of a large one.
pub fn burst(conn: &Connection, most: u64) -> u64 {
    let mss = u64::from(conn.snd.mss);
    let rate = conn.cc.pacing_rate(conn.rtt.smoothed_ns());
    if rate == 0 {
        return most;
    }
    let quantum = rate / (1_000_000_000 / QUANTUM_NS);
    (quantum / mss * mss)
        .clamp(2 * mss, most.max(2 * mss))
        .min(most)
}
