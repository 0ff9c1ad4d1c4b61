//! An address of the stack as an entry of a list of interfaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address of the stack with the interface that it is listed under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    pub ip: IpAddr,
    pub prefix: u8,
    /// The interface's number and name in the kernel.
    pub interface: u32,
    pub name: String,
}

impl OwnAddress {
    #[must_use]
    pub fn netmask(&self) -> IpAddr {
        let missing = |bits: u32| bits.saturating_sub(self.prefix.into());
        match self.ip {
            IpAddr::V4(_) => {
                let mask = u32::MAX.checked_shl(missing(Ipv4Addr::BITS)).unwrap_or(0);
                Ipv4Addr::from_bits(mask).into()
            }
            IpAddr::V6(_) => {
                let mask = u128::MAX.checked_shl(missing(Ipv6Addr::BITS)).unwrap_or(0);
                Ipv6Addr::from_bits(mask).into()
            }
        }
    }

    /// The last address of its network; of IPv4 alone, where the network has room for one.
    #[must_use]
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match (self.ip, self.netmask()) {
            (IpAddr::V4(ip), IpAddr::V4(mask)) if self.prefix < 31 => {
                Some(Ipv4Addr::from_bits(ip.to_bits() | !mask.to_bits()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn own(ip: &str, prefix: u8) -> OwnAddress {
        OwnAddress {
            ip: ip.parse().unwrap(),
            prefix,
            interface: 7,
            name: "eth1".to_owned(),
        }
    }

    #[test]
    fn masks_and_broadcasts_are_those_of_the_prefix() {
        let shown = |it: &OwnAddress| (it.netmask().to_string(), it.broadcast());
        let last = |text: &str| Some(text.parse().unwrap());
        let (net, host) = (own("10.1.2.3", 20), own("10.1.2.3", 32));
        assert_eq!(
            shown(&net),
            ("255.255.240.0".to_owned(), last("10.1.15.255"))
        );
        assert_eq!(shown(&host), ("255.255.255.255".to_owned(), None));
        assert_eq!(own("10.1.2.3", 0).netmask(), Ipv4Addr::UNSPECIFIED);
        assert_eq!(shown(&own("10.1.2.2", 31)).1, None);
        assert_eq!(
            shown(&own("fd00::1", 64)),
            ("ffff:ffff:ffff:ffff::".to_owned(), None)
        );
        assert_eq!(own("fd00::1", 0).netmask(), Ipv6Addr::UNSPECIFIED);
    }
}
