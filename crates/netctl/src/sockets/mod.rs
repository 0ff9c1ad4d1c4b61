//! Inquiries about the sockets of running stacks, and the answers of each engine.

mod filter;
mod parse;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use slipstack_terms::{SocketState, Transport};

pub use filter::{Comparison, Expression, Filter, Side};
pub use parse::{SyntaxError, parse_filter};

/// A question to engines, answered at the end of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Inquiry {
    /// The sockets that match a filter, a [`SocketRow`] as JSON in each line.
    Sockets { filter: Filter, has_figures: bool },
    /// The matching connections that have ended within this time, an [`EndedRow`] as JSON in each
    /// line. The engines remember them for two seconds more; without such an inquiry they do not.
    Ended {
        filter: Filter,
        has_figures: bool,
        age_ms: u32,
    },
    /// Closes the matching connections: RST to the peer, ECONNABORTED to the program.
    Drop { filter: Filter },
    /// Every counter that is not zero, a pair as JSON in each line.
    Counters,
    /// Number of matches of each rule of the packet filter, a [`FilterCountRow`] as JSON in each
    /// line.
    FilterCounts,
    /// The numbers of its stack, a pair of name and value as JSON in each line.
    Tunables,
    /// The flows of stateful rules, a [`FilterStateRow`] as JSON in each line.
    FilterStates,
    /// The rules of these ids, or with `None` all, begin to count and to log again.
    ZeroFilter {
        ids: Option<Vec<u64>>,
        is_log_only: bool,
    },
}

impl Inquiry {
    /// Returns the right that it takes, of which only root and the owner of the device have any;
    /// `None`: every user may ask it.
    #[must_use]
    pub fn right(&self) -> Option<&'static str> {
        match self {
            Inquiry::Sockets { .. }
            | Inquiry::Ended { .. }
            | Inquiry::Counters
            | Inquiry::Tunables => None,
            Inquiry::Drop { .. } => Some("close connections"),
            Inquiry::FilterCounts | Inquiry::FilterStates => Some("read its filter"),
            Inquiry::ZeroFilter { .. } => Some("change its filter"),
        }
    }
}

/// Matches of a rule of the packet filter in an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterCountRow {
    pub id: u64,
    pub packets: u64,
    pub bytes: u64,
    /// Time of the last match, in nanoseconds of CLOCK_MONOTONIC.
    pub last_ns: u64,
}

/// A flow of a stateful rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterStateRow {
    /// Id of that rule.
    pub rule: u64,
    pub is_limited: bool,
    /// IP protocol number.
    pub protocol: u8,
    /// Source of its first packet; port 0 if there is none.
    pub src: SocketAddr,
    pub dst: SocketAddr,
    pub packets: u64,
    pub bytes: u64,
    pub left_ms: u64,
}

/// The engine that answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineIdentity {
    /// Slot of the device; 0 is the keeper's own stack.
    pub slot: u16,
    /// 0, and the program's name empty: a program of another user, which the asking one does not
    /// learn beside sockets.
    pub pid: u32,
    pub program: String,
    /// Name of the instance; `None`: in the program.
    pub instance: Option<String>,
    /// The answer's file is the next of the descriptors beside the message. It was too late without
    /// one.
    pub has_answered: bool,
}

/// A program that describes its sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramIdentity {
    pub pid: u32,
    pub program: String,
    pub instance: Option<String>,
}

/// One socket or connection of a stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SocketRow {
    pub protocol: Transport,
    pub state: SocketState,
    pub local: SocketAddr,
    /// `None`: none.
    pub remote: Option<SocketAddr>,
    /// Bytes that wait for the program; of a listener, connections.
    pub recv_q: u64,
    /// Bytes that the peer has not acknowledged; of a listener, its backlog.
    pub send_q: u64,
    /// A program has it open.
    pub is_held: bool,
    /// Time since the last traffic in either direction, or since TIME-WAIT began.
    pub idle_ms: Option<u64>,
    /// Time left in TIME-WAIT.
    pub left_ms: Option<u64>,
    /// Sizes of the buffers.
    pub rcvbuf: Option<u64>,
    pub sndbuf: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<Box<Figures>>,
}

/// A connection that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedRow {
    /// Counts the engine's ended connections while they are watched; a gap are forgotten ones.
    pub number: u64,
    /// As it was when it ended; its state is closed.
    pub row: SocketRow,
}

impl SocketRow {
    /// Returns the row of a TCP socket of which nothing but its state and ends is known.
    #[must_use]
    pub fn between(state: SocketState, local: SocketAddr, remote: Option<SocketAddr>) -> Self {
        SocketRow {
            protocol: Transport::Tcp,
            state,
            local,
            remote,
            recv_q: 0,
            send_q: 0,
            is_held: false,
            idle_ms: None,
            left_ms: None,
            rcvbuf: None,
            sndbuf: None,
            figures: None,
        }
    }
}

/// The values of TCP_INFO. Times in microseconds where the name says so, sizes in bytes, counts in
/// segments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub congestion: String,
    pub has_timestamps: bool,
    pub has_sack: bool,
    pub has_ecn: bool,
    /// Shifts of windows that come in and that go out, if both sides scale.
    pub scales: Option<(u8, u8)>,
    pub rto_us: u32,
    pub rtt_us: u32,
    pub rttvar_us: u32,
    pub min_rtt_us: u32,
    pub ato_us: u32,
    pub mss: u32,
    pub rcv_mss: u32,
    pub advmss: u32,
    pub pmtu: u32,
    pub cwnd: u32,
    /// `None`: none has been found yet.
    pub ssthresh: Option<u32>,
    pub backoff: u8,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub segs_out: u32,
    pub segs_in: u32,
    pub data_segs_out: u32,
    pub data_segs_in: u32,
    pub last_snd_ms: u32,
    pub last_rcv_ms: u32,
    pub last_ack_ms: u32,
    /// Bytes per second.
    pub pacing_rate: u64,
    pub delivery_rate: u64,
    pub is_app_limited: bool,
    pub delivered: u32,
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
    pub unacked: u32,
    pub retrans: u32,
    pub retrans_total: u32,
    pub lost: u32,
    pub sacked: u32,
    pub dsack_dups: u32,
    pub reordering: u16,
    pub reord_seen: u32,
    pub rcv_space: u32,
    pub notsent: u32,
    pub snd_wnd: u32,
    pub rcv_wnd: u32,
    pub rcv_ooopack: u32,
}
