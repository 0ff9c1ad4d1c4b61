//! Step eight: the peer's FIN (RFC 9293 3.10.7.4 eighth).

use crate::effects::{Effects, Event};
use crate::network_layer::Cx;
use crate::tcp::assembler::Assembler;
use crate::tcp::connection::{AckState, Connection};
use crate::tcp::keepalive;
use crate::tcp::output::ack_policy;
use crate::tcp::phase::Phase;
use crate::tcp::segment::Segment;
use crate::tcp::verdict::Verdict;
use crate::time::Instant;

#[inline]
pub fn on_fin(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    start: u64,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Verdict {
    if segment.flags.is_fin() && conn.rcv.fin_at == 0 {
        let at = start + segment.payload.len() as u64;
        // A FIN before data that the same peer has already sent is invalid.
        let assembler = conn.rcv.assembler.as_deref();
        let last = assembler
            .and_then(|a| a.ranges().last())
            .map_or(0, |range| range.end);
        if last.max(conn.rcv.nxt) <= at && at <= conn.rcv.edge {
            conn.rcv.fin_at = at;
        }
    }
    // Text before it is missing (or did not fit): remembered, and the gap is reported.
    if conn.rcv.has_fin || conn.rcv.fin_at == 0 || conn.rcv.nxt != conn.rcv.fin_at {
        if segment.flags.is_fin() {
            if !conn.rcv.has_fin && conn.rcv.fin_at != 0 {
                let at = conn.rcv.fin_at;
                conn.rcv.assembler.get_or_insert_default().hold_fin(at);
            }
            conn.owe_ack();
            conn.is_dirty = true;
        }
        return Verdict::Alive;
    }
    conn.rcv.has_fin = true;
    conn.rcv.nxt += 1;
    conn.rcv.edge = conn.rcv.edge.max(conn.rcv.nxt);
    // RFC 2883 4: the duplicate still has to be reported.
    let assembler = conn.rcv.assembler.as_deref_mut();
    if !assembler.is_some_and(Assembler::end) {
        conn.rcv.assembler = None;
    }
    if conn.phase == Phase::Established && conn.rcv.ack != AckState::Now {
        // The program will close soon: its FIN can carry the ACK (as on Linux).
        ack_policy::on_fin(conn, now);
        conn.is_dirty = true;
    } else {
        conn.owe_ack();
    }
    fx.event(Event::Fin { conn: conn.id });
    match conn.phase {
        Phase::Established => {
            conn.phase = Phase::CloseWait;
            Verdict::Alive
        }
        // Our FIN is not acknowledged yet, or step five would have moved on.
        Phase::FinWait1 => {
            conn.phase = Phase::Closing;
            Verdict::Alive
        }
        Phase::FinWait2 => {
            keepalive::arm(conn, now, cx);
            Verdict::TimeWait
        }
        Phase::SynSent
        | Phase::SynReceived
        | Phase::CloseWait
        | Phase::Closing
        | Phase::LastAck => Verdict::Alive,
    }
}
