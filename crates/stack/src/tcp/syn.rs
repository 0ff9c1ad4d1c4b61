//! Half-open connections of passive opens: SYN entries.
//!
//! RFC 9293 3.10.7.2 (LISTEN), 3.5; RFC 4987 3.5 (SYN cache). An entry is small, holds no rings and
//! becomes a connection block only when the handshake is done.
//!
//! The table is the SYN cache of RFC 4987 3.5.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use slipstack_wire::fast_open::{Cookie, FastOpen};
use slipstack_wire::tcp::{TcpFlags, TcpHeader};
use slipstack_wire::tcp_options::{TcpOptions, Timestamps};
use slipstack_wire::user_timeout::UserTimeout;

use super::fast_open::OwnCookie;
use super::flow::FlowKey;
use super::options::{self, Preset};
use super::output::emit::{self, BareAck, Envelope, Opening};
use super::output::{control, window};
use super::segment::Segment;
use super::sizes::{self, MSS_DEFAULT, MSS_MIN, WINDOW_SHIFT_MAX};
use super::slab::Slab;
use super::{isn, seq};
use crate::choices::ChoiceId;
use crate::effects::{Effects, Payload};
use crate::ids::ListenerId;
use crate::network_layer::{Cx, NetworkLayer, NextHop};
use crate::time::Instant;

/// Each retransmission waits twice as long; longer series are cut off here.
const LEVELS: usize = 8;

/// Handshakes that another engine began too, at a time.
const RIVALS_MAX: usize = 256;

/// The bit of [`SynEntry::deferrals`] for a peer that has acknowledged and sent no data.
const ACKED: u8 = 0x80;
const _: () = assert!(options::DEFERRALS_MAX < ACKED);

/// One half-open connection.
#[derive(Clone, Debug)]
pub struct SynEntry {
    pub key: FlowKey,
    pub listener: ListenerId,
    pub iss: u32,
    pub irs: u32,
    pub ts_recent: u32,
    pub ts_offset: u32,
    /// Time at which the SYN-ACK last left.
    pub sent_at: Instant,
    pub mss: u16,
    /// MSS that we announce.
    pub our_mss: u16,
    pub window: u16,
    /// `u8::MAX` = not offered.
    pub peer_shift: u8,
    pub our_shift: u8,
    /// Number of times that its timer has run out.
    pub tries: u8,
    /// Number of answers to repeated SYNs.
    pub asked: u8,
    /// Number of times that it has still to run out before an ACK alone opens the connection
    /// (TCP_DEFER_ACCEPT), and [`ACKED`].
    pub deferrals: u8,
    pub has_sack: bool,
    pub has_timestamps: bool,
    /// A Fast Open cookie for the peer.
    pub fast_open: Option<OwnCookie>,
    /// The user timeout announced to the peer, and that of the peer's SYN. A cookie does not keep
    /// it: by RFC 5482 3 the peer's first segment after the SYN repeats it.
    pub told_timeout: Option<UserTimeout>,
    pub peer_timeout: Option<UserTimeout>,
    /// The peer requested ECN and may use it.
    pub has_ecn: bool,
    pub hop: Option<NextHop>,
    pub tos: u8,
    pub ttl: u8,
    /// The listener's.
    pub choice: ChoiceId,
    /// The next flush sends the SYN-ACK.
    pub is_owed: bool,
}

const _: () = assert!(core::mem::size_of::<SynEntry>() <= 128);

impl SynEntry {
    /// The options of the peer's SYN as far as they are kept.
    pub fn peer_options(&self) -> TcpOptions {
        TcpOptions {
            mss: Some(self.mss),
            window_scale: (self.peer_shift != u8::MAX).then_some(self.peer_shift),
            sack_permitted: self.has_sack,
            timestamps: self.has_timestamps.then_some(Timestamps {
                value: self.ts_recent,
                echo: 0,
            }),
            ..TcpOptions::default()
        }
    }

    /// Takes the options of the peer's SYN; those set to `None` by the configuration are left out.
    pub fn take_offer(&mut self, theirs: &TcpOptions, cx: &Cx<'_>) {
        let tcp = &cx.config.tcp;
        self.mss = theirs
            .mss
            .unwrap_or_else(|| sizes::mss_default(&self.key))
            .max(MSS_MIN);
        // RFC 7323 2.3: larger shifts MUST be taken as 14.
        self.peer_shift = theirs
            .window_scale
            .filter(|_| tcp.window_scaling)
            .map_or(u8::MAX, |shift| shift.min(WINDOW_SHIFT_MAX));
        self.has_sack = tcp.sack && theirs.sack_permitted;
        if let Some(timestamps) = theirs.timestamps.filter(|_| tcp.timestamps) {
            self.has_timestamps = true;
            self.ts_recent = timestamps.value;
        }
    }

