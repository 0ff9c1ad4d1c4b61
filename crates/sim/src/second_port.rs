//! Worlds whose hosts meet on the second of two interfaces: as with one interface, except that each
//! frame names its link.

use std::net::{IpAddr, Ipv4Addr};

use slipstack_stack::{Interface, StackConfig};
use slipstack_wire::LinkId;

/// The link that the hosts meet on.
pub const LINK: LinkId = LinkId::new(1, 0);
/// Byte that distinguishes the link-layer address of the first port, whose link has no other host.
const FIRST_MARK: u8 = 0x77;

/// Moves a host from its first port to a second one. The first keeps an address in a network of its
/// own.
pub fn move_to_second(config: &mut StackConfig) {
    let index = config.mac[5];
    let second = Interface {
        link: LINK.0,
        mac: config.mac,
        ..config.network.own().clone()
    };
    let network = config.network_mut();
    network.own_mut().addresses = vec![(Ipv4Addr::new(10, 99, 0, index).into(), 24)];
    network.interfaces.push(second);
    config.mac[4] = FIRST_MARK;
}

/// The address and the link-layer address by which others know a host.
pub fn identity(config: &StackConfig) -> (IpAddr, [u8; 6]) {
    let (addrs, mac) = match config.network.find_link(LINK.0) {
        Some(second) => (&second.addresses, second.mac),
        None => (&config.network.own().addresses, config.mac),
    };
    let ip = addrs.first().map(|(ip, _)| *ip);
    (ip.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), mac)
}
