//! What happens when something is lost: states, proportional rate reduction, undo.
//!
//! RFC 5681 3.2 and RFC 6675 5 (fast recovery), RFC 6937 (PRR), RFC 6582 (no SACK), RFC 4015 / RFC 3522 (undo when the
//! timestamp says that the original arrived), RFC 2883 (undo when D-SACKs account for every retransmission).

use super::cc::Control;
use super::connection::Connection;
use super::rack::DUPLICATE_THRESHOLD;
use super::scoreboard::Delivered;
use super::seq;
use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum State {
    #[default]
    Open,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Recovery {
    pub state: State,
    /// SND.NXT when the episode began: it ends when this is acknowledged.
    pub point: u64,
    /// Duplicate ACKs in a row (no SACK).
    pub duplicates: u32,
    /// RFC 6937: bytes delivered and sent in this episode, and what was in flight at its start.
    prr_delivered: u64,
    prr_out: u64,
    flight_at_start: u64,
    /// Windows to go back to.
    prior_cwnd: u32,
    prior_ssthresh: u32,
    /// Our timestamp when the first retransmission of the episode left.
    resent_stamp: Option<u32>,
    /// Retransmitted bytes of the episode that no D-SACK has called needless.
    undo_bytes: i64,
    /// RFC 8985 7.3: end of the tail loss probe in flight, and whether it was a retransmission.
    pub probe_end: u64,
    pub probe_was_resend: bool,
}

impl Recovery {
    /// Segments left in this episode.
    #[inline]
    pub fn on_sent(&mut self, bytes: u64) {
        if self.state != State::Open {
            self.prr_out += bytes;
        }
    }

    pub fn on_resent(&mut self, bytes: u64, stamp: u32) {
        if self.state != State::Open {
            self.undo_bytes += bytes as i64;
            self.resent_stamp.get_or_insert(stamp);
        }
    }

    fn begin(&mut self, state: State, point: u64, in_flight: u64, cc: &Control) {
        self.state = state;
        self.point = point;
        self.prr_delivered = 0;
        self.prr_out = 0;
        self.flight_at_start = in_flight.max(1);
        self.prior_cwnd = cc.window.cwnd;
        self.prior_ssthresh = cc.window.ssthresh;
        self.resent_stamp = None;
        self.undo_bytes = 0;
    }
}

/// What an ACK said, as far as recovery is concerned.
#[derive(Clone, Copy, Debug)]
pub struct AckFacts {
    pub delivered: Delivered,
    pub has_advanced: bool,
    pub newly_lost: u64,
    /// An ACK that RFC 5681 2 calls a duplicate.
    pub is_duplicate: bool,
    pub echo: Option<u32>,
    /// Bytes that a D-SACK reported.
    pub dsacked: u64,
}

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
    if flight.recovery.state != State::Open && una >= flight.recovery.point && facts.has_advanced {
        if flight.recovery.state == State::Recovery {
            // RFC 6937: at the end cwnd is ssthresh.
            conn.cc.window.cwnd = conn.cc.window.ssthresh.max(conn.snd.mss.into());
        }
        flight.recovery.state = State::Open;
        flight.recovery.duplicates = 0;
        // The ACK that ends an episode does not grow the window.
        if flight.board.lost_bytes() == 0 {
            return;
        }
    }
    let flight = conn.flight_mut();
    match flight.recovery.state {
        State::Open if flight.board.lost_bytes() > 0 => {
            enter(conn, now);
            reduce(conn, facts, true);
        }
        State::Open => grow(conn, now, facts),
        State::Recovery => {
            if facts.has_advanced && !conn.opts.has_sack {
                // RFC 6582 3.2 step 4: a partial ACK means that the next segment is lost too.
                conn.flight_mut().board.mark_first_lost(mss);
            }
            reduce(conn, facts, false);
        }
        State::Loss => {
            if facts.has_advanced && !conn.opts.has_sack {
                conn.flight_mut().recovery.duplicates = 0;
            }
            grow(conn, now, facts);
        }
    }
}

fn grow(conn: &mut Connection, now: Instant, facts: &AckFacts) {
    // RFC 5681 3.1: only an ACK that covers new data; SACKed data alone may be a loss.
    if facts.has_advanced && facts.delivered.bytes > 0 {
        let srtt = core::time::Duration::from_nanos(conn.rtt.smoothed_ns());
        let bytes = u32::try_from(facts.delivered.bytes).unwrap_or(u32::MAX);
        conn.cc.on_ack(now, bytes, srtt);
    }
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
        let left = facts.delivered.bytes.div_ceil(mss.max(1)) as u32;
        flight.recovery.duplicates = match flight.recovery.state {
            State::Open => 0,
            // RFC 6582: deflate by what was acknowledged; the retransmission itself was no duplicate.
            _ => flight
                .recovery
                .duplicates
                .saturating_sub(left.saturating_sub(1)),
        };
    } else if facts.is_duplicate {
        let limit = (flight.board.in_flight() / mss.max(1)) as u32;
        flight.recovery.duplicates = (flight.recovery.duplicates + 1).min(limit);
        // RFC 6582 3.2 step 1: not below the point of an earlier episode.
        let is_new = conn.snd.una > flight.recovery.point || flight.recovery.point == 0;
        if flight.recovery.duplicates >= DUPLICATE_THRESHOLD
            && flight.recovery.state == State::Open
            && is_new
        {
            flight.board.mark_first_lost(mss);
        }
    }
}