    #[inline]
    pub fn deferrals_left(&self) -> u8 {
        self.deferrals & !ACKED
    }

    pub fn is_acked(&self) -> bool {
        self.deferrals & ACKED != 0
    }

    /// Returns whether it is unknown which SYN-ACK the peer acknowledges (RFC 6298 3, Karn's
    /// algorithm).
    #[inline]
    pub fn is_repeated(&self) -> bool {
        self.tries | self.asked != 0
    }

    /// Answers a SYN that arrived again because the peer has not got our answer (RFC 9293 3.8.1).
    #[cold]
    pub fn answer_again(&mut self, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
        self.asked = self.asked.saturating_add(u8::from(!self.is_owed));
        self.answer(now, cx, fx);
    }

    /// tcp_check_req(): an ACK without data is only recorded. The round trip is not measured then.
    #[cold]
    pub fn defers(&mut self, segment: &Segment<'_>) -> bool {
        let is_bare = segment.text_len() == 0 && !segment.flags.is_fin();
        if is_bare {
            self.deferrals |= ACKED;
        }
        is_bare
    }

    /// Sends the SYN-ACK.
    pub fn answer(&mut self, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
        let stamp = isn::timestamp(now, self.ts_offset);
        self.answer_stamped(now, stamp, cx, fx);
    }

    /// Sends the SYN-ACK with the given timestamp instead of the clock's.
    #[inline(always)]
    pub fn answer_stamped(
        &mut self,
        now: Instant,
        stamp: u32,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let header = TcpHeader {
            src_port: self.key.local_port,
            dst_port: self.key.remote_port,
            seq: self.iss,
            ack: seq::to_wire(self.irs, seq::FIRST),
            flags: if self.has_ecn {
                TcpFlags::SYN | TcpFlags::ACK | TcpFlags::ECE
            } else {
                TcpFlags::SYN | TcpFlags::ACK
            },
            window: self.window,
            urgent: 0,
        };
        // RFC 7323 2.2 and 3.2, RFC 2018 2: only options that the peer offered are answered.
        let options = TcpOptions {
            mss: Some(self.our_mss),
            window_scale: (self.peer_shift != u8::MAX).then_some(self.our_shift),
            sack_permitted: self.has_sack,
            timestamps: self.has_timestamps.then_some(Timestamps {
                value: stamp,
                echo: self.ts_recent,
            }),
            ..TcpOptions::default()
        };
        self.sent_at = now;
        self.is_owed = false;
        let envelope = Envelope {
            key: &self.key,
            tos: self.tos,
            ttl: self.ttl,
            choice: self.choice,
            may_be_cut: false,
        };
        let syn = Opening {
            header: &header,
            options: &options,
            fast_open: self
                .fast_open
                .and_then(|cookie| Some(FastOpen::Cookie(Cookie::new(&cookie)?))),
            user_timeout: self.told_timeout,
            payload: Payload::None,
        };
        emit::opening(envelope, now, &syn, &mut self.hop, cx, fx);
    }

    /// Answers a segment that does not belong to the handshake with the handshake's state (RFC 9293
    /// 3.10.7.4 first, RFC 5961 3.2).
    #[cold]
    pub fn acknowledge(&mut self, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
        // RFC 7323 2.2: both sides scale or none.
        let shift = match self.peer_shift {
            u8::MAX => 0,
            _ => self.our_shift,
        };
        let ack = BareAck {
            seq: seq::to_wire(self.iss, seq::FIRST),
            ack: seq::to_wire(self.irs, seq::FIRST),
            window: self.window >> shift,
            timestamps: self.has_timestamps.then_some(Timestamps {
                value: isn::timestamp(now, self.ts_offset),
                echo: self.ts_recent,
            }),
        };
        emit::bare_ack(&self.key, now, &ack, &mut self.hop, cx, fx);
    }

    /// Tells the peer that it has no connection (RFC 9293 3.10.5, SYN-RECEIVED).
    #[cold]
    pub fn reset(&mut self, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
        let numbers = control::ResetNumbers {
            seq: control::after_syn(self.iss),
            ack: seq::to_wire(self.irs, seq::FIRST),
        };
        let envelope = Envelope {
            key: &self.key,
            tos: self.tos,
            ttl: self.ttl,
            choice: self.choice,
            may_be_cut: false,
        };
        control::reset(envelope, numbers, &mut self.hop, now, cx, fx);
    }

