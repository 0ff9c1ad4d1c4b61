//! Steps two to four: RST and SYN in a synchronized state, with the defences of RFC 5961.
//!
//! RFC 9293 3.5.1 and 3.5.3: half-open connections, reset processing.

use crate::counters::Counter;
use crate::effects::Effects;
use crate::error::Reason;
use crate::network_layer::Cx;
use crate::rate::RateLimit;
use crate::tcp::assembler::Assembler;
use crate::tcp::connection::Connection;
use crate::tcp::output::control;
use crate::tcp::phase::Phase;
use crate::tcp::segment::Segment;
use crate::tcp::verdict::Verdict;
use crate::time::Instant;

#[cold]
pub fn on_rst_or_syn(
    conn: &mut Connection,
    now: Instant,
    segment: &Segment<'_>,
    start: u64,
    challenges: &mut RateLimit,
    cx: &mut Cx<'_>,
    _fx: &mut impl Effects,
) -> Verdict {
    if segment.flags.is_rst() {
        // RFC 5961 3.2: only the exact number resets; elsewhere in the window it is challenged.
        if start != conn.rcv.nxt && !is_at_fin(conn, start) && !is_at_highest(conn, start) {
            cx.counters.bump(Counter::DropTcpRst);
            challenge(conn, now, challenges, cx);
            return Verdict::Alive;
        }
        cx.counters.bump(Counter::RxTcpResets);
        return match conn.phase {
            Phase::SynReceived if !conn.is_passive => Verdict::Failed(Reason::Refused),
            Phase::CloseWait => Verdict::Failed(Reason::BrokenPipe),
            _ => Verdict::Failed(Reason::Reset),
        };
    }
    // RFC 9293 3.5: the peer's SYN-ACK of a simultaneous open, a second SYN: it acknowledges ours.
    if conn.phase == Phase::SynReceived {
        conn.owe_ack();
        cx.counters.bump(Counter::RxTcpTaken);
        return Verdict::Alive;
    }
    // RFC 5961 4.2: a SYN in a synchronized state is challenged whatever its number.
    cx.counters.bump(Counter::DropTcpSyn);
    challenge(conn, now, challenges, cx);
    Verdict::Alive
}

/// DEVIATION(RFC 5961 3.2): some peers do not count their FIN when they reset after it; its number
/// is as hard to guess (Linux: tcp_reset_check).
pub fn is_at_fin(conn: &Connection, start: u64) -> bool {
    conn.rcv.has_fin
        && start + 1 == conn.rcv.nxt
        && matches!(
            conn.phase,
            Phase::CloseWait | Phase::LastAck | Phase::Closing
        )
}

/// DEVIATION(RFC 5961 3.2): a peer that ends while data is missing here resets at the end of the
/// received data, which is as hard to guess (Linux: tcp_validate_incoming).
fn is_at_highest(conn: &Connection, start: u64) -> bool {
    let assembler = conn.rcv.assembler.as_deref();
    conn.opts.has_sack && assembler.and_then(Assembler::highest) == Some(start)
}

/// Owes a challenge ACK if the connection's and the stack's limits allow it.
pub fn challenge(conn: &mut Connection, now: Instant, challenges: &mut RateLimit, cx: &mut Cx<'_>) {
    if control::may_challenge(conn, now) && challenges.may_pass(now, cx.rng) {
        cx.counters.bump(Counter::TxTcpChallenges);
        conn.owe_ack();
    }
}
