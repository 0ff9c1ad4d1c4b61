//! Congestion marks of received segments (RFC 3168 6.1.3, RFC 8257 3.2).

use slipstack_wire::tcp::TcpFlags;

use crate::effects::Effects;
use crate::network_layer::Cx;
use crate::options::Congestion;
use crate::tcp::connection::Connection;
use crate::tcp::output::ack_policy;
use crate::tcp::segment::Segment;
use crate::time::Instant;

/// Takes a segment of a connection that uses ECN.
pub fn on_segment(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) {
    // RFC 3168 6.1.5: packets without data are never ECN-capable, so their marks mean nothing.
    let has_data = !segment.payload.is_empty();
    if conn.cc.kind() == Congestion::Dctcp {
        if has_data && segment.mark != conn.ecn.echo {
            // RFC 8257 3.2: data before the change is acknowledged with the previous state.
            if conn.rcv.nxt > conn.rcv.acked {
                ack_policy::send_ack(conn, now, cx, fx);
            }
            conn.ecn.echo = segment.mark;
            // The change itself is reported at once, too (Linux: dctcp_ece_ack_update).
            conn.owe_ack();
        }
        return;
    }
    // RFC 3168 6.1.3: until the sender sets CWR; a mark on that very packet is a new one.
    if has_data && segment.flags.contains(TcpFlags::CWR) {
        conn.ecn.echo = TcpFlags::NONE;
    }
    if has_data && segment.mark != TcpFlags::NONE {
        conn.ecn.echo = TcpFlags::ECE;
        // The sender is informed at once (Linux: TCP_ECN_check_ce enters quick ACK mode).
        ack_policy::on_gap(conn);
    }
}
