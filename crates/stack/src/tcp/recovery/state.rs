//! The state of loss recovery, as a part of the flight.

use crate::tcp::assembler::Range;
use crate::tcp::cc::{Control, Saved};
use crate::tcp::rack::DUPLICATE_THRESHOLD;
use crate::tcp::scoreboard::Delivered;
use crate::tcp::seq::Outstanding;
use crate::tcp::undo::Undo;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum State {
    #[default]
    Open,
    /// A router marked: the window shrinks, nothing is lost (RFC 3168 6.1.2; Linux's CWR).
    Marked,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

impl State {
    /// Something is being sent again.
    #[inline]
    pub fn is_repair(self) -> bool {
        matches!(self, State::Recovery | State::Loss)
    }
}

/// F-RTO (RFC 5682 2.1 and 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Frto {
    #[default]
    Off,
    /// Step 2: the first ACK after the timeout decides whether new data is tried.
    First,
    /// Step 3: new data has been sent; its ACKs decide.
    Second,
}

/// The tail loss probe in flight (RFC 8985 7.3).
#[derive(Clone, Copy, Debug, Default)]
struct Probe {
    /// The end of its bytes; 0 = there is none.
    end: u64,
    was_resend: bool,
}

/// An episode of recovery, and the conditions under which one begins and ends.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    state: State,
    /// SND.NXT when the episode began: it ends when this is acknowledged.
    point: u64,
    /// Duplicate ACKs in a row (no SACK).
    duplicates: u32,
    /// RFC 6937: bytes delivered and sent in this episode, and in flight at its start.
    prr_delivered: u64,
    prr_out: u64,
    flight_at_start: u64,
    undo: Undo,
    frto: Frto,
    /// SND.NXT at the timeout: segments that end below it were sent before.
    timeout_nxt: u64,
    probe: Probe,
}

impl Recovery {
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns whether no episode runs.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Returns whether no episode runs and nothing indicates one: no duplicates, no probe.
    #[inline(always)]
    pub fn is_undisturbed(&self) -> bool {
        self.state == State::Open && self.probe.end == 0 && self.duplicates == 0
    }

    /// Segments left in this episode.
    #[inline]
    pub fn on_sent(&mut self, bytes: u64) {
        if self.state != State::Open {
            self.prr_out += bytes;
        }
    }

    pub fn on_resent(&mut self, range: Range, stamp: u32) {
        if self.state != State::Open {
            self.undo.on_resent(range, stamp);
        }
    }

    pub(super) fn begin(
        &mut self,
        state: State,
        outstanding: Outstanding,
        in_flight: u64,
        cc: &Control,
    ) {
        // A timeout within a recovery continues its episode: an undo restores the window before
        // both (Linux: tcp_enter_loss).
        if self.state != State::Recovery {
            self.undo.begin(cc.save(), outstanding.una);
        }
        self.state = state;
        self.point = outstanding.nxt;
        self.prr_delivered = 0;
        self.prr_out = 0;
        self.flight_at_start = in_flight.max(1);
        self.frto = Frto::Off;
        // The probe's answer has nothing more to report (Linux: tcp_init_cwnd_reduction).
        self.forget_probe();
    }

    /// Begins or continues the repair of a timeout. `nxt`: SND.NXT; `may_be_spurious`: F-RTO is to
    /// find out.
    pub(super) fn on_timeout(&mut self, nxt: u64, may_be_spurious: bool) {
        self.frto = if may_be_spurious {
            Frto::First
        } else {
            Frto::Off
        };
        self.timeout_nxt = nxt;
        self.state = State::Loss;
        self.point = nxt;
        self.duplicates = 0;
        self.forget_probe();
    }

    /// Returns whether an ACK of everything below `una` ends the episode.
    #[inline]
    pub(super) fn is_acknowledged(&self, una: u64) -> bool {
        self.state != State::Open && una >= self.point
    }

