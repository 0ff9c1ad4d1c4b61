//! `struct tcp_info` (linux/tcp.h) from what the stack tells.

use slipstack_channel::Info;

/// Bytes of the structure as Linux 6.18 has it. What belongs to AccECN (RFC 9768) and tcpi_rehash
/// (no path is chosen anew) stay 0.
pub(super) const LEN: usize = 280;

/// Writes the structure; its length. A shorter `out` takes its beginning.
pub(super) fn write(info: &Info, out: &mut [u8]) -> usize {
    let mut bytes = [0u8; LEN];
    let byte = |value: u64| u8::try_from(value).unwrap_or(u8::MAX);
    bytes[0] = byte(info.state);
    bytes[1] = byte(info.ca_state);
    bytes[2] = byte(info.retransmits);
    bytes[3] = byte(info.probes);
    bytes[4] = byte(info.backoff);
    bytes[5] = byte(info.options);
    // snd_wscale is the low nibble, rcv_wscale the high one.
    bytes[6] = byte(info.window_scales);
    bytes[7] = byte(info.is_delivery_app_limited & 1);
    let word = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let words = [
        word(info.rto_us),
        word(info.ato_us),
        word(info.snd_mss),
        word(info.rcv_mss),
        word(info.unacked),
        word(info.sacked),
        word(info.lost),
        word(info.retrans),
        0, // fackets
        word(info.last_data_sent_ms),
        0, // last_ack_sent: never kept, by Linux neither
        word(info.last_data_recv_ms),
        word(info.last_ack_recv_ms),
        word(info.pmtu),
        word(info.rcv_wnd), // rcv_ssthresh
        word(info.rtt_us),
        word(info.rttvar_us),
        word(info.snd_ssthresh),
        word(info.snd_cwnd),
        word(info.advmss),
        word(info.reordering),
        word(info.rtt_us), // rcv_rtt
        word(info.rcv_space),
        word(info.total_retrans),
    ];
    for (place, value) in bytes[8..].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&value.to_ne_bytes());
    }
    write_traffic(info, &mut bytes);
    let count = out.len().min(LEN);
    out[..count].copy_from_slice(&bytes[..count]);
    count
}

/// Adds connections that wait to be accepted to tcpi_unacked, which counts them of a listener:
/// tcp_get_info().
pub(super) fn add_waiting(count: usize, info: &mut [u8]) {
    const AT: usize = 24;
    let Some(place) = info.get_mut(AT..AT + 4) else {
        return;
    };
    let known = u32::from_ne_bytes(place.try_into().unwrap_or_default());
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    place.copy_from_slice(&known.saturating_add(count).to_ne_bytes());
}

/// Writes the fields after tcpi_total_retrans.
fn write_traffic(info: &Info, bytes: &mut [u8; LEN]) {
    let word = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    // tcpi_max_pacing_rate: no limit.
    let long = [
        (104, info.pacing_rate),
        (112, u64::MAX),
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
        bytes[at..at + 4].copy_from_slice(&word(value).to_ne_bytes());
    }
    for (at, value) in [(240, info.total_rto), (242, info.total_rto_recoveries)] {
        let value = u16::try_from(value).unwrap_or(u16::MAX);
        bytes[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_linux_has_them() {
        let info = Info {
            state: 1,
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
            ..Info::default()
        };
        let mut out = [0u8; 512];
        assert_eq!(write(&info, &mut out), LEN);
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
        assert_eq!(write(&Info::default(), &mut out), 104);
    }
}
