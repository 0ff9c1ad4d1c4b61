//! Addresses of hosts, with the prefix length of their network.

use core::net::IpAddr;

/// The stack's address with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub address: IpAddr,
    pub prefix_len: u8,
}

impl Cidr {
    #[must_use]
    pub fn contains(&self, other: IpAddr) -> bool {
        let common = match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => return false,
        };
        common >= u32::from(self.prefix_len)
    }
}

impl core::fmt::Display for Cidr {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

pub(crate) fn parse_address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text
        .parse()
        .map_err(|_| "an IP address such as 10.0.0.1 or fd00::1".to_owned())?;
    if is_host_address(address) {
        Ok(address)
    } else {
        Err("the address of one host, not a loopback, multicast, broadcast or zero address".into())
    }
}

pub(crate) fn parse_cidr(text: &str) -> Result<Cidr, String> {
    let syntax =
        || "an IP address with its prefix length, such as 10.0.0.5/24 or fd00::5/64".to_owned();
    let (address, prefix) = text.split_once('/').ok_or_else(syntax)?;
    address.parse::<IpAddr>().map_err(|_| syntax())?;
    let address = parse_address(address)?;
    let (least, most) = if address.is_ipv4() {
        (8, 32)
    } else {
        (16, 128)
    };
    let prefix_len = match prefix.parse::<u8>() {
        Ok(len) if (least..=most).contains(&len) && !prefix.starts_with('+') => len,
        _ => {
            return Err(format!(
                "an address with a prefix length from {least} to {most}"
            ));
        }
    };
    if is_network_end(address, prefix_len) {
        return Err(format!(
            "the address of one host, not the first or last of its /{prefix_len} network"
        ));
    }
    Ok(Cidr {
        address,
        prefix_len,
    })
}

/// The network itself or its broadcast address; of IPv6 the routers' anycast address (RFC 4291
/// 2.6.1).
fn is_network_end(address: IpAddr, prefix_len: u8) -> bool {
    match address {
        IpAddr::V4(ip) => {
            let host_bits = u32::MAX.checked_shr(u32::from(prefix_len)).unwrap_or(0);
            let host = ip.to_bits() & host_bits;
            prefix_len < 31 && (host == 0 || host == host_bits)
        }
        IpAddr::V6(ip) => {
            let host_bits = u128::MAX.checked_shr(u32::from(prefix_len)).unwrap_or(0);
            prefix_len < 127 && ip.to_bits() & host_bits == 0
        }
    }
}

fn is_host_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => {
            let first = ip.octets()[0];
            first != 0 && first != 127 && first < 224
        }
        IpAddr::V6(ip) => {
            let is_special = ip.is_unspecified() || ip.is_loopback() || ip.is_multicast();
            !is_special && ip.to_ipv4_mapped().is_none()
        }
    }
}
