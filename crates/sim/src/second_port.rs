//! Worlds whose hosts meet on the second of two interfaces: everything is as on one, but that each
//! frame names its link.

use std::mem;
use std::net::{IpAddr, Ipv4Addr};

use slipstack_stack::{LinkConfig, StackConfig};
use slipstack_wire::LinkId;

/// The link that the hosts meet on.
pub const LINK: LinkId = LinkId::new(1, 0);
/// Byte that distinguishes the link-layer address of the first port, whose link has no other host.
const FIRST_MARK: u8 = 0x77;

/// Moves a host from its first port to a second one. The first keeps an address in a network of its
/// own.
pub fn move_to_second(config: &mut StackConfig) {
    let network = &mut config.network;
    let index = config.mac[5];
    let first = (Ipv4Addr::new(10, 99, 0, index).into(), 24);
    let addrs = mem::replace(&mut network.addrs, vec![first]);
    network.links.push(LinkConfig {
        link: LINK.0,
        mtu: network.mtu,
        addrs,
    });
    network.port_macs = vec![config.mac];
    config.mac[4] = FIRST_MARK;
}

/// The address and the link-layer address by which others know a host.
pub fn identity(config: &StackConfig) -> (IpAddr, [u8; 6]) {
    let network = &config.network;
    let second = network.links.iter().find(|it| it.link == LINK.0);
    let (addrs, mac) = match (second, network.port_macs.first()) {
        (Some(second), Some(mac)) => (&second.addrs, *mac),
        _ => (&network.addrs, config.mac),
    };
    let ip = addrs.first().map(|(ip, _)| *ip);
    (ip.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), mac)
}
