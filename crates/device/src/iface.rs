//! The kernel's side of an interface: its properties, addresses and routes, and the few changes
//! that the keeper makes. All of it concerns the caller's network namespace.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::DeviceError;
use crate::netlink::{self, Request};

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// No duplicate address detection: the other side of the link is ours.
const IFA_F_NODAD: u8 = 2;
const ARPHRD_ETHER: u16 = 1;
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;

/// Fixed parts of the messages.
const LINK_LEN: usize = 16;
const ADDRESS_LEN: usize = 8;
const ROUTE_LEN: usize = 12;

/// Longest name of an interface.
const NAME_MAX: usize = 15;

/// An interface as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelInterface {
    pub index: u32,
    pub name: String,
    /// All zero when it has none.
    pub mac: [u8; 6],
    pub mtu: u32,
    pub is_up: bool,
    pub is_ethernet: bool,
    pub is_loopback: bool,
}

/// An address of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub index: u32,
    pub ip: IpAddr,
    pub prefix: u8,
}

/// An IPv4 route of the kernel's; a prefix of 0 is the default route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub destination: Ipv4Addr,
    pub prefix: u8,
    pub gateway: Option<Ipv4Addr>,
    /// Interface, if the route has one.
    pub index: Option<u32>,
}

fn failed(doing: &'static str) -> impl Fn(std::io::Error) -> DeviceError {
    move |source| DeviceError::system(doing, "CAP_NET_ADMIN", source)
}

/// Refuses names that the kernel would not accept.
pub fn check_name(name: &str) -> Result<(), DeviceError> {
    let is_sound = !name.is_empty()
        && name.len() <= NAME_MAX
        && name != "."
        && name != ".."
        && name
            .bytes()
            .all(|b| b.is_ascii_graphic() && b != b'/' && b != b':');
    if is_sound {
        Ok(())
    } else {
        Err(DeviceError::BadInterfaceName(name.to_owned()))
    }
}

/// The interface of this name.
pub fn link(name: &str) -> Result<KernelInterface, DeviceError> {
    check_name(name)?;
    let mut found = None;
    let terminated = [name.as_bytes(), &[0]].concat();
    let request =
        Request::new(netlink::GETLINK, 0, &[0; LINK_LEN]).attribute(IFLA_IFNAME, &terminated);
    netlink::fetch(request, &mut |body| found = parse_link(body)).map_err(|source| match source
        .raw_os_error()
    {
        Some(libc::ENODEV) => DeviceError::NoSuchInterface(name.to_owned()),
        _ => DeviceError::system("querying an interface", "CAP_NET_ADMIN", source),
    })?;
    found.ok_or_else(|| DeviceError::NoSuchInterface(name.to_owned()))
}

/// All interfaces.
pub fn links() -> Result<Vec<KernelInterface>, DeviceError> {
    let mut links = Vec::new();
    let request = Request::new(netlink::GETLINK, 0, &[0; LINK_LEN]);
    netlink::dump(request, &mut |body| links.extend(parse_link(body)))
        .map_err(failed("listing the interfaces"))?;
    Ok(links)
}

/// Readable after interfaces of this namespace have changed.
#[derive(Debug)]
pub struct InterfaceWatch {
    socket: OwnedFd,
}

impl InterfaceWatch {
    pub fn new() -> Result<InterfaceWatch, DeviceError> {
        let socket = netlink::watch_links().map_err(failed("watching the interfaces"))?;
        Ok(InterfaceWatch { socket })
    }

    /// Reads pending notices; later ones make it readable again.
    pub fn clear(&self) {
        netlink::clear(&self.socket);
    }
}

impl AsFd for InterfaceWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns whether there is an interface of this name.
pub fn exists(name: &str) -> bool {
    link(name).is_ok()
}

/// An interface that our frames can use: Ethernet, and up.
pub fn usable(name: &str) -> Result<KernelInterface, DeviceError> {
    let link = link(name)?;
    if !link.is_ethernet {
        return Err(DeviceError::NotEthernet(link.name));
    }
    if !link.is_up {
        return Err(DeviceError::InterfaceDown(link.name));
    }
    Ok(link)
}

