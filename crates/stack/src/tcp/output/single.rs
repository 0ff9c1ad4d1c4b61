//! Fast path for the most common answer: all written data fits one segment, and nothing else is
//! outstanding.
//!
//! The decisions that [`super::data`] takes step by step (RFC 9293 3.8.6, RFC 5681 3.1, Nagle) are
//! a few comparisons here.

use slipstack_wire::tcp::TcpFlags;

use super::emit::{self, Span};
use super::{ack_policy, data};
use crate::effects::Effects;
use crate::network_layer::Cx;
use crate::tcp::connection::Connection;
use crate::tcp::in_flight::InFlight;
use crate::time::Instant;

/// `false`: take the long way; nothing has been done.
#[inline(always)]
pub fn try_send(
    conn: &mut Connection,
    now: Instant,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> bool {
    let snd = &conn.snd;
    // A sent FIN is beyond the written data: then the difference is no length.
    let len = snd.written.wrapping_sub(snd.nxt);
    let most = u64::from(snd.mss).min(u64::from(conn.cc.window.cwnd));
    let is_single = snd.una == snd.nxt
        && len.wrapping_sub(1) < most
        && snd.nxt + len <= snd.edge
        && !snd.is_fin_sent
        && !snd.has_more
        && conn.opts.manner.is_plain()
        && !conn.cc.is_paced
        && conn.phase.may_transmit()
        && conn.flight.as_deref().is_none_or(is_resting);
    if !is_single {
        return false;
    }
    data::restart_after_idle(conn, now, cx);
    let start = conn.snd.nxt;
    let mut flags = TcpFlags::PSH;
    let mut next = start + len;
    if len != u64::from(conn.snd.mss) {
        conn.snd.small_end = next;
    }
    if conn.snd.is_fin_queued {
        flags |= TcpFlags::FIN;
        conn.snd.is_fin_sent = true;
        next += 1;
    }
    conn.snd.nxt = next;
    ack_policy::on_data_sent(conn, now);
    conn.snd.last_at = now;
    let flight = conn.flight_mut();
    let stamp = flight.stamp(now, next - start, start);
    flight.board.push(start, next, now.0, stamp);
    flight.recovery.on_sent(next - start);
    let len = len as u32;
    emit::new_data(conn, now, Span { start, len }, flags, cx, fx);
    data::after_all(conn, now, next - start, cx);
    true
}

#[inline]
fn is_resting(flight: &InFlight) -> bool {
    flight.board.is_empty() && flight.board.is_clean() && flight.recovery.is_open()
}
