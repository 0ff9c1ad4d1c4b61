//! The user calls of sockets (RFC 9293 3.10.1 to 3.10.6).
//!
//! The calls of RFC 9293 3.9.1.1, 3.9.1.3, 3.9.1.4 and 3.9.1.6: open, receive (RFC 9293 3.10.3),
//! close, abort; SEND (RFC 9293 3.10.2) only notes what was written.

use core::net::{IpAddr, SocketAddr};

use slipstack_terms::TcpInfo;
use slipstack_wire::protocol;
use slipstack_wire::tcp::{CHECKSUM_AT, HEADER_LEN, TcpFlags, TcpHeader};

use super::connect::{self, Seed};
use super::connection::{AckState, Connection};
use super::fast_open::client;
use super::flow::{FlowKey, FlowState};
use super::free_ports::Fitness;
use super::info;
use super::options::{self, Preset};
use super::output::{self, control, window};
use super::phase::Phase;
use super::ports::Wanted;
use super::verdict::Verdict;
use super::{Tcp, keepalive, records, seq, urgent};
use crate::choices::ChoiceId;
use crate::config::TcpConfig;
use crate::counters::Counter;
use crate::effects::{Effects, Event, Payload};
use crate::error::SocketError;
use crate::fib::{Choice, Query};
use crate::ids::{ConnId, ListenerId};
use crate::network_layer::{Cx, OutPacket, OutSegment};
use crate::options::{CloseMode, ListenOptions, PortHold, PortRange, SocketOption, SocketOptions};
use crate::time::{Instant, nanos};

/// A program may be ahead of the acknowledged stream by at most this much.
const WRITTEN_MAX: u64 = 1 << 30;

impl Tcp {
    /// Port 0 picks one. Several listeners on one address need `reuse_port` on all of them.
    pub fn listen(
        &mut self,
        local: SocketAddr,
        options: ListenOptions,
        cx: &mut Cx<'_>,
    ) -> Result<ListenerId, SocketError> {
        if self.listeners.len() >= super::LISTENERS_MAX as usize {
            return Err(SocketError::LimitReached);
        }
        let hold = PortHold {
            ip: local.ip(),
            is_v6_only: options.is_v6_only,
            link: options.socket.link,
        };
        if !local.ip().is_unspecified() && !cx.net.is_own(local.ip()) {
            return Err(SocketError::AddrNotAvailable);
        }
        let range = options.socket.port_range;
        let port = self.reserve_port(hold, local.port(), options.reuse_port, range, cx)?;
        let local = SocketAddr::new(local.ip(), port);
        let choice = cx.net.choices.note(Choice::of(&options.socket));
        let preset = Preset::of(&options.socket, &cx.config.tcp, choice);
        self.check_hops_for(&[preset.bounds(true), preset.bounds(false)]);
        self.save_syns_for(&options.socket);
        let Some(id) = self.listeners.add(local, hold, options, preset) else {
            self.ports.release(&hold, port);
            return Err(SocketError::LimitReached);
        };
        Ok(id)
    }

    pub fn set_backlog(&mut self, id: ListenerId, backlog: u32) -> Result<(), SocketError> {
        let listener = self.listeners.find_mut(id).ok_or(SocketError::UnknownId)?;
        listener.options.backlog = backlog;
        Ok(())
    }

    /// For connections that open from now on (Linux: a child begins with its listener's options).
    pub fn set_preset(
        &mut self,
        id: ListenerId,
        options: SocketOptions,
        cx: &mut Cx<'_>,
    ) -> Result<(), SocketError> {
        let listener = self.listeners.find_mut(id).ok_or(SocketError::UnknownId)?;
        let choice = cx.net.choices.note(Choice::of(&options));
        listener.preset = Preset::of(&options, &cx.config.tcp, choice);
        let links = (listener.options.socket.link, options.link);
        let bounds = [true, false].map(|is_v4| listener.preset.bounds(is_v4));
        listener.options.socket = options.clone();
        self.save_syns_for(&options);
        self.listeners.set_link(links.0, links.1);
        self.check_hops_for(&bounds);
        Ok(())
    }

    pub fn set_yielding(&mut self, id: ListenerId, is_yielding: bool) {
        self.listeners.set_yielding(id, is_yielding);
    }