/// Addresses of all interfaces.
pub fn addresses() -> Result<Vec<Address>, DeviceError> {
    let mut addresses = Vec::new();
    // Addresses of every family (AF_UNSPEC).
    let request = Request::new(netlink::GETADDR, 0, &[0; ADDRESS_LEN]);
    netlink::dump(request, &mut |body| addresses.extend(parse_address(body)))
        .map_err(failed("listing the addresses"))?;
    Ok(addresses)
}

/// IPv4 routes of all tables, the local and broadcast ones included.
pub fn routes() -> Result<Vec<Route>, DeviceError> {
    let mut routes = Vec::new();
    let mut fixed = [0; ROUTE_LEN];
    fixed[0] = AF_INET;
    let request = Request::new(netlink::GETROUTE, 0, &fixed);
    netlink::dump(request, &mut |body| routes.extend(parse_route(body)))
        .map_err(failed("listing the routes"))?;
    Ok(routes)
}

/// Returns whether the kernel forwards IPv4 packets that arrive on this interface.
pub fn is_forwarding(name: &str) -> bool {
    let reads_one = |path: String| fs::read_to_string(path).is_ok_and(|text| text.trim() == "1");
    reads_one(format!("/proc/sys/net/ipv4/conf/{name}/forwarding"))
}

/// Brings an interface up.
pub fn set_up(name: &str) -> Result<(), DeviceError> {
    change_link(name, "setting an interface up", IFF_UP, &[])
}

/// Sets the largest packet of an interface.
pub fn set_mtu(name: &str, mtu: u32) -> Result<(), DeviceError> {
    let attributes: &[(u16, &[u8])] = &[(IFLA_MTU, &mtu.to_ne_bytes())];
    change_link(name, "setting the MTU of an interface", 0, attributes)
}

fn change_link(
    name: &str,
    doing: &'static str,
    flags: u32,
    attributes: &[(u16, &[u8])],
) -> Result<(), DeviceError> {
    let index = link(name)?.index;
    let mut fixed = [0; LINK_LEN];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    fixed[12..16].copy_from_slice(&flags.to_ne_bytes());
    let mut request = Request::new(netlink::NEWLINK, 0, &fixed);
    for (kind, value) in attributes {
        request = request.attribute(*kind, value);
    }
    netlink::change(request).map_err(failed(doing))
}

/// Gives the kernel an address on an interface. That it has it already is no error.
pub fn add_address(name: &str, ip: IpAddr, prefix: u8) -> Result<(), DeviceError> {
    let index = link(name)?.index;
    let mut fixed = [0; ADDRESS_LEN];
    let octets = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    (fixed[0], fixed[2]) = match ip {
        IpAddr::V4(_) => (AF_INET, 0),
        IpAddr::V6(_) => (AF_INET6, IFA_F_NODAD),
    };
    fixed[1] = prefix;
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    let flags = netlink::FLAG_CREATE | netlink::FLAG_EXCL;
    let request = Request::new(netlink::NEWADDR, flags, &fixed)
        .attribute(IFA_LOCAL, &octets)
        .attribute(IFA_ADDRESS, &octets);
    match netlink::change(request) {
        Err(source) if source.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        other => other.map_err(failed("adding an address to an interface")),
    }
}

/// The first 10.254.N.0/24 that no route but the default one and no address covers.
pub fn free_private_subnet() -> Result<Ipv4Addr, DeviceError> {
    let used: Vec<(Ipv4Addr, u8)> = routes()?
        .iter()
        .filter(|route| route.prefix != 0)
        .map(|route| (route.destination, route.prefix))
        .chain(addresses()?.iter().filter_map(|address| match address.ip {
            IpAddr::V4(ip) => Some((ip, address.prefix)),
            IpAddr::V6(_) => None,
        }))
        .collect();
    (0..=255)
        .map(|third| Ipv4Addr::new(10, 254, third, 0))
        .find(|&subnet| !used.iter().any(|&other| overlaps((subnet, 24), other)))
        .ok_or(DeviceError::NoFreeSubnet)
}

