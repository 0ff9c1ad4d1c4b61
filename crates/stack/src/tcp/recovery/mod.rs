//! Loss recovery: states, proportional rate reduction, undo.
//!
//! RFC 5681 3.2 and RFC 6675 5 (fast recovery), RFC 6937 (PRR), RFC 6582 (no SACK), RFC 3168 6.1.2
//! (marks), RFC 4015 / RFC 3522 (undo when the timestamp shows that the original arrived), RFC 2883
//! (undo when D-SACKs account for every retransmission), RFC 5682 (F-RTO: undo when originals are
//! delivered after a timeout).
//!
//! Limited Transmit (RFC 3042 2) needs no rule of its own: SACKed bytes leave the pipe (RFC 6675
//! 4), and a duplicate ACK without SACK stands for a segment that has left it, so the first two
//! duplicates let new data go.
//!
//! RFC 2883 5: D-SACKs undo a reduction, as the timestamps of RFC 3522 3.2 do (RFC 4015 3.4). RFC
//! 6675 5.1: a timeout ends the episode.

pub mod state;

use slipstack_wire::tcp::TcpFlags;

use super::cc::Ack;
use super::connection::Connection;
use super::mtu_search;
use super::scoreboard::Delivered;
use crate::time::Instant;
use state::{AckFacts, State};

/// Moves the state machine after the scoreboard took in an ACK, and sets cwnd.
pub fn on_ack(conn: &mut Connection, now: Instant, facts: &AckFacts) {
    let mss = u64::from(conn.snd.mss);
    count_duplicates(conn, facts);
    if try_undo(conn, facts) {
        return;
    }
    let una = conn.snd.una;
    let Some(flight) = conn.flight.as_deref_mut() else {
        return;
    };
    if facts.has_advanced && flight.recovery.is_acknowledged(una) {
        if flight.recovery.state() != State::Loss || conn.cc.has_model() {
            conn.cc.on_recovered();
        }
        if flight.recovery.state().is_repair() {
            flight.rack.on_recovered();
        }
        flight.recovery.end();
        // The ACK that ends an episode does not grow the window.
        if flight.board.lost_bytes() == 0 {
            return;
        }
    }
    let flight = conn.flight_mut();
    let has_lost = flight.board.lost_bytes() > 0;
    match flight.recovery.state() {
        // Lost data of a search for the MTU is sent again in smaller pieces; nothing is reduced.
        State::Open if has_lost && mtu_search::explains_loss(conn) => {}
        State::Open | State::Marked if has_lost => {
            enter(conn, &facts.delivered);
            reduce(conn, facts, true);
        }
        State::Open if facts.is_marked => {
            enter_marked(conn, &facts.delivered);
            reduce(conn, facts, false);
        }
        State::Open => grow(conn, now, facts),
        State::Marked => reduce(conn, facts, false),
        State::Recovery => {
            if facts.has_advanced && !conn.opts.has_sack {
                // RFC 6582 3.2 step 4: a partial ACK means that the next segment is lost too.
                conn.flight_mut().board.mark_first_lost(mss);
            }
            reduce(conn, facts, false);
        }
        State::Loss => {
            if facts.has_advanced && !conn.opts.has_sack {
                conn.flight_mut().recovery.forget_duplicates();
            }
            step_frto(conn, facts);
            grow(conn, now, facts);
        }
    }
}

fn grow(conn: &mut Connection, now: Instant, facts: &AckFacts) {
    // RFC 5681 3.1: only an ACK that covers new data; SACKed data alone may be a loss.
    if facts.delivered.bytes > 0 && (facts.has_advanced || is_reordered(conn)) {
        let (sacked, is_after_timeout) = conn.flight.as_ref().map_or((0, false), |flight| {
            let is_after_timeout = flight.recovery.state() == State::Loss;
            (flight.board.sacked_bytes(), is_after_timeout)
        });
        conn.cc.on_ack(&Ack {
            now,
            bytes: u32::try_from(facts.delivered.bytes).unwrap_or(u32::MAX),
            rtt_ns: facts.rtt_ns,
            srtt_ns: conn.rtt.smoothed_ns(),
            una: conn.snd.una,
            nxt: conn.snd.nxt,
            delivered: conn.snd.una + sacked,
            burst: conn.tso_max,
            is_after_timeout,
        });
    }
}

