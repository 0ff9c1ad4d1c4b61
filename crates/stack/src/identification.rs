//! Identifications of IPv4 packets that may be fragmented (RFC 6864): distinct for as long as
//! fragments may wait, and predictable by no one but the two ends.
//!
//! RFC 7739 5.3: a keyed hash of source, destination and protocol, plus one of several shared
//! counters, which another keyed hash selects.

use core::net::IpAddr;

use crate::network_layer::OutPacket;
use crate::rng::{Rng, SipKey};

const COUNTERS: usize = 256;

#[derive(Debug)]
pub(crate) struct Identifications {
    base: SipKey,
    choice: SipKey,
    counters: [u16; COUNTERS],
}

impl Identifications {
    pub fn new(rng: &mut Rng) -> Identifications {
        Identifications {
            base: rng.sip_key(),
            choice: rng.sip_key(),
            counters: core::array::from_fn(|_| rng.next_u32() as u16),
        }
    }

    /// Every 65,536th of the same source, destination and protocol is the same.
    pub fn next(&mut self, packet: &OutPacket) -> u16 {
        self.take(packet, 1)
    }

    /// Returns the first of `count` numbers in a row, for the packets that a device makes of one.
    pub fn take(&mut self, packet: &OutPacket, count: u16) -> u16 {
        let bits = |ip| match ip {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            // IPv6 fragments have identifications of their own.
            IpAddr::V6(_) => 0,
        };
        let words = [
            bits(packet.src) << 32 | bits(packet.dst),
            u64::from(packet.protocol),
        ];
        let counter = &mut self.counters[self.choice.hash_words(words) as usize % COUNTERS];
        let first = counter.wrapping_add(1);
        *counter = counter.wrapping_add(count);
        first.wrapping_add(self.base.hash_words(words) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fib::Choice;
    use std::collections::BTreeSet;

    fn packet(dst: [u8; 4]) -> OutPacket {
        OutPacket {
            src: [10, 0, 0, 5].into(),
            dst: dst.into(),
            protocol: 17,
            ports: (0, 0),
            tos: 0,
            ttl: 64,
            dont_fragment: false,
            choice: Choice::NONE,
        }
    }

    #[test]
    fn a_pair_of_ends_sees_each_number_once_until_all_are_used() {
        // RFC 7739 5.3, of IPv4.
        let mut all = Identifications::new(&mut Rng::new(&[3; 32]));
        let seen: BTreeSet<u16> = (0..65_536)
            .map(|_| all.next(&packet([10, 0, 0, 9])))
            .collect();
        assert_eq!(seen.len(), 65_536);
    }

    #[test]
    fn packets_made_of_one_have_numbers_of_their_own() {
        let mut all = Identifications::new(&mut Rng::new(&[3; 32]));
        let first = all.take(&packet([10, 0, 0, 9]), 40);
        let next = all.next(&packet([10, 0, 0, 9]));
        assert_eq!(next.wrapping_sub(first), 40);
    }

    #[test]
    fn identifications_of_one_flow_do_not_predict_those_of_another() {
        // RFC 7739 5.3, of IPv4.
        let mut all = Identifications::new(&mut Rng::new(&[3; 32]));
        let mut distance = |last| {
            let (a, b) = (
                all.next(&packet([10, 0, 0, 9])),
                all.next(&packet([10, 0, 0, last])),
            );
            a.wrapping_sub(b)
        };
        let distances: BTreeSet<u16> = (10..90).map(&mut distance).collect();
        assert!(distances.len() > 70, "{}", distances.len());
    }
}
