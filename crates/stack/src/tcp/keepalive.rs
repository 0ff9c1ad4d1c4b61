//! The idle slot: keep-alive (RFC 9293 3.8.4) and the end of an orphan's FIN-WAIT-2.
//!
//! RFC 1122 4.2.3.6: off unless the program asks.

use core::time::Duration;

use slipstack_wire::tcp::TcpFlags;

use super::connection::Connection;
use super::output::emit::{self, Span};
use super::phase::Phase;
use super::user_timeout;
use super::verdict::Verdict;
use crate::counters::Counter;
use crate::effects::Effects;
use crate::error::Reason;
use crate::network_layer::Cx;
use crate::time::{Instant, nanos};

const MS: u64 = 1_000_000;

/// Starts or stops the slot as the state wants.
#[inline]
pub fn arm(conn: &mut Connection, now: Instant, cx: &Cx<'_>) {
    if conn.is_orphan && conn.phase == Phase::FinWait2 {
        let wait = match conn.opts.linger2_ms {
            u32::MAX => nanos(cx.config.tcp.fin_wait2),
            ms => u64::from(ms) * MS,
        };
        conn.timers.set_idle(now.plus_nanos(wait));
    } else if is_wanted(conn, cx) && conn.phase.is_synchronized() {
        conn.keep_sent = 0;
        conn.timers.set_idle(now.plus_nanos(idle_ns(conn, cx)));
    } else {
        conn.timers.clear_idle();
    }
}

fn is_wanted(conn: &Connection, cx: &Cx<'_>) -> bool {
    conn.opts.keep_alive || cx.config.tcp.keep_alive.enabled
}

/// Returns a socket's own time, or the stack's at present.
fn time_ns(own_ms: u32, stacks: Duration) -> u64 {
    match own_ms {
        0 => nanos(stacks),
        ms => u64::from(ms) * MS,
    }
}

#[cold]
#[inline(never)]
fn idle_ns(conn: &Connection, cx: &Cx<'_>) -> u64 {
    let idle = time_ns(conn.opts.keep_idle_ms, cx.config.tcp.keep_alive.idle);
    user_timeout::keep_alive_ns(conn, idle, cx)
}

pub fn on_due(
    conn: &mut Connection,
    now: Instant,
    cx: &mut Cx<'_>,
    fx: &mut impl Effects,
) -> Verdict {
    if conn.is_orphan && conn.phase == Phase::FinWait2 {
        return Verdict::Closed;
    }
    if !is_wanted(conn, cx) {
        return Verdict::Alive;
    }
    // Lazily: received segments or data in flight postpone the probe.
    let idle = idle_ns(conn, cx);
    let silent = now.nanos_since(conn.rcv.last_at.max(conn.snd.last_at));
    let is_busy = conn.has_outstanding() || conn.snd.has_unsent();
    if is_busy || (conn.keep_sent == 0 && silent < idle) {
        let wait = if is_busy { idle } else { idle - silent };
        conn.timers.set_idle(now.plus_nanos(wait));
        return Verdict::Alive;
    }
    let user_timeout = u64::from(conn.opts.user_timeout_ms) * MS;
    let is_over = if user_timeout != 0 {
        conn.keep_sent > 0 && now.nanos_since(conn.rcv.last_at) >= user_timeout
    } else {
        conn.keep_sent
            >= match conn.opts.keep_probes {
                0 => cx.config.tcp.keep_alive.probes,
                own => own,
            }
    };
    if is_over {
        return Verdict::Failed(Reason::TimedOut);
    }
    // RFC 9293 3.8.4: SEG.SEQ = SND.NXT - 1, no data.
    cx.counters.bump(Counter::TxTcpKeepAlives);
    let old = conn.snd.nxt - 1;
    emit::segment(conn, now, Span::empty(old), TcpFlags::NONE, cx, fx);
    conn.keep_sent = conn.keep_sent.saturating_add(1);
    let interval = time_ns(
        conn.opts.keep_interval_ms,
        cx.config.tcp.keep_alive.interval,
    );
    conn.timers.set_idle(now.plus_nanos(interval));
    Verdict::Alive
}
