//! IPv6's checks of addresses (RFC 8200) before a transport sees a packet, and flows in quotations.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use slipstack_wire::LinkId;
use slipstack_wire::icmpv6;
use slipstack_wire::ipv6::{Ipv6Header, Ipv6Packet};
use slipstack_wire::ipv6_extensions::{self as extensions, Upper};
use slipstack_wire::zone::{zone_of, zoned};
use slipstack_wire::{protocol, tcp};

use crate::counters::Counter;
use crate::effects::RxMeta;
use crate::ip::{Ends, IpMeta, PathCause, PathError, QUOTED_LEN, QuotedPacket};
use crate::network_layer::NetworkLayer;

/// Checks the addresses of a received packet; the error is the reason for dropping it.
/// `link_group`: it arrived in a link-layer multicast.
pub(crate) fn accept(
    packet: &Ipv6Packet<'_>,
    link_group: bool,
    meta: RxMeta,
    net: &NetworkLayer,
) -> Result<IpMeta, Counter> {
    let routes = &net.routes6;
    let (src, dst) = (packet.header.src, packet.header.dst);
    let Ends { src, dst } = match src.is_unicast_link_local() || dst.is_unicast_link_local() {
        true => ends_on_link(Ends { src, dst }, meta, net).ok_or(Counter::DropIpv6Martian)?,
        false => Ends { src, dst },
    };
    // RFC 4291 2.5.3, 2.7: none of these is ever a source on a wire; RFC 4038 8: nor are mapped
    // addresses. The unspecified address is one while its sender has none (RFC 4862 5.4).
    if src.is_multicast() || is_internal(src) || is_internal(dst) || dst.is_unspecified() {
        return Err(Counter::DropIpv6Martian);
    }
    // RFC 4291 2.7: scope 0 is reserved, and interface-local packets stay in their host.
    if dst.is_multicast() && dst.octets()[1] & 0x0f <= u8::from(!meta.local) {
        return Err(Counter::DropIpv6Martian);
    }
    if !meta.local && routes.is_own(src) {
        return Err(Counter::DropIpv6Spoofed);
    }
    let group = if routes.is_own(dst) {
        if link_group {
            return Err(Counter::DropIpv6LinkGroup);
        }
        false
    } else if dst.is_multicast() && (routes.is_joined(dst) || net.hears(meta.link, dst.into())) {
        true
    } else {
        return Err(Counter::DropIpv6NotOurs);
    };
    Ok(IpMeta {
        src: IpAddr::V6(src),
        dst: IpAddr::V6(dst),
        tos: packet.header.traffic_class,
        ttl: packet.header.hop_limit,
        group,
        local: meta.local,
        link: meta.link,
    })
}

impl IpMeta {
    /// As [`IpMeta::of_v4`], for IPv6.
    #[inline]
    pub(crate) fn of_v6(header: &Ipv6Header, meta: RxMeta) -> IpMeta {
        IpMeta {
            src: IpAddr::V6(header.src),
            dst: IpAddr::V6(header.dst),
            tos: header.traffic_class,
            ttl: header.hop_limit,
            group: false,
            local: meta.local,
            link: meta.link,
        }
    }
}

/// Marks link-local ends of a packet with its link. `None` if one has bits where it must have none.
// DEVIATION(Linux): such addresses are neighbours there; RFC 4291 2.5.6 leaves no room for them.
#[inline(never)]
fn ends_on_link(
    Ends { src, dst }: Ends<Ipv6Addr>,
    meta: RxMeta,
    net: &NetworkLayer,
) -> Option<Ends<Ipv6Addr>> {
    if zone_of(src).0 != 0 || zone_of(dst).0 != 0 {
        return None;
    }
    let on_link = |ip: Ipv6Addr| match meta.local {
        true => net.routes6.zone_of_own(ip).unwrap_or(ip),
        false => zoned(ip, LinkId(meta.link)),
    };
    Some(Ends::new(on_link(src), on_link(dst)))
}

fn is_internal(ip: Ipv6Addr) -> bool {
    ip.is_loopback() || ip.to_ipv4_mapped().is_some()
}

/// RFC 6980 5: it is ignored in fragments, which hide it from switches that guard a link.
pub(crate) fn is_discovery(upper: &Upper<'_>) -> bool {
    upper.protocol == protocol::ICMPV6 && icmpv6::is_discovery(upper.payload)
}

/// Parses the flow of a packet of ours, possibly truncated after eight bytes of the transport
/// header.
pub(crate) fn parse_flow(
    bytes: &[u8],
    cause: PathCause,
    trusted: bool,
) -> Option<QuotedPacket<'_>> {
    let packet = Ipv6Packet::parse_quoted(bytes)?;
    let (protocol, transport) = extensions::find_quoted(packet.header.next_header, packet.payload)?;
    if !matches!(protocol, protocol::TCP | protocol::UDP) {
        return None;
    }
    let quoted = tcp::Quoted::parse(transport)?;
    let error = PathError {
        local: SocketAddr::new(IpAddr::V6(packet.header.src), quoted.src_port),
        remote: SocketAddr::new(IpAddr::V6(packet.header.dst), quoted.dst_port),
        cause,
        sequence: (protocol == protocol::TCP).then_some(quoted.sequence),
        trusted,
    };
    Some(QuotedPacket {
        protocol,
        error,
        rest: transport.get(QUOTED_LEN..).unwrap_or(&[]),
    })
}
