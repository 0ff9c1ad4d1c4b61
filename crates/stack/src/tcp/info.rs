//! What a connection can be asked about itself (the stack's side of TCP_INFO).
//!
//! STATUS: RFC 9293 3.9.1.5 and 3.10.6.

use super::connection::Connection;
use super::figures::Figures;
use super::phase::Phase;
use super::recovery::State;
use crate::config::TcpConfig;
use crate::options::Congestion;
use crate::time::{Instant, nanos};

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
    pub congestion: Congestion,
    pub mss_announced: u32,
    pub traffic: Traffic,
}

/// What has gone over the connection, and how.
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
}

impl TcpInfo {
    pub(super) fn of(conn: &Connection, now: Instant, tcp: &TcpConfig) -> TcpInfo {
        let us = |ns: u64| u32::try_from(ns / 1_000).unwrap_or(u32::MAX);
        let ms =
            |since: Instant| u32::try_from(now.nanos_since(since) / 1_000_000).unwrap_or(u32::MAX);
        let mss = u64::from(conn.snd.mss).max(1);
        let segments = |bytes: u64| u32::try_from(bytes.div_ceil(mss)).unwrap_or(u32::MAX);
        let board = conn.flight.as_ref().map(|f| &f.board);
        let rto = conn.rtt.timeout_ns(
            nanos(tcp.rto_initial),
            nanos(tcp.rto_min),
            nanos(tcp.rto_max),
        );
        TcpInfo {
            state: state_of(conn.phase),
            ca_state: match conn.flight.as_ref().map(|f| f.recovery.state) {
                None | Some(State::Open) => 0,
                Some(State::Marked) => 2,
                Some(State::Recovery) => 3,
                Some(State::Loss) => 4,
            },
            retransmits: conn.backoff.count(),
            probes: conn.keep_sent,
            backoff: conn.backoff.count(),
            has_timestamps: conn.opts.has_timestamps,
            has_sack: conn.opts.has_sack,
            has_window_scale: conn.opts.has_scaling,
            snd_wscale: conn.snd.shift,
            rcv_wscale: conn.rcv.shift,
            rto_us: us(conn.backoff.apply(rto, nanos(tcp.rto_max))),
            ato_us: us(nanos(tcp.delayed_ack)),
            snd_mss: conn.snd.mss.into(),
            rcv_mss: conn.rcv.mss.into(),
            advmss: conn.opts.mss_max.into(),
            pmtu: conn.mtu.into(),
            unacked: segments(conn.snd.nxt - conn.snd.una),
            sacked: board.map_or(0, |b| segments(b.sacked_bytes())),
            lost: board.map_or(0, |b| segments(b.lost_bytes())),
            total_retrans: conn.retransmitted,
            rtt_us: us(conn.rtt.smoothed_ns()),
            rttvar_us: us(conn.rtt.variance_ns()),
            min_rtt_us: us(conn.rtt.min_ns()),
            snd_ssthresh: segments(conn.cc.window.ssthresh.into()),
            snd_cwnd: segments(conn.cc.window.cwnd.into()),
            rcv_space: conn.rcv.buffer,
            snd_wnd: conn.snd.wnd,
            rcv_wnd: conn.rcv.window(),
            bytes_acked: super::seq::offset(conn.snd.una.max(super::seq::FIRST)),
            bytes_received: super::seq::offset(conn.rcv.nxt.max(super::seq::FIRST)),
            notsent_bytes: conn
                .snd
                .written
                .saturating_sub(conn.snd.nxt)
                .min(u64::from(u32::MAX)) as u32,
            last_data_sent_ms: ms(conn.snd.last_at),
            last_data_recv_ms: ms(conn.rcv.last_at),
            congestion: conn.cc.kind(),
            mss_announced: conn.snd.peer_mss.into(),
            traffic: Traffic::of(conn, now),
        }
    }
}

impl Traffic {
    fn of(conn: &Connection, now: Instant) -> Traffic {
        let flight = conn.flight.as_deref();
        let (delivery_rate, is_delivery_app_limited) =
            flight.map_or((0, false), |f| f.delivery.rate());
        let mut figures = flight.map_or_else(Figures::default, |f| f.figures.upto(now));
        if let Some(kept) = &conn.kept {
            figures.add(&kept.figures);
        }
        let delivered = super::seq::offset(conn.snd.una.max(super::seq::FIRST))
            + flight.map_or(0, |f| f.board.sacked_bytes());
        let mss = u64::from(conn.snd.mss).max(1);
        Traffic {
            pacing_rate: conn.cc.pacing_rate(conn.rtt.smoothed_ns()),
            delivery_rate,
            is_delivery_app_limited,
            busy_us: figures.busy_ns() / 1_000 + conn.past.busy_ns() / 1_000,
            rwnd_limited_us: figures.window_ns() / 1_000,
            sndbuf_limited_us: figures.buffer_ns() / 1_000,
            delivered: u32::try_from(delivered.div_ceil(mss)).unwrap_or(u32::MAX),
            delivered_ce: figures.marked,
            bytes_sent: super::seq::offset(conn.snd.nxt.max(super::seq::FIRST))
                + figures.resent_bytes,
            bytes_retrans: figures.resent_bytes,
            dsack_dups: figures.dsacks,
            reord_seen: figures.reorderings,
        }
    }
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
