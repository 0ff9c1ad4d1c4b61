//! A connection as plain bytes, to be moved to another engine.
//!
//! Sequence numbers and offsets only, no memory addresses. State that is derived or can be learnt
//! again (RTT history, SACK scoreboard, congestion epoch) is left behind: forgetting SACK blocks is
//! allowed (RFC 2018 8), and so is reneging on out-of-order ranges beyond those that fit. The
//! adopter checks everything: the bytes may be hostile.

mod fields;
mod origin;
mod renumbering;
mod rivals;
mod soundness;

pub use origin::{Progress, foresee};
use slipstack_wire::user_timeout::UserTimeout;

use fields::{
    BUFFER_FIXED, CORK, ECN, FIN_QUEUED, FIN_RECEIVED, FIN_SENT, Fields, KEEP_ALIVE, LIMIT_FIXED,
    NO_DELAY, OWES_TIMEOUT, PASSIVE, RANGES, REBUILT, SACK, SCALING, TIMESTAMPS,
};

use super::Tcp;
use super::assembler::Range;
use super::connect::{self, Seed};
use super::connection::Connection;
use super::figures::Segments;
use super::flow::FlowState;
use super::options::{self, Preset};
use super::rtt::Rtt;
use super::{keepalive, resend_timer, seq, urgent, user_timeout};
use crate::choices::Choices;
use crate::effects::Effects;
use crate::error::SocketError;
use crate::ids::ConnId;
use crate::network_layer::Cx;
use crate::options::{Congestion, KeepAlive, SocketOptions};
use crate::time::Instant;
use core::time::Duration;

/// A detached connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionImage {
    bytes: [u8; Self::LEN],
}

impl ConnectionImage {
    /// Length of the plain form.
    pub const LEN: usize = 473;

    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        self.bytes
    }

    /// Takes bytes from anywhere; `tcp_adopt` validates them.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> ConnectionImage {
        ConnectionImage { bytes: *bytes }
    }

    /// Returns the two ends, if the bytes are an image at all: local, remote.
    pub fn endpoints(&self) -> Option<(core::net::SocketAddr, core::net::SocketAddr)> {
        let fields = Fields::read(&self.bytes)?;
        Some((fields.key.local(), fields.key.remote()))
    }

    /// Returns the link that the connection is bound to, as [`crate::Choice::link_of`]; 0 = none.
    pub fn link(&self) -> u16 {
        Fields::read(&self.bytes).map_or(0, |fields| fields.choice_link)
    }

    /// Returns whether the end of the connection's program resets it.
    pub fn resets_at_end(&self) -> bool {
        Fields::read(&self.bytes).is_some_and(|fields| fields.resets_at_end())
    }

    /// Returns the image without the ranges received out of order, for callers that cannot pass
    /// their bytes on: the peer sends them again (RFC 2018 8).
    pub fn without_ranges(&self) -> ConnectionImage {
        let mut image = self.clone();
        if let Some(mut fields) = Fields::read(&self.bytes) {
            fields.ranges = [Range { start: 0, end: 0 }; RANGES];
            if !fields.has(FIN_RECEIVED) {
                fields.fin_at = 0;
            }
            fields.write(&mut image.bytes);
        }
        image
    }

    /// Offset after the last byte that the program has written, and the first one not acknowledged.
    pub fn send_offsets(&self) -> Option<(u64, u64)> {
        let fields = Fields::read(&self.bytes)?;
        Some((
            seq::offset(fields.una.max(seq::FIRST)),
            seq::offset(fields.written),
        ))
    }
}

