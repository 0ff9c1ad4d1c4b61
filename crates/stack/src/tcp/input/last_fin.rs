//! Fast path for the most common end of a connection that this side closed first: the peer's FIN,
//! which acknowledges ours and carries nothing else (RFC 9293 3.10.7.4).
//!
//! The steps of [`super`] would measure the path and move the windows of a connection that ends
//! here, and report the FIN to a program that has closed the socket.

use slipstack_wire::tcp::TcpFlags;

use crate::tcp::connection::Connection;
use crate::tcp::phase::Phase;
use crate::tcp::segment::Segment;
use crate::tcp::seq;

/// `true`: both sides are done, and TIME-WAIT begins. `false`: take the long way; nothing has been
/// touched.
#[inline]
pub fn try_take(conn: &mut Connection, segment: &Segment<'_>) -> bool {
    const LAST: u8 = TcpFlags::ACK.0 | TcpFlags::FIN.0;
    let rcv = &conn.rcv;
    if !conn.is_orphan
        || !matches!(conn.phase, Phase::FinWait1 | Phase::FinWait2)
        || segment.flags.0 & !TcpFlags::PSH.0 != LAST
        || !segment.is_plain
        || !segment.payload.is_empty()
        || segment.seq != seq::to_wire(rcv.irs, rcv.nxt)
        || !conn.snd.is_fin_sent
        || segment.ack != conn.wire_seq(conn.snd.nxt)
        || rcv.assembler.is_some()
        || rcv.fin_at != 0
        || segment.timestamps().is_some() != conn.opts.has_timestamps
    {
        return false;
    }
    if let Some(timestamps) = segment.timestamps() {
        if seq::is_older(timestamps.value, rcv.ts_recent) {
            return false;
        }
        // RFC 7323 4.3 (2), as everywhere.
        if rcv.nxt <= rcv.acked {
            conn.rcv.ts_recent = timestamps.value;
        }
    }
    conn.snd.una = conn.snd.nxt;
    conn.rcv.nxt += 1;
    conn.rcv.edge = conn.rcv.edge.max(conn.rcv.nxt);
    conn.rcv.has_fin = true;
    true
}
