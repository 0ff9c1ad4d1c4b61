//! The stack's words in the channel's words and back.

use core::time::Duration;

use slipstack_channel as channel;
use slipstack_channel::{Refusal, SocketOption};
use slipstack_stack as stack;
use slipstack_stack::{
    Chosen, KeepAlive, MtuDiscovery, PortRange, SocketError, SocketOptions, TcpOption, UdpOption,
};

use crate::authority::PortRefused;

pub(crate) fn reason(reason: stack::Reason) -> channel::Reason {
    match reason {
        stack::Reason::Refused => channel::Reason::Refused,
        stack::Reason::Reset => channel::Reason::Reset,
        stack::Reason::TimedOut => channel::Reason::TimedOut,
        stack::Reason::HostUnreachable => channel::Reason::HostUnreachable,
        stack::Reason::NetUnreachable => channel::Reason::NetUnreachable,
        stack::Reason::Aborted => channel::Reason::Aborted,
        stack::Reason::ProtocolError => channel::Reason::ProtocolError,
        stack::Reason::MessageTooLong => channel::Reason::MessageTooLong,
        stack::Reason::BrokenPipe => channel::Reason::BrokenPipe,
        stack::Reason::ProtocolUnreachable => channel::Reason::ProtocolUnreachable,
        stack::Reason::HostDown => channel::Reason::HostDown,
        stack::Reason::NotOnNet => channel::Reason::NotOnNet,
        stack::Reason::RouteFailed => channel::Reason::RouteFailed,
        stack::Reason::Prohibited => channel::Reason::Prohibited,
    }
}

pub(crate) fn refusal(error: SocketError) -> Refusal {
    match error {
        SocketError::UnknownId => Refusal::UnknownSocket,
        SocketError::AddrInUse => Refusal::AddrInUse,
        // __inet_check_established(): who connects from a port of its choice.
        SocketError::AddrNotAvailable | SocketError::FlowExists => Refusal::AddrNotAvailable,
        SocketError::FamilyNotSupported => Refusal::FamilyNotSupported,
        SocketError::InvalidArgument | SocketError::BadImage => Refusal::InvalidArgument,
        SocketError::InvalidState => Refusal::InvalidState,
        SocketError::DestinationRequired => Refusal::DestinationRequired,
        SocketError::AlreadyConnected => Refusal::AlreadyConnected,
        SocketError::NotConnected => Refusal::NotConnected,
        SocketError::MessageTooLong => Refusal::MessageTooLong,
        SocketError::NetUnreachable => Refusal::NetUnreachable,
        SocketError::HostUnreachable => Refusal::HostUnreachable,
        SocketError::LimitReached => Refusal::LimitReached,
        SocketError::BroadcastDenied => Refusal::NotPermitted,
    }
}

/// Returns the socket error that a failed send of a datagram leaves, if any.
pub(crate) fn send_error(error: SocketError) -> Option<stack::Reason> {
    match error {
        SocketError::NetUnreachable | SocketError::AddrNotAvailable => {
            Some(stack::Reason::NetUnreachable)
        }
        SocketError::HostUnreachable => Some(stack::Reason::HostUnreachable),
        SocketError::MessageTooLong => Some(stack::Reason::MessageTooLong),
        _ => None,
    }
}

pub(crate) fn port_refusal(refused: PortRefused) -> Refusal {
    match refused {
        PortRefused::InUse => Refusal::AddrInUse,
        PortRefused::NotPermitted => Refusal::NotPermitted,
        PortRefused::Unavailable => Refusal::NetDown,
    }
}

pub(crate) fn close_mode(mode: channel::CloseMode) -> stack::CloseMode {
    match mode {
        channel::CloseMode::Orderly => stack::CloseMode::Orderly,
        channel::CloseMode::Abort | channel::CloseMode::Pass => stack::CloseMode::Abort,
    }
}

