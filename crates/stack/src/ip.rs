//! IPv4 input: every check of form and address before a transport sees a packet.
//!
//! RFC 1122 3.2.1.8: options are looked at, RFC 1812 5.3.7: martian addresses are refused.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use slipstack_wire::ipv4::{self, Ipv4Error, Ipv4Packet, OptionsVerdict};
use slipstack_wire::{protocol, tcp};

use crate::counters::Counter;
use crate::link::Link;

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
    /// The VLAN that it came in; 0 = the device's own link.
    pub vlan: u16,
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

/// The message that told of a [`PathError`], or what it would have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told<'a> {
    /// Sender of the error; our own address for a neighbour that does not answer.
    pub offender: IpAddr,
    /// To which address of ours, with which type of service and time to live.
    pub local: IpAddr,
    pub tos: u8,
    pub ttl: u8,
    /// Type and code of ICMP, of the version that its sender speaks.
    pub kind: u8,
    pub code: u8,
    /// The MTU, or where the fault lies.
    pub info: u32,
    /// The quotation behind the first eight bytes of the transport's header.
    pub payload: &'a [u8],
}

/// An ICMP error about TCP or UDP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report<'a> {
    pub protocol: u8,
    pub error: PathError,
    pub told: Told<'a>,
}

/// Bytes of a transport's header that every error quotes (RFC 792).
pub(crate) const QUOTED_LEN: usize = 8;

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

/// A packet that passed: its meta data and itself.
pub(crate) type Accepted<'a> = (IpMeta, Ipv4Packet<'a>);

/// All checks of RFC 1122 3.2.1 and 3.3.6 on a packet that arrived; the error says why it is
/// dropped. `link_group`: it came in a link-layer broadcast or multicast.
#[inline]
pub(crate) fn accept<'a>(
    bytes: &'a [u8],
    link_group: bool,
    is_looped: bool,
    link: &Link,
) -> Result<Accepted<'a>, Counter> {
    let routes = &link.routes;
    let packet = Ipv4Packet::parse(bytes).map_err(|error| match error {
        Ipv4Error::Malformed => Counter::DropIpv4Malformed,
        Ipv4Error::Checksum => Counter::DropIpv4Checksum,
    })?;
    if !packet.options.is_empty() {
        match ipv4::check_options(packet.options) {
            OptionsVerdict::Harmless => {}
            OptionsVerdict::SourceRoute => return Err(Counter::DropIpv4SourceRoute),
            OptionsVerdict::Malformed => return Err(Counter::DropIpv4Options),
        }
    }
    let (src, dst) = (packet.header.src, packet.header.dst);
    if (is_martian_source(src) || routes.is_broadcast(src))
        && !may_be_nameless((src, dst), packet.header.protocol)
    {
        return Err(Counter::DropIpv4Martian);
    }
    if !is_looped && routes.is_own(src) {
        return Err(Counter::DropIpv4Spoofed);
    }
    let group = if routes.is_own(dst) {
        // RFC 1122 3.3.6: unicast in a link-layer broadcast is a trick.
        if link_group {
            return Err(Counter::DropIpv4LinkGroup);
        }
        false
    } else if routes.is_broadcast(dst) || (dst.is_multicast() && link.hears_v4(dst)) {
        true
    } else {
        return Err(Counter::DropIpv4NotOurs);
    };
    let meta = IpMeta {
        src: IpAddr::V4(src),
        dst: IpAddr::V4(dst),
        tos: packet.header.tos,
        ttl: packet.header.ttl,
        group,
        local: is_looped,
        vlan: 0,
    };
    Ok((meta, packet))
}

/// Sources that no host may have: "this network", loopback, multicast, class E, broadcast
/// (RFC 1122 3.2.1.3, RFC 6890).
#[inline]
fn is_martian_source(src: Ipv4Addr) -> bool {
    let first = src.octets()[0];
    first == 0 || first == 127 || first >= 224
}

/// Whether a packet may have no source: a host without an address asks all (RFC 1122 3.2.1.3 (a)),
/// and switches that ask for groups in a router's place need none (RFC 4541 2.1.1); as on Linux.
#[cold]
#[inline(never)]
fn may_be_nameless((src, dst): (Ipv4Addr, Ipv4Addr), number: u8) -> bool {
    let is_for_link = dst.is_broadcast() || matches!(dst.octets(), [224, 0, 0, _]);
    let is_about_groups = dst.is_multicast() && number == protocol::IGMP;
    src.is_unspecified() && (is_for_link || is_about_groups)
}

/// Reads the flow out of a packet of ours: headers as we sent them, possibly cut off after eight
/// bytes of the transport header.
pub(crate) fn parse_flow(
    packet: &Ipv4Packet<'_>,
    cause: PathCause,
    trusted: bool,
) -> Option<(u8, PathError)> {
    let protocol = packet.header.protocol;
    if packet.fragment_offset != 0 || !matches!(protocol, protocol::TCP | protocol::UDP) {
        return None;
    }
    // Both protocols begin with the ports; the third value is a sequence number only for TCP.
    let (src_port, dst_port, sequence) = tcp::parse_quoted(packet.payload)?;
    let error = PathError {
        local: SocketAddr::new(IpAddr::V4(packet.header.src), src_port),
        remote: SocketAddr::new(IpAddr::V4(packet.header.dst), dst_port),
        cause,
        sequence: (protocol == protocol::TCP).then_some(sequence),
        trusted,
    };
    Some((protocol, error))
}
