//! The client's side (RFC 7413 4.2.1, 4.1.3).

use alloc::boxed::Box;

use slipstack_wire::fast_open::FastOpen;

use super::attempt::Attempt;
use crate::tcp::acknowledged;

use crate::counters::Counter;
use crate::effects::{Effects, Event, Payload};
use crate::link::Cx;
use crate::tcp::connection::Connection;
use crate::tcp::segment::Segment;
use crate::tcp::sizes::mss_default;
use crate::tcp::{connect, resend_timer, seq};
use crate::time::Instant;

/// TCP options that a SYN carries at most: what they take is not there for data.
const OPTIONS_LEN: u32 = 40;

/// Begins an attempt; `None` for an ordinary open.
pub fn attempt(now: Instant, conn: &Connection, cx: &mut Cx<'_>) -> Option<Box<Attempt>> {
    let server = conn.key.remote_ip();
    let config = &cx.config.tcp.fast_open;
    if !config.client || cx.link.fast_open.is_black_hole(now, server) {
        return None;
    }
    let known = cx.link.fast_open.find(now, server);
    let may_defer = known.is_some() || config.client_without_cookie;
    Some(Box::new(Attempt {
        cookie: known.map(|k| k.0),
        mss: known.map_or_else(|| mss_default(&conn.key), |k| k.1),
        is_deferred: may_defer,
        is_told: false,
        is_plain: false,
        sent: 0,
    }))
}

/// A deferred SYN leaves as soon as there is something to say.
#[cold]
pub fn flush(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    let has_something = conn.snd.has_unsent();
    let (mss, written) = (conn.snd.mss, conn.snd.written - seq::FIRST);
    let id = conn.id;
    let Some(attempt) = conn.attempt_mut().filter(|a| a.is_deferred) else {
        return;
    };
    if !attempt.is_told {
        attempt.is_told = true;
        fx.event(Event::Connected { conn: id });
    }
    if has_something {
        attempt.is_deferred = false;
        let room = u32::from(attempt.mss.min(mss)).saturating_sub(OPTIONS_LEN);
        attempt.sent = written.min(u64::from(room)) as u32;
        cx.counters.bump(Counter::TxTcpSynData);
        connect::start(conn, now, cx, fx);
    }
}

/// Option and payload of the next SYN.
pub fn on_board<'a>(conn: &Connection) -> (Option<FastOpen>, Payload<'a>) {
    let Some(attempt) = conn.attempt().filter(|a| !a.is_plain) else {
        return (None, Payload::None);
    };
    let payload = match attempt.sent {
        0 => Payload::None,
        len => Payload::Stream {
            conn: conn.id,
            offset: 0,
            len,
        },
    };
    let option = match attempt.cookie {
        Some(cookie) => Some(FastOpen::Cookie(cookie)),
        // Data without a cookie is a matter of configuration on both sides; then nothing is asked
        // for.
        None if attempt.sent > 0 => None,
        None => Some(FastOpen::Request),
    };
    (option, payload)
}

/// RFC 7413 4.1.3.1: what got no answer is sent again without data and option.
pub fn on_timeout(conn: &mut Connection) {
    if let Some(attempt) = conn.attempt_mut() {
        attempt.is_plain = true;
    }
}

/// The SYN-ACK: a new cookie, and how much of the data was taken. What was not is simply still to
/// be sent.
#[cold]
pub fn on_answer(
    conn: &mut Connection,
    now: Instant,
    attempt: &Attempt,
    (segment, acked): (&Segment<'_>, u64),
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) {
    let server = conn.key.remote_ip();
    let memory = &mut cx.link.fast_open;
    if let Some(FastOpen::Cookie(cookie)) = segment.fast_open() {
        memory.learn(now, server, cookie, conn.snd.peer_mss);
    }
    if acked > seq::FIRST {
        memory.on_taken(server);
        cx.counters.bump(Counter::TcpSynDataTaken);
        conn.snd.una = acked;
        conn.snd.nxt = acked;
        acknowledged::report(conn, cx, fx);
    } else if attempt.is_plain {
        memory.on_loss(now, server);
    }
    if conn.has_outstanding() {
        resend_timer::arm_timeout(conn, now, cx);
    }
}

/// First SYN of an active open, unless it waits for data. The caller knows the connection's id only
/// afterwards: the flush tells it that it may write.
pub fn start(conn: &mut Connection, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
    if conn.attempt().is_some_and(|a| a.is_deferred) {
        conn.is_dirty = true;
    } else {
        connect::start(conn, now, cx, fx);
    }
}
