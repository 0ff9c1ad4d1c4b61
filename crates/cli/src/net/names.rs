//! Names of interfaces, addresses and networks in commands.

use std::net::IpAddr;

use slipstack_channel::control::net::{Interface, NetworkState, RouteEntry};

use crate::failure::Failure;
use crate::names::is_fstack_tool;

/// FreeBSD's name of an interface of F-Stack's, before the number of its port.
const FSTACK_PORT: &str = "f-stack-";

/// The interface that a command means: by its own name, or by F-Stack's.
pub fn find_interface<'a>(state: &'a NetworkState, name: &str) -> Result<&'a Interface, Failure> {
    let found = state.find(name).or_else(|| match link_in(state, name)? {
        (port, None) => Some(port),
        (port, Some(vlan)) => {
            let mut kinds = [false, true].into_iter();
            kinds.find_map(|is_provider| state.find_vlan(port, vlan, is_provider))
        }
    });
    found.ok_or_else(|| Failure::new(format!("Cannot find device \"{name}\"")))
}

/// The port that the name of an interface names, as it is or by its number in F-Stack, and the VLAN
/// in it: `eth1.10`, `f-stack-0`, `f-stack-0.10`; or the VLAN that another is within:
/// `eth1.10.20`.
pub fn link_in<'a>(state: &'a NetworkState, name: &str) -> Option<(&'a Interface, Option<u16>)> {
    let find_port = |name: &str| {
        let number = name.strip_prefix(FSTACK_PORT);
        let number = number.and_then(|number| number.parse().ok());
        let by_number = |number: usize| state.ports().nth(number);
        let by_name = || state.ports().find(|port| port.name == name);
        number.map_or_else(by_name, by_number)
    };
    if let Some(port) = find_port(name) {
        return Some((port, None));
    }
    let (port, vlan) = name.rsplit_once('.')?;
    let of = find_port(port).or_else(|| find_interface(state, port).ok())?;
    Some((of, Some(vlan.parse().ok()?)))
}

/// Returns the displayed name of an interface: for F-Stack's tools, F-Stack's.
pub fn shown_name(state: &NetworkState, interface: &Interface) -> String {
    let port = state.port_of(interface);
    let number = state.ports().position(|it| it.link == port.link);
    // A VLAN that Linux would give this name, or one within such a VLAN.
    let of_port = interface.name.strip_prefix(port.name.as_str());
    let of_port = of_port.filter(|rest| rest.is_empty() || rest.starts_with('.'));
    match (number, of_port) {
        (Some(number), Some(rest)) if is_fstack_tool() => format!("{FSTACK_PORT}{number}{rest}"),
        _ => interface.name.clone(),
    }
}

/// A network such as 10.0.0.0/8, or one host.
pub fn parse_net(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, len) = match text.split_once('/') {
        Some((ip, len)) => (ip.parse::<IpAddr>().ok()?, len.parse::<u8>().ok()?),
        None => {
            let ip = text.parse::<IpAddr>().ok()?;
            (ip, if ip.is_ipv4() { 32 } else { 128 })
        }
    };
    (len <= if ip.is_ipv4() { 32 } else { 128 }).then_some((ip, len))
}

pub fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    bytes?.try_into().ok()
}

pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The name of the interface that a route leads by.
pub fn device_of<'a>(state: &'a NetworkState, route: &RouteEntry) -> &'a str {
    let link = state.link_of(route).unwrap_or(0);
    let found = state.find_link(link);
    &found.unwrap_or(state.own()).name
}

/// The last address of a network of IPv4, where it has room for one.
pub fn broadcast_of((ip, len): (IpAddr, u8)) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) if len < 31 => {
            let host = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            Some(IpAddr::from((ip.to_bits() | host).to_be_bytes()))
        }
        _ => None,
    }
}

pub fn network_of((ip, len): (IpAddr, u8)) -> (IpAddr, u8) {
    let ip = match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            IpAddr::from((ip.to_bits() & mask).to_be_bytes())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            IpAddr::from((ip.to_bits() & mask).to_be_bytes())
        }
    };
    (ip, len)
}