    /// Returns the contents of the SYN-ACK other than its number and ECN.
    fn says(&self) -> impl PartialEq + use<> {
        let stamps = self.has_timestamps.then_some(self.ts_offset);
        let window = (self.window, self.our_shift, self.peer_shift);
        (self.irs, self.our_mss, window, self.has_sack, stamps)
    }
}

/// The initial numbers of both sides, and the offset of our timestamps.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    pub iss: u32,
    pub irs: u32,
    pub ts_offset: u32,
}

/// An entry that knows our side only.
#[inline(always)]
pub fn entry_for(
    key: &FlowKey,
    listener: ListenerId,
    numbers: Numbers,
    preset: &Preset,
    net: &NetworkLayer,
) -> SynEntry {
    let Numbers {
        iss,
        irs,
        ts_offset,
    } = numbers;
    let (tos, ttl) = preset.header(key.is_v4());
    SynEntry {
        key: *key,
        listener,
        iss,
        irs,
        ts_recent: 0,
        ts_offset,
        sent_at: Instant::ZERO,
        mss: MSS_DEFAULT,
        our_mss: options::our_mss(key, preset, net),
        window: window::first(preset.rcvbuf),
        peer_shift: u8::MAX,
        our_shift: preset.shift,
        tries: 0,
        asked: 0,
        deferrals: preset.deferrals,
        has_sack: false,
        has_timestamps: false,
        fast_open: None,
        told_timeout: preset.told_timeout,
        peer_timeout: None,
        has_ecn: false,
        hop: None,
        tos,
        ttl: net.ttl(!key.is_v4(), ttl, || {
            key.query().by(net.choices.find(preset.choice))
        }),
        choice: preset.choice,
        is_owed: false,
    }
}

/// All entries, with one queue for each number of tries: entries of one queue wait equally long, so
/// that each queue is in order of time and the wheel is not needed.
#[derive(Debug)]
pub struct SynTable {
    pub entries: Slab<SynEntry>,
    waiting: [VecDeque<Waiting>; LEVELS],
    /// The earliest deadline, for the check at every turn.
    next: Instant,
    /// Few: handshakes that another engine began too.
    rivals: Vec<Rival>,
    /// Indices of entries that began, changed or ended; `None`: nobody asks.
    changes: Option<Vec<u32>>,
}

/// The initial number of another engine's answer to a copy of an entry's SYN. The peer has taken
/// one of the two answers.
#[derive(Clone, Copy, Debug)]
struct Rival {
    index: u32,
    generation: u32,
    iss: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    index: u32,
    generation: u32,
    until: Instant,
}

impl SynTable {
    pub fn new(limit: u32) -> SynTable {
        SynTable {
            entries: Slab::new(limit),
            waiting: Default::default(),
            next: Instant::FAR_FUTURE,
            rivals: Vec::new(),
            changes: None,
        }
    }