impl Fields {
    fn of(conn: &Connection, choices: &Choices) -> Fields {
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let mut fields = Fields::empty(conn.key, conn.phase);
        fields.flags = flag(conn.opts.has_timestamps, TIMESTAMPS)
            | flag(conn.opts.has_sack, SACK)
            | flag(conn.opts.has_scaling, SCALING)
            | flag(conn.opts.no_delay, NO_DELAY)
            | flag(conn.opts.manner.is_corked(), CORK)
            | flag(conn.opts.keep_alive, KEEP_ALIVE)
            | flag(conn.snd.is_fin_queued, FIN_QUEUED)
            | flag(conn.snd.is_fin_sent, FIN_SENT)
            | flag(conn.rcv.has_fin, FIN_RECEIVED)
            | flag(conn.opts.fixed.has_limit(), LIMIT_FIXED)
            | flag(conn.rcv.is_buffer_fixed, BUFFER_FIXED)
            | flag(conn.ecn.is_on(), ECN)
            | flag(conn.is_passive, PASSIVE)
            | flag(conn.opts.manner.owes_timeout(), OWES_TIMEOUT)
            | flag(conn.opts.manner.is_rebuilt(), REBUILT);
        let (snd, rcv, opts) = (&conn.snd, &conn.rcv, &conn.opts);
        (fields.iss, fields.irs) = (snd.iss, rcv.irs);
        (fields.una, fields.nxt, fields.written) = (snd.una, snd.nxt, snd.written);
        (fields.snd_edge, fields.wl1, fields.wl2) = (snd.edge, snd.wl1, snd.wl2);
        (fields.snd_wnd, fields.wnd_max, fields.limit) = (snd.wnd, snd.wnd_max, snd.limit);
        (fields.rcv_nxt, fields.rcv_edge, fields.consumed) = (rcv.nxt, rcv.edge, rcv.consumed);
        (fields.fin_at, fields.buffer) = (rcv.fin_at, rcv.buffer);
        (fields.ts_recent, fields.ts_offset) = (rcv.ts_recent, opts.ts_offset);
        (fields.srtt, fields.rttvar) = (conn.rtt.smoothed_ns(), conn.rtt.variance_ns());
        (fields.cwnd, fields.ssthresh) = (conn.cc.window.cwnd, conn.cc.window.ssthresh);
        fields.rate_max = conn.rate_max();
        fields.set_bounds(conn.bounds());
        (fields.keep_idle_ms, fields.keep_interval_ms) = (opts.keep_idle_ms, opts.keep_interval_ms);
        (fields.user_timeout_ms, fields.linger2_ms) = (opts.user_timeout_ms, opts.linger2_ms);
        (fields.peer_mss, fields.mss_max) = (snd.peer_mss, opts.mss_max);
        (fields.snd_shift, fields.rcv_shift) = (snd.shift, rcv.shift);
        (fields.keep_probes, fields.tos, fields.ttl) = (opts.keep_probes, opts.tos, opts.ttl);
        fields.congestion = conn.cc.kind() as u8;
        fields.urgent_end = urgent::end(conn).unwrap_or(0);
        let peer_timeout = conn.kept.as_deref().and_then(|kept| kept.peer_timeout);
        fields.peer_timeout = peer_timeout.map_or(0, UserTimeout::field);
        let Segments {
            total_in,
            total_out,
            data_in,
            data_out,
        } = conn.segments;
        (fields.segs_in, fields.segs_out) = (total_in, total_out);
        (fields.data_segs_in, fields.data_segs_out) = (data_in, data_out);
        fields.retransmitted = conn.retransmitted;
        fields.set_choice(choices.find(conn.choice));
        if let Some(assembler) = &rcv.assembler {
            for (slot, range) in fields.ranges.iter_mut().zip(assembler.ranges()) {
                *slot = *range;
            }
        }
        fields
    }

    fn has(&self, bit: u32) -> bool {
        self.flags & bit != 0
    }

    fn socket_options(&self) -> SocketOptions {
        SocketOptions {
            no_delay: self.has(NO_DELAY),
            cork: self.has(CORK),
            keep_alive: KeepAlive {
                enabled: self.has(KEEP_ALIVE),
                idle: Duration::from_millis(self.keep_idle_ms.into()),
                interval: Duration::from_millis(self.keep_interval_ms.into()),
                probes: self.keep_probes,
            },
            congestion: Congestion::ALL.get(usize::from(self.congestion)).copied(),
            mss: Some(self.mss_max),
            tos: self.tos,
            ttl: self.ttl.max(1),
            mark: self.choice_mark,
            table: self.choice_table,
            link: self.choice_link,
            priority: self.choice_class,
            ..SocketOptions::default()
        }
    }
}

