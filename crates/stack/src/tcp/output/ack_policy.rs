//! When does an ACK of its own leave?
//!
//! RFC 9293 3.8.6.3 (every second full segment, never later than 0.5 s), RFC 5681 4.2 (at once for gaps), quick ACKs
//! while the peer's slow start needs them. A small request is given a moment: its answer carries the ACK.

use slipstack_wire::tcp::TcpFlags;

use super::{emit, window};
use crate::effects::Effects;
use crate::link::Cx;
use crate::tcp::connection::{AckState, Connection};
use crate::time::{Instant, nanos};

/// Segments acknowledged one by one at the start and after a gap, or soon where they are small (Linux:
/// TCP_MAX_QUICKACKS, which every ACK uses up).
pub const QUICK_SEGMENTS: u8 = 16;
/// How long a small segment waits for its answer while the connection is not known to be interactive.
const ANSWER_NS: u64 = 1_000_000;

/// In-order data of `len` bytes came in.
#[inline]
pub fn on_in_order(conn: &mut Connection, len: u64, is_gso: bool, mss_max: u16) {
    let largest = if is_gso {
        u64::from(mss_max)
    } else {
        len.min(u64::from(mss_max))
    };
    if largest > u64::from(conn.rcv.mss) {
        conn.rcv.mss = largest as u16;
    }
    owe(conn, len);
}

/// The same where the size of the peer's segments is known.
#[inline]
pub fn owe(conn: &mut Connection, len: u64) {
    if conn.rcv.ack == AckState::None {
        conn.rcv.ack = AckState::Delayed;
    }
    let mss = u64::from(conn.rcv.mss);
    // RFC 9293 3.8.6.3: at least every second full-sized segment.
    if conn.rcv.nxt - conn.rcv.acked >= 2 * mss {
        conn.rcv.ack = AckState::Now;
    } else if len >= mss && conn.rcv.quick > 0 {
        conn.rcv.quick -= 1;
        if !conn.rcv.is_interactive {
            conn.rcv.ack = AckState::Now;
        }
    }
}

/// RFC 5681 4.2: out-of-order segments, and those that fill a gap, are acknowledged at once.
pub fn on_gap(conn: &mut Connection) {
    conn.rcv.ack = AckState::Now;
    conn.rcv.quick = QUICK_SEGMENTS;
}

/// Last step of a flush: sends an ACK that nothing has carried, or sees that it leaves in time.
#[inline]
pub fn finish(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    match conn.rcv.ack {
        AckState::Now => send_ack(conn, now, cx, fx),
        AckState::None | AckState::Delayed if window::is_update_due(conn) => {
            send_ack(conn, now, cx, fx)
        }
        AckState::None => {}
        AckState::Delayed if cx.config.tcp.delayed_ack.is_zero() => send_ack(conn, now, cx, fx),
        AckState::Delayed => delay(conn, now, cx),
    }
}

/// The ACK waits for something that carries it, or for its timer.
#[inline]
pub fn delay(conn: &mut Connection, now: Instant, cx: &Cx<'_>) {
    let longest = nanos(cx.config.tcp.delayed_ack);
    let is_quick = conn.rcv.quick > 0 && !conn.rcv.is_interactive;
    let delay = if is_quick {
        conn.rcv.quick -= 1;
        ANSWER_NS.min(longest)
    } else {
        longest
    };
    conn.timers.set_ack(now.plus_nanos(delay));
}

/// An ACK without data.
pub fn send_ack(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    let nxt = conn.snd.nxt;
    emit::segment(conn, now, (nxt, 0), TcpFlags::NONE, cx, fx);
}
