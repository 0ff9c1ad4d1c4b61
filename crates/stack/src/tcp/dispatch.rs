//! Segments and deadlines in, flushes out: which storage is meant, and what becomes of it afterwards.

use core::time::Duration;

use slipstack_wire::tcp::{TcpHeader, TcpSegment};

use super::connect::{self, Seed};
use super::connection::Connection;
use super::flow::{FlowKey, Place};
use super::input::{self, Verdict};
use super::output::{self, control};
use super::phase::Phase;
use super::segment::Segment;
use super::syn::SynEntry;
use super::timers::Due;
use super::timewait::{self, TimeWait};
use super::{Tcp, keepalive, resend, seq};
use crate::counters::Counter;
use crate::effects::{Effects, Event, RxMeta};
use crate::error::Reason;
use crate::ids::{ConnId, ListenerId};
use crate::ip::IpMeta;
use crate::link::Cx;
use crate::time::{Instant, nanos};

impl Tcp {
    /// Takes a segment whose checksum and addresses are in order.
    #[inline]
    pub fn on_segment(
        &mut self,
        now: Instant,
        ip: &IpMeta,
        bytes: &[u8],
        meta: RxMeta,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(parsed) = TcpSegment::parse(bytes) else {
            cx.counters.bump(Counter::DropTcpMalformed);
            return;
        };
        let TcpHeader {
            src_port, dst_port, ..
        } = parsed.header;
        if src_port == 0 || dst_port == 0 {
            cx.counters.bump(Counter::DropTcpMalformed);
            return;
        }
        cx.counters.bump(Counter::RxTcp);
        let key = FlowKey::new(ip.dst, dst_port, ip.src, src_port);
        let hash = self.hasher.table(&key);
        let segment = Segment::new(&parsed, meta);
        match self.find_place(&key, hash) {
            Some(Place::Connection(index)) => {
                self.on_connection_segment(now, index, &segment, cx, fx)
            }
            Some(Place::Syn(index)) => {
                self.on_syn_entry_segment(now, index, (&key, hash), &segment, cx, fx)
            }
            Some(Place::TimeWait(index)) => {
                self.on_time_wait_segment(now, index, (&key, hash), &segment, cx, fx)
            }
            None => self.on_stranger(now, (&key, hash), &segment, None, cx, fx),
        }
    }

    #[inline]
    fn on_connection_segment(
        &mut self,
        now: Instant,
        index: u32,
        segment: &Segment<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(conn) = self.conns.at_mut(index) else {
            return;
        };
        let verdict = input::on_segment(conn, now, segment, &mut self.challenges, cx, fx);
        if verdict == Verdict::Refused {
            let key = conn.key;
            control::answer_with_reset(&key, now, segment, cx, fx);
            self.settle(now, index, Verdict::Failed(Reason::Reset), cx, fx);
            return;
        }
        self.settle(now, index, verdict, cx, fx);
    }

    /// Carries out a verdict, files the timer and queues for the flush.
    #[inline]
    pub(super) fn settle(
        &mut self,
        now: Instant,
        index: u32,
        verdict: Verdict,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        if verdict != Verdict::Alive {
            return self.end(now, index, verdict, cx, fx);
        }
        self.enqueue(index);
    }

    /// Queues a dirty connection for the flush and files its timer.
    #[inline]
    pub(super) fn enqueue(&mut self, index: u32) {
        let Some(conn) = self.conns.at_mut(index) else {
            return;
        };
        if conn.is_dirty && !conn.is_queued {
            conn.is_queued = true;
            self.dirty.push(index);
        }
        if let Some(at) = conn.timers.next() {
            self.wheel.set(conn.timer, at);
        }
    }

    #[cold]
    fn end(
        &mut self,
        now: Instant,
        index: u32,
        verdict: Verdict,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(conn) = self.conns.at(index) else {
            return;
        };
        let (key, id) = (conn.key, conn.id);
        let hash = self.hasher.table(&key);
        match verdict {
            Verdict::TimeWait => {
                let until = now.plus_nanos(nanos(cx.config.tcp.time_wait));
                let entry = TimeWait::of(conn, until);
                control::send_bare_ack(&key, now, entry.ack(now), cx, fx);
                match self.time_waits.insert(entry, until) {
                    Some(place) => {
                        self.demux
                            .replace(hash, Place::Connection(index), Place::TimeWait(place));
                    }
                    None => self.demux.remove(hash, Place::Connection(index)),
                }
            }
            Verdict::Failed(reason) => {
                if !conn.is_orphan {
                    fx.event(Event::Failed { conn: id, reason });
                }
                self.demux.remove(hash, Place::Connection(index));
            }
            Verdict::Closed | Verdict::Refused | Verdict::Alive => {
                self.demux.remove(hash, Place::Connection(index));
            }
        }
        self.drop_block(index);
        fx.event(Event::Released { conn: id });
        fx.event(Event::FlowClosed {
            local: key.local(),
            remote: key.remote(),
        });
    }

