//! `struct tcp_info` (linux/tcp.h) from what the stack tells.

use slipstack_channel::Info;

/// Bytes up to and including tcpi_rcv_wnd.
pub(super) const LEN: usize = 240;

/// Milliseconds of tcpi_last_*: not kept.
const UNKNOWN_MS: u32 = 0;

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
    let word = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let words = [
        word(info.rto_us),
        word(info.ato_us),
        word(info.snd_mss),
        word(info.rcv_mss),
        word(info.unacked),
        word(info.sacked),
        word(info.lost),
        0, // retrans
        0, // fackets
        UNKNOWN_MS,
        UNKNOWN_MS,
        UNKNOWN_MS,
        UNKNOWN_MS,
        word(info.pmtu),
        word(info.rcv_wnd), // rcv_ssthresh
        word(info.rtt_us),
        word(info.rttvar_us),
        word(info.snd_ssthresh),
        word(info.snd_cwnd),
        word(info.advmss),
        3,                 // reordering
        word(info.rtt_us), // rcv_rtt
        word(info.rcv_space),
        word(info.total_retrans),
    ];
    for (place, value) in bytes[8..].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&value.to_ne_bytes());
    }
    // tcpi_pacing_rate 104, max_pacing_rate 112, bytes_acked 120, bytes_received 128,
    // segs_out 136, segs_in 140, notsent_bytes 144, min_rtt 148, …, snd_wnd 228, rcv_wnd 232.
    bytes[112..120].copy_from_slice(&u64::MAX.to_ne_bytes());
    bytes[120..128].copy_from_slice(&info.bytes_acked.to_ne_bytes());
    bytes[128..136].copy_from_slice(&info.bytes_received.to_ne_bytes());
    bytes[144..148].copy_from_slice(&word(info.notsent_bytes).to_ne_bytes());
    bytes[148..152].copy_from_slice(&word(info.min_rtt_us).to_ne_bytes());
    bytes[228..232].copy_from_slice(&word(info.snd_wnd).to_ne_bytes());
    bytes[232..236].copy_from_slice(&word(info.rcv_wnd).to_ne_bytes());
    let count = out.len().min(LEN);
    out[..count].copy_from_slice(&bytes[..count]);
    count
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
            ..Info::default()
        };
        let mut out = [0u8; 512];
        assert_eq!(write(&info, &mut out), LEN);
        let word = |at: usize| u32::from_ne_bytes(out[at..at + 4].try_into().unwrap());
        assert_eq!(out[0], 1);
        assert_eq!(word(8), 200_000);
        assert_eq!(word(68), 1234);
        assert_eq!(word(80), 10);
        assert_eq!(out[120], 77);
    }

    #[test]
    fn a_short_buffer_takes_the_beginning() {
        let mut out = [0u8; 104];
        assert_eq!(write(&Info::default(), &mut out), 104);
    }
}
