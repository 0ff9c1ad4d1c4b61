//! The stack's side of TCP_INFO.
//!
//! STATUS: RFC 9293 3.9.1.5 and 3.10.6.

use slipstack_wire::tcp_options::TIMESTAMPS_LEN;

use super::cc::WINDOW_MAX;
use super::connection::Connection;
use super::figures::{Figures, REORDERING};
use super::phase::Phase;
use super::recovery::state::State;
use super::seq;
use super::timers::Resend;
use crate::config::TcpConfig;
use crate::options::Congestion;
use crate::time::{Instant, nanos};

/// tcpi_snd_ssthresh while there is none (Linux: TCP_INFINITE_SSTHRESH).
const NO_SSTHRESH: u32 = 0x7fff_ffff;
/// Segments that Linux assumes for a round trip before one is measured (TCP_INIT_CWND).
const INITIAL_SEGMENTS: u32 = 10;

/// States by the names of RFC 9293 3.3.2, with Linux's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TcpState {
    Established = 1,
    SynSent = 2,
    SynReceived = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    CloseWait = 8,
    LastAck = 9,
    Closing = 11,
}

/// A snapshot. Times in microseconds, counts in segments, sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    pub state: TcpState,
    /// 0 = open, 2 = marked, 3 = recovery, 4 = loss (Linux's tcp_ca_state).
    pub ca_state: u8,
    pub retransmits: u8,
    pub probes: u8,
    pub backoff: u8,
    pub has_timestamps: bool,
    pub has_sack: bool,
    pub has_window_scale: bool,
    pub has_ecn: bool,
    pub snd_wscale: u8,
    pub rcv_wscale: u8,
    pub rto_us: u32,
    pub ato_us: u32,
    pub snd_mss: u32,
    pub rcv_mss: u32,
    pub advmss: u32,
    pub pmtu: u32,
    pub unacked: u32,
    pub sacked: u32,
    pub lost: u32,
    pub retrans: u32,
    pub total_retrans: u32,
    pub rtt_us: u32,
    pub rttvar_us: u32,
    pub min_rtt_us: u32,
    pub snd_ssthresh: u32,
    pub snd_cwnd: u32,
    pub rcv_space: u32,
    pub snd_wnd: u32,
    pub rcv_wnd: u32,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub notsent_bytes: u32,
    pub last_data_sent_ms: u32,
    pub last_data_recv_ms: u32,
    pub last_ack_recv_ms: u32,
    pub congestion: Congestion,
    pub mss_announced: u32,
    pub traffic: Traffic,
}

/// Counts of the data that went over the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes per second.
    pub pacing_rate: u64,
    pub delivery_rate: u64,
    pub is_delivery_app_limited: bool,
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
    pub delivered: u32,
    pub delivered_ce: u32,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub dsack_dups: u32,
    pub reord_seen: u32,
    /// In segments.
    pub reordering: u16,
    pub out_of_order: u32,
    pub total_rto: u16,
    pub total_rto_recoveries: u16,
    pub total_rto_ms: u32,
    pub segs_in: u32,
    pub segs_out: u32,
    pub data_segs_in: u32,
    pub data_segs_out: u32,
}

