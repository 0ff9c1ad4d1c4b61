//! The connection block: data split by concern. Its methods are in the files of their concern.

mod agreed;

use alloc::boxed::Box;

use slipstack_wire::tcp_options::TIMESTAMPS_LEN;

use super::assembler::Assembler;
use super::cc::Control;
use super::ecn::Ecn;
use super::fast_open::Attempt;
use super::figures::{Figures, Kept, Past, Segments};
use super::flow::FlowKey;
use super::in_flight::InFlight;
use super::pacing;
use super::phase::Phase;
use super::rto::Backoff;
use super::rtt::Rtt;
use super::seq::{self, Outstanding};
use super::sizes;
use super::timers::Timers;
use crate::choices::ChoiceId;
use crate::ids::ConnId;
use crate::network_layer::NextHop;
use crate::time::{Instant, Tick};

pub use agreed::{Fixed, Manner, Options};

/// Send sequence variables (RFC 9293 3.3.1), widened (see [`seq`]).
#[derive(Debug)]
pub struct Send {
    /// Initial sequence number on the wire.
    pub iss: u32,
    pub una: u64,
    pub nxt: u64,
    /// SND.WND of the last update, and the right edge that it set.
    pub wnd: u32,
    pub edge: u64,
    pub wl1: u64,
    pub wl2: u64,
    /// Largest window ever offered (SWS avoidance, RFC 9293 3.8.6.2.1).
    pub wnd_max: u32,
    /// End of the data that the program has written.
    pub written: u64,
    /// End of the last segment that was smaller than the MSS (Minshall's form of Nagle).
    pub small_end: u64,
    /// Time at which data or a FIN last left.
    pub last_at: Instant,
    /// Payload bytes of a full segment, options taken off.
    pub mss: u16,
    /// MSS that the peer announced.
    pub peer_mss: u16,
    /// Shift of windows that come in.
    pub shift: u8,
    /// The program has closed its side: a FIN follows the last byte.
    pub is_fin_queued: bool,
    pub is_fin_sent: bool,
    /// The program has announced that more follows soon (MSG_MORE).
    pub has_more: bool,
    /// Limit of the send ring; auto-tuned unless [`Fixed::has_limit`].
    pub limit: u32,
}

impl Send {
    #[inline]
    pub fn outstanding(&self) -> Outstanding {
        Outstanding {
            una: self.una,
            nxt: self.nxt,
        }
    }

    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.nxt < self.written || (self.is_fin_queued && !self.is_fin_sent)
    }
}

/// Time at which the next ACK leaves, the later ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AckState {
    /// Nothing to acknowledge.
    None,
    /// After [`Receive::ato_ms`], unless something carries it before.
    Delayed,
    /// After a moment, in which the program may answer.
    Soon,
    /// After another moment: the first one is over, and the program has not even read.
    Unread,
    /// With the next flush, or after a moment if the program has to read before the window can
    /// move.
    Due,
    /// With the next flush.
    Now,
}

impl AckState {
    /// For something that carries it, for the program to read, or for its timer.
    #[inline]
    pub fn is_waiting(self) -> bool {
        !matches!(self, AckState::None | AckState::Now)
    }
}

/// Receive sequence variables.
#[derive(Debug)]
pub struct Receive {
    pub irs: u32,
    pub nxt: u64,
    /// Right edge that was announced: RCV.NXT + RCV.WND.
    pub edge: u64,
    /// Number up to which the program has read.
    pub consumed: u64,
    /// RCV.NXT in the last ACK that left.
    pub acked: u64,
    /// Size of the receive buffer and whether the program fixed it.
    pub buffer: u32,
    pub is_buffer_fixed: bool,
    /// Auto-tuning: bytes read since `tune_at`.
    pub tune_at: Tick,
    pub tune_from: u64,
    /// TS.Recent.
    pub ts_recent: u32,
    /// Time of the last acceptable segment.
    pub last_at: Instant,
    /// Time of the last in-order data.
    pub data_at: Tick,
    /// Estimate of the peer's segment size, for the ACK policy.
    pub mss: u16,
    /// Shift of windows that go out.
    pub shift: u8,
    pub ack: AckState,
    /// Estimate of how long an ACK may wait (see [`super::output::ack_policy`]); 0 before the first
    /// data.
    pub ato_ms: u16,
    /// Full segments that are still acknowledged at once.
    pub quick: u8,
    /// An ACK has left without data, and no data since.
    pub is_unanswered: bool,
    /// Requests are answered with data: ACKs ride on the answers.
    pub is_interactive: bool,
    /// The program has closed: further data is answered with a reset (RFC 9293 3.10.7.1 note,
    /// Linux).
    pub is_shut: bool,
    pub has_fin: bool,
    /// Sequence number of the peer's FIN, once seen; 0 = not seen.
    pub fin_at: u64,
    pub assembler: Option<Box<Assembler>>,
}

