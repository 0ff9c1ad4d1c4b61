//! Matching of bound addresses.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One address, or all of one family or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    One(IpAddr),
    /// 0.0.0.0
    AllV4,
    /// [::] with IPV6_V6ONLY
    AllV6,
    /// [::]
    All,
}

impl Bound {
    /// `is_v6_only` matters to [::] alone.
    pub fn new(ip: IpAddr, is_v6_only: bool) -> Bound {
        match ip {
            IpAddr::V4(v4) if v4.is_unspecified() => Bound::AllV4,
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) if is_v6_only => Bound::AllV6,
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Bound::All,
            one => Bound::One(one),
        }
    }

    /// All addresses of the family of `ip`, and of no other.
    pub fn all_like(ip: IpAddr) -> Bound {
        match ip {
            IpAddr::V4(_) => Bound::AllV4,
            IpAddr::V6(_) => Bound::AllV6,
        }
    }

    #[inline]
    pub fn takes(self, ip: IpAddr) -> bool {
        match self {
            Bound::One(own) => own == ip,
            Bound::AllV4 => ip.is_ipv4(),
            Bound::AllV6 => ip.is_ipv6(),
            Bound::All => true,
        }
    }

    /// Returns whether some address belongs to both.
    pub fn overlaps(self, other: Bound) -> bool {
        match (self, other) {
            (Bound::One(ip), any) | (any, Bound::One(ip)) => any.takes(ip),
            (Bound::All, _) | (_, Bound::All) => true,
            (a, b) => a == b,
        }
    }

    /// Returns whether it is tried before the other one: one address before all of a family, these
    /// before both.
    pub fn is_narrower(self, other: Bound) -> bool {
        self != other
            && (other == Bound::All
                || matches!((self, other), (Bound::One(_), Bound::AllV4 | Bound::AllV6)))
    }

    /// Encodes the whole value in one word.
    #[inline]
    pub fn bits(self) -> u128 {
        match self {
            Bound::One(ip) => bits(ip),
            // No socket is bound to these: the loopback network is the kernel's.
            Bound::AllV4 => bits(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            Bound::AllV6 => bits(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
            Bound::All => bits(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        }
    }
}

/// Encodes an address in one word, for tables: the bytes of its v4-mapped form in their order.
#[inline(always)]
pub fn bits(ip: IpAddr) -> u128 {
    let octets = match ip {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
        }
        IpAddr::V6(v6) => v6.octets(),
    };
    u128::from_le_bytes(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_narrower_than_its_family_which_is_narrower_than_both() {
        let one = Bound::One(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let order = [one, Bound::AllV4, Bound::All];
        for (at, wide) in order.iter().enumerate() {
            for (narrow_at, narrow) in order.iter().enumerate() {
                assert_eq!(narrow.is_narrower(*wide), narrow_at < at);
            }
        }
        assert!(!Bound::AllV4.is_narrower(Bound::AllV6));
    }

    #[test]
    fn binds_overlap_as_on_the_kernel() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let all = [
            Bound::new(ip("0.0.0.0"), false),
            Bound::new(ip("::"), true),
            Bound::new(ip("::"), false),
            Bound::new(ip("10.0.0.5"), false),
            Bound::new(ip("fd00::5"), false),
        ];
        // A row per bind above, a column per bind above.
        let table = ["10110", "01101", "11111", "10110", "01101"];
        for (row, a) in table.iter().zip(all) {
            for (want, b) in row.bytes().zip(all) {
                let want =
                    want == b'1' && (a == b || !matches!((a, b), (Bound::One(_), Bound::One(_))));
                assert_eq!(a.overlaps(b), want, "{a:?} {b:?}");
            }
        }
        assert!(all[2].takes(ip("10.0.0.9")) && all[2].takes(ip("fd00::9")));
        assert!(!all[1].takes(ip("10.0.0.9")) && !all[0].takes(ip("fd00::9")));
    }
}
