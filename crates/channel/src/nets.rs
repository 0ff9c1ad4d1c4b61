//! Sets of networks: the time to find whether an address is in one of them does not depend on their
//! number.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Number of networks that are looked through one by one.
const FEW: usize = 8;

/// Networks of both families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nets {
    /// The family (of IPv4) and length of the prefixes that there are, each once.
    lengths: Vec<(bool, u8)>,
    /// First addresses with the lengths.
    known: HashSet<(IpAddr, u8)>,
    /// The first networks in the order of their insertion, up to [`FEW`].
    few: Vec<(IpAddr, u8)>,
}

impl Nets {
    pub fn contains(&self, ip: IpAddr) -> bool {
        if self.known.len() <= FEW {
            let mut few = self.few.iter();
            return few.any(|&(net, len)| net.is_ipv4() == ip.is_ipv4() && net == first(ip, len));
        }
        let mut lengths = self.lengths.iter();
        lengths.any(|&(is_v4, len)| {
            is_v4 == ip.is_ipv4() && self.known.contains(&(first(ip, len), len))
        })
    }
}

impl FromIterator<(IpAddr, u8)> for Nets {
    fn from_iter<I: IntoIterator<Item = (IpAddr, u8)>>(nets: I) -> Nets {
        let mut all = Nets::default();
        for (ip, len) in nets {
            let length = (ip.is_ipv4(), len);
            if !all.lengths.contains(&length) {
                all.lengths.push(length);
            }
            let net = (first(ip, len), len);
            if all.known.insert(net) && all.few.len() < FEW {
                all.few.push(net);
            }
        }
        all
    }
}

/// The first address of a network.
fn first(ip: IpAddr, len: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len.min(32)));
            Ipv4Addr::from_bits(ip.to_bits() & mask.unwrap_or(0)).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len.min(128)));
            Ipv6Addr::from_bits(ip.to_bits() & mask.unwrap_or(0)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_networks_of_its_own_family() {
        let net = |text: &str, len| (text.parse().unwrap(), len);
        let some = [
            net("10.1.2.3", 24),
            net("10.2.0.0", 16),
            net("192.0.2.1", 32),
            net("fd00::5", 64),
        ];
        let others = (0..FEW as u8).map(|number| ([172, 16, number, 0].into(), 24));
        let few: Nets = some.into_iter().collect();
        let many: Nets = some.into_iter().chain(others).collect();
        for (text, is_there) in [
            ("10.1.2.9", true),
            ("10.1.3.9", false),
            ("10.2.255.255", true),
            ("192.0.2.1", true),
            ("192.0.2.2", false),
            ("fd00::1:2", true),
            ("fd01::1", false),
        ] {
            for nets in [&few, &many] {
                assert_eq!(nets.contains(text.parse().unwrap()), is_there, "{text}");
            }
        }
        let all: Nets = [net("0.0.0.0", 0)].into_iter().collect();
        assert!(all.contains([1, 2, 3, 4].into()) && !all.contains("::1".parse().unwrap()));
    }
}
