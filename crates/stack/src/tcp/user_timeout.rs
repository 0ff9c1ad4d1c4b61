//! The user timeout option (RFC 5482): the peer's value, and the announcement of ours.
//!
//! Off unless configured, as Linux has no such option. The announced value is TCP_USER_TIMEOUT; a
//! connection without one of its own uses the peer's. The peer's value is in the connection's
//! separate allocation; a pending announcement is a bit that every fast path of output tests
//! already.

use slipstack_wire::tcp::OPTIONS_MAX;
use slipstack_wire::user_timeout::{USER_TIMEOUT_LEN, UserTimeout};

use super::connection::Connection;
use super::resend_timer;
use super::segment::Segment;
use crate::network_layer::Cx;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// L_LIMIT: as long as any TCP has to try (RFC 9293 3.8.3).
const LIMIT_LOW_NS: u64 = 100 * SECOND;
/// U_LIMIT: a peer keeps no connection's memory for longer than a day.
const LIMIT_HIGH_NS: u64 = 24 * 3600 * SECOND;
/// Time after the user timeout at which a keep-alive probe may end the connection.
const KEEP_ALIVE_GAP_NS: u64 = SECOND;

/// Returns ADV_UTO as announced; `None` if the program has set none.
pub fn option_of(user_timeout_ms: u32) -> Option<UserTimeout> {
    UserTimeout::of_seconds(user_timeout_ms.div_ceil(1_000))
}

/// Returns the user timeout that a SYN carries, the first and every repetition. A value that
/// another segment announced is not repeated when it is sent again: RFC 5482 3.2 leaves that open.
pub fn of_syn(conn: &Connection) -> Option<UserTimeout> {
    if conn.opts.manner.owes_timeout() {
        option_of(conn.opts.user_timeout_ms)
    } else {
        None
    }
}

/// Handles a new value of the program. RFC 5482 3: the next segment announces it.
///
/// DEVIATION(RFC 5482 3): TCP_USER_TIMEOUT has no limits, as on Linux; those of this file apply to
/// peers' values.
pub fn set(conn: &mut Connection, user_timeout_ms: u32, cx: &Cx<'_>) {
    let is_new = conn.opts.user_timeout_ms != user_timeout_ms && user_timeout_ms != 0;
    conn.opts.user_timeout_ms = user_timeout_ms;
    let is_owed = conn.opts.manner.owes_timeout() && user_timeout_ms != 0;
    let is_owed = is_owed || (is_new && cx.config.tcp.user_timeout_option);
    conn.opts.manner.set_owes_timeout(is_owed);
}

/// RFC 5482 3.1: a segment's value counts, however often it changes.
#[inline]
pub fn on_segment(conn: &mut Connection, segment: &Segment<'_>, cx: &Cx<'_>) {
    if !segment.is_plain {
        on_options(conn, segment, cx);
    }
}

#[cold]
fn on_options(conn: &mut Connection, segment: &Segment<'_>, cx: &Cx<'_>) {
    if cx.config.tcp.user_timeout_option
        && let Some(timeout) = segment.user_timeout()
    {
        take(conn, timeout);
    }
}

/// Restores the state of a moved connection: a pending announcement, and the peer's option as its
/// field.
pub fn restore(conn: &mut Connection, is_owed: bool, peer: u16, cx: &Cx<'_>) {
    if !cx.config.tcp.user_timeout_option {
        return;
    }
    let has_own = conn.opts.user_timeout_ms != 0;
    conn.opts.manner.set_owes_timeout(is_owed && has_own);
    if let Some(timeout) = UserTimeout::from_field(peer) {
        take(conn, timeout);
    }
}

/// REMOTE_UTO.
#[cold]
pub fn take(conn: &mut Connection, timeout: UserTimeout) {
    conn.kept.get_or_insert_default().peer_timeout = Some(timeout);
}

fn find_peer_ns(conn: &Connection) -> Option<u64> {
    let timeout = conn.kept.as_deref()?.peer_timeout?;
    Some(u64::from(timeout.seconds()) * SECOND)
}

/// Returns USER_TIMEOUT of a connection whose program has set none (RFC 5482 3.1: it is
/// CHANGEABLE); `retries_ns` is the system's, which stands for ADV_UTO.
pub fn adopted_ns(conn: &Connection, retries_ns: u64, cx: &Cx<'_>) -> u64 {
    let Some(peer_ns) = find_peer_ns(conn) else {
        return retries_ns;
    };
    let low = LIMIT_LOW_NS.max(resend_timer::timeout_ns(conn, cx));
    retries_ns.max(peer_ns).max(low).min(LIMIT_HIGH_NS)
}

/// RFC 5482 4.2: where the option is used, keep-alive must not end a connection before the user
/// timeout.
pub fn keep_alive_ns(conn: &Connection, idle_ns: u64, cx: &Cx<'_>) -> u64 {
    let own = u64::from(conn.opts.user_timeout_ms) * MS;
    let timeout = if !cx.config.tcp.user_timeout_option {
        return idle_ns;
    } else if own != 0 {
        own
    } else if find_peer_ns(conn).is_some() {
        adopted_ns(conn, resend_timer::retries_ns(conn, cx), cx)
    } else {
        return idle_ns;
    };
    idle_ns.max(timeout + KEEP_ALIVE_GAP_NS)
}

/// Puts the option that is owed behind `at` bytes of others, and gives the new length. A segment of
/// `len` bytes that is full, or has no room, leaves it to the next one.
#[cold]
pub fn append(
    conn: &mut Connection,
    len: u32,
    at: usize,
    options: &mut [u8; OPTIONS_MAX],
) -> usize {
    if !has_room(conn, len) {
        return at;
    }
    let end = option_of(conn.opts.user_timeout_ms).map_or(at, |option| option.append(options, at));
    conn.opts.manner.set_owes_timeout(end == at);
    end
}

/// The packet stays within the MTU, and the device need not cut it.
fn has_room(conn: &Connection, len: u32) -> bool {
    len == 0 || len + USER_TIMEOUT_LEN as u32 <= u32::from(conn.snd.mss)
}

/// Returns whether an ACK has to precede the next segment, because that is full.
#[cold]
pub fn needs_an_ack(conn: &Connection) -> bool {
    let unsent = conn.snd.written.saturating_sub(conn.snd.nxt);
    let len = u32::try_from(unsent).unwrap_or(u32::MAX - USER_TIMEOUT_LEN as u32);
    conn.opts.manner.owes_timeout() && !has_room(conn, len) && conn.rcv.assembler.is_none()
}