impl Receive {
    #[inline]
    pub fn window(&self) -> u32 {
        (self.edge - self.nxt) as u32
    }
}

/// A connection from SYN-SENT (or a finished passive handshake) to TIME-WAIT.
#[derive(Debug)]
pub struct Connection {
    pub key: FlowKey,
    /// The part of the key's hash that the demultiplexer keeps.
    pub hash: u32,
    pub id: ConnId,
    pub phase: Phase,
    /// `flush` has to check this connection.
    pub is_dirty: bool,
    /// The connection is in the list of dirty connections.
    pub is_queued: bool,
    /// The program has closed it.
    pub is_orphan: bool,
    /// A listener opened it.
    pub is_passive: bool,
    /// Keep-alive and window probes without an answer (Linux: icsk_probes_out).
    pub keep_sent: u8,
    pub backoff: Backoff,
    /// A soft error from the network (RFC 9293 3.9.2.2), reported when retransmission gives up.
    pub soft_error: Option<crate::error::Reason>,
    pub snd: Send,
    pub rcv: Receive,
    pub rtt: Rtt,
    pub cc: Control,
    pub ecn: Ecn,
    pub opts: Options,
    pub timers: Timers,
    pub flight: Option<Box<InFlight>>,
    pub hop: Option<NextHop>,
    pub tso_max: u32,
    pub mtu: u16,
    /// Which way its packets are to go.
    pub choice: ChoiceId,
    /// Challenge ACKs of this connection: not before this time, low bits (RFC 5961 7).
    pub challenge_after_ms: u32,
    /// Time at which the oldest unanswered transmission episode began (R2, user timeout).
    pub stalled_at: Tick,
    /// Segments with data that were sent again.
    pub retransmitted: u32,
    pub segments: Segments,
    /// Figures of before the last rest.
    pub past: Past,
    pub kept: Option<Box<Kept>>,
}

/// The parts of a connection that are not at rest when it begins.
#[derive(Debug)]
pub struct Beginning {
    pub key: FlowKey,
    pub hash: u32,
    pub id: ConnId,
    pub snd: Send,
    pub rcv: Receive,
    pub cc: Control,
    pub choice: ChoiceId,
    pub opts: Options,
    pub tso_max: u32,
    pub mtu: u16,
    pub challenge_after_ms: u32,
}

impl Connection {
    /// A connection in SYN-SENT. Always inlined: it is made where it stays.
    #[inline(always)]
    pub fn begin(beginning: Beginning) -> Connection {
        Connection {
            key: beginning.key,
            hash: beginning.hash,
            id: beginning.id,
            phase: Phase::SynSent,
            is_dirty: false,
            is_queued: false,
            is_orphan: false,
            is_passive: false,
            keep_sent: 0,
            backoff: Default::default(),
            soft_error: None,
            snd: beginning.snd,
            rcv: beginning.rcv,
            rtt: Default::default(),
            cc: beginning.cc,
            ecn: Default::default(),
            opts: beginning.opts,
            timers: Timers::default(),
            flight: None,
            hop: None,
            tso_max: beginning.tso_max,
            mtu: beginning.mtu,
            choice: beginning.choice,
            challenge_after_ms: beginning.challenge_after_ms,
            stalled_at: Tick::NONE,
            retransmitted: 0,
            segments: Default::default(),
            past: Default::default(),
            kept: None,
        }
    }

    #[inline]
    pub fn flight_mut(&mut self) -> &mut InFlight {
        let (kept, past) = (&mut self.kept, &self.past);
        self.flight.get_or_insert_with(|| InFlight::new(kept, past))
    }

    /// Figures in which events are counted now: beside the data in flight, or in the box that
    /// stays.
    #[cold]
    pub fn figures_mut(&mut self) -> &mut Figures {
        match &mut self.flight {
            Some(flight) => &mut flight.figures,
            None => &mut self.kept.get_or_insert_default().figures,
        }
    }