    /// Records how many connections the program has taken from this listener in total (wrapping),
    /// which makes room in the backlog. Those that came from another engine count here too, so the
    /// total can be ahead of the number that this stack has offered: then its queue counts as
    /// empty.
    pub fn accepted(&mut self, id: ListenerId, total: u32) {
        if let Some(listener) = self.listeners.find_mut(id) {
            let is_ahead = (listener.offered.wrapping_sub(total) as i32) < 0;
            listener.taken = if is_ahead { listener.offered } else { total };
        }
    }

    /// Half-open connections are dropped; those that wait for accept are the caller's to close.
    pub fn unlisten(&mut self, id: ListenerId) -> Result<(), SocketError> {
        let listener = self.listeners.remove(id).ok_or(SocketError::UnknownId)?;
        self.ports.release(&listener.hold, listener.local.port());
        Ok(())
    }

    /// Holds a port without listening, whosever the address is. Port 0 picks one of the ephemeral
    /// range.
    pub fn reserve_port(
        &mut self,
        hold: PortHold,
        port: u16,
        reuse_port: bool,
        range: PortRange,
        cx: &mut Cx<'_>,
    ) -> Result<u16, SocketError> {
        if port != 0 {
            return match self.ports.hold(&hold, port, reuse_port) {
                true => Ok(port),
                false => Err(SocketError::AddrInUse),
            };
        }
        let start = cx.rng.next_u64();
        let range = range.within(cx.config.ports);
        let port = self
            .ports
            .pick(start, |ports, port| range.has(port) && !ports.is_held(port))
            .ok_or(SocketError::AddrNotAvailable)?;
        self.ports.hold(&hold, port, reuse_port);
        Ok(port)
    }

    pub fn release_port(&mut self, hold: &PortHold, port: u16) {
        self.ports.release(hold, port);
    }

    /// RFC 9293 3.10.1, active. `local` port 0 (or no local address) picks a port (RFC 6056).
    pub fn connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        options: &SocketOptions,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> Result<ConnId, SocketError> {
        if remote.port() == 0 || remote.ip().is_unspecified() || remote.ip().is_multicast() {
            return Err(SocketError::InvalidArgument);
        }
        client::check(options, cx)?;
        if self.conns.is_full() {
            return Err(SocketError::LimitReached);
        }
        let choice = Choice::of(options);
        let source = source_of(local, remote, options, cx)?;
        let query = query_of(Some(source), local, remote, choice);
        let path = cx.net.find_path_by(now, &query);
        let path = path.ok_or_else(|| cx.net.refusal(&query))?;
        let local = SocketAddr::new(source, local.map_or(0, |l| l.port()));
        let (key, iss) = self.choose_flow(now, local, remote, options.port_range, cx, fx)?;
        let hash = self.hasher.table(&key);
        let fresh = connect::numbers(&self.hasher, &key, now);
        let choice = cx.net.choices.note(choice);
        let mut preset = Preset::of(options, &cx.config.tcp, choice);
        (preset.opts.tos, preset.opts.ttl) = preset.header(key.is_v4());
        preset.opts.ttl = cx.net.ttl(!key.is_v4(), preset.opts.ttl, || query);
        let index = self
            .add_block(hash, |id| {
                connect::build(
                    &Seed {
                        key,
                        hash,
                        id,
                        iss: iss.unwrap_or(fresh.iss),
                        ts_offset: fresh.ts_offset,
                        path,
                        mss: options::our_mss(&key, &preset, cx.net),
                        preset: &preset,
                    },
                    now,
                    cx,
                )
            })
            .ok_or_else(|| {
                self.ports.release_flow(key.local_port);
                SocketError::LimitReached
            })?;
        let conn = self.conns.at_mut(index).ok_or(SocketError::LimitReached)?;
        let id = conn.id;
        take_preset(conn, &preset, &cx.config.tcp);
        cx.counters.bump(Counter::TcpConnects);
        fx.event(Event::FlowOpened {
            conn: id,
            local: key.local(),
            remote: key.remote(),
        });
        if options.fast_open || options.fast_open_send {
            let servers = &mut self.fast_open_servers;
            let needs_none = options.fast_open_no_cookie;
            let attempt = client::attempt(now, conn, needs_none, servers, cx);
            conn.flight_mut().attempt = attempt;
        }
        client::start(conn, now, cx, fx);
        self.check_hops_for(&[preset.bounds(key.is_v4())]);
        self.settle(now, index, Verdict::Alive, cx, fx);
        Ok(id)
    }

