//! Values of a connection for TCP_INFO.

use crate::{Congestion, SocketState};

/// A figure in one word. Numbers that the type does not hold become its default.
trait Figure {
    fn to_word(self) -> u64;
    fn from_word(word: u64) -> Self;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Figure for $number {
            fn to_word(self) -> u64 {
                self.into()
            }

            fn from_word(word: u64) -> Self {
                word.try_into().unwrap_or_default()
            }
        }
    )*};
}
numbers!(u8 u16 u32 u64);

impl Figure for bool {
    fn to_word(self) -> u64 {
        self.into()
    }

    fn from_word(word: u64) -> Self {
        word != 0
    }
}

impl Figure for Congestion {
    fn to_word(self) -> u64 {
        self.code().into()
    }

    fn from_word(word: u64) -> Self {
        let code = u8::try_from(word).ok();
        code.and_then(Self::from_code).unwrap_or_default()
    }
}

impl Figure for SocketState {
    fn to_word(self) -> u64 {
        self as u64
    }

    fn from_word(word: u64) -> Self {
        let number = u8::try_from(word).ok();
        number.and_then(Self::from_number).unwrap_or_default()
    }
}

macro_rules! figures {
    ($($(#[$doc:meta])* $field:ident: $figure:ty,)*) => {
        /// A snapshot. Times in microseconds, counts in segments, sizes in bytes, unless noted
        /// otherwise.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct TcpInfo { $($(#[$doc])* pub $field: $figure,)* }

        impl TcpInfo {
            pub const WORDS: usize = [$(stringify!($field),)*].len();

            /// Returns the words that travel, in the order of the fields.
            pub fn to_words(self) -> [u64; Self::WORDS] {
                [$(self.$field.to_word(),)*]
            }

            /// Reads the words of [`TcpInfo::to_words`]; those that are missing count as 0.
            pub fn from_words(mut words: impl Iterator<Item = u64>) -> TcpInfo {
                TcpInfo { $($field: Figure::from_word(words.next().unwrap_or(0)),)* }
            }
        }
    };
}

figures! {
    state: SocketState,
    /// 0 = open, 2 = marked, 3 = recovery, 4 = loss (Linux's tcp_ca_state).
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    has_timestamps: bool,
    has_sack: bool,
    has_window_scale: bool,
    has_ecn: bool,
    snd_wscale: u8,
    rcv_wscale: u8,
    rto_us: u32,
    ato_us: u32,
    snd_mss: u32,
    rcv_mss: u32,
    advmss: u32,
    pmtu: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    total_retrans: u32,
    rtt_us: u32,
    rttvar_us: u32,
    min_rtt_us: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    rcv_space: u32,
    snd_wnd: u32,
    rcv_wnd: u32,
    bytes_acked: u64,
    bytes_received: u64,
    notsent_bytes: u32,
    last_data_sent_ms: u32,
    last_data_recv_ms: u32,
    last_ack_recv_ms: u32,
    congestion: Congestion,
    /// Bytes per second.
    pacing_rate: u64,
    /// Bytes per second.
    delivery_rate: u64,
    /// The rate is the program's pace, not the path's.
    is_delivery_app_limited: bool,
    busy_us: u64,
    rwnd_limited_us: u64,
    sndbuf_limited_us: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
    reordering: u16,
    out_of_order: u32,
    total_rto: u16,
    total_rto_recoveries: u16,
    total_rto_ms: u32,
    segs_in: u32,
    segs_out: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    /// Nanoseconds since data arrived last, to a millisecond if segments without data followed.
    data_age_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_info_round_trips() {
        let info = TcpInfo {
            state: SocketState::CloseWait,
            has_sack: true,
            rcv_wscale: 7,
            bytes_acked: u64::MAX,
            congestion: Congestion::Bbr,
            data_segs_out: u32::MAX,
            ..TcpInfo::default()
        };
        assert_eq!(TcpInfo::from_words(info.to_words().into_iter()), info);
        assert_eq!(TcpInfo::from_words(core::iter::empty()), TcpInfo::default());
    }

    #[test]
    fn invalid_words_become_the_defaults() {
        let words = core::iter::repeat_n(u64::MAX, TcpInfo::WORDS);
        let info = TcpInfo::from_words(words);
        assert_eq!(info.state, SocketState::Closed);
        assert_eq!(info.congestion, Congestion::Cubic);
        assert_eq!((info.rto_us, info.bytes_acked), (0, u64::MAX));
    }
}