    /// Returns the bytes in the network; without SACK every duplicate ACK stands for one segment
    /// that has left it.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        match &self.flight {
            Some(flight) => {
                let left = u64::from(flight.recovery.duplicates()) * u64::from(self.snd.mss);
                if self.opts.has_sack {
                    flight.board.in_flight()
                } else {
                    flight.board.in_flight().saturating_sub(left)
                }
            }
            None => 0,
        }
    }

    /// Read-only counterpart of `figures_mut`; `None` if nothing has been counted yet.
    pub fn figures(&self) -> Option<&Figures> {
        match (&self.flight, &self.kept) {
            (Some(flight), _) => Some(&flight.figures),
            (None, Some(kept)) => Some(&kept.figures),
            (None, None) => None,
        }
    }

    /// Segments that were sent again, with SYN and FIN.
    pub fn total_resent(&self) -> u32 {
        let bare = self.figures().map_or(0, |f| f.bare_resent);
        self.retransmitted.wrapping_add(bare)
    }

    /// The attempt of a Fast Open.
    pub fn attempt(&self) -> Option<&Attempt> {
        self.flight.as_ref()?.attempt.as_deref()
    }

    pub fn attempt_mut(&mut self) -> Option<&mut Attempt> {
        self.flight.as_mut()?.attempt.as_deref_mut()
    }

    /// Returns the connection's next deadline.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        let timer = self.timers.next();
        if !self.cc.is_paced {
            return timer;
        }
        let paced = self.flight.as_ref().and_then(|f| f.pacer.deadline());
        match (timer, paced) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    #[inline]
    pub fn has_outstanding(&self) -> bool {
        self.snd.una < self.snd.nxt
    }

    /// Everything that was written, and the FIN, is acknowledged.
    pub fn is_fin_acked(&self) -> bool {
        self.snd.is_fin_sent && self.snd.una == self.snd.nxt
    }

    /// Returns whether the peer learns of the end of the connection by a reset alone, because one
    /// side has not closed, or the FIN has not left: tcp_disconnect().
    pub fn has_end_to_tell(&self) -> bool {
        let has_unsent = self.snd.is_fin_queued && !self.snd.is_fin_sent;
        !matches!(self.phase, Phase::Closing | Phase::LastAck) || has_unsent
    }

    #[inline]
    pub fn wire_seq(&self, seq: u64) -> u32 {
        seq::to_wire(self.snd.iss, seq)
    }

    #[inline]
    pub fn wire_ack(&self, seq: u64) -> u32 {
        seq::to_wire(self.rcv.irs, seq)
    }

    /// Sets the effective send MSS (RFC 9293 3.7.1, MUST-16): the smaller of both sides, options
    /// taken off.
    #[inline]
    pub fn set_mss(&mut self) {
        let headers = sizes::headers(&self.key);
        let ours = self.mtu.saturating_sub(headers).min(self.opts.mss_max);
        let options = if self.opts.has_timestamps {
            TIMESTAMPS_LEN as u16
        } else {
            0
        };
        self.snd.mss = self.snd.peer_mss.min(ours).max(sizes::MSS_MIN) - options;
        self.cc.set_mss(u32::from(self.snd.mss));
    }

    /// Notes that an ACK is owed at once.
    #[inline]
    pub fn owe_ack(&mut self) {
        self.rcv.ack = AckState::Now;
        self.is_dirty = true;
    }

    /// Returns whether pacing holds back new and lost data.
    pub fn pacing_holds(&mut self, now: Instant) -> bool {
        let flight = self.flight.as_deref_mut();
        flight.is_some_and(|flight| flight.pacer.holds(now))
    }

    /// Returns `true`, once, if data that pacing held back may go.
    pub fn takes_paced(&mut self, now: Instant) -> bool {
        let flight = self.flight.as_deref_mut();
        flight.is_some_and(|flight| flight.pacer.take_due(now))
    }

    /// Bytes a second; 0 = not known yet.
    pub fn pacing_rate(&self) -> u64 {
        let rate = self.cc.pacing_rate(self.rtt.smoothed_ns());
        match self.cc.has_rate_limit() {
            false => rate,
            true => self.limited(rate),
        }
    }

    #[cold]
    fn limited(&self, rate: u64) -> u64 {
        match (self.rate_max(), rate) {
            (0, rate) => rate,
            (most, 0) => most.into(),
            (most, rate) => rate.min(most.into()),
        }
    }

    /// The program's limit of the pacing rate; 0 = none.
    pub fn rate_max(&self) -> u32 {
        self.kept.as_deref().map_or(0, |kept| kept.rate_max)
    }

    /// Limits the pacing rate, in bytes a second; 0 lifts the limit. `is_paced`: the configured
    /// value.
    pub fn limit_rate(&mut self, rate_max: u32, is_paced: bool) {
        if rate_max == self.rate_max() {
            return;
        }
        self.kept.get_or_insert_default().rate_max = rate_max;
        self.cc.set_limited(rate_max != 0, is_paced);
    }

    /// Notes that `len` bytes of paced data have left.
    pub fn pace(&mut self, now: Instant, len: u64) {
        let rate = self.pacing_rate();
        self.flight_mut().pacer.on_sent(now, len, rate);
    }

    /// The largest super-frame, at most `most` bytes.
    pub fn burst(&self, most: u64) -> u64 {
        let rate = self.pacing_rate();
        pacing::burst(u64::from(self.snd.mss), rate, most)
    }
}
