//! IPv4 input: checks of format and addresses before a transport sees a packet.
//!
//! RFC 1122 3.2.1.8: options are looked at, RFC 1812 5.3.7: martian addresses are refused.

use core::net::{IpAddr, Ipv4Addr};

use slipstack_wire::ipv4::{self, Ipv4Error, Ipv4Header, Ipv4Packet, OptionsVerdict};
use slipstack_wire::protocol;

use crate::counters::Counter;
use crate::effects::RxMeta;
use crate::ip::{Ends, IpMeta};
use crate::network_layer::NetworkLayer;

/// A packet that passed: its meta data and itself.
pub(crate) type Accepted<'a> = (IpMeta, Ipv4Packet<'a>);

/// Makes all checks of RFC 1122 3.2.1 and 3.3.6 on a received packet; the error is the reason for
/// dropping it. `link_group`: it arrived in a link-layer broadcast or multicast.
#[inline]
pub(crate) fn accept<'a>(
    bytes: &'a [u8],
    link_group: bool,
    meta: RxMeta,
    net: &NetworkLayer,
) -> Result<Accepted<'a>, Counter> {
    let routes = &net.routes;
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
        && !may_be_nameless(Ends { src, dst }, packet.header.protocol)
    {
        return Err(Counter::DropIpv4Martian);
    }
    if !meta.local && routes.is_own(src) {
        return Err(Counter::DropIpv4Spoofed);
    }
    let group = if routes.is_own(dst) {
        // RFC 1122 3.3.6: unicast in a link-layer broadcast is a trick.
        if link_group {
            return Err(Counter::DropIpv4LinkGroup);
        }
        false
    } else if routes.is_broadcast(dst) || (dst.is_multicast() && net.hears_v4(meta.link, dst)) {
        true
    } else {
        return Err(Counter::DropIpv4NotOurs);
    };
    let ip = IpMeta::of_v4(&packet.header, group, meta);
    Ok((ip, packet))
}

impl IpMeta {
    /// Returns the metadata of a packet that arrived with `meta`.
    #[inline]
    pub(crate) fn of_v4(header: &Ipv4Header, group: bool, meta: RxMeta) -> IpMeta {
        IpMeta {
            src: IpAddr::V4(header.src),
            dst: IpAddr::V4(header.dst),
            tos: header.tos,
            ttl: header.ttl,
            group,
            local: meta.local,
            link: meta.link,
        }
    }
}

/// Sources that no host may have: "this network", loopback, multicast, class E, broadcast
/// (RFC 1122 3.2.1.3, RFC 6890).
#[inline]
fn is_martian_source(src: Ipv4Addr) -> bool {
    let first = src.octets()[0];
    first == 0 || first == 127 || first >= 224
}

/// Returns whether a packet may have no source: a host without an address sends to all (RFC 1122
/// 3.2.1.3 (a)), and switches that query groups in a router's place need none (RFC 4541 2.1.1); as
/// on Linux.
#[cold]
#[inline(never)]
fn may_be_nameless(Ends { src, dst }: Ends<Ipv4Addr>, number: u8) -> bool {
    let is_for_link = dst.is_broadcast() || matches!(dst.octets(), [224, 0, 0, _]);
    let is_about_groups = dst.is_multicast() && number == protocol::IGMP;
    src.is_unspecified() && (is_for_link || is_about_groups)
}
