//! `struct tcp_info` (linux/tcp.h), filled from the stack's values.

use slipstack_channel::TcpInfo;

/// Length of the structure of Linux 6.18 in bytes. The fields of AccECN (RFC 9768) and tcpi_rehash
/// (no path is chosen again) stay 0.
pub(crate) const LEN: usize = 280;

/// Writes the structure; its length. A shorter `out` takes its beginning. `rate_max` is the
/// program's limit of the pacing rate.
pub(crate) fn write(info: &TcpInfo, rate_max: u64, out: &mut [u8]) -> usize {
    let mut bytes = [0u8; LEN];
    bytes[..8].copy_from_slice(&[
        info.state as u8,
        info.ca_state,
        info.retransmits,
        info.probes,
        info.backoff,
        options(info),
        // snd_wscale is the low nibble, rcv_wscale the high one.
        info.snd_wscale & 15 | info.rcv_wscale << 4,
        info.is_delivery_app_limited.into(),
    ]);
    let words = [
        info.rto_us,
        info.ato_us,
        info.snd_mss,
        info.rcv_mss,
        info.unacked,
        info.sacked,
        info.lost,
        info.retrans,
        0, // fackets
        info.last_data_sent_ms,
        0, // last_ack_sent: never kept, by Linux neither
        info.last_data_recv_ms,
        info.last_ack_recv_ms,
        info.pmtu,
        info.rcv_wnd, // rcv_ssthresh
        info.rtt_us,
        info.rttvar_us,
        info.snd_ssthresh,
        info.snd_cwnd,
        info.advmss,
        info.reordering.into(),
        info.rtt_us, // rcv_rtt
        info.rcv_space,
        info.total_retrans,
    ];
    for (place, value) in bytes[8..].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&value.to_ne_bytes());
    }
    bytes[112..120].copy_from_slice(&rate_max.to_ne_bytes());
    write_traffic(info, &mut bytes);
    let count = out.len().min(LEN);
    out[..count].copy_from_slice(&bytes[..count]);
    count
}

/// Returns tcpi_options (TCPI_OPT_TIMESTAMPS, _SACK, _WSCALE and _ECN).
fn options(info: &TcpInfo) -> u8 {
    u8::from(info.has_timestamps)
        | u8::from(info.has_sack) << 1
        | u8::from(info.has_window_scale) << 2
        | u8::from(info.has_ecn) << 3
}

/// Adds connections that wait to be accepted to tcpi_unacked, which counts them of a listener:
/// tcp_get_info().
pub(crate) fn add_waiting(count: usize, info: &mut [u8]) {
    const AT: usize = 24;
    let Some(place) = info.get_mut(AT..AT + 4) else {
        return;
    };
    let known = u32::from_ne_bytes(place.try_into().unwrap_or_default());
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    place.copy_from_slice(&known.saturating_add(count).to_ne_bytes());
}

/// Writes the fields after tcpi_total_retrans.
fn write_traffic(info: &TcpInfo, bytes: &mut [u8; LEN]) {
    let long = [
        (104, info.pacing_rate),
        (120, info.bytes_acked),
        (128, info.bytes_received),
        (160, info.delivery_rate),
        (168, info.busy_us),
        (176, info.rwnd_limited_us),
        (184, info.sndbuf_limited_us),
        (200, info.bytes_sent),
        (208, info.bytes_retrans),
    ];
    for (at, value) in long {
        bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }
    let short = [
        (136, info.segs_out),
        (140, info.segs_in),
        (144, info.notsent_bytes),
        (148, info.min_rtt_us),
        (152, info.data_segs_in),
        (156, info.data_segs_out),
        (192, info.delivered),
        (196, info.delivered_ce),
        (216, info.dsack_dups),
        (220, info.reord_seen),
        (224, info.out_of_order),
        (228, info.snd_wnd),
        (232, info.rcv_wnd),
        (244, info.total_rto_ms),
    ];
    for (at, value) in short {
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    for (at, value) in [(240, info.total_rto), (242, info.total_rto_recoveries)] {
        bytes[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use slipstack_channel::SocketState;

    use super::*;

    #[test]
    fn fields_have_the_offsets_of_linux() {
        let info = TcpInfo {
            state: SocketState::Established,
            rto_us: 200_000,
            rtt_us: 1234,
            snd_cwnd: 10,
            bytes_acked: 77,
            delivery_rate: 78,
            reord_seen: 79,
            reordering: 5,
            segs_out: 80,
            data_segs_out: 81,
            total_rto_recoveries: 82,
            ..TcpInfo::default()
        };
        let mut out = [0u8; 512];
        assert_eq!(write(&info, u64::MAX, &mut out), LEN);
        let word = |at: usize| u32::from_ne_bytes(out[at..at + 4].try_into().unwrap());
        assert_eq!(out[0], 1);
        assert_eq!(word(8), 200_000);
        assert_eq!(word(68), 1234);
        assert_eq!(word(80), 10);
        assert_eq!((out[88], out[120], out[160], out[220]), (5, 77, 78, 79));
        assert_eq!((out[136], out[156], out[242]), (80, 81, 82));
    }

    #[test]
    fn a_short_buffer_takes_the_beginning() {
        let mut out = [0u8; 104];
        assert_eq!(write(&TcpInfo::default(), u64::MAX, &mut out), 104);
    }
}
