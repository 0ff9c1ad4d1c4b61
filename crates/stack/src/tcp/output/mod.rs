//! What is the next segment?
//!
//! Everything that a connection says in a synchronized state is decided here, at the end of a turn: first what was
//! lost, then new data, then an ACK of its own if nothing else carried it.

pub mod ack_policy;
pub mod control;
pub mod data;
pub mod emit;
pub mod nagle;
pub mod window;

use super::connection::Connection;
use super::phase::Phase;
use crate::effects::Effects;
use crate::link::Cx;
use crate::time::Instant;

/// Emits what is due now.
#[inline]
pub fn flush(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    if !conn.phase.is_synchronized() {
        if conn.phase == Phase::SynReceived && conn.rcv.ack == super::connection::AckState::Now {
            control::send_syn(conn, now, cx, fx);
        }
        return;
    }
    data::transmit(conn, now, cx, fx);
    ack_policy::finish(conn, now, cx, fx);
}