/// A change to a living connection; `None` for what only datagrams and listeners know.
pub(crate) fn tcp_option(option: SocketOption) -> Option<TcpOption> {
    Some(match option {
        SocketOption::NoDelay(on) => TcpOption::NoDelay(on),
        SocketOption::Cork(on) => TcpOption::Cork(on),
        SocketOption::QuickAck(on) => TcpOption::QuickAck(on),
        SocketOption::KeepAlive {
            enabled,
            idle,
            interval,
            probes,
        } => TcpOption::KeepAlive(keep_alive(enabled, idle, interval, probes)),
        SocketOption::UserTimeout(timeout) => TcpOption::UserTimeout(timeout),
        SocketOption::RcvBuf(bytes) => TcpOption::RcvBuf(bytes),
        SocketOption::SndBuf(bytes) => TcpOption::SndBuf(bytes),
        SocketOption::Congestion(which) => TcpOption::Congestion(congestion(which)),
        SocketOption::MaxSeg(bytes) => TcpOption::MaxSeg(bytes),
        SocketOption::Linger2(time) => TcpOption::Linger2(time),
        SocketOption::SynCount(tries) => TcpOption::SynCount(tries),
        SocketOption::WindowClamp(bytes) => TcpOption::WindowClamp(bytes),
        SocketOption::Mark(_) | SocketOption::Table(_) | SocketOption::Link(_) => {
            TcpOption::Choose(chosen(option)?)
        }
        SocketOption::Tos(tos) => TcpOption::Tos(tos),
        SocketOption::Ttl(ttl) => TcpOption::Ttl(ttl),
        SocketOption::TosV6(tos) => TcpOption::TosV6(tos),
        SocketOption::TtlV6(ttl) => TcpOption::TtlV6(ttl),
        SocketOption::Broadcast(_)
        | SocketOption::ReusePort(_)
        | SocketOption::TakesJoined(_)
        | SocketOption::FastOpen(_)
        | SocketOption::DeferAccept(_)
        | SocketOption::PortRange(..)
        | SocketOption::MtuDiscovery(_)
        | SocketOption::MtuDiscoveryV6(_)
        | SocketOption::Multicast(_)
        | SocketOption::FastOpenConnect(_)
        | SocketOption::ReturnsV4(_)
        | SocketOption::ReturnsV6(_) => return None,
    })
}

/// A change to a bound UDP socket; `None` for what the stack has no use for.
pub(crate) fn udp_option(option: SocketOption) -> Option<UdpOption> {
    Some(match option {
        SocketOption::TakesJoined(on) => UdpOption::TakesJoined(on),
        SocketOption::ReturnsV4(on) => UdpOption::ReturnsV4(on),
        SocketOption::ReturnsV6(on) => UdpOption::ReturnsV6(on),
        SocketOption::Tos(tos) => UdpOption::Tos(tos),
        SocketOption::Ttl(ttl) => UdpOption::Ttl(ttl),
        SocketOption::TosV6(tos) => UdpOption::TosV6(tos),
        SocketOption::TtlV6(ttl) => UdpOption::TtlV6(ttl),
        SocketOption::MtuDiscovery(code) => UdpOption::MtuDiscovery(MtuDiscovery::from_code(code)?),
        SocketOption::MtuDiscoveryV6(code) => {
            UdpOption::MtuDiscoveryV6(MtuDiscovery::from_code(code)?)
        }
        _ => UdpOption::Choose(chosen(option)?),
    })
}

/// Notes an option for the connection that is to be.
pub(crate) fn note_option(options: &mut SocketOptions, option: SocketOption) {
    match option {
        SocketOption::NoDelay(on) => options.no_delay = on,
        SocketOption::Cork(on) => options.cork = on,
        SocketOption::QuickAck(on) => options.quick_ack = on,
        SocketOption::KeepAlive {
            enabled,
            idle,
            interval,
            probes,
        } => options.keep_alive = keep_alive(enabled, idle, interval, probes),
        SocketOption::UserTimeout(timeout) => options.user_timeout = timeout,
        SocketOption::RcvBuf(bytes) => options.rcvbuf = Some(bytes),
        SocketOption::SndBuf(bytes) => options.sndbuf = Some(bytes),
        SocketOption::Congestion(which) => options.congestion = Some(congestion(which)),
        SocketOption::MaxSeg(bytes) => options.mss = (bytes > 0).then_some(bytes),
        SocketOption::Linger2(time) => options.linger2 = time,
        SocketOption::SynCount(tries) => options.syn_retries = (tries > 0).then_some(tries),
        SocketOption::PortRange(lo, hi) => {
            options.port_range = PortRange {
                first: lo,
                last: hi,
            }
        }
        SocketOption::WindowClamp(bytes) => options.window_clamp = (bytes > 0).then_some(bytes),
        SocketOption::Tos(tos) => options.tos = tos,
        SocketOption::Ttl(ttl) => options.ttl = ttl,
        SocketOption::TosV6(tos) => options.tos_v6 = tos,
        SocketOption::TtlV6(ttl) => options.ttl_v6 = ttl,
        SocketOption::FastOpen(queue) => options.fast_open_queue = queue,
        SocketOption::DeferAccept(tries) => options.defer_accept = tries,
        SocketOption::FastOpenConnect(on) => options.fast_open = on,
        SocketOption::MtuDiscovery(code) => {
            options.mtu_discovery = MtuDiscovery::from_code(code).unwrap_or_default();
        }
        SocketOption::MtuDiscoveryV6(code) => {
            options.mtu_discovery_v6 = MtuDiscovery::from_code(code).unwrap_or_default();
        }
        SocketOption::Mark(_) | SocketOption::Table(_) | SocketOption::Link(_) => {
            if let Some(chosen) = chosen(option) {
                chosen.put(&mut options.choice);
            }
        }
        SocketOption::Broadcast(_)
        | SocketOption::ReusePort(_)
        | SocketOption::Multicast(_)
        | SocketOption::TakesJoined(_)
        | SocketOption::ReturnsV4(_)
        | SocketOption::ReturnsV6(_) => {}
    }
}

