//! The stack's side of TCP_INFO.
//!
//! STATUS: RFC 9293 3.9.1.5 and 3.10.6.

use slipstack_terms::{SocketState, TcpInfo};

use super::cc::WINDOW_MAX;
use super::connection::Connection;
use super::figures::{Figures, REORDERING};
use super::phase::Phase;
use super::recovery::state::State;
use super::seq;
use super::timers::Resend;
use crate::config::TcpConfig;
use crate::time::{Instant, Tick, nanos};

/// tcpi_snd_ssthresh while there is none (Linux: TCP_INFINITE_SSTHRESH).
const NO_SSTHRESH: u32 = 0x7fff_ffff;
/// Segments that Linux assumes for a round trip before one is measured (TCP_INIT_CWND).
const INITIAL_SEGMENTS: u32 = 10;

/// A snapshot of a connection.
pub fn of(conn: &Connection, now: Instant, tcp: &TcpConfig) -> TcpInfo {
    let ms = |ns: u64| u32::try_from(ns / 1_000_000).unwrap_or(u32::MAX);
    let flight = Flight::of(conn);
    let is_persisting = conn.timers.resend() == Some(Resend::Persist);
    let unsent = conn.snd.written.saturating_sub(conn.snd.nxt);
    TcpInfo {
        state: state_of(conn.phase),
        ca_state: ca_state(conn),
        retransmits: conn.backoff.count() * u8::from(!is_persisting),
        probes: conn.keep_sent,
        backoff: conn.backoff.doublings(),
        has_timestamps: conn.opts.has_timestamps,
        has_sack: conn.opts.has_sack,
        has_window_scale: conn.opts.has_scaling,
        has_ecn: conn.ecn.is_on(),
        snd_wscale: conn.snd.shift,
        rcv_wscale: conn.rcv.shift,
        snd_mss: conn.snd.mss.into(),
        rcv_mss: conn.rcv.mss.min(conn.opts.full_segment()).into(),
        advmss: conn.opts.full_segment().into(),
        pmtu: conn.mtu.into(),
        rcv_space: rcv_space(conn),
        snd_wnd: conn.snd.wnd,
        rcv_wnd: conn.rcv.window(),
        bytes_acked: acknowledged(conn),
        bytes_received: seq::offset(conn.rcv.nxt.max(seq::FIRST)),
        notsent_bytes: u32::try_from(unsent).unwrap_or(u32::MAX),
        last_data_sent_ms: ms(now.nanos_since(conn.snd.last_at)),
        last_data_recv_ms: ms(conn.rcv.data_at.nanos_until(now)),
        data_age_ns: data_age_ns(conn, now),
        last_ack_recv_ms: ms(now.nanos_since(conn.rcv.last_at)),
        ..with_traffic(
            with_times(in_flight(conn, &flight), conn, tcp),
            conn,
            now,
            &flight,
        )
    }
}

/// Time since in-order data arrived last: exact if the last segment had it.
fn data_age_ns(conn: &Connection, now: Instant) -> u64 {
    let rcv = &conn.rcv;
    match Tick::of(rcv.last_at) == rcv.data_at {
        true => now.nanos_since(rcv.last_at),
        false => rcv.data_at.nanos_until(now),
    }
}

/// The flight, and the window that bounds it.
fn in_flight(conn: &Connection, flight: &Flight) -> TcpInfo {
    let mss = u64::from(conn.snd.mss).max(1);
    let segments = |bytes: u64| u32::try_from(bytes.div_ceil(mss)).unwrap_or(u32::MAX);
    TcpInfo {
        unacked: flight.unacked,
        sacked: flight.sacked,
        lost: flight.lost,
        retrans: flight.resent,
        total_retrans: conn.total_resent(),
        congestion: conn.cc.kind(),
        snd_ssthresh: match conn.cc.window.ssthresh {
            WINDOW_MAX.. => NO_SSTHRESH,
            bytes => segments(bytes.into()),
        },
        snd_cwnd: segments(conn.cc.window.cwnd.into()),
        ..TcpInfo::default()
    }
}

/// The round trip, and the timeouts that follow from it.
fn with_times(info: TcpInfo, conn: &Connection, tcp: &TcpConfig) -> TcpInfo {
    let us = |ns: u64| u32::try_from(ns / 1_000).unwrap_or(u32::MAX);
    let rto = conn.rtt.timeout_ns(
        nanos(tcp.rto_initial),
        conn.rto_min_ns(tcp),
        conn.rto_max_ns(tcp),
    );
    TcpInfo {
        rto_us: us(match conn.timers.resend() {
            Some(Resend::Persist) => rto,
            _ => conn.backoff.apply(rto, conn.rto_max_ns(tcp)),
        }),
        ato_us: u32::from(conn.rcv.ato_ms) * 1_000,
        rtt_us: us(conn.rtt.smoothed_ns()),
        rttvar_us: us(conn.rtt.variance_ns()),
        min_rtt_us: match conn.rtt.min_ns() {
            0 => u32::MAX,
            ns => us(ns),
        },
        ..info
    }
}

