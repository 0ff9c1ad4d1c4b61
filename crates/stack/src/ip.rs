//! IPv4 input: every check of form and address before a transport sees a packet.

use core::net::{IpAddr, SocketAddr};

/// The network header of a packet that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpMeta {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub tos: u8,
    pub ttl: u8,
    /// Sent to a link-layer or IP broadcast or multicast address.
    pub group: bool,
    /// Looped back by our own side, not from the wire.
    pub local: bool,
}

/// A packet of ours did not get through: an ICMP error, or a neighbour that does not answer.
/// Unauthenticated; RFC 5927 says what may follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathError {
    /// Our side of the quoted packet.
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub cause: PathCause,
    /// TCP: the quoted sequence number, which must be within what is in flight.
    pub sequence: Option<u32>,
    /// From our own neighbour cache, so known to be true.
    pub trusted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathCause {
    NetUnreachable,
    HostUnreachable,
    ProtocolUnreachable,
    PortUnreachable,
    /// Next-hop MTU of RFC 1191; 0 from routers that do not know it.
    FragmentationNeeded {
        mtu: u16,
    },
    SourceRouteFailed,
    AdminProhibited,
    TimeExceeded,
    ParameterProblem,
}
