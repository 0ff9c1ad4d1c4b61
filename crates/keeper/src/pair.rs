//! Addresses on a TAP of our own: the stack's, and a host address beside each.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use slipstack_device::iface;

use crate::error::KeeperError;

/// The two ends of the link in one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub stack: IpAddr,
    pub host: IpAddr,
    pub prefix: u8,
    /// The TAP is of use without it.
    is_optional: bool,
}

/// The pairs for the wanted addresses; without any a private one of each family.
pub fn of_tap(wanted: &[(IpAddr, u8)]) -> Result<Vec<Pair>, KeeperError> {
    if wanted.is_empty() {
        let subnet = iface::free_private_subnet()?;
        return Ok(private(subnet).into());
    }
    Ok(wanted
        .iter()
        .map(|&(ip, prefix)| beside(ip, prefix))
        .collect())
}

/// Gives the host its ends. Pairs of a family that the host does without are left out.
pub fn settle(name: &str, pairs: Vec<Pair>) -> Result<Vec<Pair>, KeeperError> {
    let mut settled = Vec::with_capacity(pairs.len());
    for pair in pairs {
        match iface::add_address(name, pair.host, pair.prefix) {
            Ok(()) => settled.push(pair),
            Err(_) if pair.is_optional => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(settled)
}

/// 10.254.N.0/24, and fd73:6c69:7000:N::/64 beside it.
// DEVIATION(RFC 4193 3.2.1): the global ID is not random. The network ends at the TAP, and an
// address that is the same every time can be written down.
fn private(subnet: Ipv4Addr) -> [Pair; 2] {
    let [_, _, n, _] = subnet.octets();
    let v4 = |last| IpAddr::V4(Ipv4Addr::from(u32::from(subnet) + last));
    let v6 = |last| {
        IpAddr::V6(Ipv6Addr::new(
            0xfd73,
            0x6c69,
            0x7000,
            n.into(),
            0,
            0,
            0,
            last,
        ))
    };
    [
        Pair {
            stack: v4(2),
            host: v4(1),
            prefix: 24,
            is_optional: false,
        },
        Pair {
            stack: v6(2),
            host: v6(1),
            prefix: 64,
            is_optional: true,
        },
    ]
}

/// The host takes the first address of the network, or the second if the stack has that.
fn beside(ip: IpAddr, prefix: u8) -> Pair {
    let nth = |n: u8| match ip {
        IpAddr::V4(ip) => {
            let host = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
            IpAddr::V4(((ip.to_bits() & !host) + u32::from(n)).into())
        }
        IpAddr::V6(ip) => {
            let host = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
            IpAddr::V6(((ip.to_bits() & !host) + u128::from(n)).into())
        }
    };
    Pair {
        stack: ip,
        host: if nth(1) == ip { nth(2) } else { nth(1) },
        prefix,
        is_optional: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_the_stacks_neighbour() {
        let table = [
            ("10.1.0.5", 16, "10.1.0.1"),
            ("10.1.0.1", 24, "10.1.0.2"),
            ("fd00:1::5", 64, "fd00:1::1"),
            ("fd00:1::1", 64, "fd00:1::2"),
        ];
        for (stack, prefix, host) in table {
            let pair = beside(stack.parse().unwrap(), prefix);
            assert_eq!(pair.host, host.parse::<IpAddr>().unwrap());
        }
    }

    #[test]
    fn the_default_link_to_the_host_has_addresses_of_both_families() {
        let [v4, v6] = private(Ipv4Addr::new(10, 254, 3, 0));
        assert_eq!(
            (v4.stack.to_string(), v4.host.to_string()),
            ("10.254.3.2".into(), "10.254.3.1".into())
        );
        assert_eq!(v6.stack.to_string(), "fd73:6c69:7000:3::2");
        assert_eq!(
            (v6.host.to_string(), v6.prefix),
            ("fd73:6c69:7000:3::1".into(), 64)
        );
    }
}
