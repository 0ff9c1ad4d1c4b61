//! Dispatch of segments, deadlines and flushes to the storage that they concern, and handling of
//! the result.

use slipstack_wire::tcp::{TcpHeader, TcpSegment};

use super::arrival::{Arrival, Opening, Packet};
use super::audit::audit_often;
use super::connection::{AckState, Connection};
use super::flow::{FlowKey, FlowState};
use super::in_flight::InFlight;
use super::input;
use super::output::{self, ack_policy, control, emit};
use super::phase::Phase;
use super::segment::Segment;
use super::timers::Due;
use super::timewait::TimeWait;
use super::verdict::Verdict;
use super::{Tcp, TrainState, connect, keepalive, records, resend, urgent};
use crate::config::Role;
use crate::counters::Counter;
use crate::effects::{Effects, Event, RxMeta};
use crate::error::Reason;
use crate::ids::ConnId;
use crate::ip::IpMeta;
use crate::network_layer::Cx;
use crate::time::{Instant, nanos};

/// Lists of former connections that are kept for new ones.
const FLIGHTS_KEPT: usize = 256;

impl Tcp {
    /// Processes a segment whose checksum and addresses are valid.
    #[inline(always)]
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
        let segment = Segment::new(&parsed, ip.tos, meta);
        let hash = self.hasher.table(&key);
        let place = self.find_place(&key, hash);
        if self.checks_hops && self.is_from_too_far(place, &key, ip) {
            return cx.counters.bump(Counter::DropTcpHops);
        }
        if let Some(FlowState::Connection(index)) = place {
            return self.on_connection_segment(now, index, &segment, cx, fx);
        }
        let arrival = Arrival {
            key: &key,
            hash,
            segment: &segment,
            link: Some(ip.link),
        };
        let packet = Packet { ip, segment: bytes };
        match place {
            Some(FlowState::Syn(index)) => self.on_half_open(now, index, &arrival, packet, cx, fx),
            Some(FlowState::TimeWait(index)) => {
                self.on_former(now, index, &arrival, packet, cx, fx)
            }
            _ => self.on_unknown(now, &arrival, packet, None, cx, fx),
        }
    }

    /// Returns whether the hop limit of a packet is below the smallest one that its connection or
    /// listener admits (RFC 5082 3).
    #[cold]
    fn is_from_too_far(&mut self, place: Option<FlowState>, key: &FlowKey, ip: &IpMeta) -> bool {
        match place {
            Some(FlowState::Connection(index)) => {
                // Segments are checked one by one: none continues another unseen.
                self.train.state = TrainState::Idle;
                let conn = self.conns.at(index);
                conn.is_some_and(|conn| conn.is_too_far(ip.ttl))
            }
            Some(FlowState::TimeWait(_)) => false,
            Some(FlowState::Syn(_)) | None => {
                let id = self.listeners.choose(key, Some(ip.link), &self.hasher);
                let listener = id.and_then(|id| self.listeners.find(id));
                listener.is_some_and(|it| ip.ttl < it.preset.bounds(key.is_v4()).hops_min)
            }
        }
    }

    /// Handles a segment that matches a handshake. While a connection is moving here, a copy of its
    /// SYN may have begun one: segments of the connection are not answered by the copy.
    fn on_half_open(
        &mut self,
        now: Instant,
        index: u32,
        arrival: &Arrival<'_>,
        packet: Packet<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        if self.syns.is_anothers(index, arrival.segment) && packet.pass_on(fx) {
            return cx.counters.bump_segment(Counter::TcpStrays);
        }
        self.on_syn_entry_segment(now, index, arrival, cx, fx);
    }

    /// Handles a segment that matches a TIME-WAIT entry. Its peer may reuse the two ends with
    /// another engine: segments of that connection must not be answered here.
    #[cold]
    fn on_former(
        &mut self,
        now: Instant,
        index: u32,
        arrival: &Arrival<'_>,
        packet: Packet<'_>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let &Arrival {
            key,
            hash,
            segment,
            link,
        } = arrival;
        let entry = self.time_waits.entries.at(index);
        let is_outlived = entry.is_some_and(|entry| entry.is_outlived_by(segment));
        if is_outlived && packet.pass_on(fx) {
            return cx.counters.bump_segment(Counter::TcpStrays);
        }
        if is_outlived && cx.config.role == Role::Keeper {
            // All engines have refused: the later connection is over, and its peer does not know. A
            // peer of the old one would not have sent this.
            cx.counters.bump(Counter::RxTcpSteps);
            return self.on_unknown_flow(now, arrival, Opening::default(), cx, fx);
        }
        let is_reopened = entry.is_some_and(|entry| entry.is_reopened_by(segment));
        if is_reopened && self.listeners.choose(key, link, &self.hasher).is_none() {
            if packet.pass_on(fx) {
                cx.counters.bump_segment(Counter::TcpStrays);
                cx.note_tcp_stray(key);
                self.drop_time_wait(index, hash);
            } else {
                // There is no listener for a new connection: the TIME-WAIT entry continues (as on
                // Linux).
                cx.counters.bump_segment(Counter::RxTcpTaken);
                self.acknowledge_former(now, index, key, cx, fx);
            }
            return;
        }
        // A segment that another engine passed on arrives behind later ones of the peer.
        if packet.ip.local && entry.is_some_and(|entry| entry.was_before_end(segment)) {
            return cx.counters.bump_segment(Counter::DropTcpOutOfWindow);
        }
        let reopened = self.on_time_wait_segment(now, index, arrival, cx, fx);
        if let Some(iss) = reopened {
            self.on_unknown(now, arrival, packet, Some(iss), cx, fx);
        }
    }

    /// Handles a segment without a flow here: the end of a handshake by cookie, another engine's
    /// segment, a new connection, or an unexpected segment.
    #[inline(never)]
    fn on_unknown(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        packet: Packet<'_>,
        iss: Option<u32>,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let segment = arrival.segment;
        cx.counters.bump(Counter::RxTcpSteps);
        if self.take_cookie(now, arrival, cx, fx) {
            return;
        }
        // A segment with neither ACK nor RST is no connection's, and a listener's even without a
        // SYN.
        let listener = if !segment.flags.is_ack() && !segment.flags.is_rst() {
            self.listeners
                .choose(arrival.key, arrival.link, &self.hasher)
        } else {
            None
        };
        // The segment may belong to another engine: frames are in flight while the keeper changes
        // the assignment of a port.
        if listener.is_none() && packet.pass_on(fx) {
            cx.counters.bump(Counter::TcpStrays);
            cx.note_tcp_stray(arrival.key);
        } else {
            self.on_unknown_flow(now, arrival, Opening { listener, iss }, cx, fx);
        }
    }

    #[inline]
    pub(super) fn on_connection_segment(
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
        if input::fastpath::try_take(conn, now, segment, cx, fx) {
            if segment.is_full(conn.rcv.mss) {
                self.train.note(index);
            }
            return self.enqueue(index);
        }
        self.on_segment_in_steps(now, index, segment, cx, fx);
    }

    /// Processes a segment step by step, without the fast path.
    #[inline(never)]
    pub(super) fn on_segment_in_steps(
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
        cx.counters.bump(Counter::RxTcpSteps);
        conn.segments.on_received(segment, conn.rcv.mss);
        if input::last_fin::try_take(conn, segment) {
            cx.counters.bump(Counter::RxTcpTaken);
            return self.end(now, index, Verdict::TimeWait, cx, fx);
        }
        let verdict = match conn.phase {
            Phase::SynSent => {
                let servers = &mut self.fast_open_servers;
                connect::on_segment(conn, now, segment, servers, cx, fx)
            }
            _ => input::on_segment(conn, now, segment, &mut self.challenges, cx, fx),
        };
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
        debug_assert_eq!(audit_often(conn), Ok(()), "{:?}", conn.id);
        if conn.is_dirty {
            // The flush files the timer.
            if !conn.is_queued {
                conn.is_queued = true;
                self.dirty.push(index);
            }
        } else if let Some(at) = conn.next_deadline() {
            self.wheel.set(index, at);
        }
    }

    #[inline(never)]
    fn end(
        &mut self,
        now: Instant,
        index: u32,
        verdict: Verdict,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(conn) = self.conns.at_mut(index) else {
            return;
        };
        let id = conn.id;
        let hash = u64::from(conn.hash);
        if self.ended.is_watched() {
            self.ended.note(now, conn, &cx.config.tcp);
        }
        match verdict {
            Verdict::TimeWait => {
                let until = now.plus_nanos(nanos(cx.config.tcp.time_wait));
                let mut entry = TimeWait::of(conn, until);
                let owes = conn.rcv.acked != conn.rcv.nxt || conn.rcv.ack != AckState::None;
                entry.is_owed = owes && !self.time_waits.entries.is_full();
                if owes && !entry.is_owed {
                    emit::bare_ack(&conn.key, now, &entry.ack(now), &mut conn.hop, cx, fx);
                }
                match self.time_waits.insert(entry, until) {
                    Some(place) => {
                        let place = FlowState::TimeWait(place);
                        self.demux
                            .replace(hash, FlowState::Connection(index), place);
                        if owes {
                            self.dirty.push(place.pack());
                        }
                    }
                    None => self.forget_flow(index, hash),
                }
            }
            Verdict::Failed(reason) => {
                if !conn.is_orphan {
                    fx.event(Event::Failed { conn: id, reason });
                }
                if reason == Reason::Reset && conn.is_passive && conn.phase == Phase::SynReceived {
                    let key = conn.key;
                    self.on_fast_open_reset(now, &key, id);
                }
                self.forget_flow(index, hash);
            }
            Verdict::Closed | Verdict::Refused | Verdict::Alive => self.forget_flow(index, hash),
        }
        self.drop_block(index);
        fx.event(Event::Released { conn: id });
    }

    /// Takes a connection out of the demultiplexer; nothing is left of its flow.
    pub(super) fn forget_flow(&mut self, index: u32, hash: u64) {
        self.demux.remove(hash, FlowState::Connection(index));
        if let Some(conn) = self.conns.at(index) {
            self.ports.release_flow(conn.key.local_port);
        }
    }

    /// Empties the block's place; the demultiplexer does not name it any more.
    pub(super) fn drop_block(&mut self, index: u32) {
        let Some(conn) = self.conns.at_mut(index) else {
            return;
        };
        let flight = conn.flight.take();
        self.orphans -= u32::from(conn.is_orphan);
        self.wheel.remove(index);
        self.latest.forget(index);
        self.conns.clear(index);
        self.recycle(flight);
    }

    /// Ends a TIME-WAIT: its time is over, or its two ends are used again.
    pub(super) fn drop_time_wait(&mut self, index: u32, hash: u64) {
        self.demux.remove(hash, FlowState::TimeWait(index));
        if let Some(entry) = self.time_waits.entries.at(index) {
            self.ports.release_flow(entry.key.local_port);
        }
        self.time_waits.remove(index);
    }

    /// Keeps the lists of a connection that rests for the next one.
    #[inline(always)]
    fn recycle(&mut self, flight: Option<alloc::boxed::Box<InFlight>>) {
        if let Some(mut flight) = flight
            && self.flights.len() < FLIGHTS_KEPT
        {
            flight.reset();
            self.flights.push(flight);
        }
    }

    /// Makes a block and names it everywhere; `None` = the limit is reached.
    pub(super) fn add_block(
        &mut self,
        hash: u64,
        make: impl FnOnce(ConnId) -> Connection,
    ) -> Option<u32> {
        let index = self.make_block(make)?;
        self.demux.insert(hash, FlowState::Connection(index));
        Some(index)
    }

    /// Makes a connection block without an entry in the demultiplexer.
    pub(super) fn make_block(&mut self, make: impl FnOnce(ConnId) -> Connection) -> Option<u32> {
        let (index, _) = self
            .conns
            .insert_with(|index, generation| make(ConnId { index, generation }))?;
        self.wheel.cover(index);
        Some(index)
    }

    /// Fires timers that were due at `due_by`.
    #[inline]
    pub fn on_timers(
        &mut self,
        due_by: Instant,
        now: Instant,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        if self.has_due(due_by) {
            self.fire(due_by, now, cx, fx);
        }
    }

    #[inline]
    pub fn has_due(&self, now: Instant) -> bool {
        self.wheel.has_due(now)
            || self.syns.next_deadline() <= now
            || self.time_waits.next_deadline() <= now
    }

    fn fire(&mut self, due_by: Instant, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
        while let Some(index) = self.wheel.pop(due_by) {
            self.on_connection_timers(due_by, now, index, cx, fx);
        }
        while let Some((index, generation)) = self.syns.pop_due(due_by) {
            self.on_syn_timeout(now, index, generation, cx, fx);
        }
        let time_wait = nanos(cx.config.tcp.time_wait);
        while let Some(index) = self.time_waits.pop_due(due_by, time_wait) {
            if let Some(entry) = self.time_waits.entries.at(index) {
                let hash = self.hasher.table(&entry.key);
                self.drop_time_wait(index, hash);
            }
        }
    }

    fn on_connection_timers(
        &mut self,
        due_by: Instant,
        now: Instant,
        index: u32,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(conn) = self.conns.at_mut(index) else {
            return;
        };
        let mut verdict = Verdict::Alive;
        conn.is_dirty |= conn.cc.is_paced && conn.takes_paced(now);
        while let Some(due) = conn.timers.pop_due(due_by) {
            verdict = match due {
                Due::Ack => {
                    ack_policy::on_due(conn, now, cx, fx);
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
        let resting = rest(conn);
        if let Verdict::Failed(_) = verdict {
            // RFC 9293 3.10.8: the peer may still be there.
            if conn.phase.is_synchronized() {
                control::send_reset(conn, now, cx, fx);
            }
        }
        self.recycle(resting);
        self.settle(now, index, verdict, cx, fx);
    }

    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        let wheel = self.wheel.next_deadline().unwrap_or(Instant::FAR_FUTURE);
        let at = wheel
            .min(self.syns.wake_at())
            .min(self.time_waits.wake_at());
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

    /// End of a turn: everything that dirty connections have to say, and the answers that opening
    /// and closing owe.
    pub fn flush(&mut self, now: Instant, cx: &mut Cx<'_>, fx: &mut impl Effects) {
        let Tcp {
            conns,
            syns,
            time_waits,
            dirty,
            wheel,
            ..
        } = self;
        for &place in dirty.iter() {
            let index = match FlowState::unpack(place) {
                FlowState::Connection(index) => index,
                FlowState::Syn(index) => {
                    syns.answer_owed(index, now, cx, fx);
                    continue;
                }
                FlowState::TimeWait(index) => {
                    time_waits.answer_owed(index, now, cx, fx);
                    continue;
                }
            };
            // A block may have been freed since, and its index reused.
            let Some(conn) = conns.at_mut(index).filter(|conn| conn.is_queued) else {
                continue;
            };
            conn.is_queued = false;
            conn.is_dirty = false;
            output::flush(conn, now, cx, fx);
            if let Some(at) = conn.next_deadline() {
                wheel.set(index, at);
            }
        }
        dirty.clear();
    }
}

/// A connection without data in flight owns no lists, unless pacing delays the next segment.
fn rest(conn: &mut Connection) -> Option<alloc::boxed::Box<InFlight>> {
    let is_paced = conn.cc.is_paced;
    let is_idle = conn.flight.as_ref().is_some_and(|f| {
        let is_held_back = is_paced && f.pacer.is_awaited();
        f.board.is_empty() && f.recovery.is_open() && !is_held_back
    });
    let has_marks = || urgent::end(conn).is_some() || records::is_any(conn);
    if is_idle && !conn.has_outstanding() && !has_marks() {
        conn.opts.manner.set_records(false);
        let flight = conn.flight.take();
        if let Some(flight) = &flight {
            flight.rest(&mut conn.past, &mut conn.kept);
        }
        flight
    } else {
        None
    }
}
