//! A connection whose engine was killed, rebuilt from its parameters at the open and the positions
//! of its rings.
//!
//! All other state is learnt again. The peer's acknowledgements show how much of the written data
//! had been sent: they may be ahead of SND.NXT here.

use super::{
    BUFFER_FIXED, ConnectionImage, ECN, FIN_QUEUED, FIN_RECEIVED, FIN_SENT, Fields, PASSIVE,
    REBUILT, SACK, SCALING, TIMESTAMPS,
};
use crate::choices::Choices;
use crate::effects::ConnectionOrigin;
use crate::ids::ConnId;
use crate::options::Congestion;
use crate::tcp::bounds::Bounds;
use crate::tcp::connection::Connection;
use crate::tcp::flow::FlowKey;
use crate::tcp::phase::Phase;
use crate::tcp::{Tcp, seq};
use crate::time::Instant;
use core::net::SocketAddr;

/// The flags that the handshake negotiates.
const SETTLED: u32 = TIMESTAMPS | SACK | SCALING | ECN | PASSIVE;
/// Receive window of a rebuilt connection, in bytes: that of one without window scaling.
const WINDOW: u32 = 65_535;
/// Round trip that is assumed until one is measured: the timeout is then 200 ms (RFC 6298 2.4 with
/// Linux's minimum).
const SRTT_NS: u64 = 50_000_000;
/// The first window (RFC 6928 2).
const SEGMENTS: u32 = 10;

/// Progress of the rings of a connection, as offsets in its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Acknowledged up to, as last reported to the program, and written up to.
    pub acked: u64,
    pub written: u64,
    pub received: u64,
    /// The program has read up to here.
    pub read: u64,
    /// A FIN followed the received data.
    pub has_fin: bool,
}

impl Tcp {
    /// As [`ConnectionOrigin::of`], for the connection of this id.
    pub fn origin(&self, id: ConnId, choices: &Choices) -> Option<ConnectionOrigin> {
        ConnectionOrigin::of(self.conns.find(id.index, id.generation)?, choices)
    }
}

impl ConnectionOrigin {
    /// Returns `None` if the handshake is not complete.
    #[inline]
    pub(crate) fn of(conn: &Connection, choices: &Choices) -> Option<ConnectionOrigin> {
        if !conn.phase.is_synchronized() {
            return None;
        }
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let opts = &conn.opts;
        let flags = flag(opts.has_timestamps, TIMESTAMPS)
            | flag(opts.has_sack, SACK)
            | flag(opts.has_scaling, SCALING)
            | flag(conn.ecn.is_on(), ECN)
            | flag(conn.is_passive, PASSIVE);
        Some(ConnectionOrigin {
            numbers: u64::from(conn.snd.iss) << 32 | u64::from(conn.rcv.irs),
            timestamps: u64::from(opts.ts_offset) << 32 | u64::from(conn.rcv.ts_recent),
            terms: u64::from(flags)
                | u64::from(conn.snd.peer_mss) << 16
                | u64::from(conn.snd.shift) << 32
                | u64::from(conn.rcv.shift) << 36,
            choice: choices.find(conn.choice),
            tos: opts.tos,
            ttl: opts.ttl,
            resets_at_end: conn.bounds().resets_at_end,
        })
    }
}

impl ConnectionImage {
    /// Prepares an image that is older than the last segment: the former owner was killed and may
    /// have sent all that the window allowed, and a probe beyond it. The peer's acknowledgement of
    /// that must be accepted; the rest is sent again.
    #[must_use]
    pub fn presume_sent(&self) -> ConnectionImage {
        let mut image = self.clone();
        if let Some(mut fields) = Fields::read(&self.bytes) {
            let reach = fields.nxt.max(fields.snd_edge).saturating_add(1);
            fields.nxt = fields.nxt.max(reach.min(fields.written));
            if fields.has(FIN_QUEUED) && !fields.has(FIN_SENT) && reach > fields.written {
                fields.flags |= FIN_SENT;
                fields.nxt = fields.written.saturating_add(1);
            }
            fields.write(&mut image.bytes);
        }
        image
    }