    /// Takes the block out of its storage; the demultiplexer does not name it any more.
    pub(super) fn drop_block(&mut self, index: u32) -> Option<Connection> {
        let conn = self.conns.remove(index)?;
        self.wheel.remove(conn.timer);
        self.orphans -= u32::from(conn.is_orphan);
        Some(conn)
    }

    /// Makes a block and names it everywhere; `None` = the limit is reached.
    pub(super) fn add_block(
        &mut self,
        hash: u64,
        make: impl FnOnce(ConnId, crate::wheel::TimerKey) -> Connection,
    ) -> Option<u32> {
        let (index, generation) = self.conns.next_id()?;
        let id = ConnId { index, generation };
        let timer = self.wheel.add(id.to_bits());
        let conn = make(id, timer);
        self.conns.insert(conn)?;
        self.insert_place(hash, Place::Connection(index));
        Some(index)
    }

    /// RFC 9293 3.10.7.1 (CLOSED) and 3.10.7.2 (LISTEN).
    #[cold]
    fn on_stranger(
        &mut self,
        now: Instant,
        (key, hash): (&FlowKey, u64),
        segment: &Segment<'_>,
        iss: Option<u32>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        if segment.flags.is_rst() {
            cx.counters.bump(Counter::DropTcpRst);
            return;
        }
        let is_syn = segment.flags.is_syn() && !segment.flags.is_ack() && !segment.flags.is_fin();
        let listener = if is_syn {
            self.listeners.choose(key, &self.hasher)
        } else {
            None
        };
        match listener {
            Some(listener) => self.open_half(now, (key, hash), listener, (segment, iss), cx, fx),
            None => {
                cx.counters.bump(Counter::DropTcpPort);
                if self.resets.may_pass(now, cx.rng) {
                    control::answer_with_reset(key, now, segment, cx, fx);
                }
            }
        }
    }

