//! A stack's sockets as rows of the control protocol.

use std::net::SocketAddr;

use slipstack_channel::SocketState;
use slipstack_channel::control::net::{EndedRow, Figures, SocketRow};
use slipstack_stack::ConnId;
use slipstack_stack::{Effects, EndedConnection, Instant, Stack, TcpInfo};

/// TIME-WAIT entries in one answer at most.
const TIME_WAITS_MAX: usize = 1 << 20;
/// tcpi_snd_ssthresh while there is none.
const NO_SSTHRESH: u32 = 0x7fff_ffff;

/// Something of a stack that has a row.
#[derive(Clone, Copy, Debug)]
pub enum Subject {
    Connection(ConnId),
    HalfOpen(SocketAddr, SocketAddr),
    TimeWait {
        local: SocketAddr,
        remote: SocketAddr,
        left_ms: u32,
    },
}

/// Lists every connection of a stack, in any state.
pub fn subjects(stack: &Stack, now: Instant) -> Vec<Subject> {
    let connections = stack.tcp_connections();
    let half_open = stack.tcp_half_open();
    let time_waits = stack.tcp_time_waits(now, TIME_WAITS_MAX);
    let connections = connections.into_iter().map(Subject::Connection);
    let half_open = half_open.into_iter();
    let half_open = half_open.map(|(local, remote)| Subject::HalfOpen(local, remote));
    let time_waits = time_waits.iter().map(|it| Subject::TimeWait {
        local: it.local,
        remote: it.remote,
        left_ms: it.left_ms,
    });
    connections.chain(half_open).chain(time_waits).collect()
}

/// Returns the row of a subject; `None` if it is gone.
pub fn row(stack: &Stack, now: Instant, subject: &Subject, has_figures: bool) -> Option<SocketRow> {
    match *subject {
        Subject::HalfOpen(local, remote) => Some(SocketRow::between(
            SocketState::SynReceived,
            local,
            Some(remote),
        )),
        Subject::TimeWait {
            local,
            remote,
            left_ms,
        } => {
            let whole = stack.config().tcp.time_wait.as_millis() as u64;
            let left = u64::from(left_ms);
            Some(SocketRow {
                idle_ms: Some(whole.saturating_sub(left)),
                left_ms: Some(left),
                ..SocketRow::between(SocketState::TimeWait, local, Some(remote))
            })
        }
        Subject::Connection(conn) => {
            let info = stack.tcp_info(now, conn)?;
            Some(SocketRow {
                rcvbuf: Some(stack.tcp_rcvbuf(conn).into()),
                sndbuf: Some(stack.tcp_sndbuf(conn).into()),
                ..connection(&info, stack.tcp_endpoints(conn)?, has_figures)
            })
        }
    }
}

fn connection(
    info: &TcpInfo,
    (local, remote): (SocketAddr, SocketAddr),
    has_figures: bool,
) -> SocketRow {
    let last = info.last_data_sent_ms.min(info.last_data_recv_ms);
    SocketRow {
        idle_ms: Some(last.min(info.last_ack_recv_ms).into()),
        figures: has_figures.then(|| Box::new(figures(info))),
        ..SocketRow::between(info.state, local, Some(remote))
    }
}

/// Returns the row of a connection that has ended.
pub fn ended(it: &EndedConnection, has_figures: bool) -> EndedRow {
    EndedRow {
        number: it.number,
        row: SocketRow {
            state: SocketState::Closed,
            ..connection(&it.info, (it.local, it.remote), has_figures)
        },
    }
}

/// Closes a subject; returns `false` if it is gone.
pub fn end(stack: &mut Stack, now: Instant, subject: &Subject, fx: &mut impl Effects) -> bool {
    match *subject {
        Subject::Connection(conn) => stack.tcp_abort(now, conn, fx),
        Subject::HalfOpen(local, remote) => stack.tcp_forget_half_open(local, remote),
        Subject::TimeWait { local, remote, .. } => stack.tcp_forget_time_wait(local, remote),
    }
}

fn figures(info: &TcpInfo) -> Figures {
    Figures {
        congestion: info.congestion.name().to_owned(),
        has_timestamps: info.has_timestamps,
        has_sack: info.has_sack,
        has_ecn: info.has_ecn,
        scales: info
            .has_window_scale
            .then_some((info.snd_wscale, info.rcv_wscale)),
        rto_us: info.rto_us,
        rtt_us: info.rtt_us,
        rttvar_us: info.rttvar_us,
        min_rtt_us: info.min_rtt_us,
        ato_us: info.ato_us,
        mss: info.snd_mss,
        rcv_mss: info.rcv_mss,
        advmss: info.advmss,
        pmtu: info.pmtu,
        cwnd: info.snd_cwnd,
        ssthresh: (info.snd_ssthresh < NO_SSTHRESH).then_some(info.snd_ssthresh),
        backoff: info.backoff,
        bytes_sent: info.bytes_sent,
        bytes_retrans: info.bytes_retrans,
        bytes_acked: info.bytes_acked,
        bytes_received: info.bytes_received,
        segs_out: info.segs_out,
        segs_in: info.segs_in,
        data_segs_out: info.data_segs_out,
        data_segs_in: info.data_segs_in,
        last_snd_ms: info.last_data_sent_ms,
        last_rcv_ms: info.last_data_recv_ms,
        last_ack_ms: info.last_ack_recv_ms,
        pacing_rate: info.pacing_rate,
        delivery_rate: info.delivery_rate,
        is_app_limited: info.is_delivery_app_limited,
        delivered: info.delivered,
        busy_us: info.busy_us,
        rwnd_limited_us: info.rwnd_limited_us,
        sndbuf_limited_us: info.sndbuf_limited_us,
        unacked: info.unacked,
        retrans: info.retrans,
        retrans_total: info.total_retrans,
        lost: info.lost,
        sacked: info.sacked,
        dsack_dups: info.dsack_dups,
        reordering: info.reordering,
        reord_seen: info.reord_seen,
        rcv_space: info.rcv_space,
        notsent: info.notsent_bytes,
        snd_wnd: info.snd_wnd,
        rcv_wnd: info.rcv_wnd,
        rcv_ooopack: info.out_of_order,
    }
}
