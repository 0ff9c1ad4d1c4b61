//! The client's side (RFC 7413 4.2.1, 4.1.3).

use alloc::boxed::Box;

use slipstack_wire::fast_open::FastOpen;

use super::attempt::Attempt;
use super::cache::{Known, ServerCache};
use crate::counters::Counter;
use crate::effects::{Effects, Event};
use crate::error::SocketError;
use crate::network_layer::Cx;
use crate::options::SocketOptions;
use crate::tcp::connection::Connection;
use crate::tcp::output::control;
use crate::tcp::segment::Segment;
use crate::tcp::sizes::mss_default;
use crate::tcp::{acknowledged, resend_timer, seq};
use crate::time::Instant;

/// tcp_sendmsg_fastopen(): an open that brings its data fails if the client's side is off.
pub fn check(options: &SocketOptions, cx: &Cx<'_>) -> Result<(), SocketError> {
    match options.fast_open_send && !cx.config.tcp.fast_open.client {
        true => Err(SocketError::NotSupported),
        false => Ok(()),
    }
}

/// Begins an attempt; `None` for an ordinary open.
pub fn attempt(
    now: Instant,
    conn: &Connection,
    needs_no_cookie: bool,
    servers: &mut ServerCache,
    cx: &Cx<'_>,
) -> Option<Box<Attempt>> {
    let server = conn.key.remote_ip();
    let config = &cx.config.tcp.fast_open;
    if !config.client || servers.is_black_hole(now, server) {
        return None;
    }
    let known = servers.find(now, server);
    let may_lack = config.client_without_cookie || needs_no_cookie;
    let attempt = Attempt::new(known, mss_default(&conn.key), may_lack);
    Some(Box::new(attempt))
}

/// A deferred SYN leaves as soon as there is something to say.
#[cold]
pub fn flush(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    let has_something = conn.snd.has_unsent();
    let (mss, written) = (conn.snd.mss, conn.snd.written - seq::FIRST);
    let id = conn.id;
    let Some(attempt) = conn.attempt_mut().filter(|a| a.is_deferred()) else {
        return;
    };
    if attempt.take_word() {
        fx.event(Event::Opening { conn: id });
    }
    if has_something {
        attempt.load(written, mss);
        cx.counters.bump(Counter::TxTcpSynData);
        send_first(conn, now, cx, fx);
    }
}

/// A SYN-ACK, and the number that it acknowledges.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    pub segment: &'a Segment<'a>,
    pub ack: u64,
}

/// Handles the SYN-ACK: a new cookie, and how much of the data was accepted. The rest is simply
/// still to be sent.
#[cold]
pub fn on_answer(
    conn: &mut Connection,
    now: Instant,
    answer: Answer<'_>,
    servers: &mut ServerCache,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) {
    let Some(attempt) = conn.flight.as_mut().and_then(|it| it.attempt.take()) else {
        return;
    };
    let server = conn.key.remote_ip();
    if let Some(FastOpen::Cookie(cookie)) = answer.segment.fast_open() {
        let mss = conn.snd.peer_mss;
        servers.learn(now, server, Known { cookie, mss });
    }
    if answer.ack > seq::FIRST {
        servers.on_taken(server);
        cx.counters.bump(Counter::TcpSynDataTaken);
        conn.snd.una = answer.ack;
        conn.snd.nxt = answer.ack;
        acknowledged::report(conn, cx, fx);
    } else if attempt.is_plain() {
        servers.on_loss(now, server);
    }
    if conn.has_outstanding() {
        resend_timer::arm_timeout(conn, now, cx);
    }
}

/// Sends the first SYN of an active open, unless it waits for data. The caller learns the
/// connection's id only afterwards, so the flush reports that the program may write.
pub fn start(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    if conn.attempt().is_some_and(Attempt::is_deferred) {
        conn.is_dirty = true;
    } else {
        send_first(conn, now, cx, fx);
    }
}

fn send_first(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    control::send_syn(conn, now, cx, fx);
    resend_timer::arm_timeout(conn, now, cx);
}