    /// RFC 9293 3.10.7.2 (third): a SYN for a listener.
    fn open_half(
        &mut self,
        now: Instant,
        (key, hash): (&FlowKey, u64),
        id: ListenerId,
        (segment, iss): (&Segment<'_>, Option<u32>),
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(listener) = self.listeners.find_mut(id) else {
            return;
        };
        if listener.is_full() {
            cx.counters.bump(Counter::DropTcpBacklog);
            return;
        }
        if listener.is_half_open_full() || self.syns.entries.is_full() {
            cx.counters.bump(Counter::DropTcpSynTable);
            return;
        }
        let Some(path) = cx.link.find_path(key.remote_ip()) else {
            cx.counters.bump(Counter::DropNoRoute);
            return;
        };
        let options = &listener.options.socket;
        let tcp = &cx.config.tcp;
        let (fresh_iss, ts_offset) = connect::numbers(&self.hasher, key, now);
        let buffer = options.rcvbuf.unwrap_or(tcp.rcvbuf_initial);
        let mut entry = SynEntry {
            key: *key,
            listener: id,
            iss: iss.unwrap_or(fresh_iss),
            irs: segment.seq,
            ts_recent: 0,
            ts_offset,
            sent_at: now,
            mss: 0,
            our_mss: connect::mss_to_announce(path.mtu, options.mss),
            window: buffer.min(0xffff) as u16,
            peer_shift: u8::MAX,
            our_shift: connect::shift_for(buffer.max(tcp.rcvbuf_max)),
            tries: 0,
            has_sack: false,
            has_timestamps: false,
            tos: options.tos,
            ttl: options.ttl,
        };
        entry.take_offer(&segment.options, cx);
        let until = now.plus_nanos(nanos(tcp.rto_initial));
        listener.half_open += 1;
        entry.answer(now, cx, fx);
        if let Some(index) = self.syns.insert(entry, until) {
            self.insert_place(hash, Place::Syn(index));
        }
    }

    fn drop_syn(&mut self, index: u32, hash: u64) -> Option<SynEntry> {
        self.demux.remove(hash, Place::Syn(index));
        let entry = self.syns.entries.remove(index)?;
        if let Some(listener) = self.listeners.find_mut(entry.listener) {
            listener.half_open = listener.half_open.saturating_sub(1);
        }
        Some(entry)
    }

    /// SYN-RECEIVED of a passive open (RFC 9293 3.10.7.4).
    #[cold]
    fn on_syn_entry_segment(
        &mut self,
        now: Instant,
        index: u32,
        (key, hash): (&FlowKey, u64),
        segment: &Segment<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(entry) = self.syns.entries.at_mut(index) else {
            return;
        };
        let expected = seq::to_wire(entry.irs, seq::FIRST);
        if segment.flags.is_rst() {
            // RFC 5961 3.2: the exact number only.
            if segment.seq == expected {
                cx.counters.bump(Counter::RxTcpResets);
                self.drop_syn(index, hash);
            } else {
                cx.counters.bump(Counter::DropTcpRst);
            }
            return;
        }
        if segment.flags.is_syn() {
            // Again, or another one: the SYN-ACK says what we know; a peer that started anew resets it.
            if self.challenges.may_pass(now, cx.rng) {
                entry.answer(now, cx, fx);
            }
            return;
        }
        if !segment.flags.is_ack() {
            cx.counters.bump(Counter::DropTcpNoAck);
            return;
        }
        let start = seq::widen(entry.irs, seq::FIRST, segment.seq);
        let is_in_window = start >= seq::FIRST && start <= seq::FIRST + u64::from(entry.window);
        let is_old = entry.has_timestamps
            && segment
                .timestamps()
                .is_some_and(|t| seq::is_older(t.value, entry.ts_recent));
        if !is_in_window || is_old {
            cx.counters.bump(Counter::DropTcpOutOfWindow);
            return;
        }
        if segment.ack != control::after_syn(entry.iss) {
            // RFC 9293 3.10.7.4 (fifth): an unacceptable ACK is answered with a reset.
            cx.counters.bump(Counter::DropTcpAck);
            control::answer_with_reset(key, now, segment, cx, fx);
            return;
        }
        self.complete(now, index, (key, hash), segment, cx, fx);
    }

    /// The handshake is done: entry → block.
    fn complete(
        &mut self,
        now: Instant,
        syn_index: u32,
        (key, hash): (&FlowKey, u64),
        segment: &Segment<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(entry) = self.syns.entries.at(syn_index).cloned() else {
            return;
        };
        let Some(listener) = self.listeners.find_mut(entry.listener) else {
            self.drop_syn(syn_index, hash);
            control::answer_with_reset(key, now, segment, cx, fx);
            return;
        };
        // As Linux: the last ACK is dropped while the queue is full; the SYN-ACK comes again.
        if listener.is_full() || self.conns.is_full() {
            cx.counters.bump(Counter::DropTcpBacklog);
            return;
        }
        let Some(path) = cx.link.find_path(key.remote_ip()) else {
            return;
        };
        listener.offered = listener.offered.wrapping_add(1);
        let options = listener.options.socket.clone();
        self.drop_syn(syn_index, hash);
        let index = self.add_block(hash, |id, timer| {
            let seed = Seed {
                key: *key,
                id,
                timer,
                iss: entry.iss,
                ts_offset: entry.ts_offset,
                path,
                options: &options,
            };
            open_passive(&seed, &entry, now, cx)
        });
        let Some(index) = index else { return };
        let Some(conn) = self.conns.at_mut(index) else {
            return;
        };
        keepalive::arm(conn, now, cx);
        let id = conn.id;
        cx.counters.bump(Counter::TcpAccepted);
        fx.event(Event::Accepted {
            listener: entry.listener,
            conn: id,
        });
        fx.event(Event::FlowOpened {
            conn: id,
            local: key.local(),
            remote: key.remote(),
        });
        self.on_connection_segment(now, index, segment, cx, fx);
    }

    /// RFC 9293 3.10.7.4 for TIME-WAIT.
    #[cold]
    fn on_time_wait_segment(
        &mut self,
        now: Instant,
        index: u32,
        (key, hash): (&FlowKey, u64),
        segment: &Segment<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(entry) = self.time_waits.entries.at(index) else {
            return;
        };
        let outcome = entry.on_segment(segment);
        match outcome {
            timewait::Outcome::Ignore => {}
            timewait::Outcome::Acknowledge | timewait::Outcome::Restart => {
                if self.challenges.may_pass(now, cx.rng) {
                    control::send_bare_ack(key, now, entry.ack(now), cx, fx);
                }
                if outcome == timewait::Outcome::Restart {
                    self.time_waits
                        .restart(index, now.plus_nanos(nanos(cx.config.tcp.time_wait)));
                }
            }
            timewait::Outcome::Reopen => {
                let iss = entry.next_initial();
                self.demux.remove(hash, Place::TimeWait(index));
                self.time_waits.entries.remove(index);
                self.on_stranger(now, (key, hash), segment, Some(iss), cx, fx);
            }
        }
    }

    /// Fires what is due.
    #[inline]
    pub fn on_timers(&mut self, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
        if self.next_deadline().is_some_and(|at| at <= now) {
            self.fire(now, cx, fx);
        }
    }

    fn fire(&mut self, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
        while let Some((_, token)) = self.wheel.pop_due(now) {
            let ConnId { index, generation } = ConnId::from_bits(token);
            self.on_connection_timers(now, index, generation, cx, fx);
        }
        while let Some((index, generation)) = self.syns.pop_due(now) {
            self.on_syn_timeout(now, index, generation, cx, fx);
        }
        let time_wait = nanos(cx.config.tcp.time_wait);
        while let Some(index) = self.time_waits.pop_due(now, time_wait) {
            if let Some(entry) = self.time_waits.entries.remove(index) {
                let hash = self.hasher.table(&entry.key);
                self.demux.remove(hash, Place::TimeWait(index));
            }
        }
    }

    fn on_connection_timers(
        &mut self,
        now: Instant,
        index: u32,
        generation: u32,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(conn) = self.conns.find_mut(index, generation) else {
            return;
        };
        let mut verdict = Verdict::Alive;
        while let Some(due) = conn.timers.pop_due(now) {
            verdict = match due {
                Due::Ack => {
                    input::owe_ack(conn);
                    Verdict::Alive
                }
                Due::Resend(kind) => {
                    conn.is_dirty = true;
                    resend::on_due(conn, now, kind, cx, fx)
                }
                Due::Idle => keepalive::on_due(conn, now, cx, fx),
            };
            if verdict != Verdict::Alive {
                break;
            }
        }
        rest(conn);
        if let Verdict::Failed(_) = verdict {
            // RFC 9293 3.10.8: the peer may still be there.
            if conn.phase.is_synchronized() {
                control::send_reset(conn, now, cx, fx);
            }
        }
        self.settle(now, index, verdict, cx, fx);
    }

    fn on_syn_timeout(
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
        if entry.tries >= tcp.synack_retries {
            let hash = self.hasher.table(&entry.key);
            cx.counters.bump(Counter::TcpSynExpired);
            self.drop_syn(index, hash);
            return;
        }
        entry.tries += 1;
        let tries = entry.tries;
        let wait = nanos(tcp.rto_initial)
            .saturating_mul(1 << tries.min(7))
            .min(nanos(tcp.rto_max));
        entry.answer(now, cx, fx);
        self.syns
            .wait(index, generation, tries, now.plus_nanos(wait));
    }

    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        let wheel = self.wheel.next_deadline().unwrap_or(Instant::FAR_FUTURE);
        let at = wheel
            .min(self.syns.next_deadline())
            .min(self.time_waits.next_deadline());
        if at == Instant::FAR_FUTURE {
            None
        } else {
            Some(at)
        }
    }

