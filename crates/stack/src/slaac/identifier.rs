//! Interface identifiers that are stable on a link and differ between links (RFC 7217 5, RFC 4291
//! 2.5.1).

use core::net::Ipv6Addr;

use slipstack_wire::LinkId;

use crate::rng::SipKey;

/// Interface identifiers of one interface of one machine.
#[derive(Clone, Copy, Debug)]
pub struct Identifiers {
    pub secret: SipKey,
    /// Distinguishes the machine's interfaces.
    pub interface: u64,
}

impl Identifiers {
    /// Returns the identifiers of another link of the interface.
    #[must_use]
    pub fn of_link(&self, link: LinkId) -> Identifiers {
        match link.0 {
            0 => *self,
            number => Identifiers {
                interface: self.secret.hash_words([self.interface, number.into()]),
                ..*self
            },
        }
    }

    /// `attempt`: number of addresses that other stations had.
    pub fn address(&self, prefix: Ipv6Addr, attempt: u8) -> Ipv6Addr {
        let network = (prefix.to_bits() >> 64) as u64;
        let words = [network, self.interface, u64::from(attempt)];
        let identifier = self.secret.hash_words(words);
        Ipv6Addr::from_bits(u128::from(network) << 64 | u128::from(identifier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_stay_the_same_and_differ_by_prefix_interface_and_try() {
        // RFC 7217 5, RFC 4291 2.5.1.
        let secret = SipKey { k0: 1, k1: 2 };
        let of = |interface| Identifiers { secret, interface };
        let net = |n| Ipv6Addr::new(0x2001, 0xdb8, n, 0, 0, 0, 0, 0);
        let first = of(1).address(net(1), 0);
        assert_eq!(first, of(1).address(net(1), 0));
        let low = |ip: Ipv6Addr| ip.to_bits() as u64;
        for other in [
            of(1).address(net(2), 0),
            of(2).address(net(1), 0),
            of(1).address(net(1), 1),
        ] {
            assert_ne!(low(first), low(other));
        }
        assert_eq!(first.segments()[..4], net(1).segments()[..4]);
    }
}
