//! Passive opens and TIME-WAIT: segments for a listener, a SYN or TIME-WAIT entry, or nothing.
//!
//! RFC 9293 3.10.7.1 (CLOSED), 3.10.7.2 (LISTEN), 3.10.7.4 (SYN-RECEIVED, TIME-WAIT).

use slipstack_wire::tcp::TcpFlags;

use super::arrival::{Arrival, HalfOpen, Handshake, Opening};
use super::connect::{self, Seed};
use super::connection::Connection;
use super::establish;
use super::fast_open::{Offer, Terms};
use super::flow::{FlowKey, FlowState};
use super::output::{control, emit};
use super::phase::Phase;
use super::room::{Room, room_for};
use super::segment::Segment;
use super::syn::{self, Numbers, SynEntry};
use super::{Tcp, ecn, keepalive, seq, timewait, user_timeout};
use crate::choices::ChoiceId;
use crate::counters::Counter;
use crate::effects::{ConnectionOrigin, Effects, Event};
use crate::ids::{ConnId, ListenerId};
use crate::network_layer::{Cx, NextHop};
use crate::time::{Instant, nanos};

impl Tcp {
    /// RFC 9293 3.10.7.1 (CLOSED) and 3.10.7.2 (LISTEN): `listener` matches a segment without ACK
    /// and RST.
    #[inline(never)]
    pub(super) fn on_unknown_flow(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        opening: Opening,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let &Arrival { key, segment, .. } = arrival;
        match opening.listener {
            Some(listener) if segment.flags.is_syn() && !segment.flags.is_fin() => {
                self.open_half(now, arrival, listener, opening.iss, cx, fx);
            }
            // RFC 9293 3.10.7.2 (fourth): a listener drops a segment that is neither a SYN nor an
            // ACK.
            Some(_) => cx.counters.bump(Counter::DropTcpNoAck),
            None if segment.flags.is_rst() => cx.counters.bump(Counter::DropTcpRst),
            None => self.on_nobody(now, key, segment, cx, fx),
        }
    }

    fn on_nobody(
        &mut self,
        now: Instant,
        key: &FlowKey,
        segment: &Segment<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        cx.counters.bump(Counter::DropTcpPort);
        let blackhole = cx.config.tcp.blackhole;
        if blackhole > 1 || (blackhole == 1 && segment.flags.is_syn()) {
            return;
        }
        if self.resets.may_pass(now, cx.rng) {
            control::answer_with_reset(key, now, segment, cx, fx);
        }
    }

    /// RFC 9293 3.10.7.2 (third): a SYN for a listener.
    fn open_half(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        id: ListenerId,
        iss: Option<u32>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let &Arrival { key, segment, .. } = arrival;
        let Some(listener) = self.listeners.find_mut(id) else {
            cx.counters.bump(Counter::DropTcpPort);
            return;
        };
        if listener.is_full() {
            cx.counters.bump(Counter::DropTcpBacklog);
            return;
        }
        let chosen = listener.preset.choice;
        if !chosen.is_none() && !hears(key, chosen, cx) {
            return self.on_nobody(now, key, segment, cx, fx);
        }
        let Some(hop) = find_hop(now, key, chosen, cx) else {
            cx.counters.bump(Counter::DropTcpRoute);
            return;
        };
        let room = room_for(
            cx.config.tcp.syn_cookies,
            listener.is_half_open_full(),
            self.syns.entries.is_full(),
            iss.is_some(),
        );
        let fresh = connect::numbers(&self.hasher, key, now);
        let numbers = Numbers {
            iss: iss.unwrap_or(fresh.iss),
            irs: segment.seq,
            ts_offset: fresh.ts_offset,
        };
        let preset = &listener.preset;
        let mut entry = syn::entry_for(key, id, numbers, preset, cx.net);
        entry.sent_at = now;
        entry.hop = hop;
        entry.has_ecn = ecn::accepts(
            cx.config.tcp.ecn,
            preset.congestion,
            segment.flags,
            segment.mark,
        );
        entry.take_offer(&segment.options(), cx);
        match room {
            Room::Entry => {}
            Room::Cookie => {
                cx.counters.bump(Counter::RxTcpTaken);
                return self.answer_with_cookie(now, entry, cx, fx);
            }
            Room::None => {
                cx.counters.bump(Counter::DropTcpSynTable);
                return;
            }
        }
        let terms = Terms::of(&listener.options.socket);
        self.keep_half(now, arrival, entry, terms, cx, fx);
    }

