//! A keyed permutation of local ports (RFC 6056 3.3.3): blocks are ranges of it, so that the ports
//! of a block are spread over the whole pool, and one port of a program does not reveal its others.

use crate::options::PortRange;

/// Rounds of the permutation. It keeps ports from being guessed, not secrets.
const ROUNDS: u64 = 6;

/// The ports from `first` on, `len` of them, in an order that `key` gives. Places have the same
/// numbers as ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scatter {
    first: u16,
    len: u16,
    key: Option<u64>,
}

impl Default for Scatter {
    fn default() -> Scatter {
        Scatter::NONE
    }
}

impl Scatter {
    /// Each place is its port.
    pub const NONE: Scatter = Scatter {
        first: 1,
        len: u16::MAX,
        key: None,
    };

    /// The pool is `pool.0` to `pool.1`, inclusive.
    pub fn new(pool: (u16, u16), key: [u64; 2]) -> Scatter {
        Scatter {
            first: pool.0,
            len: pool.1.saturating_sub(pool.0).saturating_add(1),
            key: Some(mix(key[0] ^ mix(key[1]))),
        }
    }

    /// All ports that are permuted; `None`: none are.
    pub fn pool(&self) -> Option<PortRange> {
        let last = self.first.saturating_add(self.len - 1);
        let first = self.first;
        self.key.map(|_| PortRange { first, last })
    }

    /// The port at a place.
    pub fn port(&self, place: u16) -> u16 {
        self.walk(place, shuffle)
    }

    /// The place of a port.
    pub fn place(&self, port: u16) -> u16 {
        self.walk(port, restore)
    }

    /// Steps through the permutation of all 16-bit numbers until it comes to one of the pool's.
    fn walk(&self, from: u16, step: fn(u64, u16) -> u16) -> u16 {
        let (Some(key), Some(mut at)) = (self.key, from.checked_sub(self.first)) else {
            return from;
        };
        if at >= self.len {
            return from;
        }
        loop {
            at = step(key, at);
            if at < self.len {
                return self.first + at;
            }
        }
    }
}

fn shuffle(key: u64, number: u16) -> u16 {
    (0..ROUNDS).fold(number, |number, round| {
        let [left, right] = number.to_be_bytes();
        u16::from_be_bytes([right, left ^ part(key, round, right)])
    })
}

fn restore(key: u64, number: u16) -> u16 {
    (0..ROUNDS).rev().fold(number, |number, round| {
        let [left, right] = number.to_be_bytes();
        u16::from_be_bytes([right ^ part(key, round, left), left])
    })
}

fn part(key: u64, round: u64, half: u8) -> u8 {
    mix(key ^ round << 8 ^ u64::from(half)) as u8
}

/// SplitMix64's finalizer.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn every_port_of_the_pool_is_permuted_and_other_ports_are_unchanged() {
        for (pool, key) in [
            ((32_768, 60_999), [1, 2]),
            ((40_000, 40_010), [3, 4]),
            ((1, u16::MAX), [5, 6]),
        ] {
            let scatter = Scatter::new(pool, key);
            let mut ports: Vec<u16> = (pool.0..=pool.1).map(|place| scatter.port(place)).collect();
            assert!((pool.0..=pool.1).all(|place| scatter.place(scatter.port(place)) == place));
            ports.sort_unstable();
            assert!(ports.into_iter().eq(pool.0..=pool.1));
        }
        let scatter = Scatter::new((32_768, 60_999), [1, 2]);
        assert_eq!((scatter.port(80), scatter.place(61_000)), (80, 61_000));
        assert_eq!(Scatter::NONE.port(40_000), 40_000);
    }

    #[test]
    fn ports_of_a_block_are_spread_over_the_pool() {
        let scatter = Scatter::new((32_768, 60_999), [7, 8]);
        let mut quarters = [0; 4];
        for place in 32_768..32_768 + 256u16 {
            quarters[usize::from((scatter.port(place) - 32_768) / 7058)] += 1;
        }
        assert!(
            quarters.iter().all(|count| (40..90).contains(count)),
            "{quarters:?}"
        );
    }
}