/// Returns whether two prefixes have an address in common.
pub fn overlaps(a: (Ipv4Addr, u8), b: (Ipv4Addr, u8)) -> bool {
    let len = u32::from(a.1.min(b.1)).min(32);
    let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
    (a.0.to_bits() ^ b.0.to_bits()) & mask == 0
}

fn parse_link(body: &[u8]) -> Option<KernelInterface> {
    let fixed = body.get(..LINK_LEN)?;
    let flags = netlink::u32_at(fixed, 8)?;
    let mut link = KernelInterface {
        index: netlink::u32_at(fixed, 4)?,
        name: String::new(),
        mac: [0; 6],
        mtu: 0,
        is_up: flags & IFF_UP != 0,
        is_loopback: flags & IFF_LOOPBACK != 0,
        is_ethernet: u16::from_ne_bytes([fixed[2], fixed[3]]) == ARPHRD_ETHER,
    };
    for (kind, value) in netlink::attributes(&body[LINK_LEN..]) {
        match kind {
            IFLA_ADDRESS => link.mac = value.try_into().unwrap_or_default(),
            IFLA_IFNAME => {
                let name = value.strip_suffix(&[0]).unwrap_or(value);
                link.name = String::from_utf8_lossy(name).into_owned();
            }
            IFLA_MTU => link.mtu = netlink::u32_at(value, 0)?,
            _ => {}
        }
    }
    Some(link)
}

fn ipv4(value: &[u8]) -> Option<Ipv4Addr> {
    <[u8; 4]>::try_from(value).ok().map(Ipv4Addr::from)
}

fn address(value: &[u8]) -> Option<IpAddr> {
    let v6 = || <[u8; 16]>::try_from(value).ok().map(IpAddr::from);
    ipv4(value).map(IpAddr::V4).or_else(v6)
}

fn parse_address(body: &[u8]) -> Option<Address> {
    let fixed = body.get(..ADDRESS_LEN)?;
    let (mut local, mut peer) = (None, None);
    for (kind, value) in netlink::attributes(&body[ADDRESS_LEN..]) {
        match kind {
            IFA_LOCAL => local = address(value),
            IFA_ADDRESS => peer = address(value),
            _ => {}
        }
    }
    Some(Address {
        index: netlink::u32_at(fixed, 4)?,
        ip: local.or(peer)?,
        prefix: fixed[1],
    })
}

fn parse_route(body: &[u8]) -> Option<Route> {
    let fixed = body.get(..ROUTE_LEN)?;
    let mut route = Route {
        destination: Ipv4Addr::UNSPECIFIED,
        prefix: fixed[1],
        gateway: None,
        index: None,
    };
    for (kind, value) in netlink::attributes(&body[ROUTE_LEN..]) {
        match kind {
            RTA_DST => route.destination = ipv4(value)?,
            RTA_GATEWAY => route.gateway = ipv4(value),
            RTA_OIF => route.index = netlink::u32_at(value, 0),
            _ => {}
        }
    }
    Some(route)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_that_the_kernel_would_refuse_are_refused() {
        for name in ["", "a b", "a/b", "..", "0123456789abcdef", "eth0:1", "é"] {
            assert!(check_name(name).is_err(), "{name}");
        }
        for name in ["eth0", "slip0", "0123456789abcde", "br-lan.5"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn prefixes_overlap_when_one_contains_the_other() {
        let net = |a, b, c, d, len| (Ipv4Addr::new(a, b, c, d), len);
        assert!(overlaps(net(10, 254, 1, 0, 24), net(10, 0, 0, 0, 8)));
        assert!(overlaps(net(10, 254, 1, 0, 24), net(10, 254, 1, 7, 32)));
        assert!(overlaps(net(10, 254, 1, 0, 24), net(0, 0, 0, 0, 0)));
        assert!(!overlaps(net(10, 254, 1, 0, 24), net(10, 254, 2, 0, 24)));
    }
}
