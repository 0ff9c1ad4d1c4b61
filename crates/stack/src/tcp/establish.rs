//! The end of the handshake: ESTABLISHED by an active or simultaneous open, and after repeated
//! SYNs.

use core::time::Duration;

use super::connection::Connection;
use super::phase::Phase;
use super::segment::Segment;
use super::{isn, keepalive, resend_timer, seq};
use crate::effects::{Effects, Event};
use crate::network_layer::Cx;
use crate::time::{Instant, Tick};

/// ESTABLISHED is reached by an active or simultaneous open.
pub fn establish(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    cx: &Cx<'_>,
    fx: &mut impl Effects,
) {
    conn.phase = if conn.snd.is_fin_queued {
        Phase::FinWait1
    } else {
        Phase::Established
    };
    conn.snd.una = seq::FIRST;
    conn.snd.wl1 = seq::widen(conn.rcv.irs, conn.rcv.nxt, segment.seq).saturating_sub(1);
    conn.snd.wl2 = seq::FIRST;
    if conn.backoff.count() > 0 {
        conn.figures_mut().on_timeouts_over(now);
        on_repeated(conn, now, segment);
    } else if conn.is_passive && conn.snd.nxt == seq::FIRST {
        // Fast Open: the last segment sent is the SYN-ACK (Linux: tcp_synack_rtt_meas).
        let trip = now.nanos_since(conn.snd.last_at);
        conn.rtt.sample_ns(now, trip);
    }
    conn.backoff.reset();
    conn.timers.clear_resend();
    conn.stalled_at = Tick::NONE;
    conn.rcv.last_at = now;
    conn.rcv.tune_at = Tick::of(now);
    conn.is_dirty = true;
    keepalive::arm(conn, now, cx);
    if conn.is_passive {
        // A passive open that took data with the SYN may have answered it already.
        if conn.snd.nxt > seq::FIRST {
            resend_timer::arm_timeout(conn, now, cx);
        }
    } else {
        fx.event(Event::Connected { conn: conn.id });
    }
}

/// The peer's SYN-ACK of a simultaneous open (RFC 9293 3.5): our SYN is acknowledged.
#[cold]
pub fn on_second_syn_ack(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) {
    establish(conn, now, segment, cx, fx);
    conn.snd.wnd = u32::from(segment.window);
    conn.snd.wnd_max = conn.snd.wnd;
    conn.snd.edge = seq::FIRST + u64::from(conn.snd.wnd);
    conn.owe_ack();
}

/// Handles a SYN or SYN-ACK that was sent more than once. RFC 6298 5.7: unless the peer's timestamp
/// echo gives the round trip, the timeout is 3 s until a measurement.
#[cold]
#[inline(never)]
pub fn on_repeated(conn: &mut Connection, now: Instant, segment: &Segment<'_>) {
    sample_echo(conn, now, segment);
    conn.rtt.fall_back();
    if conn.backoff.count() > 1 {
        begin_small(conn);
    }
}

/// Handles a repeated SYN-ACK: `timeouts` repetitions by its timer, the others for repeated SYNs.
#[cold]
#[inline(never)]
pub fn on_repeated_syn_ack(conn: &mut Connection, timeouts: u8, asked: u8) {
    let repeats = u32::from(timeouts) + u32::from(asked);
    conn.figures_mut().bare_resent = repeats;
    if timeouts > 0 && repeats > 1 {
        begin_small(conn);
    }
}

/// RFC 6928 2: where two were lost the first window is one segment (Linux: tcp_init_transfer).
fn begin_small(conn: &mut Connection) {
    conn.cc.begin(u32::from(conn.snd.mss), 1);
}

/// RFC 7323 4.1: the age of the peer's timestamp echo.
pub fn sample_echo(conn: &mut Connection, now: Instant, segment: &Segment<'_>) {
    if let Some(timestamps) = segment.timestamps().filter(|_| conn.opts.has_timestamps) {
        let elapsed = isn::timestamp(now, conn.opts.ts_offset).wrapping_sub(timestamps.echo);
        // Echoes that are in the future or too old are invalid.
        if timestamps.echo != 0 && elapsed < 600_000 {
            conn.rtt
                .sample(now, Duration::from_millis(u64::from(elapsed.max(1))));
        }
    }
}
