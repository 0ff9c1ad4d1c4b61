//! Rate limits of sent ICMP errors, per destination and in total (RFC 1812 4.3.2.8, RFC 4443 2.4
//! (f)).

use alloc::boxed::Box;
use core::net::IpAddr;

use crate::bound;
use crate::rate::RateLimit;
use crate::rng::{Rng, SipKey};
use crate::time::Instant;

/// Destinations that are remembered; one that hashes like another takes its place.
const PLACES: usize = 256;
/// Errors that a destination may get at once (XRLIM_BURST_FACTOR of Linux).
const BURST: u64 = 6;

/// Nanoseconds between two errors to one destination in the long run, of IPv4 and of IPv6 (Linux's
/// defaults of `icmp_ratelimit` and `icmp.ratelimit`).
const INTERVALS_NS: [u64; 2] = [1_000_000_000, 100_000_000];

/// The limits of one stack.
#[derive(Debug)]
pub(crate) struct IcmpLimit {
    all: RateLimit,
    /// Made for the first error.
    shares: Option<Box<Shares>>,
}

#[derive(Debug)]
struct Shares {
    key: SipKey,
    places: [Bucket; PLACES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    hash: u64,
    /// The errors sent so far would be paid for at this time, one an interval.
    paid_at: u64,
}

impl IcmpLimit {
    pub fn new(per_second: u32, now: Instant) -> Self {
        Self {
            all: RateLimit::new(per_second, now),
            shares: None,
        }
    }

    /// Returns whether an error to `dst` may leave. The destination's share is checked first, so
    /// that the common limit does not reveal how many errors others caused (CVE-2020-25705).
    pub fn may_pass(&mut self, now: Instant, dst: IpAddr, rng: &mut Rng) -> bool {
        self.takes_share(now, dst, rng) && self.all.may_pass(now, rng)
    }

    fn takes_share(&mut self, now: Instant, dst: IpAddr, rng: &mut Rng) -> bool {
        let interval_ns = INTERVALS_NS[usize::from(dst.is_ipv6())];
        let shares = self.shares.get_or_insert_with(|| {
            Box::new(Shares {
                key: rng.sip_key(),
                places: [Bucket::default(); PLACES],
            })
        });
        let bits = bound::bits(dst);
        let hash = shares.key.hash_words([bits as u64, (bits >> 64) as u64]);
        let place = &mut shares.places[hash as usize % PLACES];
        if place.hash != hash {
            *place = Bucket { hash, paid_at: 0 };
        }
        let paid_at = place.paid_at.max(now.0) + interval_ns;
        if paid_at - now.0 > BURST * interval_ns {
            return false;
        }
        place.paid_at = paid_at;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_gets_six_errors_at_once_then_one_per_interval() {
        // RFC 1812 4.3.2.8.
        let mut rng = Rng::new(&[7; 32]);
        let mut limit = IcmpLimit::new(1_000_000, Instant::ZERO);
        let [one, other, v6] =
            ["10.0.0.9", "10.0.0.8", "fd00::9"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let passed = |limit: &mut IcmpLimit, ms: u64, dst: IpAddr, rng: &mut Rng| {
            (0..20)
                .filter(|_| limit.may_pass(Instant::from_millis(ms), dst, rng))
                .count()
        };
        assert_eq!(passed(&mut limit, 1_000, one, &mut rng), 6);
        assert_eq!(passed(&mut limit, 1_000, other, &mut rng), 6);
        assert_eq!(passed(&mut limit, 1_900, one, &mut rng), 0);
        assert_eq!(passed(&mut limit, 2_100, one, &mut rng), 1);
        assert_eq!(passed(&mut limit, 60_000, one, &mut rng), 6);
        assert_eq!(passed(&mut limit, 61_000, v6, &mut rng), 6);
        assert_eq!(passed(&mut limit, 61_090, v6, &mut rng), 0);
        assert_eq!(passed(&mut limit, 61_110, v6, &mut rng), 1);
        assert_eq!(passed(&mut limit, 61_600, v6, &mut rng), 5);
    }

    #[test]
    fn all_destinations_together_are_limited_too() {
        let mut rng = Rng::new(&[7; 32]);
        let mut limit = IcmpLimit::new(100, Instant::ZERO);
        let now = Instant::from_millis(5_000);
        let passed = (0..1000u32)
            .filter(|n| limit.may_pass(now, core::net::Ipv4Addr::from_bits(*n).into(), &mut rng))
            .count();
        assert!(passed <= 10, "{passed}");
    }
}