impl Tcp {
    /// Removes a connection from this stack without sending anything. Only synchronized ones can
    /// move.
    pub fn detach(&mut self, id: ConnId, choices: &Choices) -> Option<ConnectionImage> {
        let image = self.image(id, choices)?;
        let conn = self.conns.find(id.index, id.generation)?;
        let hash = u64::from(conn.hash);
        self.forget_flow(id.index, hash);
        self.drop_block(id.index);
        Some(image)
    }

    /// Returns the image of a connection, which stays.
    pub fn image(&self, id: ConnId, choices: &Choices) -> Option<ConnectionImage> {
        let conn = self.conns.find(id.index, id.generation)?;
        if !conn.phase.is_synchronized() {
            return None;
        }
        let mut image = ConnectionImage {
            bytes: [0; ConnectionImage::LEN],
        };
        Fields::of(conn, choices).write(&mut image.bytes);
        Some(image)
    }

    /// Takes over a detached connection. Data in flight counts as just sent.
    pub fn adopt(
        &mut self,
        now: Instant,
        image: &ConnectionImage,
        cx: &mut Cx<'_>,
        fx: &mut impl Effects,
    ) -> Result<ConnId, SocketError> {
        let fields = Fields::read(&image.bytes)
            .filter(Fields::is_sound)
            .ok_or(SocketError::BadImage)?;
        let key = fields.key;
        if !cx.net.is_own(key.local_ip()) {
            return Err(SocketError::AddrNotAvailable);
        }
        let path = cx
            .net
            .find_path_by(now, &key.query().by(fields.choice()))
            .ok_or(SocketError::NetUnreachable)?;
        let hash = self.hasher.table(&key);
        match self.find_place(&key, hash) {
            None => {}
            // This connection itself, which has ended since the image was made.
            Some(FlowState::TimeWait(index)) if self.is_end_of(index, &fields) => {
                return Err(SocketError::FlowExists);
            }
            // An earlier connection of the same two ends: the peer has started over with the sender
            // of this image.
            Some(FlowState::TimeWait(index)) => self.drop_time_wait(index, hash),
            Some(FlowState::Syn(_)) if self.conns.is_full() => {
                return Err(SocketError::LimitReached);
            }
            Some(FlowState::Syn(index)) => {
                self.settle_rivals(rivals::HashedSyn { index, hash }, &fields, now, cx, fx)?
            }
            Some(FlowState::Connection(_)) => return Err(SocketError::FlowExists),
        }
        let choice = cx.net.choices.note(fields.choice());
        if choice.is_none() && !fields.choice().is_none() {
            return Err(SocketError::LimitReached);
        }
        let preset = Preset::of(&fields.socket_options(), &cx.config.tcp, choice);
        let index = self
            .add_block(hash, |id| {
                let seed = Seed {
                    key,
                    hash,
                    id,
                    iss: fields.iss,
                    ts_offset: fields.ts_offset,
                    path,
                    mss: options::our_mss(&key, &preset, cx.net),
                    preset: &preset,
                };
                restore(connect::build(&seed, now, cx), &fields, now, cx)
            })
            .ok_or(SocketError::LimitReached)?;
        let conn = self.conns.at_mut(index).ok_or(SocketError::LimitReached)?;
        let (id, bounds) = (conn.id, conn.bounds());
        if conn.has_outstanding() {
            resend_timer::arm_timeout(conn, now, cx);
        }
        keepalive::arm(conn, now, cx);
        conn.owe_ack();
        self.enqueue(index);
        self.check_hops_for(&[bounds]);
        Ok(id)
    }

