//! State of a link as words that another process can resume: each list by its length and its rows,
//! an address in two words, times by this machine's clock.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use slipstack_wire::ndp::Preference;
use slipstack_wire::zone::plain;

use super::{
    Address, HeardRedirect, Lifetimes, NETWORKS_MAX, REDIRECTS_MAX, ROUTERS_MAX, Redirected,
    Router, Slaac, State, Until, network_of,
};
use crate::time::Instant;

impl Slaac {
    /// Without addresses that are only being probed for.
    pub fn image(&self) -> Vec<u64> {
        let number = |value: Option<u64>| value.map_or(0, |value| value + 1);
        let mut out = alloc::vec![
            number(self.mtu.map(u64::from)),
            number(self.hop_limit.map(u64::from)),
            number(self.reachable_ms.map(u64::from)),
            number(self.retry_ms.map(u64::from)),
        ];
        let assigned = |known: &&Address| known.state == State::Assigned;
        rows(&mut out, self.addresses.iter().filter(assigned), |known| {
            let times = known.lifetimes;
            let [high, low] = words(known.ip);
            [high, low, times.preferred_until.0, times.valid_until.0]
        });
        rows(&mut out, self.networks.iter(), |known| {
            let [high, low] = words(known.it.0);
            [high, low, known.it.1.into(), known.until.0]
        });
        rows(&mut out, self.routers.iter(), |known| {
            let [high, low] = words(known.it.ip);
            [high, low, known.until.0]
        });
        rows(&mut out, self.redirects.iter(), |known| {
            let [a, b] = words(known.it.redirected.destination);
            let [c, d] = words(known.it.redirected.hop);
            let [e, f] = words(known.it.router);
            [a, b, c, d, e, f, known.until.0]
        });
        // After the fields that older programs read.
        rows(&mut out, self.routers.iter(), |known| {
            [known.it.preference as u64]
        });
        out
    }

    /// Resumes from an image; excess or truncated parts are left out.
    pub(super) fn take_image(&mut self, mut image: &[u64]) {
        let mut number = || {
            let (&value, rest) = image.split_first()?;
            image = rest;
            value.checked_sub(1)
        };
        self.mtu = number().and_then(|mtu| u16::try_from(mtu).ok());
        self.hop_limit = number().and_then(|limit| u8::try_from(limit).ok());
        self.reachable_ms = number().and_then(|ms| u32::try_from(ms).ok());
        self.retry_ms = number().and_then(|ms| u32::try_from(ms).ok());
        let mut rest = image;
        let addresses = take(&mut rest, self.addresses_max, |[a, b, preferred, valid]| {
            let ip = ip_of([a, b]);
            Address {
                ip,
                prefix: network_of(plain(ip)),
                attempt: 0,
                nonce: None,
                state: State::Assigned,
                lifetimes: Lifetimes::new(Instant(preferred), Instant(valid)),
            }
        });
        self.addresses = addresses;
        self.networks = take(&mut rest, NETWORKS_MAX, |[a, b, len, until]| Until {
            it: (ip_of([a, b]), len.min(128) as u8),
            until: Instant(until),
        });
        self.routers = take(&mut rest, ROUTERS_MAX, |[a, b, until]| Until {
            it: Router {
                ip: ip_of([a, b]),
                preference: Preference::Medium,
            },
            until: Instant(until),
        });
        let link = self.link;
        self.redirects = take(&mut rest, REDIRECTS_MAX, |[a, b, c, d, e, f, until]| {
            Until {
                it: HeardRedirect {
                    redirected: Redirected {
                        destination: ip_of([a, b]),
                        hop: ip_of([c, d]),
                        link: link.0,
                    },
                    router: ip_of([e, f]),
                },
                until: Instant(until),
            }
        });
        let preferences = take(&mut rest, ROUTERS_MAX, |[number]| match number {
            0 => Preference::Low,
            2 => Preference::High,
            _ => Preference::Medium,
        });
        for (router, preference) in self.routers.iter_mut().zip(preferences) {
            router.it.preference = preference;
        }
    }
}

fn words(ip: Ipv6Addr) -> [u64; 2] {
    [(ip.to_bits() >> 64) as u64, ip.to_bits() as u64]
}

fn ip_of([high, low]: [u64; 2]) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))
}

fn rows<T, const N: usize>(
    out: &mut Vec<u64>,
    all: impl Iterator<Item = T>,
    row: impl Fn(T) -> [u64; N],
) {
    let at = out.len();
    out.push(0);
    for it in all {
        out[at] += 1;
        out.extend(row(it));
    }
}

fn take<T, const N: usize>(image: &mut &[u64], max: usize, make: impl Fn([u64; N]) -> T) -> Vec<T> {
    let mut out = Vec::new();
    let Some((&count, mut rest)) = image.split_first() else {
        return out;
    };
    for _ in 0..count {
        let Some((row, after)) = rest.split_first_chunk::<N>() else {
            break;
        };
        rest = after;
        if out.len() < max {
            out.push(make(*row));
        }
    }
    *image = rest;
    out
}