    /// From now on changes are noted for [`SynTable::next_change`].
    pub fn note_changes(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// An entry begins, changes or ends.
    #[inline]
    pub fn note(&mut self, index: u32) {
        if let Some(changes) = &mut self.changes {
            changes.push(index);
        }
    }

    /// Whether [`SynTable::next_change`] has one.
    #[inline]
    pub fn has_changes(&self) -> bool {
        self.changes.as_ref().is_some_and(|it| !it.is_empty())
    }

    /// The index of an entry that has changed since.
    #[inline]
    pub fn next_change(&mut self) -> Option<u32> {
        self.changes.as_mut()?.pop()
    }

    /// Removes an entry.
    pub fn remove(&mut self, index: u32) -> Option<SynEntry> {
        self.note(index);
        self.entries.remove(index)
    }

    /// Drops an entry whose connection has opened.
    #[inline]
    pub fn clear(&mut self, index: u32) {
        self.note(index);
        self.entries.clear(index);
    }

    /// A new entry, or one that has been answered several times elsewhere.
    #[inline]
    pub fn insert(&mut self, entry: SynEntry, until: Instant) -> Option<u32> {
        let tries = entry.tries;
        let (index, generation) = self.entries.insert(entry)?;
        self.note(index);
        self.wait(index, generation, tries, until);
        Some(index)
    }

    /// Takes the handshake of another engine that answered a copy of the same SYN into an entry.
    /// `false`: the answers say different things, or there is no room.
    pub fn join(&mut self, index: u32, other: &SynEntry) -> bool {
        let here = self.entries.at(index);
        let is_like = here.is_some_and(|it| it.iss != other.iss && it.says() == other.says());
        if !is_like || !self.note_rival(index, other.iss) {
            return false;
        }
        if let Some(entry) = self.entries.at_mut(index) {
            // Not every copy requests ECN (RFC 3168 6.1.1.1).
            entry.has_ecn &= other.has_ecn;
        }
        self.note(index);
        true
    }

    /// `false`: no room.
    pub fn note_rival(&mut self, index: u32, iss: u32) -> bool {
        let entries = &self.entries;
        self.rivals
            .retain(|it| entries.find(it.index, it.generation).is_some());
        let Some(generation) = entries.generation(index) else {
            return false;
        };
        let has_room = self.rivals.len() < RIVALS_MAX;
        if has_room {
            self.rivals.push(Rival {
                index,
                generation,
                iss,
            });
        }
        has_room
    }

    pub fn rival(&self, index: u32) -> Option<u32> {
        let generation = self.entries.generation(index)?;
        let mut rivals = self.rivals.iter();
        let rival = rivals.find(|it| (it.index, it.generation) == (index, generation));
        rival.map(|it| it.iss)
    }

    #[cold]
    fn is_rivals(&self, index: u32, ack: u32) -> bool {
        self.rival(index)
            .is_some_and(|iss| ack == control::after_syn(iss))
    }

    /// The peer acknowledges this number: an entry goes on with the answer that it has taken.
    /// `false`: it is neither's.
    #[cold]
    pub fn settle(&mut self, index: u32, ack: u32) -> bool {
        let is_rivals = self.is_rivals(index, ack);
        if let (true, Some(entry)) = (is_rivals, self.entries.at_mut(index)) {
            entry.iss = ack.wrapping_sub(1);
            // Without the time of the rival's SYN-ACK no round trip can be measured.
            entry.tries = entry.tries.max(1);
            self.note(index);
        }
        is_rivals
    }

    /// Returns whether this acknowledges a SYN-ACK that was not sent here. The entry may come from
    /// a copy of the SYN of a connection that another engine has: the peer has answered our SYN-ACK
    /// with a challenge ACK, or continues.
    #[inline]
    pub fn is_anothers(&self, index: u32, segment: &Segment<'_>) -> bool {
        let control = segment.flags.0 & (TcpFlags::SYN | TcpFlags::RST | TcpFlags::ACK).0;
        let entry = self.entries.at(index);
        entry.is_some_and(|entry| {
            control == TcpFlags::ACK.0
                && segment.ack != control::after_syn(entry.iss)
                && !self.is_rivals(index, segment.ack)
        })
    }

    /// Sends the SYN-ACK that an entry owes; the entry may have been freed since, and its index
    /// reused.
    #[inline]
    pub fn answer_owed(
        &mut self,
        index: u32,
        now: Instant,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        if let Some(entry) = self.entries.at_mut(index)
            && entry.is_owed
        {
            entry.answer(now, cx, fx);
        }
    }

    /// Puts an entry that was answered again into the queue of its tries.
    pub fn wait(&mut self, index: u32, generation: u32, tries: u8, until: Instant) {
        let level = usize::from(tries).min(LEVELS - 1);
        self.next = self.next.min(until);
        self.waiting[level].push_back(Waiting {
            index,
            generation,
            until,
        });
    }

    /// The next entry that is due: index and generation. Dead ones are dropped on the way.
    #[inline]
    pub fn pop_due(&mut self, now: Instant) -> Option<(u32, u32)> {
        if now < self.next {
            return None;
        }
        let due = self.search_due(now);
        if due.is_none() {
            self.next = self.first_deadline();
        }
        due
    }

    /// The first deadline of a living entry. Dead ones before it are dropped.
    #[cold]
    fn first_deadline(&mut self) -> Instant {
        let mut first = Instant::FAR_FUTURE;
        for level in &mut self.waiting {
            while let Some(front) = level.front() {
                if self.entries.find(front.index, front.generation).is_some() {
                    first = first.min(front.until);
                    break;
                }
                level.pop_front();
            }
        }
        first
    }

    #[cold]
    fn search_due(&mut self, now: Instant) -> Option<(u32, u32)> {
        for level in &mut self.waiting {
            while let Some(front) = level.front().copied() {
                if front.until > now {
                    break;
                }
                level.pop_front();
                if self.entries.find(front.index, front.generation).is_some() {
                    return Some((front.index, front.generation));
                }
            }
        }
        None
    }

    /// May be earlier than the first deadline; `FAR_FUTURE` = no entry.
    #[inline]
    pub fn next_deadline(&self) -> Instant {
        self.next
    }

    /// The time to wake up for. The queues still name each connection that has opened in the last
    /// second: if none is half-open they wait for a turn that comes anyway.
    #[inline]
    pub fn wake_at(&self) -> Instant {
        match self.entries.len() {
            0 => Instant::FAR_FUTURE,
            _ => self.next,
        }
    }
}