    /// Returns the flow of an active open, with the initial number that a TIME-WAIT entry in its
    /// place requires.
    fn choose_flow(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        range: PortRange,
        cx: &mut Cx<'_>,
        fx: &impl Effects,
    ) -> Result<(FlowKey, Option<u32>), SocketError> {
        let (source, port) = (local.ip(), local.port());
        let key_of = |port| FlowKey::new(source, port, remote.ip(), remote.port());
        let time_wait = nanos(cx.config.tcp.time_wait);
        if port != 0 {
            let local = SocketAddr::new(source, port);
            if !self.ports.leads_home(local, remote) {
                cx.counters.bump(Counter::TcpConnectsAway);
            }
            return match self.find_vacancy(now, &key_of(port), time_wait) {
                Vacancy::Free => Ok((key_of(port), None)),
                Vacancy::TimeWait(index) => Ok((key_of(port), self.evict_time_wait(index))),
                Vacancy::Taken => Err(SocketError::FlowExists),
            };
        }
        let wanted = Wanted {
            local: source,
            remote,
            start: self.hasher.port(&key_of(0)),
        };
        let range = range.within(cx.config.ports);
        let Tcp { ports, .. } = self;
        let mut ports = core::mem::replace(ports, super::ports::Ports::placeholder());
        let picked = ports.choose(&wanted, |ports, port| {
            let is_elsewhere = || fx.is_elsewhere(SocketAddr::new(source, port), remote);
            if !range.has(port) || ports.is_held(port) || is_elsewhere() {
                return Fitness::Unfit;
            }
            match self.find_vacancy(now, &key_of(port), time_wait) {
                Vacancy::Taken => Fitness::Taken,
                Vacancy::Free | Vacancy::TimeWait(_) => Fitness::Free,
            }
        });
        self.ports = ports;
        let picked = picked.ok_or(SocketError::AddrNotAvailable)?;
        if !picked.is_home {
            cx.counters.bump(Counter::TcpConnectsAway);
        }
        let key = key_of(picked.port);
        let iss = match self.find_vacancy(now, &key, time_wait) {
            Vacancy::TimeWait(index) => self.evict_time_wait(index),
            Vacancy::Free | Vacancy::Taken => None,
        };
        Ok((key, iss))
    }

    fn find_vacancy(&self, now: Instant, key: &FlowKey, time_wait: u64) -> Vacancy {
        match self.find_place(key, self.hasher.table(key)) {
            None => Vacancy::Free,
            Some(FlowState::TimeWait(index)) => {
                let entry = self.time_waits.entries.at(index);
                if entry.is_some_and(|e| e.may_reuse(now, time_wait)) {
                    Vacancy::TimeWait(index)
                } else {
                    Vacancy::Taken
                }
            }
            Some(_) => Vacancy::Taken,
        }
    }

    fn evict_time_wait(&mut self, index: u32) -> Option<u32> {
        let entry = self.time_waits.entries.at(index)?;
        let (hash, iss) = (self.hasher.table(&entry.key), entry.next_initial());
        self.drop_time_wait(index, hash);
        Some(iss)
    }

    /// The program has put stream bytes before `upto` into the send ring.
    #[inline]
    pub fn written(&mut self, id: ConnId, upto: u64, more: bool) {
        let Some(conn) = self.conns.find_mut(id.index, id.generation) else {
            return;
        };
        if conn.snd.is_fin_queued {
            return;
        }
        let most = conn.snd.una.max(seq::FIRST) + WRITTEN_MAX;
        conn.snd.written = conn.snd.written.max(seq::at(upto).min(most));
        conn.snd.has_more = more;
        conn.is_dirty = true;
        if !conn.is_queued {
            conn.is_queued = true;
            self.dirty.push(id.index);
        }
    }

    /// Marks the bytes before `upto` in the send ring as urgent (RFC 6093 3.2: in band, the mark
    /// after them). Called before the bytes do.
    pub fn mark_urgent(&mut self, id: ConnId, upto: u64) {
        let Some(conn) = self.conns.find_mut(id.index, id.generation) else {
            return;
        };
        if !conn.snd.is_fin_queued {
            let most = conn.snd.una.max(seq::FIRST) + WRITTEN_MAX;
            urgent::mark(conn, seq::at(upto.min(most)).min(most));
        }
    }

    /// Ends a record before `upto` in the send ring. Called before the bytes are announced.
    pub fn end_record(&mut self, id: ConnId, upto: u64) {
        let Some(conn) = self.conns.find_mut(id.index, id.generation) else {
            return;
        };
        let most = conn.snd.una.max(seq::FIRST) + WRITTEN_MAX;
        records::end(conn, seq::at(upto.min(most)).min(most));
    }