/// RFC 5681 3.2 step 2, RFC 6675 5 step 4.
fn enter(conn: &mut Connection, now: Instant) {
    let point = conn.snd.nxt;
    let cc = conn.cc;
    let in_flight = conn.in_flight() + conn.flight.as_ref().map_or(0, |f| f.board.lost_bytes());
    conn.flight_mut()
        .recovery
        .begin(State::Recovery, point, in_flight, &cc);
    conn.cc
        .on_loss(now, in_flight.min(u64::from(u32::MAX)) as u32);
}

/// RFC 6937 3.1, with the slow-start bound only while the ACK shows progress without new loss.
fn reduce(conn: &mut Connection, facts: &AckFacts, is_first: bool) {
    let mss = u64::from(conn.snd.mss);
    let pipe = conn.in_flight();
    let ssthresh = u64::from(conn.cc.window.ssthresh);
    let mut delivered = facts.delivered.bytes;
    if facts.is_duplicate && !conn.opts.has_sack {
        delivered += mss;
    }
    let recovery = &mut conn.flight_mut().recovery;
    recovery.prr_delivered += delivered;
    let out = if pipe > ssthresh {
        (recovery.prr_delivered * ssthresh)
            .div_ceil(recovery.flight_at_start)
            .saturating_sub(recovery.prr_out)
    } else {
        let mut limit = recovery
            .prr_delivered
            .saturating_sub(recovery.prr_out)
            .max(delivered);
        if facts.has_advanced && facts.newly_lost == 0 {
            limit += mss;
        }
        limit.min(ssthresh - pipe)
    };
    // The fast retransmission itself always leaves.
    let out = if is_first { out.max(mss) } else { out };
    conn.cc.window.cwnd = (pipe + out).max(mss).min(u64::from(u32::MAX)) as u32;
}

/// RFC 6298 5.4 to 5.6: everything outstanding counts as lost.
pub fn on_timeout(conn: &mut Connection, now: Instant) {
    let point = conn.snd.nxt;
    let mss = u64::from(conn.snd.mss);
    let flight_size = conn.in_flight();
    let cc = conn.cc;
    let is_first = conn.backoff.count() == 0;
    let has_sack = conn.opts.has_sack;
    let flight = conn.flight.get_or_insert_with(Default::default);
    // RFC 5681 3.1: ssthresh is set once for a segment; repeated timeouts leave it.
    if is_first && flight.recovery.state != State::Loss {
        let was_open = flight.recovery.state == State::Open;
        flight.recovery.begin(State::Loss, point, flight_size, &cc);
        if was_open {
            conn.cc
                .on_loss(now, flight_size.max(mss).min(u64::from(u32::MAX)) as u32);
        }
    }
    flight.recovery.state = State::Loss;
    flight.recovery.point = point;
    flight.recovery.duplicates = 0;
    flight.recovery.probe_end = 0;
    // RFC 2018 8: when the first record itself is SACKed the peer has reneged.
    if !has_sack || flight.board.records().next().is_some_and(|r| r.is_sacked) {
        flight.board.forget_sacks();
    }
    flight.board.mark_lost(|_| Some(true));
    conn.cc.on_timeout();
}

/// RFC 4015: the ACK echoes a timestamp from before the retransmission, so the original arrived. RFC 2883: every
/// retransmission of the episode was reported as a duplicate.
fn try_undo(conn: &mut Connection, facts: &AckFacts) -> bool {
    let Some(flight) = conn.flight.as_deref_mut() else {
        return false;
    };
    let recovery = &mut flight.recovery;
    if recovery.state == State::Open {
        return false;
    }
    let by_stamp = match (recovery.resent_stamp, facts.echo) {
        (Some(stamp), Some(echo)) => facts.has_advanced && seq::is_older(echo, stamp),
        _ => false,
    };
    let by_dsack = facts.dsacked > 0 && {
        recovery.undo_bytes -= facts.dsacked as i64;
        recovery.undo_bytes <= 0 && recovery.resent_stamp.is_some()
    };
    if !by_stamp && !by_dsack {
        return false;
    }
    recovery.state = State::Open;
    recovery.duplicates = 0;
    recovery.resent_stamp = None;
    let (cwnd, ssthresh) = (recovery.prior_cwnd, recovery.prior_ssthresh);
    flight.board.unmark_lost();
    flight.rack.on_spurious();
    conn.cc.undo(cwnd, ssthresh);
    conn.backoff.reset();
    true
}

/// RFC 8985 7.4: the probe repaired a loss that nobody else saw.
pub fn on_probe_repaired(conn: &mut Connection, now: Instant) {
    let in_flight = conn.in_flight().min(u64::from(u32::MAX)) as u32;
    conn.cc.on_loss(now, in_flight);
    conn.cc.window.cwnd = conn.cc.window.cwnd.min(conn.cc.window.ssthresh);
}