    /// A SYN that gets an entry, or a connection at once. Always inlined: an entry is many words.
    #[inline(always)]
    fn keep_half(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        mut entry: SynEntry,
        terms: Option<Terms>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let (key, hash, segment) = (arrival.key, arrival.hash, arrival.segment);
        if cx.config.tcp.user_timeout_option {
            entry.peer_timeout = segment.user_timeout();
        }
        if let Some(terms) = terms {
            match self.fast_open.offer(now, key, segment, &terms, cx) {
                Offer::Plain => {}
                Offer::Answer(cookie) => entry.fast_open = Some(cookie),
                Offer::Accept if self.open_fast(now, arrival, &entry, cx, fx) => return,
                Offer::Accept => {}
            }
        }
        cx.counters.bump(Counter::RxTcpTaken);
        self.enter(now, hash, entry, cx);
    }

    /// Stores an entry; its SYN-ACK leaves with the next flush, when the device takes frames.
    #[inline]
    fn enter(&mut self, now: Instant, hash: u64, mut entry: SynEntry, cx: &mut Cx<'_>) {
        let until = now.plus_nanos(nanos(cx.config.tcp.rto_initial));
        if let Some(listener) = self.listeners.find_mut(entry.listener) {
            listener.half_open += 1;
        }
        entry.sent_at = now;
        entry.is_owed = true;
        if let Some(index) = self.syns.insert(entry, until) {
            let place = FlowState::Syn(index);
            self.demux.insert(hash, place);
            self.dirty.push(place.pack());
        }
    }

    pub(super) fn drop_syn(&mut self, index: u32, hash: u64) -> Option<SynEntry> {
        self.demux.remove(hash, FlowState::Syn(index));
        let entry = self.syns.remove(index)?;
        if let Some(listener) = self.listeners.find_mut(entry.listener) {
            listener.half_open = listener.half_open.saturating_sub(1);
        }
        Some(entry)
    }