    /// The program has read up to `upto`. The receive buffer's size, if it has grown.
    #[inline]
    pub fn consumed(&mut self, now: Instant, id: ConnId, upto: u64, cx: &Cx<'_>) -> Option<u32> {
        let conn = self.conns.find_mut(id.index, id.generation)?;
        conn.rcv.consumed = seq::at(upto).min(conn.rcv.nxt).max(conn.rcv.consumed);
        let grown = window::on_consumed(conn, now, cx.config.tcp.rcvbuf_max);
        // A burst's ACK waits for just that.
        if conn.rcv.ack == AckState::Due || window::is_update_due(conn) {
            conn.is_dirty = true;
            if !conn.is_queued {
                conn.is_queued = true;
                self.dirty.push(id.index);
            }
        }
        grown
    }

    /// FIN after everything that was written (RFC 9293 3.10.4).
    pub fn shutdown(&mut self, now: Instant, id: ConnId, cx: &mut Cx<'_>, fx: &mut impl Effects) {
        let Some(conn) = self.conns.find_mut(id.index, id.generation) else {
            return;
        };
        queue_fin(conn);
        self.settle(now, id.index, Verdict::Alive, cx, fx);
    }

    /// Stops reading. RFC 9293 3.6.1: later data is answered with a reset.
    pub fn stop_reading(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.find_mut(id.index, id.generation) {
            conn.rcv.is_shut = true;
        }
    }