/// Adds rates, and counts of the connection's data.
fn with_traffic(info: TcpInfo, conn: &Connection, now: Instant, flight: &Flight) -> TcpInfo {
    let rate = match &conn.flight {
        Some(flight) => flight.delivery.rate(),
        None => conn.past.rate.get(),
    };
    let figures = conn
        .figures()
        .map_or_else(Figures::default, |figures| figures.upto(now));
    let sent = seq::offset(conn.snd.nxt.max(seq::FIRST)) - u64::from(conn.snd.is_fin_sent);
    TcpInfo {
        pacing_rate: conn.pacing_rate(),
        delivery_rate: rate.bytes_per_second,
        is_delivery_app_limited: rate.is_app_limited,
        busy_us: figures.busy_ns() / 1_000 + conn.past.busy_ns() / 1_000,
        rwnd_limited_us: figures.window_ns() / 1_000,
        sndbuf_limited_us: figures.buffer_ns() / 1_000,
        delivered: delivered(conn, flight, figures.redelivered),
        delivered_ce: figures.marked,
        bytes_sent: sent + figures.resent_bytes,
        bytes_retrans: figures.resent_bytes,
        dsack_dups: figures.dsacks,
        reord_seen: figures.reorderings,
        reordering: REORDERING + figures.reordering_beyond,
        out_of_order: figures.out_of_order,
        total_rto: figures.timeouts,
        total_rto_recoveries: figures.timeout_episodes,
        total_rto_ms: u32::try_from(figures.timeout_ms()).unwrap_or(u32::MAX),
        segs_in: conn.segments.total_in,
        segs_out: conn.segments.total_out,
        data_segs_in: conn.segments.data_in,
        data_segs_out: conn.segments.data_out,
        ..info
    }
}

fn ca_state(conn: &Connection) -> u8 {
    match conn.flight.as_ref().map(|f| f.recovery.state()) {
        None | Some(State::Open) => 0,
        Some(State::Marked) => 2,
        Some(State::Recovery) => 3,
        Some(State::Loss) => 4,
    }
}

/// Returns the bytes of a round trip, as measured by receive-buffer tuning.
fn rcv_space(conn: &Connection) -> u32 {
    let first = INITIAL_SEGMENTS * u32::from(conn.opts.full_segment());
    let running = conn.rcv.consumed.saturating_sub(conn.rcv.tune_from);
    u32::try_from(running).unwrap_or(u32::MAX).max(first)
}

/// Returns the acknowledged sequence space, the FIN and an active opener's SYN included.
fn acknowledged(conn: &Connection) -> u64 {
    let una = conn.snd.una;
    let has_syn = !conn.is_passive && una >= seq::FIRST;
    seq::offset(una.max(seq::FIRST)) + u64::from(has_syn)
}

/// The flight, in segments.
struct Flight {
    unacked: u32,
    sacked: u32,
    lost: u32,
    resent: u32,
    /// Segments of `unacked` that have data.
    data: u32,
}

impl Flight {
    fn of(conn: &Connection) -> Flight {
        let mss = u64::from(conn.snd.mss).max(1);
        let counts = conn
            .flight
            .as_ref()
            .map_or_else(Default::default, |f| f.board.counts(conn.snd.written, mss));
        // A retransmission that an undo found needless was not lost.
        let is_repair = conn
            .flight
            .as_ref()
            .is_some_and(|f| f.recovery.state().is_repair());
        // A SYN.
        let is_bare = counts.outstanding == 0 && conn.has_outstanding();
        Flight {
            unacked: counts.outstanding + u32::from(is_bare),
            sacked: counts.sacked,
            // As on Linux, until it is acknowledged.
            lost: counts.lost + counts.repaired * u32::from(is_repair),
            resent: counts.resent,
            data: counts.data,
        }
    }
}

/// Returns the segments delivered, SYN and FIN included, and those that D-SACKs report as
/// duplicates (as on Linux).
fn delivered(conn: &Connection, flight: &Flight, redelivered: u32) -> u32 {
    if conn.snd.una < seq::FIRST {
        return 0;
    }
    let originals = conn.segments.data_out.wrapping_sub(conn.retransmitted);
    // In segments of today, which may be smaller than those that left.
    let waiting = flight.data.saturating_sub(flight.sacked);
    let arrived = originals.saturating_sub(waiting);
    arrived.wrapping_add(1 + u32::from(conn.is_fin_acked()) + redelivered)
}

fn state_of(phase: Phase) -> SocketState {
    match phase {
        Phase::SynSent => SocketState::SynSent,
        Phase::SynReceived => SocketState::SynReceived,
        Phase::Established => SocketState::Established,
        Phase::FinWait1 => SocketState::FinWait1,
        Phase::FinWait2 => SocketState::FinWait2,
        Phase::CloseWait => SocketState::CloseWait,
        Phase::Closing => SocketState::Closing,
        Phase::LastAck => SocketState::LastAck,
    }
}
