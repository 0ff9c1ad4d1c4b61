//! States of sockets and connections.

use serde::{Deserialize, Serialize};

/// The state of a socket, with Linux's numbers.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum SocketState {
    Established = 1,
    SynSent = 2,
    #[serde(rename = "syn-recv")]
    SynReceived = 3,
    #[serde(rename = "fin-wait-1")]
    FinWait1 = 4,
    #[serde(rename = "fin-wait-2")]
    FinWait2 = 5,
    TimeWait = 6,
    /// Bound or not even that; a UDP socket that is not connected.
    #[default]
    Closed = 7,
    CloseWait = 8,
    LastAck = 9,
    Listen = 10,
    Closing = 11,
}

impl SocketState {
    pub const ALL: [SocketState; 11] = [
        SocketState::Established,
        SocketState::SynSent,
        SocketState::SynReceived,
        SocketState::FinWait1,
        SocketState::FinWait2,
        SocketState::TimeWait,
        SocketState::Closed,
        SocketState::CloseWait,
        SocketState::LastAck,
        SocketState::Listen,
        SocketState::Closing,
    ];

    /// Returns its place in a set of states.
    pub const fn bit(self) -> u16 {
        1 << self as u8
    }

    pub fn from_number(number: u8) -> Option<SocketState> {
        SocketState::ALL.into_iter().find(|it| *it as u8 == number)
    }

    /// Returns the name in `ss`.
    pub const fn word(self) -> &'static str {
        match self {
            SocketState::Established => "ESTAB",
            SocketState::SynSent => "SYN-SENT",
            SocketState::SynReceived => "SYN-RECV",
            SocketState::FinWait1 => "FIN-WAIT-1",
            SocketState::FinWait2 => "FIN-WAIT-2",
            SocketState::TimeWait => "TIME-WAIT",
            SocketState::Closed => "UNCONN",
            SocketState::CloseWait => "CLOSE-WAIT",
            SocketState::LastAck => "LAST-ACK",
            SocketState::Listen => "LISTEN",
            SocketState::Closing => "CLOSING",
        }
    }

    /// Returns the name in FreeBSD's netstat.
    pub const fn bsd_word(self) -> &'static str {
        match self {
            SocketState::Established => "ESTABLISHED",
            SocketState::SynSent => "SYN_SENT",
            SocketState::SynReceived => "SYN_RCVD",
            SocketState::FinWait1 => "FIN_WAIT_1",
            SocketState::FinWait2 => "FIN_WAIT_2",
            SocketState::TimeWait => "TIME_WAIT",
            SocketState::Closed => "CLOSED",
            SocketState::CloseWait => "CLOSE_WAIT",
            SocketState::LastAck => "LAST_ACK",
            SocketState::Listen => "LISTEN",
            SocketState::Closing => "CLOSING",
        }
    }
}