    #[inline]
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// End of a turn: everything that dirty connections have to say.
    pub fn flush(&mut self, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
        if self.dirty.is_empty() {
            return;
        }
        let mut list = core::mem::take(&mut self.dirty);
        self.dirty = core::mem::take(&mut self.spare);
        for &index in &list {
            let Some(conn) = self.conns.at_mut(index) else {
                continue;
            };
            if !conn.is_queued {
                continue;
            }
            conn.is_queued = false;
            conn.is_dirty = false;
            output::flush(conn, now, cx, fx);
            if let Some(at) = conn.timers.next() {
                self.wheel.set(conn.timer, at);
            }
        }
        list.clear();
        self.spare = list;
    }
}

/// A block for a finished passive handshake.
fn open_passive(seed: &Seed<'_>, entry: &SynEntry, now: Instant, cx: &Cx<'_>) -> Connection {
    let mut conn = connect::build(seed, now, cx);
    connect::agree(&mut conn, now, entry.irs, &entry.peer_options(), cx);
    conn.phase = Phase::Established;
    conn.snd.una = seq::FIRST;
    conn.snd.wl1 = seq::SYN;
    conn.snd.wl2 = seq::FIRST;
    conn.rcv.edge = seq::FIRST + u64::from(entry.window);
    conn.parent = Some(entry.listener);
    if entry.tries == 0 {
        conn.rtt
            .sample(now, Duration::from_nanos(now.nanos_since(entry.sent_at)));
    }
    conn
}

/// A connection without data in flight owns no lists.
fn rest(conn: &mut Connection) {
    let is_idle = conn
        .flight
        .as_ref()
        .is_some_and(|f| f.board.is_empty() && f.recovery.state == super::recovery::State::Open);
    if is_idle && !conn.has_outstanding() {
        conn.flight = None;
    }
}
