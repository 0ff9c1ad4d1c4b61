//! The state of loss recovery, as a part of the flight.

use crate::tcp::assembler::Range;
use crate::tcp::cc::Control;
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
pub(super) enum Frto {
    #[default]
    Off,
    /// Step 2: the first ACK after the timeout decides whether new data is tried.
    First,
    /// Step 3: new data has been sent; its ACKs decide.
    Second,
}

#[derive(Clone, Debug, Default)]
pub struct Recovery {
    pub state: State,
    /// SND.NXT when the episode began: it ends when this is acknowledged.
    pub point: u64,
    /// Duplicate ACKs in a row (no SACK).
    pub duplicates: u32,
    /// RFC 6937: bytes delivered and sent in this episode, and in flight at its start.
    pub(super) prr_delivered: u64,
    pub(super) prr_out: u64,
    pub(super) flight_at_start: u64,
    pub undo: Undo,
    pub(super) frto: Frto,
    /// SND.NXT at the timeout: segments that end below it were sent before.
    pub(super) timeout_nxt: u64,
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

    pub fn on_resent(&mut self, range: Range, stamp: u32) {
        if self.state != State::Open {
            self.undo.on_resent(range, stamp);
        }
    }

    /// F-RTO sends new data instead of lost data.
    pub fn prefers_new(&self) -> bool {
        self.frto == Frto::Second && self.state == State::Loss
    }

    /// Ends the preference for new data: none could leave.
    #[cold]
    pub fn stop_preferring_new(&mut self) {
        self.frto = Frto::Off;
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
        self.probe_end = 0;
    }

    /// RFC 5682 3.1 step 3.b: something that was sent before the timeout and not since has been
    /// delivered.
    pub(super) fn has_original(&self, facts: &AckFacts, has_sack: bool) -> bool {
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
