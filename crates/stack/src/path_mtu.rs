//! Path MTUs learnt from ICMP errors (RFC 1191 6.3, RFC 8201 5.2 and 5.3).
//!
//! A keyed hash of the destination selects one entry; a later destination with the same hash
//! replaces it, so that forged errors cost others no more than one further error of their own.

use alloc::boxed::Box;
use core::net::IpAddr;

use crate::bound;
use crate::rng::{Rng, SipKey};
use crate::time::Instant;

const PLACES: usize = 256;
/// RFC 1191 6.3, RFC 8201 4: after this time the path may take more again (Linux:
/// `route.mtu_expires`).
pub(crate) const EXPIRES_NS: u64 = 600_000_000_000;
/// Smaller ones are ignored (Linux: `route.min_pmtu`).
pub(crate) const MTU_MIN_V4: u16 = 552;

/// Returns the smallest accepted path MTU of this family (RFC 8201 4 for IPv6).
pub(crate) const fn floor(is_v4: bool) -> u16 {
    if is_v4 {
        MTU_MIN_V4
    } else {
        slipstack_wire::ipv6::MTU_MIN
    }
}

/// RFC 8201 4: an IPv6 link with an MTU below 1280 bytes has to hide it, so such reports are
/// ignored.
pub(crate) const fn is_possible(is_v4: bool, mtu: u16) -> bool {
    is_v4 || mtu >= slipstack_wire::ipv6::MTU_MIN
}

#[derive(Clone, Copy, Debug)]
struct Learnt {
    dst: u128,
    mtu: u16,
    /// The path's MTU is even smaller: routers have to fragment our packets.
    is_beneath: bool,
    expires: Instant,
}

#[derive(Debug)]
pub(crate) struct PathMtus {
    places: Box<[Option<Learnt>]>,
    key: SipKey,
}

impl PathMtus {
    pub fn new(rng: &mut Rng) -> PathMtus {
        PathMtus {
            places: alloc::vec![None; PLACES].into(),
            key: rng.sip_key(),
        }
    }

    fn place_of(&self, dst: u128) -> usize {
        let hash = self.key.hash_words([dst as u64, (dst >> 64) as u64]);
        hash as usize % PLACES
    }

    fn known(&self, now: Instant, dst: IpAddr) -> Option<Learnt> {
        let dst = bound::bits(dst);
        let learnt = self.places[self.place_of(dst)]?;
        (learnt.dst == dst && now < learnt.expires).then_some(learnt)
    }

    pub fn find(&self, now: Instant, dst: IpAddr) -> Option<u16> {
        self.known(now, dst).map(|known| known.mtu)
    }

    /// Returns whether the reported path MTU was below the accepted minimum.
    pub fn is_beneath(&self, now: Instant, dst: IpAddr) -> bool {
        self.known(now, dst).is_some_and(|known| known.is_beneath)
    }

    /// Returns `false` if the known one is as low already.
    pub fn learn(&mut self, now: Instant, dst: IpAddr, stated: u16) -> bool {
        // RFC 1191 5: a router that does not report an MTU (0) leaves the minimum, and fragments
        // our packets.
        let mut mtu = stated.max(floor(dst.is_ipv4()));
        let mut is_beneath = stated < mtu;
        if let Some(known) = self.known(now, dst) {
            if known.mtu <= mtu && known.is_beneath >= is_beneath {
                return false;
            }
            mtu = mtu.min(known.mtu);
            is_beneath |= known.is_beneath;
        }
        let dst = bound::bits(dst);
        let place = self.place_of(dst);
        self.places[place] = Some(Learnt {
            dst,
            mtu,
            is_beneath,
            expires: now.plus_nanos(EXPIRES_NS),
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_mtu_is_lowered_not_below_the_floor_and_ends_with_time() {
        // RFC 1191 5 and 6.3, RFC 8201 5.2 and 5.3.
        let mut all = PathMtus::new(&mut Rng::new(&[1; 32]));
        let now = Instant::from_millis(1000);
        for (dst, floor) in [("10.0.0.9", 552), ("fd00::9", 1280)] {
            let dst: IpAddr = dst.parse().unwrap();
            assert_eq!(all.find(now, dst), None);
            assert!(all.learn(now, dst, 1400));
            assert!(!all.learn(now, dst, 1450), "an error cannot raise it");
            assert_eq!(all.find(now, dst), Some(1400));
            assert!(all.learn(now, dst, 0));
            assert_eq!(all.find(now, dst), Some(floor));
            assert_eq!(all.find(now.plus_nanos(EXPIRES_NS), dst), None);
        }
    }
}
