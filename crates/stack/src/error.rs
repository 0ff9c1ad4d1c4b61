//! Errors that callers of the stack get, one enum per boundary. Not errno: that is the POSIX
//! layer's.

use core::fmt;

/// A call of the socket interface was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketError {
    /// The id names nothing (any more).
    UnknownId,
    /// The local address and port are taken.
    AddrInUse,
    /// The local address is not one of ours, or no port of the ephemeral range is free.
    AddrNotAvailable,
    /// The address family cannot be served.
    FamilyNotSupported,
    /// An argument is out of its range (port 0, an unspecified or multicast destination …).
    InvalidArgument,
    /// Not allowed in the state that the socket is in.
    InvalidState,
    /// A destination is needed and none was given or connected.
    DestinationRequired,
    AlreadyConnected,
    NotConnected,
    /// A broadcast destination without the option that allows it.
    BroadcastDenied,
    /// The payload does not fit in one packet.
    MessageTooLong,
    /// No route to the destination.
    NetUnreachable,
    /// The neighbour does not answer.
    HostUnreachable,
    /// A limit of the configuration (connections, sockets) is reached.
    LimitReached,
    /// A connection of the same four addresses and ports exists already.
    FlowExists,
    /// A connection image fails validation.
    BadImage,
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownId => "no such socket",
            Self::AddrInUse => "address in use",
            Self::AddrNotAvailable => "address not available",
            Self::FamilyNotSupported => "address family not supported",
            Self::InvalidArgument => "invalid argument",
            Self::InvalidState => "not possible in this state",
            Self::DestinationRequired => "destination address required",
            Self::AlreadyConnected => "already connected",
            Self::NotConnected => "not connected",
            Self::BroadcastDenied => "broadcast not allowed",
            Self::MessageTooLong => "message too long",
            Self::NetUnreachable => "network unreachable",
            Self::HostUnreachable => "host unreachable",
            Self::LimitReached => "limit reached",
            Self::FlowExists => "connection exists",
            Self::BadImage => "invalid connection image",
        })
    }
}

impl core::error::Error for SocketError {}

/// Why a connection (attempt) failed or a datagram was returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// RST in answer to our SYN, or ICMP port unreachable.
    Refused = 1,
    /// RST on an open connection.
    Reset = 2,
    /// Retransmissions, keep-alive or the user timeout gave up.
    TimedOut = 3,
    HostUnreachable = 4,
    NetUnreachable = 5,
    /// Ended by ourselves.
    Aborted = 6,
    ProtocolError = 7,
    MessageTooLong = 8,
    /// RST after both sides had said FIN or we had shut down (EPIPE rather than ECONNRESET).
    BrokenPipe = 9,
    ProtocolUnreachable = 10,
    HostDown = 11,
    NotOnNet = 12,
    /// The way that the packet asks for does not exist.
    RouteFailed = 13,
    /// Somebody on the way forbids it.
    Prohibited = 14,
}

impl Reason {
    pub const fn from_u8(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Refused,
            2 => Self::Reset,
            3 => Self::TimedOut,
            4 => Self::HostUnreachable,
            5 => Self::NetUnreachable,
            6 => Self::Aborted,
            7 => Self::ProtocolError,
            8 => Self::MessageTooLong,
            9 => Self::BrokenPipe,
            10 => Self::ProtocolUnreachable,
            11 => Self::HostDown,
            12 => Self::NotOnNet,
            13 => Self::RouteFailed,
            14 => Self::Prohibited,
            _ => return None,
        })
    }
}