    /// Rebuilds the connection between `local` and `remote`. The adopter checks it like any other
    /// image.
    pub fn rebuild(
        local: SocketAddr,
        remote: SocketAddr,
        origin: &ConnectionOrigin,
        progress: &Progress,
    ) -> ConnectionImage {
        let key = FlowKey::new(local.ip(), local.port(), remote.ip(), remote.port());
        let phase = match progress.has_fin {
            true => Phase::CloseWait,
            false => Phase::Established,
        };
        let mut fields = Fields::empty(key, phase);
        fields.flags = origin.terms as u32 & SETTLED | BUFFER_FIXED | REBUILT;
        fields.set_bounds(Bounds {
            resets_at_end: origin.resets_at_end,
            ..Bounds::default()
        });
        fields.set_choice(origin.choice);
        (fields.iss, fields.irs) = ((origin.numbers >> 32) as u32, origin.numbers as u32);
        fields.ts_offset = (origin.timestamps >> 32) as u32;
        fields.ts_recent = origin.timestamps as u32;
        fields.peer_mss = (origin.terms >> 16) as u16;
        fields.snd_shift = (origin.terms >> 32 & 15) as u8;
        fields.rcv_shift = (origin.terms >> 36 & 15) as u8;
        fields.una = seq::at(progress.acked);
        fields.written = seq::at(progress.written);
        fields.nxt = fields.una;
        // The peer's next segment announces its window; it drops data beyond that until then.
        fields.snd_edge = fields.una.saturating_add(u64::from(WINDOW));
        (fields.snd_wnd, fields.wnd_max, fields.limit) = (WINDOW, WINDOW, WINDOW);
        (fields.wl1, fields.wl2) = (seq::SYN, seq::SYN);
        fields.rcv_nxt = seq::at(progress.received);
        fields.consumed = seq::at(progress.read);
        if progress.has_fin {
            fields.flags |= FIN_RECEIVED;
            fields.fin_at = fields.rcv_nxt;
            fields.rcv_nxt = fields.rcv_nxt.saturating_add(1);
        }
        fields.rcv_edge = fields.rcv_nxt.saturating_add(u64::from(WINDOW));
        fields.buffer = WINDOW;
        (fields.srtt, fields.rttvar) = (SRTT_NS, SRTT_NS / 2);
        fields.cwnd = SEGMENTS * u32::from(fields.peer_mss);
        fields.ssthresh = u32::MAX;
        fields.linger2_ms = u32::MAX;
        (fields.tos, fields.ttl) = (origin.tos, origin.ttl.max(1));
        fields.mss_max = u16::MAX;
        fields.congestion = Congestion::Cubic as u8;
        let mut bytes = [0; Self::LEN];
        fields.write(&mut bytes);
        ConnectionImage { bytes }
    }
}

/// Accepts an acknowledgement beyond SND.NXT, if the former owner may have sent that data. Returns
/// `false` if it cannot have.
#[cold]
pub fn foresee(conn: &mut Connection, ack: u64, now: Instant) -> bool {
    let snd = &conn.snd;
    let is_fin = snd.is_fin_queued && ack == snd.written + 1;
    if !conn.opts.manner.is_rebuilt() || ack <= snd.nxt || (ack > snd.written && !is_fin) {
        return false;
    }
    note_sent_elsewhere(conn, conn.snd.nxt, ack, now);
    conn.snd.nxt = ack;
    conn.snd.is_fin_sent |= is_fin;
    true
}

/// Counts the bytes from `from` to `upto`, which the connection's former engine sent, as just sent.
pub(super) fn note_sent_elsewhere(conn: &mut Connection, from: u64, upto: u64, now: Instant) {
    let flight = conn.flight_mut();
    let stamp = flight.stamp(now, upto - from, from);
    flight.board.push(from, upto, now.0, stamp.of_elsewhere());
    flight.board.note_elsewhere();
}