/// Which way packets are to go.
fn chosen(option: SocketOption) -> Option<Chosen> {
    Some(match option {
        SocketOption::Mark(mark) => Chosen::Mark(mark),
        SocketOption::Table(table) => Chosen::Table(table),
        SocketOption::Link(link) => Chosen::Link(link),
        _ => return None,
    })
}

fn keep_alive(enabled: bool, idle: Duration, interval: Duration, probes: u8) -> KeepAlive {
    KeepAlive {
        enabled,
        idle,
        interval,
        probes,
    }
}

fn congestion(which: channel::Congestion) -> stack::Congestion {
    match which {
        channel::Congestion::Cubic => stack::Congestion::Cubic,
        channel::Congestion::NewReno => stack::Congestion::NewReno,
        channel::Congestion::Dctcp => stack::Congestion::Dctcp,
        channel::Congestion::Bbr => stack::Congestion::Bbr,
    }
}

fn congestion_code(which: stack::Congestion) -> u64 {
    let which = match which {
        stack::Congestion::Cubic => channel::Congestion::Cubic,
        stack::Congestion::NewReno => channel::Congestion::NewReno,
        stack::Congestion::Dctcp => channel::Congestion::Dctcp,
        stack::Congestion::Bbr => channel::Congestion::Bbr,
    };
    which.code()
}

pub(crate) fn transport(kind: channel::Kind) -> crate::authority::Transport {
    match kind {
        channel::Kind::Tcp => crate::authority::Transport::Tcp,
        channel::Kind::Udp => crate::authority::Transport::Udp,
    }
}

pub(crate) fn info(info: &stack::TcpInfo) -> channel::Info {
    let flag = |on: bool, bit: u64| if on { bit } else { 0 };
    channel::Info {
        state: info.state as u64,
        retransmits: info.retransmits.into(),
        probes: info.probes.into(),
        backoff: info.backoff.into(),
        options: flag(info.has_timestamps, 1)
            | flag(info.has_sack, 2)
            | flag(info.has_window_scale, 4)
            | flag(info.has_ecn, 8),
        window_scales: u64::from(info.snd_wscale & 15) | u64::from(info.rcv_wscale & 15) << 4,
        rto_us: info.rto_us.into(),
        ato_us: info.ato_us.into(),
        snd_mss: info.snd_mss.into(),
        rcv_mss: info.rcv_mss.into(),
        unacked: info.unacked.into(),
        sacked: info.sacked.into(),
        lost: info.lost.into(),
        rtt_us: info.rtt_us.into(),
        rttvar_us: info.rttvar_us.into(),
        snd_ssthresh: info.snd_ssthresh.into(),
        snd_cwnd: info.snd_cwnd.into(),
        advmss: info.advmss.into(),
        rcv_space: info.rcv_space.into(),
        total_retrans: info.total_retrans.into(),
        bytes_acked: info.bytes_acked,
        bytes_received: info.bytes_received,
        pmtu: info.pmtu.into(),
        snd_wnd: info.snd_wnd.into(),
        rcv_wnd: info.rcv_wnd.into(),
        ca_state: info.ca_state.into(),
        min_rtt_us: info.min_rtt_us.into(),
        notsent_bytes: info.notsent_bytes.into(),
        congestion: congestion_code(info.congestion),
        pacing_rate: info.traffic.pacing_rate,
        delivery_rate: info.traffic.delivery_rate,
        is_delivery_app_limited: info.traffic.is_delivery_app_limited.into(),
        busy_us: info.traffic.busy_us,
        rwnd_limited_us: info.traffic.rwnd_limited_us,
        sndbuf_limited_us: info.traffic.sndbuf_limited_us,
        delivered: info.traffic.delivered.into(),
        delivered_ce: info.traffic.delivered_ce.into(),
        bytes_sent: info.traffic.bytes_sent,
        bytes_retrans: info.traffic.bytes_retrans,
        dsack_dups: info.traffic.dsack_dups.into(),
        reord_seen: info.traffic.reord_seen.into(),
        reordering: info.traffic.reordering.into(),
        last_data_sent_ms: info.last_data_sent_ms.into(),
        last_data_recv_ms: info.last_data_recv_ms.into(),
        last_ack_recv_ms: info.last_ack_recv_ms.into(),
        segs_in: info.traffic.segs_in.into(),
        segs_out: info.traffic.segs_out.into(),
        data_segs_in: info.traffic.data_segs_in.into(),
        data_segs_out: info.traffic.data_segs_out.into(),
        retrans: info.retrans.into(),
        out_of_order: info.traffic.out_of_order.into(),
        total_rto: info.traffic.total_rto.into(),
        total_rto_recoveries: info.traffic.total_rto_recoveries.into(),
        total_rto_ms: info.traffic.total_rto_ms.into(),
    }
}
