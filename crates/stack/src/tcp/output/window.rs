//! The receive window: its advertised size, and its growth.
//!
//! RFC 9293 3.8.6.2.2 (receiver's silly-window avoidance), 3.8.6 (never shrink), RFC 7323 2
//! (scaling and rounding). Buffer auto-tuning follows the bytes that the program reads per round
//! trip (dynamic right-sizing).

use crate::tcp::connection::Connection;
use crate::time::{Instant, Tick};

/// Minimum round trip for auto-tuning: turns of the engine batch anything faster.
const TUNE_MIN_NS: u64 = 2_000_000;

/// The right edge that could be announced now.
#[inline(always)]
fn fresh_edge(conn: &Connection) -> u64 {
    let rcv = &conn.rcv;
    let used = rcv.nxt.saturating_sub(rcv.consumed);
    let free = u64::from(rcv.buffer)
        .saturating_sub(used)
        .min(0xffff << rcv.shift);
    let edge = rcv.nxt + free;
    // RFC 9293 3.8.6.2.2: open by at least min(half of the buffer, one segment).
    let step = u64::from(rcv.buffer / 2).min(u64::from(rcv.mss));
    if edge < rcv.edge + step {
        return rcv.edge;
    }
    // RFC 7323 2.3: the part below the shift's resolution is not offered.
    let rounded = rcv.nxt + (free >> rcv.shift << rcv.shift);
    rounded.max(rcv.edge)
}

/// Returns the window of a SYN, which is never scaled (RFC 7323 2.2). Half of the buffer, as on
/// Linux, which does not know the segments' overhead yet.
pub fn first(buffer: u32) -> u16 {
    (buffer / 2).min(0xffff) as u16
}

/// Moves the right edge and gives the field of the header.
#[inline]
pub fn announce(conn: &mut Connection) -> u16 {
    let edge = fresh_edge(conn);
    conn.rcv.edge = edge;
    let window = (edge - conn.rcv.nxt) >> conn.rcv.shift;
    window.min(0xffff) as u16
}

/// Returns whether so little of the offered window is left that an update may be needed.
#[inline]
pub fn is_low(conn: &Connection) -> bool {
    conn.rcv.edge - conn.rcv.nxt <= u64::from(conn.rcv.buffer / 4)
}

/// Little is left of the window, and it cannot move before the program reads.
#[inline]
pub fn is_stuck(conn: &Connection) -> bool {
    is_low(conn) && fresh_edge(conn) == conn.rcv.edge
}

/// Returns whether the window is so much larger than the offered one that the peer must be informed
/// at once.
#[inline]
pub fn is_update_due(conn: &Connection) -> bool {
    let rcv = &conn.rcv;
    if rcv.has_fin {
        return false;
    }
    // Far from closing: the next ACK carries it. (Half of the buffer is what the unscaled window of
    // a SYN leaves.)
    if !is_low(conn) {
        return false;
    }
    let known = rcv.edge - rcv.nxt;
    let now = fresh_edge(conn) - rcv.nxt;
    now >= 2 * known && now > known
}

/// A buffer of this size stays in a core's cache: beyond it, data is copied in and out through
/// memory.
const WARM_LEN: u64 = 1 << 20;
/// The fastest path whose bandwidth-delay product a buffer should hold, in bytes per microsecond
/// (25 Gbit/s).
const FASTEST: u64 = 3_125;

/// Returns the largest buffer that auto-tuning gives this connection. On a short path more than its
/// bandwidth-delay product is useless: the buffer only grows because the program is slower than its
/// peer.
fn largest(conn: &Connection, buffer_max: u32) -> u32 {
    let product = conn.rtt.smoothed_ns() / 1_000 * FASTEST;
    match product {
        0 => buffer_max,
        // Below `buffer_max`, which fits.
        product => u64::from(buffer_max).min(product.max(WARM_LEN)) as u32,
    }
}

/// The program has read up to `rcv.consumed`. The buffer's size, if it has grown.
#[inline]
pub fn on_consumed(conn: &mut Connection, now: Instant, buffer_max: u32) -> Option<u32> {
    let read = conn.rcv.consumed.saturating_sub(conn.rcv.tune_from);
    let period = conn.rtt.smoothed_ns().max(TUNE_MIN_NS);
    if conn.rcv.tune_at.nanos_until(now) >= period {
        conn.rcv.tune_at = Tick::of(now);
        conn.rcv.tune_from = conn.rcv.consumed;
    }
    // Four times the bytes of one round trip: slow start doubles them, and while a loss is repaired
    // as many again arrive behind the gap (Linux: tcp_rcvbuf_grow). The bytes of an unfinished
    // round trip are the least that is needed: waiting for its end would let the window close.
    let wanted = 4 * read + 16 * u64::from(conn.rcv.mss);
    if wanted > u64::from(conn.rcv.buffer) {
        return grow(conn, wanted, buffer_max);
    }
    None
}

/// The peer has become faster: slow start, whose end shows as ACKs of single segments at the
/// bottleneck's rate (Linux: tcp_grow_window).
#[cold]
#[inline(never)]
fn grow(conn: &mut Connection, wanted: u64, buffer_max: u32) -> Option<u32> {
    if conn.rcv.is_buffer_fixed || conn.rcv.buffer >= buffer_max {
        return None;
    }
    let buffer = wanted.min(largest(conn, buffer_max).into()) as u32;
    let rcv = &mut conn.rcv;
    let grown = buffer.saturating_sub(rcv.buffer);
    let segments = grown / (2 * u32::from(rcv.mss).max(1));
    rcv.quick = u8::try_from(segments.saturating_add(rcv.quick.into())).unwrap_or(u8::MAX);
    rcv.buffer += grown;
    (grown > 0).then_some(rcv.buffer)
}
