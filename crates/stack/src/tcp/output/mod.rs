//! The choice of the next segment.
//!
//! Everything that a connection sends in a synchronized state is decided here, at the end of a
//! turn: lost data first, then new data, then an ACK of its own if nothing else carried it.

pub mod ack_policy;
pub mod control;
pub mod data;
pub mod emit;
pub mod nagle;
pub mod single;
pub mod window;

use super::connection::{AckState, Connection};
use super::fast_open::client;
use super::phase::Phase;
use crate::effects::Effects;
use crate::network_layer::Cx;
use crate::time::Instant;

/// Emits due segments. Always inlined: there is one caller, which calls it for each request.
#[inline(always)]
pub fn flush(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    // Data would carry the ACK without any block, and is no duplicate ACK.
    if conn.rcv.assembler.is_some() && conn.rcv.ack == AckState::Now && conn.phase.is_synchronized()
    {
        ack_policy::send_ack(conn, now, cx, fx);
    }
    if single::try_send(conn, now, cx, fx) {
        return;
    }
    if !conn.phase.is_synchronized() {
        return flush_opening(conn, now, cx, fx);
    }
    data::transmit(conn, now, cx, fx);
    ack_policy::finish(conn, now, cx, fx);
}

/// Before the handshake is complete only Fast Open, and a repeated SYN-ACK, send anything.
#[cold]
fn flush_opening(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    if conn.phase != Phase::SynReceived {
        return client::flush(conn, now, cx, fx);
    }
    if conn.rcv.ack >= AckState::Due {
        control::send_syn(conn, now, cx, fx);
    }
    // RFC 7413 4.2.2: the answer to a SYN's data need not wait for the handshake's ACK.
    if conn.is_passive {
        data::transmit(conn, now, cx, fx);
    }
}