    /// SYN-RECEIVED of a passive open (RFC 9293 3.10.7.4). Gives the connection that this opens.
    #[inline(never)]
    pub(super) fn on_syn_entry_segment(
        &mut self,
        now: Instant,
        index: u32,
        arrival: &Arrival<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> Option<u32> {
        let (key, hash, segment) = (arrival.key, arrival.hash, arrival.segment);
        cx.counters.bump(Counter::RxTcpSteps);
        let control = segment.flags.0 & (TcpFlags::SYN | TcpFlags::RST | TcpFlags::ACK).0;
        if control != TcpFlags::ACK.0 {
            self.on_no_last_ack(now, index, hash, segment, cx, fx);
            return None;
        }
        let entry = self.syns.entries.at_mut(index)?;
        if !is_acceptable(entry, segment) {
            cx.counters.bump(Counter::DropTcpOutOfWindow);
            if self.challenges.may_pass(now, cx.rng) {
                entry.acknowledge(now, cx, fx);
            }
            return None;
        }
        let (waits, listener) = (entry.deferrals_left() != 0, entry.listener);
        if segment.ack != control::after_syn(entry.iss) && !self.syns.settle(index, segment.ack) {
            // RFC 9293 3.10.7.4 (fifth): an unacceptable ACK is answered with a reset.
            cx.counters.bump(Counter::DropTcpAck);
            control::answer_with_reset(key, now, segment, cx, fx);
            return None;
        }
        if waits && self.syns.entries.at_mut(index)?.defers(segment) {
            cx.counters.bump(Counter::DropTcpDeferred);
            return None;
        }
        let half = HalfOpen::Stored(index);
        self.admit(now, arrival, Handshake { half, listener }, cx, fx)
    }

    /// Processes a segment that cannot complete a handshake: RST, SYN, no ACK.
    #[cold]
    fn on_no_last_ack(
        &mut self,
        now: Instant,
        index: u32,
        hash: u64,
        segment: &Segment<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(entry) = self.syns.entries.at_mut(index) else {
            return;
        };
        if segment.flags.is_rst() {
            // RFC 5961 3.2: the exact number only; others are challenged.
            let start = seq::widen(entry.irs, seq::FIRST, segment.seq);
            if start == seq::FIRST {
                cx.counters.bump(Counter::RxTcpResets);
                self.drop_syn(index, hash);
                return;
            }
            cx.counters.bump(Counter::DropTcpRst);
            if is_in_window(entry, start) && self.challenges.may_pass(now, cx.rng) {
                cx.counters.bump(Counter::TxTcpChallenges);
                entry.acknowledge(now, cx, fx);
            }
            return;
        }
        // A SYN-ACK is no repeated SYN.
        if segment.flags.is_syn() && !segment.flags.is_ack() && segment.seq == entry.irs {
            cx.counters.bump(Counter::RxTcpTaken);
            if self.challenges.may_pass(now, cx.rng) {
                // RFC 3168 6.1.1.1: a peer that got no answer may repeat its SYN without ECN.
                entry.has_ecn &= segment.flags.contains(ecn::SETUP);
                entry.answer_again(now, cx, fx);
                self.syns.note(index);
            }
            return;
        }
        // RFC 5961 4.2 (a SYN that is another one): an ACK, within the limit of challenges.
        if segment.flags.is_syn() || !is_acceptable(entry, segment) {
            cx.counters.bump(Counter::DropTcpOutOfWindow);
            if self.challenges.may_pass(now, cx.rng) {
                entry.acknowledge(now, cx, fx);
            }
            return;
        }
        cx.counters.bump(Counter::DropTcpNoAck);
    }

    /// Makes the block of a finished handshake. `None`: it could not be made now.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        mut handshake: Handshake<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> Option<u32> {
        let (key, hash, segment) = (arrival.key, arrival.hash, arrival.segment);
        let half = handshake.half;
        // The listener may have ended meanwhile (a program reloads): another one of the group takes
        // over.
        if self.listeners.find(handshake.listener).is_none() {
            let Some(sibling) = self.listeners.choose(key, arrival.link, &self.hasher) else {
                if let HalfOpen::Stored(index) = half {
                    self.drop_syn(index, hash);
                }
                cx.counters.bump(Counter::DropTcpPort);
                control::answer_with_reset(key, now, segment, cx, fx);
                return None;
            };
            handshake.listener = sibling;
        }
        let index = match self.make_passive(now, arrival, handshake, cx) {
            Ok(index) => index,
            Err(why) => {
                cx.counters.bump(why);
                return None;
            }
        };
        cx.counters.bump(Counter::RxTcpTaken);
        let place = FlowState::Connection(index);
        match half {
            HalfOpen::Stored(syn) => {
                self.demux.replace(hash, FlowState::Syn(syn), place);
                self.syns.clear(syn);
            }
            HalfOpen::Carried(_) => self.demux.insert(hash, place),
        }
        self.announce(now, index, handshake.listener, cx, fx);
        let conn = self.conns.at_mut(index)?;
        if !conn.rtt.has_sample() {
            establish::on_repeated(conn, now, segment);
        }
        if take_last_ack(conn, segment) {
            self.enqueue(index);
        } else {
            self.on_connection_segment(now, index, segment, cx, fx);
        }
        Some(index)
    }