impl TcpInfo {
    pub(super) fn of(conn: &Connection, now: Instant, tcp: &TcpConfig) -> TcpInfo {
        let us = |ns: u64| u32::try_from(ns / 1_000).unwrap_or(u32::MAX);
        let ms = |ns: u64| u32::try_from(ns / 1_000_000).unwrap_or(u32::MAX);
        let mss = u64::from(conn.snd.mss).max(1);
        let segments = |bytes: u64| u32::try_from(bytes.div_ceil(mss)).unwrap_or(u32::MAX);
        let rto = conn.rtt.timeout_ns(
            nanos(tcp.rto_initial),
            nanos(tcp.rto_min),
            nanos(tcp.rto_max),
        );
        let is_persisting = conn.timers.resend() == Some(Resend::Persist);
        let flight = Flight::of(conn);
        TcpInfo {
            state: state_of(conn.phase),
            ca_state: ca_state(conn),
            retransmits: conn.backoff.count() * u8::from(!is_persisting),
            probes: conn.keep_sent,
            backoff: conn.backoff.count(),
            has_timestamps: conn.opts.has_timestamps,
            has_sack: conn.opts.has_sack,
            has_window_scale: conn.opts.has_scaling,
            has_ecn: conn.ecn.is_on(),
            snd_wscale: conn.snd.shift,
            rcv_wscale: conn.rcv.shift,
            rto_us: us(if is_persisting {
                rto
            } else {
                conn.backoff.apply(rto, nanos(tcp.rto_max))
            }),
            ato_us: u32::from(conn.rcv.ato_ms) * 1_000,
            snd_mss: conn.snd.mss.into(),
            rcv_mss: conn.rcv.mss.min(full_segment(conn)).into(),
            advmss: full_segment(conn).into(),
            pmtu: conn.mtu.into(),
            unacked: flight.unacked,
            sacked: flight.sacked,
            lost: flight.lost,
            retrans: flight.resent,
            total_retrans: conn.total_resent(),
            rtt_us: us(conn.rtt.smoothed_ns()),
            rttvar_us: us(conn.rtt.variance_ns()),
            min_rtt_us: match conn.rtt.min_ns() {
                0 => u32::MAX,
                ns => us(ns),
            },
            snd_ssthresh: match conn.cc.window.ssthresh {
                WINDOW_MAX.. => NO_SSTHRESH,
                bytes => segments(bytes.into()),
            },
            snd_cwnd: segments(conn.cc.window.cwnd.into()),
            rcv_space: rcv_space(conn),
            snd_wnd: conn.snd.wnd,
            rcv_wnd: conn.rcv.window(),
            bytes_acked: acknowledged(conn),
            bytes_received: seq::offset(conn.rcv.nxt.max(seq::FIRST)),
            notsent_bytes: conn
                .snd
                .written
                .saturating_sub(conn.snd.nxt)
                .min(u64::from(u32::MAX)) as u32,
            last_data_sent_ms: ms(now.nanos_since(conn.snd.last_at)),
            last_data_recv_ms: ms(conn.rcv.data_at.nanos_until(now)),
            last_ack_recv_ms: ms(now.nanos_since(conn.rcv.last_at)),
            congestion: conn.cc.kind(),
            mss_announced: conn.snd.peer_mss.into(),
            traffic: Traffic::of(conn, now, flight),
        }
    }
}

fn ca_state(conn: &Connection) -> u8 {
    match conn.flight.as_ref().map(|f| f.recovery.state) {
        None | Some(State::Open) => 0,
        Some(State::Marked) => 2,
        Some(State::Recovery) => 3,
        Some(State::Loss) => 4,
    }
}

/// The size of the peer's full segments: what was announced, without the timestamps.
fn full_segment(conn: &Connection) -> u16 {
    let options = if conn.opts.has_timestamps {
        TIMESTAMPS_LEN as u16
    } else {
        0
    };
    conn.opts.mss_max.saturating_sub(options)
}

/// Returns the bytes that a round trip brought, as measured by receive-buffer tuning.
fn rcv_space(conn: &Connection) -> u32 {
    let first = INITIAL_SEGMENTS * u32::from(full_segment(conn));
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
    /// Those of `unacked` that have data.
    data: u32,
}

impl Flight {
    fn of(conn: &Connection) -> Flight {
        let mss = u64::from(conn.snd.mss).max(1);
        let counts = conn
            .flight
            .as_ref()
            .map_or_else(Default::default, |f| f.board.counts(conn.snd.written, mss));
        // What an undo has called needless was not lost.
        let is_repair = conn
            .flight
            .as_ref()
            .is_some_and(|f| f.recovery.state.is_repair());
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

impl Traffic {
    fn of(conn: &Connection, now: Instant, flight: Flight) -> Traffic {
        let (delivery_rate, is_delivery_app_limited) = match &conn.flight {
            Some(flight) => flight.delivery.rate(),
            None => conn.past.rate.get(),
        };
        let figures = conn
            .figures()
            .map_or_else(Figures::default, |figures| figures.upto(now));
        let sent = seq::offset(conn.snd.nxt.max(seq::FIRST)) - u64::from(conn.snd.is_fin_sent);
        Traffic {
            pacing_rate: conn.cc.pacing_rate(conn.rtt.smoothed_ns()),
            delivery_rate,
            is_delivery_app_limited,
            busy_us: figures.busy_ns() / 1_000 + conn.past.busy_ns() / 1_000,
            rwnd_limited_us: figures.window_ns() / 1_000,
            sndbuf_limited_us: figures.buffer_ns() / 1_000,
            delivered: delivered(conn, &flight, figures.redelivered),
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

fn state_of(phase: Phase) -> TcpState {
    match phase {
        Phase::SynSent => TcpState::SynSent,
        Phase::SynReceived => TcpState::SynReceived,
        Phase::Established => TcpState::Established,
        Phase::FinWait1 => TcpState::FinWait1,
        Phase::FinWait2 => TcpState::FinWait2,
        Phase::CloseWait => TcpState::CloseWait,
        Phase::Closing => TcpState::Closing,
        Phase::LastAck => TcpState::LastAck,
    }
}