/// DEVIATION(RFC 5681 3.1): where segments are reordered by more than the duplicate threshold,
/// nearly every ACK leaves a hole, although the SACKed data has arrived: it counts (Linux:
/// tcp_may_raise_cwnd).
fn is_reordered(conn: &Connection) -> bool {
    let flight = conn.flight.as_deref();
    flight.is_some_and(|flight| flight.figures.reordering_beyond > 0)
}

/// RFC 5681 3.2 for peers without SACK.
fn count_duplicates(conn: &mut Connection, facts: &AckFacts) {
    if conn.opts.has_sack {
        return;
    }
    let mss = u64::from(conn.snd.mss);
    let Some(flight) = conn.flight.as_deref_mut() else {
        return;
    };
    if facts.has_advanced {
        let segments = facts.delivered.bytes.div_ceil(mss.max(1)) as u32;
        flight.recovery.on_advance(segments);
    } else if facts.is_duplicate {
        // Each duplicate stands for a segment beyond the first missing one (Linux:
        // tcp_limit_reno_sacked).
        let limit = match flight.recovery.state() {
            State::Loss => (flight.board.in_flight() / mss.max(1)) as u32,
            _ => flight.board.segments_at_least(mss).saturating_sub(1),
        };
        if flight.recovery.on_duplicate(conn.snd.una, limit) {
            flight.board.mark_first_lost(mss);
        }
    }
}

/// FlightSize of RFC 5681 2 when this ACK arrived: SACKed data is outstanding too.
fn flight_size(conn: &Connection, delivered: &Delivered) -> u32 {
    let acked = delivered.bytes.saturating_sub(delivered.sacked);
    clamp(conn.snd.nxt - conn.snd.una + acked)
}

/// RFC 5681 3.2 step 2, RFC 6675 5 step 4.
fn enter(conn: &mut Connection, delivered: &Delivered) {
    let outstanding = flight_size(conn, delivered);
    let range = conn.snd.outstanding();
    let in_flight = conn.in_flight();
    let flight = conn.flight.get_or_insert_with(Default::default);
    // RFC 6937 3: data that this ACK has delivered was in flight too; PRR counts it.
    let in_flight = in_flight + flight.board.lost_bytes() + delivered.bytes;
    let was_open = flight.recovery.is_open();
    flight
        .recovery
        .begin(State::Recovery, range, in_flight, &conn.cc);
    if was_open {
        conn.cc.on_loss(outstanding);
    }
    // RFC 3168 6.1.2: one reduction per window, by loss or by mark; and the peer is informed of it.
    if conn.ecn.is_on() {
        conn.ecn.cwr = TcpFlags::CWR;
    }
}

/// RFC 3168 6.1.2: as for a loss, without sending anything again.
#[cold]
fn enter_marked(conn: &mut Connection, delivered: &Delivered) {
    let outstanding = flight_size(conn, delivered);
    let range = conn.snd.outstanding();
    let in_flight = conn.in_flight() + delivered.bytes;
    let flight = conn.flight.get_or_insert_with(Default::default);
    flight
        .recovery
        .begin(State::Marked, range, in_flight, &conn.cc);
    // Whatever was retransmitted before: the mark stands (Linux: tcp_enter_cwr).
    flight.recovery.take_prior();
    conn.cc.on_mark(outstanding);
    conn.ecn.cwr = TcpFlags::CWR;
}

