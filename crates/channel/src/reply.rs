//! Replies of an engine to requests.

use core::sync::atomic::Ordering;
use std::net::SocketAddr;

use slipstack_mem::Line;
use slipstack_terms::SocketError;

use crate::addr::AddrWords;
use crate::command::Ticket;
use crate::layout::REPLY_LINES;

macro_rules! info {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Figures of a connection; times in microseconds, the rest in bytes or segments.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Info { $($(#[$doc])* pub $field: u64,)* }

        impl Info {
            const WORDS: usize = [$(stringify!($field),)*].len();

            pub(crate) fn to_words(self) -> Vec<u64> {
                vec![$(self.$field,)*]
            }

            fn from_words(mut words: impl Iterator<Item = u64>) -> Info {
                Info { $($field: words.next().unwrap_or(0),)* }
            }
        }
    };
}

info! {
    /// Linux's number of the TCP state (1 = ESTABLISHED …).
    state,
    retransmits,
    probes,
    backoff,
    /// Bits: 1 timestamps, 2 SACK, 4 window scale, 8 ECN.
    options,
    /// Receive scale in bits 4–7, send scale in bits 0–3.
    window_scales,
    rto_us,
    ato_us,
    snd_mss,
    rcv_mss,
    unacked,
    sacked,
    lost,
    rtt_us,
    rttvar_us,
    snd_ssthresh,
    snd_cwnd,
    advmss,
    rcv_space,
    total_retrans,
    bytes_acked,
    bytes_received,
    pmtu,
    snd_wnd,
    rcv_wnd,
    /// Linux's `tcpi_ca_state`.
    ca_state,
    min_rtt_us,
    notsent_bytes,
    /// [`Congestion::code`](slipstack_terms::Congestion::code).
    congestion,
    /// Bytes per second.
    pacing_rate,
    delivery_rate,
    /// 1 = the program's pace, not the path's.
    is_delivery_app_limited,
    busy_us,
    rwnd_limited_us,
    sndbuf_limited_us,
    delivered,
    delivered_ce,
    bytes_sent,
    bytes_retrans,
    dsack_dups,
    reord_seen,
    reordering,
    last_data_sent_ms,
    last_data_recv_ms,
    last_ack_recv_ms,
    segs_in,
    segs_out,
    data_segs_in,
    data_segs_out,
    retrans,
    out_of_order,
    total_rto,
    total_rto_recoveries,
    total_rto_ms,
}

/// With sequence and kind, the figures are the longest answer.
const _: () = assert!(2 + Info::WORDS <= REPLY_LINES * 8);

/// The answer to a request that was granted.
#[expect(
    clippy::large_enum_variant,
    reason = "lives on the stack for one call; a box would be an allocation in the engine"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    /// The local address the socket has now.
    Bound {
        local: SocketAddr,
    },
    Info(Info),
}

const REFUSED: u64 = 1;
const DONE: u64 = 2;
const BOUND: u64 = 3;
const INFO: u64 = 4;

/// Engine: writes the answer into its slot.
pub(crate) fn write(slot: &[Line], ticket: Ticket, result: Result<Reply, SocketError>) {
    let [head, rest @ ..] = slot else { return };
    let put = |word: usize, value: u64| head.words[word].store(value, Ordering::Relaxed);
    match result {
        Err(refusal) => {
            put(1, REFUSED);
            put(2, u64::from(refusal.code()));
        }
        Ok(Reply::Done) => put(1, DONE),
        Ok(Reply::Bound { local }) => {
            let words = AddrWords::encode(local);
            put(1, BOUND);
            put(2, words.ip[0]);
            put(3, words.ip[1]);
            put(4, u64::from(words.port));
        }
        Ok(Reply::Info(info)) => {
            put(1, INFO);
            let room = head.words[2..]
                .iter()
                .chain(rest.iter().flat_map(|line| line.words.iter()));
            for (word, value) in room.zip(info.to_words()) {
                word.store(value, Ordering::Relaxed);
            }
        }
    }
    head.words[0].store(u64::from(ticket.sequence), Ordering::Release);
}

/// Program: the answer, once it is there.
pub(crate) fn read(slot: &[Line], ticket: Ticket) -> Option<Result<Reply, SocketError>> {
    let [head, rest @ ..] = slot else { return None };
    if head.words[0].load(Ordering::Acquire) != u64::from(ticket.sequence) {
        return None;
    }
    let word = |index: usize| head.words[index].load(Ordering::Relaxed);
    Some(match word(1) {
        DONE => Ok(Reply::Done),
        BOUND => {
            let ip = [word(2), word(3)];
            let port = word(4) as u16;
            Ok(Reply::Bound {
                local: AddrWords { ip, port }.decode(),
            })
        }
        INFO => {
            let words = head.words[2..]
                .iter()
                .chain(rest.iter().flat_map(|line| line.words.iter()));
            let words = words.map(|word| word.load(Ordering::Relaxed));
            Ok(Reply::Info(Info::from_words(words)))
        }
        _ => Err(SocketError::from_code(word(2) as u8).unwrap_or(SocketError::InvalidState)),
    })
}
