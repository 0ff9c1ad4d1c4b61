//! Response rate limiting: a network that is sent the same answer too often gets fewer of them, so
//! that the server is no amplifier for somebody who forges addresses.

use std::net::IpAddr;

use super::answer::Kind;
use super::hash::Hasher;

/// Classes of responses that each engine distinguishes; a power of two. A newer class replaces an
/// older one.
const PLACES: usize = 1 << 16;
/// A class may save up the responses of so many milliseconds.
const BURST_MS: u64 = 1000;
/// Thousandths of a response.
const UNIT: u64 = 1000;
/// Networks are distinguished by this many bytes of their addresses.
const PREFIX_V4: usize = 3;
const PREFIX_V6: usize = 7;

/// Options of the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Equal responses to a network in a second, on each engine; 0: no limit.
    pub per_second: u32,
    /// One in this many responses beyond the limit is a truncated one, so that a genuine client
    /// asks over TCP; 0: none.
    pub slip: u32,
}

/// The decision about a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Send,
    Truncate,
    Drop,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    print: u32,
    /// Responses beyond the rate, for `slip`.
    beyond: u32,
    /// Time of the last update of the balance, in milliseconds.
    at: u64,
    balance: u64,
}

/// See the [module documentation](self).
#[derive(Debug)]
pub struct Limiter {
    rate: Rate,
    hasher: Hasher,
    places: Box<[Bucket]>,
}

impl Limiter {
    pub fn new(rate: Rate, seed: u64) -> Limiter {
        let places = if rate.per_second > 0 { PLACES } else { 0 };
        Limiter {
            rate,
            hasher: Hasher::new(seed),
            places: vec![Bucket::default(); places].into(),
        }
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.rate.per_second > 0
    }

    /// Counts a response of this kind about `source`, a name in lower case, to a network.
    pub fn judge(&mut self, ip: IpAddr, kind: Kind, source: &[u8], now_ms: u64) -> Verdict {
        let mut network = [0; 9];
        match ip.to_canonical() {
            IpAddr::V4(ip) => network[..PREFIX_V4].copy_from_slice(&ip.octets()[..PREFIX_V4]),
            IpAddr::V6(ip) => network[..PREFIX_V6].copy_from_slice(&ip.octets()[..PREFIX_V6]),
        }
        network[7] = u8::from(ip.to_canonical().is_ipv6());
        network[8] = kind as u8;
        let hash = self.hasher.hash(&network) ^ self.hasher.hash(source).rotate_left(1);
        let print = (hash >> 32) as u32;
        let full = u64::from(self.rate.per_second) * BURST_MS;
        let place = &mut self.places[hash as usize & (PLACES - 1)];
        if place.print != print || place.at == 0 {
            *place = Bucket {
                print,
                beyond: 0,
                at: now_ms,
                balance: full,
            };
        }
        let passed = now_ms.saturating_sub(place.at).min(BURST_MS);
        let earned = passed * u64::from(self.rate.per_second);
        place.balance = (place.balance + earned).min(full);
        place.at = now_ms;
        if place.balance >= UNIT {
            place.balance -= UNIT;
            return Verdict::Send;
        }
        place.beyond = place.beyond.wrapping_add(1);
        match self.rate.slip {
            0 => Verdict::Drop,
            slip if place.beyond.is_multiple_of(slip) => Verdict::Truncate,
            _ => Verdict::Drop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_answers_to_a_network_are_limited_per_second_and_some_are_sent_truncated() {
        let rate = Rate {
            per_second: 10,
            slip: 2,
        };
        let mut limiter = Limiter::new(rate, 1);
        let ip = |last: u8| IpAddr::from([192, 0, 2, last]);
        let mut count = |now: u64, source: &[u8]| {
            let verdicts = (0..30).map(|n| limiter.judge(ip(n), Kind::Positive, source, now));
            let all: Vec<Verdict> = verdicts.collect();
            let of = |wanted| all.iter().filter(|verdict| **verdict == wanted).count();
            (of(Verdict::Send), of(Verdict::Truncate), of(Verdict::Drop))
        };
        assert_eq!(count(1000, b"\x01a\0"), (10, 10, 10));
        assert_eq!(count(1000, b"\x01b\0"), (10, 10, 10), "another answer");
        assert_eq!(count(1500, b"\x01a\0"), (5, 12, 13), "half a second later");
        assert_eq!(
            count(9000, b"\x01a\0"),
            (10, 10, 10),
            "no more than a second's"
        );
        let other = IpAddr::from([192, 0, 3, 1]);
        let verdict = limiter.judge(other, Kind::Positive, b"\x01a\0", 9000);
        assert_eq!(verdict, Verdict::Send, "another network");
    }
}