fn clamp(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// RFC 6937 3.1, with the slow-start bound only while the ACK shows progress without new loss.
fn reduce(conn: &mut Connection, facts: &AckFacts, is_first: bool) {
    if conn.cc.has_model() {
        return;
    }
    let mss = u64::from(conn.snd.mss);
    let pipe = conn.in_flight();
    let ssthresh = u64::from(conn.cc.window.ssthresh);
    let mut delivered = facts.delivered.bytes;
    if facts.is_duplicate && !conn.opts.has_sack {
        delivered += mss;
    }
    let has_bonus = facts.has_advanced && facts.newly_lost == 0;
    let recovery = &mut conn.flight_mut().recovery;
    let bonus = if has_bonus { mss } else { 0 };
    let out = recovery.reduce(delivered, pipe, ssthresh, bonus);
    let is_repair = recovery.state().is_repair();
    // The fast retransmission itself always leaves.
    let out = if is_first { out.max(mss) } else { out };
    let cwnd = clamp((pipe + out).max(mss));
    // A mark is no loss: the data in flight falls below ssthresh only if the program sends nothing.
    conn.cc.window.cwnd = if is_repair {
        cwnd
    } else {
        cwnd.max(conn.cc.window.ssthresh.min(conn.cc.window.cwnd))
    };
}

/// RFC 6298 5.4 to 5.6: everything outstanding counts as lost. `has_probe`: so does a path MTU
/// probe.
///
/// DEVIATION(RFC 8985 6.3): segments sent within the last round trip count as lost too, as without
/// RACK.
#[cold]
#[inline(never)]
pub fn on_timeout(conn: &mut Connection, has_probe: bool) {
    let range = conn.snd.outstanding();
    let outstanding = flight_size(conn, &Delivered::default());
    let is_first = conn.backoff.count() == 0;
    let has_sack = conn.opts.has_sack;
    let flight = conn.flight.get_or_insert_with(Default::default);
    let before = flight.recovery.state();
    // RFC 5681 3.1: ssthresh is set once for a segment; repeated timeouts leave it.
    if is_first {
        flight
            .recovery
            .begin(State::Loss, range, outstanding.into(), &conn.cc);
        // A mark and a recovery have lowered it for this window.
        if matches!(before, State::Open | State::Loss) {
            conn.cc.on_loss(outstanding);
        }
    }
    // RFC 5682 2.1 step 1: not when the timeout hits a recovery, nor (Linux: tcp_enter_loss) a path
    // MTU probe. DEVIATION(RFC 5682 2.1): again for a segment that has timed out before, as on
    // Linux: a pause may outlast two.
    let may_be_spurious = !has_probe && (!before.is_repair() || !is_first);
    flight.recovery.on_timeout(range.nxt, may_be_spurious);
    // RFC 2018 8: when the first record itself is SACKed the peer has reneged.
    if !has_sack || flight.board.records().next().is_some_and(|r| r.is_sacked) {
        flight.board.forget_sacks();
        if has_sack {
            flight.recovery.stop_preferring_new();
        }
    }
    let lost = flight.board.mark_all_lost();
    flight.delivery.on_lost(lost);
    conn.cc.on_timeout();
    // RFC 3168 6.1.2: the peer is informed of every reduction.
    if conn.ecn.is_on() {
        conn.ecn.cwr = TcpFlags::CWR;
    }
}

/// RFC 4015: the ACK echoes a timestamp from before the retransmission, so the original arrived, or
/// there was no retransmission yet. RFC 2883: every retransmission of the episode was reported as a
/// duplicate.
fn try_undo(conn: &mut Connection, facts: &AckFacts) -> bool {
    let Some(flight) = conn.flight.as_deref_mut() else {
        return false;
    };
    let recovery = &mut flight.recovery;
    let by_dsack = facts.dsacked.is_some_and(|range| recovery.on_dsack(range));
    if !recovery.state().is_repair() {
        if by_dsack {
            undo_late(conn);
        }
        return false;
    }
    let has_lost = flight.board.lost_bytes() > 0;
    if !by_dsack && !recovery.is_needless(facts, conn.opts.has_sack, has_lost) {
        return false;
    }
    let prior = recovery.cancel();
    flight.board.unmark_lost();
    flight.rack.on_spurious();
    if let Some(prior) = prior {
        conn.cc.undo(prior);
    }
    conn.backoff.reset();
    true
}

/// Ends the undo of an episode that is over: only the window is restored. Segments that this ACK
/// shows as lost stay lost (Linux: tcp_try_undo_dsack in TCP_CA_Open).
#[cold]
pub fn undo_late(conn: &mut Connection) {
    let flight = conn.flight_mut();
    flight.rack.on_spurious();
    if let Some(prior) = flight.recovery.take_prior() {
        conn.cc.undo(prior);
    }
}

/// RFC 5682 2.1 steps 2 and 3, when the ACK has not shown an original.
fn step_frto(conn: &mut Connection, facts: &AckFacts) {
    let may_send = conn.snd.has_unsent() && conn.snd.edge > conn.snd.nxt;
    let outstanding = conn.snd.outstanding();
    let recovery = &mut conn.flight_mut().recovery;
    recovery.step_frto(facts, outstanding, may_send);
}

/// RFC 8985 7.4: the probe repaired a loss that nothing else revealed.
pub fn on_probe_repaired(conn: &mut Connection, delivered: &Delivered) {
    conn.cc.on_loss(flight_size(conn, delivered));
    if conn.cc.has_model() {
        return conn.cc.on_recovered();
    }
    conn.cc.window.cwnd = conn.cc.window.cwnd.min(conn.cc.window.ssthresh);
}
