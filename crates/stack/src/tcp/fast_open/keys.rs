//! A server's cookies (RFC 7413 4.1.2): a MAC of the two addresses, under a key that changes.

use slipstack_terms::{CookieKey, FastOpenKeys};
use slipstack_wire::fast_open::Cookie;

use crate::rng::{Rng, SipKey};
use crate::tcp::flow::FlowKey;
use crate::time::Instant;

/// Time for which one key makes cookies; they are taken for as long again.
const EPOCH_NS: u64 = 12 * 3_600_000_000_000;

/// A cookie that this stack has made.
pub type OwnCookie = [u8; 8];

/// The result of checking a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    Good,
    /// Good, but of the last key: the client gets a new one.
    Ageing,
    Bad,
}

/// The key in use and the one before.
#[derive(Debug)]
pub struct CookieKeys {
    current: SipKey,
    last: SipKey,
    epoch: u64,
}

impl CookieKeys {
    pub fn new(rng: &mut Rng, now: Instant) -> CookieKeys {
        CookieKeys {
            current: rng.sip_key(),
            last: rng.sip_key(),
            epoch: now.0 / EPOCH_NS,
        }
    }

    fn turn(&mut self, now: Instant, rng: &mut Rng) {
        let epoch = now.0 / EPOCH_NS;
        if epoch <= self.epoch {
            return;
        }
        let is_next = epoch == self.epoch + 1;
        self.last = if is_next { self.current } else { rng.sip_key() };
        self.current = rng.sip_key();
        self.epoch = epoch;
    }

    /// The cookie of a client, as it is on the wire.
    pub fn cookie(&mut self, now: Instant, flow: &FlowKey, rng: &mut Rng) -> OwnCookie {
        self.turn(now, rng);
        flow.address_mac(&self.current).to_be_bytes()
    }

    pub fn check(&mut self, now: Instant, flow: &FlowKey, cookie: &Cookie, rng: &mut Rng) -> Check {
        self.turn(now, rng);
        let is_by = |key| *cookie.as_slice() == flow.address_mac(key).to_be_bytes();
        if is_by(&self.current) {
            Check::Good
        } else if is_by(&self.last) {
            Check::Ageing
        } else {
            Check::Bad
        }
    }
}

/// Keys that the listener's program has set. They change when the program changes them.
#[derive(Clone, Copy, Debug)]
pub struct ProgramKeys {
    primary: SipKey,
    backup: Option<SipKey>,
}

impl ProgramKeys {
    pub fn of(keys: FastOpenKeys) -> ProgramKeys {
        let key = |[k0, k1]: CookieKey| SipKey { k0, k1 };
        ProgramKeys {
            primary: key(keys.primary),
            backup: keys.backup.map(key),
        }
    }

    pub fn cookie(&self, flow: &FlowKey) -> OwnCookie {
        flow.cookie_mac(&self.primary).to_le_bytes()
    }

    pub fn check(&self, flow: &FlowKey, cookie: &Cookie) -> Check {
        let is_by = |key: &SipKey| *cookie.as_slice() == flow.cookie_mac(key).to_le_bytes();
        if is_by(&self.primary) {
            Check::Good
        } else if self.backup.as_ref().is_some_and(is_by) {
            Check::Ageing
        } else {
            Check::Bad
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr};

    fn flow(last: u8, port: u16) -> FlowKey {
        let ip = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        FlowKey::new(ip(1), 80, ip(last), port)
    }

    #[test]
    fn a_cookie_is_valid_for_one_address_and_two_epochs() {
        let mut rng = Rng::new(&[2; 32]);
        let mut keys = CookieKeys::new(&mut rng, Instant::ZERO);
        let cookie = keys.cookie(Instant::ZERO, &flow(2, 5), &mut rng);
        let cookie = Cookie::new(&cookie).unwrap();
        let mut check = |at, flow: &FlowKey| keys.check(Instant(at), flow, &cookie, &mut rng);
        assert_eq!(check(0, &flow(2, 6)), Check::Good);
        assert_eq!(check(0, &flow(3, 5)), Check::Bad);
        assert_eq!(check(EPOCH_NS, &flow(2, 5)), Check::Ageing);
        assert_eq!(check(2 * EPOCH_NS, &flow(2, 5)), Check::Bad);
    }

    #[test]
    fn a_program_s_key_makes_the_cookies_that_linux_makes_of_it() {
        let bytes: [u8; 32] = core::array::from_fn(|at| at as u8);
        let keys = ProgramKeys::of(FastOpenKeys::from_bytes(&bytes).unwrap());
        // Made by Linux 6.18 from this key for a client at 10.0.0.2 and a server at 10.0.0.1, and
        // for fd00::2 and fd00::1.
        let linux = 0x788b_e4db_e24b_2585u64.to_be_bytes();
        assert_eq!(keys.cookie(&flow(2, 5)), linux);
        let ip = |last| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]);
        let v6 = FlowKey::new(ip(1), 80, ip(2), 5);
        assert_eq!(keys.cookie(&v6), 0x8544_fa46_ea04_2e3fu64.to_be_bytes());
        let cookie = Cookie::new(&keys.cookie(&flow(2, 5))).unwrap();
        assert_eq!(keys.check(&flow(2, 6), &cookie), Check::Good);
        assert_eq!(keys.check(&flow(3, 5), &cookie), Check::Bad);
        let turned: [u8; 32] = core::array::from_fn(|at| (at as u8 + 16) % 32);
        let turned = ProgramKeys::of(FastOpenKeys::from_bytes(&turned).unwrap());
        assert_eq!(turned.check(&flow(2, 5), &cookie), Check::Ageing);
    }
}