    /// Ends the episode, because all of it is acknowledged.
    pub(super) fn end(&mut self) {
        // RFC 6582 3.2 step 1 concerns retransmitted data, and a mark retransmits nothing.
        if !self.state.is_repair() {
            self.point = 0;
        }
        self.state = State::Open;
        self.duplicates = 0;
    }

    /// RFC 6937 3.1: returns the bytes that may be sent for an ACK of `delivered` bytes with `pipe`
    /// bytes in the network. `bonus`: the slow-start bound.
    pub(super) fn reduce(&mut self, delivered: u64, pipe: u64, ssthresh: u64, bonus: u64) -> u64 {
        self.prr_delivered += delivered;
        if pipe > ssthresh {
            return (self.prr_delivered * ssthresh)
                .div_ceil(self.flight_at_start)
                .saturating_sub(self.prr_out);
        }
        let unsent = self.prr_delivered.saturating_sub(self.prr_out);
        (unsent.max(delivered) + bonus).min(ssthresh - pipe)
    }
}

/// Duplicate ACKs of a peer without SACK (RFC 5681 3.2, RFC 6582).
impl Recovery {
    #[inline]
    pub fn duplicates(&self) -> u32 {
        self.duplicates
    }

    /// Counts a duplicate ACK, up to `limit`. Returns whether it shows that the segment at `una` is
    /// lost.
    pub(super) fn on_duplicate(&mut self, una: u64, limit: u32) -> bool {
        self.duplicates = (self.duplicates + 1).min(limit);
        // RFC 6582 3.2 step 1: not below the point of an earlier episode.
        let is_new = una > self.point || self.point == 0 || self.state == State::Marked;
        self.duplicates >= DUPLICATE_THRESHOLD && !self.state.is_repair() && is_new
    }

    /// Deducts what an ACK of `segments` segments takes out of the network.
    pub(super) fn on_advance(&mut self, segments: u32) {
        self.duplicates = match self.state {
            State::Open | State::Marked => 0,
            // RFC 6582: deflate by the acknowledged bytes; the retransmission itself was no
            // duplicate.
            _ => self.duplicates.saturating_sub(segments.saturating_sub(1)),
        };
    }

    pub fn forget_duplicates(&mut self) {
        self.duplicates = 0;
    }
}

/// Undo of an episode in which nothing was lost.
impl Recovery {
    /// Returns the state that outlives the flight.
    pub fn undo(&self) -> &Undo {
        &self.undo
    }

    /// Takes up the state that has outlived an earlier flight.
    pub fn resume_undo(&mut self, undo: Undo) {
        self.undo = undo;
    }

    /// Takes the state before the episode, once.
    #[cold]
    pub(super) fn take_prior(&mut self) -> Option<Saved> {
        self.undo.take()
    }

    /// Records a D-SACK. Returns whether every retransmission was now needless.
    #[cold]
    pub fn on_dsack(&mut self, range: Range) -> bool {
        self.undo.on_dsack(range)
    }

    /// Returns whether an ACK shows that the originals of the episode have arrived.
    pub(super) fn is_needless(&self, facts: &AckFacts, has_sack: bool, has_lost: bool) -> bool {
        let by_stamp = facts.has_advanced && self.undo.is_of_original(facts.echo);
        // The originals of the marked segments arrived before the retransmissions: ACKs that arrive
        // together are processed before anything is sent (Linux: tcp_packet_delayed).
        let by_haste = self.state == State::Recovery && self.undo.has_originals_only() && !has_lost;
        by_stamp || by_haste || self.has_original(facts, has_sack)
    }

    /// Ends an episode that was needless. Returns the state before it.
    pub(super) fn cancel(&mut self) -> Option<Saved> {
        self.state = State::Open;
        self.frto = Frto::Off;
        self.duplicates = 0;
        self.undo.take()
    }

    /// RFC 5682 3.1 step 3.b: something that was sent before the timeout and not since has been
    /// delivered.
    fn has_original(&self, facts: &AckFacts, has_sack: bool) -> bool {
        let delivered = &facts.delivered;
        // Without SACK originals may have waited behind the hole that the retransmission filled
        // (2.1 step 2).
        let may_tell = has_sack || delivered.resent_bytes == 0;
        self.frto != Frto::Off
            && self.state == State::Loss
            && may_tell
            && delivered
                .lowest_clean_end
                .is_some_and(|end| end <= self.timeout_nxt)
    }
}