    /// Emits the due segments of one connection before the end of the turn.
    pub fn push(
        &mut self,
        now: Instant,
        id: ConnId,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> bool {
        let Some(conn) = self.conns.find_mut(id.index, id.generation) else {
            return false;
        };
        if !conn.is_queued || !conn.phase.is_synchronized() {
            return false;
        }
        output::flush(conn, now, cx, fx);
        true
    }

    /// Closes the program's side. `unread`: its unread bytes are lost, which the peer learns by a
    /// reset (RFC 1122 4.2.2.13).
    pub fn close(
        &mut self,
        now: Instant,
        id: ConnId,
        mode: CloseMode,
        unread: bool,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let Some(conn) = self.conns.find_mut(id.index, id.generation) else {
            return;
        };
        if conn.is_orphan && mode != CloseMode::Abort {
            return;
        }
        self.orphans += u32::from(!conn.is_orphan);
        conn.is_orphan = true;
        let mut is_abort = mode != CloseMode::Orderly || unread;
        if !is_abort && self.orphans > cx.config.tcp.orphans_max {
            cx.counters.bump(Counter::TcpOrphansReset);
            is_abort = true;
        }
        if conn.phase == Phase::SynSent || is_abort {
            // RFC 9293 3.10.5: nothing is sent in CLOSING and LAST-ACK.
            let is_silent = mode == CloseMode::Abort && !unread && !conn.has_end_to_tell();
            if conn.phase != Phase::SynSent && !is_silent {
                control::send_reset(conn, now, cx, fx);
            }
            self.settle(now, id.index, Verdict::Closed, cx, fx);
            return;
        }
        conn.rcv.is_shut = true;
        conn.opts.manner.set_corked(false);
        queue_fin(conn);
        keepalive::arm(conn, now, cx);
        self.settle(now, id.index, Verdict::Alive, cx, fx);
    }

    pub fn set_option(
        &mut self,
        now: Instant,
        id: ConnId,
        option: SocketOption,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> Result<(), SocketError> {
        let conn = self
            .conns
            .find_mut(id.index, id.generation)
            .ok_or(SocketError::UnknownId)?;
        options::change(conn, option, now, cx, fx)?;
        conn.is_dirty = true;
        let bounds = conn.bounds();
        self.check_hops_for(&[bounds]);
        self.settle(now, id.index, Verdict::Alive, cx, fx);
        Ok(())
    }

    /// Returns how many written bytes have not been sent.
    pub fn unsent(&self, id: ConnId) -> u64 {
        let conn = self.conns.find(id.index, id.generation);
        let conn = conn.filter(|conn| conn.phase.is_synchronized());
        conn.map_or(0, |conn| conn.snd.written.saturating_sub(conn.snd.nxt))
    }

    pub fn info(
        &self,
        id: ConnId,
        now: Instant,
        cx_config: &crate::config::TcpConfig,
    ) -> Option<TcpInfo> {
        self.conns
            .find(id.index, id.generation)
            .map(|conn| info::of(conn, now, cx_config))
    }

    /// Returns whether there is a connection between these ends.
    pub fn has_connection(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let key = FlowKey::new(local.ip(), local.port(), remote.ip(), remote.port());
        let place = self.find_place(&key, self.hasher.table(&key));
        matches!(place, Some(FlowState::Connection(_)))
    }

    pub fn endpoints(&self, id: ConnId) -> Option<(SocketAddr, SocketAddr)> {
        self.conns
            .find(id.index, id.generation)
            .map(|conn| (conn.key.local(), conn.key.remote()))
    }

    /// Returns the number of the choice that packets of a connection go by.
    pub fn choice(&self, id: ConnId) -> ChoiceId {
        let conn = self.conns.find(id.index, id.generation);
        conn.map_or(ChoiceId::default(), |conn| conn.choice)
    }

    /// Bytes that the program may have written beyond what is acknowledged; 0 for a dead id.
    pub fn sndbuf(&self, id: ConnId) -> u32 {
        self.conns
            .find(id.index, id.generation)
            .map_or(0, |conn| conn.snd.limit)
    }

    /// Receive buffer as it is now, auto-tuned; 0 for a dead id.
    pub fn rcvbuf(&self, id: ConnId) -> u32 {
        self.conns
            .find(id.index, id.generation)
            .map_or(0, |conn| conn.rcv.buffer)
    }

    /// One stateless segment that no connection can take: the peer answers with an ACK that carries
    /// the exact numbers (RFC 9293 3.10.7.4), and a reset for a closed port can follow.
    pub fn probe(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) {
        let header = TcpHeader {
            src_port: local.port(),
            dst_port: remote.port(),
            seq: cx.rng.next_u32(),
            ack: cx.rng.next_u32(),
            flags: TcpFlags::ACK,
            // The peer ignores it in such a segment; in a capture a closed one would look like an
            // error.
            window: u16::MAX,
            urgent: 0,
        };
        let mut buffer = [0u8; HEADER_LEN];
        header.emit(0, &mut buffer);
        let packet = OutPacket {
            src: local.ip(),
            dst: remote.ip(),
            protocol: protocol::TCP,
            ports: (local.port(), remote.port()),
            tos: 0,
            ttl: crate::options::DEFAULT_TTL,
            dont_fragment: true,
            choice: Choice::NONE,
        };
        let segment = OutSegment {
            header: &buffer,
            payload: Payload::Inline(&[0]),
            checksum_at: Some(CHECKSUM_AT),
            gso_mss: None,
        };
        cx.counters.bump(Counter::TxTcp);
        cx.output(now, &packet, &mut None, segment, fx);
    }
}

enum Vacancy {
    Free,
    /// A TIME-WAIT entry that may give way.
    TimeWait(u32),
    Taken,
}

/// Takes over what the program had set before the connection was there.
fn take_preset(conn: &mut Connection, preset: &Preset, config: &TcpConfig) {
    conn.cc
        .begin(u32::from(conn.opts.mss_max), config.initial_cwnd);
    conn.take_limits(preset, config.pacing);
    conn.opts.manner.set_defers_ack(preset.deferrals > 0);
}

fn source_of(
    local: Option<SocketAddr>,
    remote: SocketAddr,
    options: &SocketOptions,
    cx: &Cx<'_>,
) -> Result<IpAddr, SocketError> {
    let query = query_of(None, local, remote, Choice::of(options));
    match local.map(|l| l.ip()).filter(|ip| !ip.is_unspecified()) {
        Some(ip) if options.is_transparent || cx.net.is_own(ip) => Ok(ip),
        Some(_) => Err(SocketError::AddrNotAvailable),
        None => cx
            .net
            .find_source_by(&query)
            .ok_or_else(|| cx.net.refusal(&query)),
    }
}

/// The query of a connection that has no port yet if its program has bound none.
fn query_of(
    source: Option<IpAddr>,
    local: Option<SocketAddr>,
    remote: SocketAddr,
    choice: Choice,
) -> Query {
    let ports = (local.map_or(0, |local| local.port()), remote.port());
    Query::between(source, remote.ip())
        .by(choice)
        .carrying(protocol::TCP, ports)
}

/// RFC 9293 3.10.4: the states that a close moves on.
fn queue_fin(conn: &mut Connection) {
    conn.snd.is_fin_queued = true;
    conn.snd.has_more = false;
    conn.is_dirty = true;
    conn.phase = match conn.phase {
        Phase::Established => Phase::FinWait1,
        Phase::CloseWait => Phase::LastAck,
        other => other,
    };
}
