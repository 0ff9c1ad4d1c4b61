//! Figures of a connection in the channel's words.

use slipstack_channel as channel;
use slipstack_stack as stack;

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
        congestion: info.congestion.code().into(),
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