/// F-RTO: new data instead of lost data after a timeout.
impl Recovery {
    /// Returns whether new data is to be sent instead of lost data.
    pub fn prefers_new(&self) -> bool {
        self.frto == Frto::Second && self.state == State::Loss
    }

    /// Returns whether new data is to be sent and none has been: SND.NXT is still `nxt`.
    pub fn awaits_new(&self, nxt: u64) -> bool {
        self.prefers_new() && self.point == nxt
    }

    /// Ends the preference for new data: none could leave, or the peer has reneged.
    #[cold]
    pub fn stop_preferring_new(&mut self) {
        self.frto = Frto::Off;
    }

    /// RFC 5682 2.1 steps 2 and 3, when the ACK has not shown an original.
    pub(super) fn step_frto(&mut self, facts: &AckFacts, outstanding: Outstanding, may_send: bool) {
        self.frto = match self.frto {
            Frto::Off => Frto::Off,
            // 2.1 step 2.b: an ACK that advances, but not over everything: up to two new segments.
            Frto::First if facts.has_advanced && outstanding.una < self.timeout_nxt && may_send => {
                self.point = outstanding.nxt;
                Frto::Second
            }
            // 3.a: the new data was SACKed or the ACK is a duplicate: the loss was real.
            Frto::Second
                if !facts.has_advanced && facts.delivered.sacked == 0 && !facts.is_duplicate =>
            {
                Frto::Second
            }
            Frto::First | Frto::Second => Frto::Off,
        };
    }
}

/// The tail loss probe (RFC 8985 7).
impl Recovery {
    /// RFC 8985 7.2: returns whether nothing is being repaired and no probe is out.
    #[inline]
    pub fn may_probe(&self) -> bool {
        !self.state.is_repair() && self.probe.end == 0
    }

    pub fn on_probe_sent(&mut self, end: u64, was_resend: bool) {
        self.probe = Probe { end, was_resend };
    }

    /// Returns whether the bytes up to `end` were sent again as the probe.
    pub fn is_resent_probe(&self, end: u64) -> bool {
        self.probe.was_resend && self.probe.end == end
    }

    pub fn forget_probe(&mut self) {
        self.probe.end = 0;
    }

    /// RFC 8985 7.4: returns whether the probe has repaired a loss that nothing else revealed. A
    /// D-SACK, and a duplicate ACK that reports nothing, say that original and probe have both
    /// arrived.
    #[inline]
    pub fn settle_probe(&mut self, facts: &AckFacts, una: u64) -> bool {
        let Probe { end, was_resend } = self.probe;
        if end == 0 {
            return false;
        }
        let is_bare_duplicate = facts.is_duplicate && facts.delivered.bytes == 0;
        let is_settled = is_bare_duplicate || !was_resend;
        let is_needless = facts.dsacked.is_some() || (is_settled && una >= end);
        if is_needless || una > end {
            self.forget_probe();
            return !is_needless && self.state == State::Open;
        }
        false
    }
}

/// An ACK's effects on the outstanding data, and its reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckFacts {
    pub delivered: Delivered,
    pub has_advanced: bool,
    pub newly_lost: u64,
    /// An ACK that RFC 5681 2 calls a duplicate.
    pub is_duplicate: bool,
    pub echo: Option<u32>,
    /// The range that a D-SACK reported.
    pub dsacked: Option<Range>,
    pub rtt_ns: u64,
    /// The peer reports a mark (RFC 3168 6.1.2).
    pub is_marked: bool,
}

impl AckFacts {
    /// A duplicate ACK that reports nothing.
    pub fn bare_duplicate() -> AckFacts {
        AckFacts {
            is_duplicate: true,
            ..AckFacts::default()
        }
    }
}
