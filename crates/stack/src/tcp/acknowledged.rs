//! Notifications to the owner of a send ring about acknowledged bytes.

use super::connection::Connection;
use super::seq;
use crate::effects::{Effects, Event};
use crate::network_layer::Cx;

/// Notifies the owner of the send ring, and lets the ring grow with the window.
#[inline]
pub fn report(conn: &mut Connection, cx: &Cx<'_>, fx: &mut impl Effects) {
    let upto = conn.snd.una.min(conn.snd.written);
    fx.event(Event::Acked {
        conn: conn.id,
        upto: seq::offset(upto),
    });
    if conn.cc.window.cwnd > conn.snd.limit / 2 && !conn.opts.fixed.has_limit() {
        grow_limit(conn, cx, fx);
    }
}

#[cold]
fn grow_limit(conn: &mut Connection, cx: &Cx<'_>, fx: &mut impl Effects) {
    // Twice the window keeps the sender busy while ACKs travel (Linux: tcp_sndbuf_expand).
    let wanted = conn
        .cc
        .window
        .cwnd
        .saturating_mul(2)
        .min(cx.config.tcp.sndbuf_max);
    if wanted > conn.snd.limit {
        let grown = conn
            .snd
            .limit
            .saturating_mul(2)
            .max(wanted)
            .min(cx.config.tcp.sndbuf_max);
        conn.snd.limit = grown;
        fx.event(Event::SendLimit {
            conn: conn.id,
            bytes: grown,
        });
    }
}
