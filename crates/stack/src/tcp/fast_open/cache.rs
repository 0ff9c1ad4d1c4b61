//! A client's cache of servers that speak Fast Open (RFC 7413 4.1.3): cookies, and paths that drop
//! SYNs with data.

use core::net::IpAddr;

use alloc::vec::Vec;
use slipstack_wire::fast_open::Cookie;

use crate::rng::{Rng, SipKey};
use crate::tcp::flow::pack;
use crate::tcp::sizes::MSS_DEFAULT;
use crate::time::Instant;

/// Servers remembered: `SETS` × `WAYS`, by a keyed hash of the address. Beyond it the one of the
/// set that was used longest ago is forgotten.
const SETS: usize = 128;
const WAYS: usize = 4;
/// RFC 7413 4.1.3.1: how long no data is put into SYNs after the first that vanished; each further
/// one doubles it.
const BLACK_HOLE_NS: u64 = 3_600_000_000_000;
/// 64 hours.
const DOUBLINGS_MAX: u8 = 6;

/// A server's cookie, and the MSS that it announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub cookie: Cookie,
    pub mss: u16,
}

#[derive(Clone, Copy, Debug)]
struct Server {
    addr: [u8; 16],
    cookie: Option<Cookie>,
    /// MSS that it announced.
    mss: u16,
    /// SYNs with data that were answered only without.
    losses: u8,
    silent_until: Instant,
    used: Instant,
}

/// The cache of one stack; takes no memory before the first cookie.
#[derive(Debug)]
pub struct ServerCache {
    servers: Vec<Option<Server>>,
    key: SipKey,
}

impl ServerCache {
    pub fn new(rng: &mut Rng) -> ServerCache {
        ServerCache {
            servers: Vec::new(),
            key: rng.sip_key(),
        }
    }

    /// Returns the parameters of a SYN with data, unless the path drops such SYNs.
    pub fn find(&mut self, now: Instant, server: IpAddr) -> Option<Known> {
        let server = self.known(server)?;
        if now < server.silent_until {
            return None;
        }
        server.used = now;
        Some(Known {
            cookie: server.cookie?,
            mss: server.mss,
        })
    }

    /// RFC 7413 4.1.3.1: no cookie is requested either while a path is known to drop such SYNs.
    pub fn is_black_hole(&mut self, now: Instant, server: IpAddr) -> bool {
        self.known(server)
            .is_some_and(|server| now < server.silent_until)
    }

    /// Stores the cookie of a SYN-ACK.
    pub fn learn(&mut self, now: Instant, server: IpAddr, known: Known) {
        let server = self.enter(now, server);
        server.cookie = Some(known.cookie);
        server.mss = known.mss;
    }

    /// Data in a SYN was taken: the path is good.
    pub fn on_taken(&mut self, server: IpAddr) {
        if let Some(server) = self.known(server) {
            server.losses = 0;
            server.silent_until = Instant::ZERO;
        }
    }

    /// A SYN was answered only without data or option.
    pub fn on_loss(&mut self, now: Instant, server: IpAddr) {
        let server = self.enter(now, server);
        let wait = BLACK_HOLE_NS << server.losses.min(DOUBLINGS_MAX);
        server.losses = server.losses.saturating_add(1);
        server.silent_until = now.plus_nanos(wait);
    }

    fn known(&mut self, server: IpAddr) -> Option<&mut Server> {
        let addr = pack(server);
        let set = self.set_of(&addr);
        self.servers
            .get_mut(set)?
            .iter_mut()
            .flatten()
            .find(|s| s.addr == addr)
    }

    /// The server's place; of a full set the one that was used longest ago gives way.
    fn enter(&mut self, now: Instant, server: IpAddr) -> &mut Server {
        if self.servers.is_empty() {
            self.servers.resize(SETS * WAYS, None);
        }
        let addr = pack(server);
        let set = self.set_of(&addr);
        let places = &self.servers[set.clone()];
        let age = |place: &Option<Server>| place.map_or(Instant::ZERO, |s| s.used);
        let at = places
            .iter()
            .position(|place| place.is_some_and(|s| s.addr == addr))
            .or_else(|| (0..WAYS).min_by_key(|&way| age(&places[way])))
            .unwrap_or(0);
        let place = &mut self.servers[set.start + at];
        let fresh = Server {
            addr,
            cookie: None,
            mss: MSS_DEFAULT,
            losses: 0,
            silent_until: Instant::ZERO,
            used: now,
        };
        let server = place.get_or_insert(fresh);
        if server.addr != addr {
            *server = fresh;
        }
        server.used = now;
        server
    }

    fn set_of(&self, addr: &[u8; 16]) -> core::ops::Range<usize> {
        let word = u128::from_le_bytes(*addr);
        let hash = self.key.hash_words([word as u64, (word >> 64) as u64]);
        let start = (hash % SETS as u64) as usize * WAYS;
        start..start + WAYS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn cache() -> ServerCache {
        ServerCache::new(&mut Rng::new(&[1; 32]))
    }

    fn server(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n))
    }

    fn known(n: u32) -> Known {
        let cookie = Cookie::new(&n.to_be_bytes()).unwrap();
        Known { cookie, mss: 1460 }
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_the_latest_servers() {
        let mut cache = cache();
        for n in 0..100_000 {
            cache.learn(Instant(u64::from(n)), server(n), known(n));
        }
        assert_eq!(cache.servers.len(), SETS * WAYS);
        let found = |cache: &mut ServerCache, n| cache.find(Instant(1 << 40), server(n));
        assert_eq!(found(&mut cache, 99_999), Some(known(99_999)));
        assert_eq!(found(&mut cache, 0), None);
        // No server answers for another.
        let hits = (0..100_000).filter(|&n| found(&mut cache, n) == Some(known(n)));
        assert_eq!(hits.count(), SETS * WAYS);
    }

    #[test]
    fn fast_open_after_a_black_hole_is_disabled_for_longer_each_time() {
        let mut cache = cache();
        let mut now = Instant::ZERO;
        cache.learn(now, server(1), known(1));
        for n in 0..9 {
            cache.on_loss(now, server(1));
            let wait = BLACK_HOLE_NS << n.min(6);
            assert!(cache.is_black_hole(now.plus_nanos(wait - 1), server(1)));
            assert!(cache.find(now.plus_nanos(wait - 1), server(1)).is_none());
            now = now.plus_nanos(wait);
            assert!(cache.find(now, server(1)).is_some());
        }
        cache.on_taken(server(1));
        cache.on_loss(now, server(1));
        assert!(!cache.is_black_hole(now.plus_nanos(BLACK_HOLE_NS), server(1)));
    }
}
