//! The families of addresses that this host has, by which libc narrows look-ups (AI_ADDRCONFIG).

use std::net::IpAddr;

use libc::{AF_INET, AF_INET6, AF_UNSPEC};

/// The families in which some interface has an address beside the loopback one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    pub has_v4: bool,
    pub has_v6: bool,
}

impl Families {
    pub fn add(&mut self, ip: IpAddr) {
        match ip {
            IpAddr::V4(v4) => self.has_v4 |= v4 != std::net::Ipv4Addr::LOCALHOST,
            IpAddr::V6(v6) => self.has_v6 |= v6 != std::net::Ipv6Addr::LOCALHOST,
        }
    }

    /// Whether addresses of the stack cannot change the answer for `asked`.
    pub fn are_enough(self, asked: i32) -> bool {
        match asked {
            AF_UNSPEC => self.has_v4 && self.has_v6,
            AF_INET => self.has_v4,
            AF_INET6 => self.has_v6,
            _ => true,
        }
    }

    /// Returns the family that a look-up for `asked` is narrowed to, as glibc does; `None` if it
    /// has no valid answer.
    pub fn narrowed(self, asked: i32) -> Option<i32> {
        match asked {
            AF_UNSPEC if self.has_v4 != self.has_v6 => {
                Some(if self.has_v4 { AF_INET } else { AF_INET6 })
            }
            AF_INET if !self.has_v4 => None,
            AF_INET6 if !self.has_v6 => None,
            _ => Some(asked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families(addresses: &[&str]) -> Families {
        let mut families = Families::default();
        for address in addresses {
            families.add(address.parse().unwrap());
        }
        families
    }

    #[test]
    fn loopback_addresses_do_not_count() {
        assert_eq!(families(&["127.0.0.1", "::1"]), Families::default());
        assert!(families(&["127.0.0.2"]).has_v4);
        assert!(families(&["fe80::1"]).has_v6);
    }

    #[test]
    fn a_look_up_is_narrowed_to_the_families_that_the_host_has() {
        let (none, v4) = (families(&[]), families(&["10.0.0.5"]));
        let both = families(&["10.0.0.5", "fd00::5"]);
        for (families, asked, narrowed) in [
            (none, AF_UNSPEC, Some(AF_UNSPEC)),
            (none, AF_INET, None),
            (v4, AF_UNSPEC, Some(AF_INET)),
            (v4, AF_INET, Some(AF_INET)),
            (v4, AF_INET6, None),
            (families(&["fd00::5"]), AF_UNSPEC, Some(AF_INET6)),
            (both, AF_UNSPEC, Some(AF_UNSPEC)),
            (both, AF_INET6, Some(AF_INET6)),
        ] {
            assert_eq!(families.narrowed(asked), narrowed, "{families:?} {asked}");
        }
    }

    #[test]
    fn the_stack_is_not_asked_where_the_kernel_has_all_families() {
        let v4 = families(&["10.0.0.5"]);
        assert!(v4.are_enough(AF_INET) && !v4.are_enough(AF_INET6) && !v4.are_enough(AF_UNSPEC));
        assert!(families(&["10.0.0.5", "fd00::5"]).are_enough(AF_UNSPEC));
    }
}