    /// A block for an entry, in its listener's queue; the demultiplexer does not know it yet.
    pub(super) fn make_passive(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        handshake: Handshake<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<u32, Counter> {
        let &Arrival { key, hash, .. } = arrival;
        let (half, id) = (handshake.half, handshake.listener);
        let Tcp {
            listeners,
            conns,
            flights,
            syns,
            wheel,
            ..
        } = self;
        let (entry, listener) = match (half.entry(syns), listeners.find_mut(id)) {
            (Some(entry), Some(listener)) => (entry, listener),
            _ => return Err(Counter::DropTcpPort),
        };
        // As Linux: the last ACK is dropped while the queue is full; the SYN-ACK comes again.
        if listener.is_full() {
            return Err(Counter::DropTcpBacklog);
        }
        let path = cx.net.path_by(now, &entry.hop, || {
            key.query().by(cx.net.choices.find(entry.choice))
        });
        let path = path.ok_or(Counter::DropTcpRoute)?;
        let made = conns.insert_with(|index, generation| {
            let seed = Seed {
                key: *key,
                hash,
                id: ConnId { index, generation },
                iss: entry.iss,
                ts_offset: entry.ts_offset,
                path,
                mss: entry.our_mss,
                preset: &listener.preset,
            };
            connect::build(&seed, now, cx)
        });
        let (index, _) = made.ok_or(Counter::DropTcpBacklog)?;
        if let Some(conn) = conns.at_mut(index) {
            conn.flight = flights.pop();
            conn.take_limits(&listener.preset, cx.config.tcp.pacing);
            open_passive(conn, entry, now, cx);
            if entry.is_repeated() {
                establish::on_repeated_syn_ack(conn, entry.tries, entry.asked);
            }
        }
        listener.offered = listener.offered.wrapping_add(1);
        // Handshakes that an ended listener began were never counted here.
        if matches!(half, HalfOpen::Stored(_)) && entry.listener == id {
            listener.half_open = listener.half_open.saturating_sub(1);
        }
        wheel.cover(index);
        Ok(index)
    }

    /// Tells the owner of a new connection.
    pub(super) fn announce(
        &mut self,
        now: Instant,
        index: u32,
        listener: ListenerId,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(conn) = self.conns.at_mut(index) else {
            return;
        };
        keepalive::arm(conn, now, cx);
        cx.counters.bump(Counter::TcpAccepted);
        fx.event(Event::Accepted {
            listener,
            conn: conn.id,
            local: conn.key.local(),
            remote: conn.key.remote(),
            origin: ConnectionOrigin::of(conn, &cx.net.choices),
        });
    }

    /// RFC 9293 3.10.7.4 for TIME-WAIT. `Some`: the segment opens the connection again, and this is
    /// to be the initial number.
    #[cold]
    pub(super) fn on_time_wait_segment(
        &mut self,
        now: Instant,
        index: u32,
        arrival: &Arrival<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> Option<u32> {
        let (key, hash, segment) = (arrival.key, arrival.hash, arrival.segment);
        let entry = self.time_waits.entries.at(index)?;
        let outcome = entry.on_segment(segment);
        cx.counters.bump_segment(counter_in_time_wait(segment));
        match outcome {
            timewait::Outcome::Ignore => {}
            timewait::Outcome::Acknowledge | timewait::Outcome::Restart => {
                self.acknowledge_former(now, index, key, cx, fx);
                if outcome == timewait::Outcome::Restart {
                    self.time_waits
                        .restart(index, now.plus_nanos(nanos(cx.config.tcp.time_wait)));
                }
            }
            timewait::Outcome::Reopen => {
                let iss = entry.next_initial();
                self.drop_time_wait(index, hash);
                return Some(iss);
            }
        }
        None
    }

    /// The ACK of a TIME-WAIT entry, within the limit of challenges.
    #[cold]
    pub(super) fn acknowledge_former(
        &mut self,
        now: Instant,
        index: u32,
        key: &FlowKey,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        if let Some(entry) = self.time_waits.entries.at(index)
            // The ACK of the end, which leaves with this turn, is equal.
            && !entry.is_owed
            && self.challenges.may_pass(now, cx.rng)
        {
            emit::bare_ack(key, now, &entry.ack(now), &mut None, cx, fx);
        }
    }

    pub(super) fn on_syn_timeout(
        &mut self,
        now: Instant,
        index: u32,
        generation: u32,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(entry) = self.syns.entries.find_mut(index, generation) else {
            return;
        };
        let tcp = &cx.config.tcp;
        // If no listener is left, the end of the handshake would only be reset.
        let listener = self.listeners.find(entry.listener);
        let is_orphan = listener.is_none() && !self.listeners.has_any(&entry.key);
        let longest = listener.map_or(nanos(tcp.rto_max), |it| it.preset.rto_max_ns(tcp));
        // syn_ack_recalc(): a peer that has acknowledged is waited for, and gets one more SYN-ACK
        // at the end.
        let is_awaited = entry.is_acked() && entry.deferrals_left() > 0;
        let is_tired = entry.tries >= tcp.synack_retries && !is_awaited;
        if is_orphan || is_tired {
            let hash = self.hasher.table(&entry.key);
            cx.counters.bump(Counter::TcpSynExpired);
            self.drop_syn(index, hash);
            return;
        }
        let is_silent = entry.is_acked() && entry.deferrals_left() > 1;
        entry.tries = entry.tries.saturating_add(1);
        entry.deferrals -= u8::from(entry.deferrals_left() > 0);
        let tries = entry.tries;
        let wait = nanos(tcp.rto_initial)
            .saturating_mul(1 << tries.min(7))
            .min(longest);
        if !is_silent {
            entry.answer(now, cx, fx);
        }
        self.syns
            .wait(index, generation, tries, now.plus_nanos(wait));
    }
}

/// RFC 1337 3: a RST ends nothing.
fn counter_in_time_wait(segment: &Segment<'_>) -> Counter {
    match segment.flags.is_rst() {
        true => Counter::DropTcpRst,
        false => Counter::RxTcpTaken,
    }
}

/// RFC 9293 3.10.7.4 (first), and PAWS (RFC 7323 5.3): text that begins before the window may reach
/// into it.
#[inline]
fn is_acceptable(entry: &SynEntry, segment: &Segment<'_>) -> bool {
    let is_old = entry.has_timestamps
        && segment
            .timestamps()
            .is_some_and(|t| seq::is_older(t.value, entry.ts_recent));
    let start = seq::widen(entry.irs, seq::FIRST, segment.seq);
    let reaches =
        is_in_window(entry, start) || (start < seq::FIRST && start + segment.len() > seq::FIRST);
    reaches && !is_old
}

#[inline]
fn is_in_window(entry: &SynEntry, start: u64) -> bool {
    start >= seq::FIRST && start <= seq::FIRST + u64::from(entry.window)
}

/// The handshake's last ACK where it is nothing but that: its window and its timestamp. `false`:
/// nothing has been touched.
#[inline]
fn take_last_ack(conn: &mut Connection, segment: &Segment<'_>) -> bool {
    if segment.flags != TcpFlags::ACK
        || !segment.is_plain
        || !segment.payload.is_empty()
        || segment.mark != TcpFlags::NONE
        || segment.seq != seq::to_wire(conn.rcv.irs, seq::FIRST)
        || segment.timestamps().is_some() != conn.opts.has_timestamps
    {
        return false;
    }
    if let Some(timestamps) = segment.timestamps() {
        conn.rcv.ts_recent = timestamps.value;
    }
    let snd = &mut conn.snd;
    snd.wnd = u32::from(segment.window) << snd.shift;
    snd.wnd_max = snd.wnd;
    snd.edge = seq::FIRST + u64::from(snd.wnd);
    snd.wl1 = seq::FIRST;
    conn.segments.total_in += 1;
    true
}

/// Returns whether a listener that has selected an interface serves this address.
#[cold]
fn hears(key: &FlowKey, chosen: ChoiceId, cx: &Cx<'_>) -> bool {
    let choice = cx.net.choices.find(chosen);
    choice.admits(cx.net.link_of_own(key.local_ip()))
}

/// The next hop of the answers, as far as it is known; `None`: there is no way back.
#[inline(always)]
fn find_hop(now: Instant, key: &FlowKey, chosen: ChoiceId, cx: &Cx<'_>) -> Option<Option<NextHop>> {
    let hop = match chosen.is_none() {
        true => cx.net.recall(key.remote_bits(), now),
        false => None,
    };
    let query = || key.query().by(cx.net.choices.find(chosen));
    cx.net.path_by(now, &hop, query).map(|_| hop)
}

/// The handshake of a new block is finished.
#[inline]
fn open_passive(conn: &mut Connection, entry: &SynEntry, now: Instant, cx: &Cx<'_>) {
    connect::agree(conn, entry.irs, &entry.peer_options(), cx);
    conn.phase = Phase::Established;
    conn.is_passive = true;
    (conn.opts.tos, conn.opts.ttl, conn.choice) = (entry.tos, entry.ttl, entry.choice);
    conn.snd.una = seq::FIRST;
    conn.snd.wl1 = seq::SYN;
    conn.snd.wl2 = seq::FIRST;
    conn.rcv.edge = seq::FIRST + u64::from(entry.window);
    conn.hop = entry.hop;
    // As on Linux, the SYN counts and the SYN-ACK does not.
    conn.segments.total_in = 1;
    if let Some(timeout) = entry.peer_timeout {
        user_timeout::take(conn, timeout);
    }
    if entry.has_ecn {
        conn.ecn.agree();
    }
    if !entry.is_repeated() {
        conn.rtt.sample_ns(now, now.nanos_since(entry.sent_at));
    }
}
