//! Errors of calls and of connections. They are not errno, which belongs to the POSIX layer.

use core::fmt;

crate::coded! {
    /// Reason why a call of the socket interface was refused.
    SocketError {
        /// The id names nothing (any more).
        UnknownId = 1,
        /// The local address and port are taken.
        AddrInUse = 2,
        /// The local address is not one of ours, or no port of the ephemeral range is free.
        AddrNotAvailable = 3,
        /// The address family cannot be served.
        FamilyNotSupported = 4,
        /// An argument is out of its range (port 0, an unspecified or multicast destination …).
        InvalidArgument = 5,
        /// The state of the socket does not allow it.
        InvalidState = 6,
        /// A destination is needed and none was given or connected.
        DestinationRequired = 7,
        AlreadyConnected = 8,
        NotConnected = 9,
        /// The payload does not fit in one packet.
        MessageTooLong = 10,
        /// No route to the destination.
        NetUnreachable = 11,
        /// The neighbour does not answer.
        HostUnreachable = 12,
        /// A limit (connections, sockets, requests under way) is reached.
        LimitReached = 13,
        NotPermitted = 14,
        /// The engine is gone.
        NetDown = 15,
        /// The option or request does not exist for this kind of socket.
        NotSupported = 16,
        /// A connection of the same four addresses and ports exists already.
        FlowExists = 17,
        /// A connection image fails validation.
        BadImage = 18,
    }
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
            Self::MessageTooLong => "message too long",
            Self::NetUnreachable => "network unreachable",
            Self::HostUnreachable => "host unreachable",
            Self::LimitReached => "limit reached",
            Self::NotPermitted => "not permitted",
            Self::NetDown => "the engine is gone",
            Self::NotSupported => "not supported",
            Self::FlowExists => "connection exists",
            Self::BadImage => "invalid connection image",
        })
    }
}

impl core::error::Error for SocketError {}

impl SocketError {
    /// Returns the error that a failed send of a datagram leaves at its socket, if any.
    pub const fn of_datagram(self) -> Option<Reason> {
        match self {
            Self::NetUnreachable | Self::AddrNotAvailable => Some(Reason::NetUnreachable),
            Self::HostUnreachable => Some(Reason::HostUnreachable),
            Self::MessageTooLong => Some(Reason::MessageTooLong),
            _ => None,
        }
    }
}

crate::coded! {
    /// Reason why a connection (attempt) failed or a datagram was returned.
    Reason {
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
        /// RST after both sides had sent FIN or we had shut down (EPIPE rather than ECONNRESET).
        BrokenPipe = 9,
        /// The engine is gone.
        NetDown = 10,
        ProtocolUnreachable = 11,
        HostDown = 12,
        NotOnNet = 13,
        /// The source route of the packet does not exist.
        RouteFailed = 14,
        /// A node on the path forbids it.
        Prohibited = 15,
    }
}