    /// Returns whether the entry in TIME-WAIT is of the connection of an image, not of an earlier
    /// one: no number and no timestamp of the image is beyond it.
    fn is_end_of(&self, index: u32, fields: &Fields) -> bool {
        let Some(entry) = self.time_waits.entries.at(index) else {
            return false;
        };
        let received = seq::to_wire(fields.irs, fields.rcv_nxt);
        let sent = seq::to_wire(fields.iss, fields.nxt);
        let stamp = fields.has(TIMESTAMPS).then_some(fields.ts_recent);
        entry.covers(sent, received, stamp)
    }
}

fn restore(mut conn: Connection, f: &Fields, now: Instant, cx: &Cx<'_>) -> Connection {
    conn.phase = f.phase;
    conn.opts.has_timestamps = f.has(TIMESTAMPS);
    conn.opts.has_sack = f.has(SACK);
    conn.opts.has_scaling = f.has(SCALING);
    if f.has(ECN) {
        conn.ecn.agree();
    }
    conn.opts.user_timeout_ms = f.user_timeout_ms;
    conn.opts.linger2_ms = f.linger2_ms;
    conn.opts.fixed.set_limit(f.has(LIMIT_FIXED));
    conn.opts.manner.set_rebuilt(f.has(REBUILT));
    let snd = &mut conn.snd;
    (snd.una, snd.nxt, snd.written) = (f.una, f.nxt, f.written);
    (snd.edge, snd.wl1, snd.wl2) = (f.snd_edge, f.wl1, f.wl2);
    (snd.wnd, snd.wnd_max) = (f.snd_wnd, f.wnd_max);
    (snd.peer_mss, snd.shift) = (f.peer_mss, f.snd_shift);
    (snd.is_fin_queued, snd.is_fin_sent) = (f.has(FIN_QUEUED), f.has(FIN_SENT));
    snd.limit = f
        .limit
        .min(cx.config.tcp.sndbuf_max.max(cx.config.tcp.sndbuf_initial));
    let rcv = &mut conn.rcv;
    (rcv.irs, rcv.nxt, rcv.edge, rcv.consumed) = (f.irs, f.rcv_nxt, f.rcv_edge, f.consumed);
    (rcv.acked, rcv.tune_from) = (f.rcv_nxt, f.consumed);
    (rcv.fin_at, rcv.has_fin) = (f.fin_at, f.has(FIN_RECEIVED));
    rcv.buffer = f.buffer.clamp(
        1,
        cx.config.tcp.rcvbuf_max.max(cx.config.tcp.rcvbuf_initial),
    );
    rcv.is_buffer_fixed = f.has(BUFFER_FIXED);
    rcv.shift = f.rcv_shift;
    rcv.ts_recent = f.ts_recent;
    for range in f.ranges {
        if range.start > f.rcv_nxt && range.start < range.end && range.end <= f.rcv_edge {
            // Cannot be full with so few.
            let _ = rcv.assembler.get_or_insert_default().insert(range);
        }
    }
    if rcv.fin_at != 0 && !rcv.has_fin {
        let at = rcv.fin_at;
        rcv.assembler.get_or_insert_default().hold_fin(at);
    }
    conn.rtt = Rtt::restore(f.srtt, f.rttvar, now);
    conn.set_mss();
    let mss = u32::from(conn.snd.mss);
    let tcp = &cx.config.tcp;
    conn.cc = super::cc::Control::new(conn.cc.kind(), mss, tcp.pacing);
    conn.cc.resume(f.cwnd, f.ssthresh);
    conn.limit_rate(f.rate_max, tcp.pacing);
    conn.set_bounds(f.bounds());
    if conn.snd.una < conn.snd.nxt {
        let (una, nxt) = (conn.snd.una, conn.snd.nxt);
        origin::note_sent_elsewhere(&mut conn, una, nxt, now);
    }
    user_timeout::restore(&mut conn, f.has(OWES_TIMEOUT), f.peer_timeout, cx);
    urgent::mark(&mut conn, f.urgent_end.min(f.written));
    conn.is_passive = f.has(PASSIVE);
    conn.retransmitted = f.retransmitted;
    conn.segments = Segments {
        total_in: f.segs_in,
        total_out: f.segs_out,
        data_in: f.data_segs_in,
        data_out: f.data_segs_out,
    };
    conn
}
