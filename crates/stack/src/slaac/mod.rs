//! Stateless autoconfiguration of a host: addresses, networks, routes, parameters, and their
//! lifetimes.
//!
//! RFC 4861 6.3 and 8.3, RFC 4862 5.3 to 5.5, RFC 4191 3.1. Nothing here touches a frame: messages
//! to be sent are returned to [`crate::router`].

mod discovery;
mod identifier;
mod image;
mod lifetime;

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::Ipv6Addr;
use core::time::Duration;

use slipstack_wire::LinkId;
use slipstack_wire::ipv6;
use slipstack_wire::ndp::{Preference, Prefix, RouterAdvertisement};
use slipstack_wire::zone::zoned;

pub(crate) use discovery::Discovery;
pub use identifier::Identifiers;
use lifetime::{Lifetimes, after_s};

use crate::config::SlaacConfig;
use crate::time::Instant;
use slipstack_terms::{Learnt, LearntAddress, LearntLink, LearntNetwork, Redirected};

/// Limits of the state that routers can create; later items are left out.
const NETWORKS_MAX: usize = 16;
const ROUTERS_MAX: usize = 8;
const REDIRECTS_MAX: usize = 64;

/// Length of the prefix with which an identifier makes an address (RFC 4862 5.5.3 (d)).
const PREFIX_LEN: u8 = 64;
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);

/// Probes for an address before it is ours, and how long each waits for its owner.
// DEVIATION(RFC 4862 5.1): one probe and 1 s would delay every start; on the links that this runs
// on an owner answers within milliseconds.
const PROBES: u8 = 2;
const PROBE_WAIT: Duration = Duration::from_millis(100);
/// RFC 7217 6: how often another identifier is tried when one is taken.
const ATTEMPTS: u8 = 3;

/// The first solicitations, and their interval.
// DEVIATION(RFC 4861 10): with 4 s a start without a router would take 12 s; a router answers
// within half a second (6.2.6).
const SOLICITATIONS: u32 = 3;
const SOLICIT_EVERY: Duration = Duration::from_secs(1);
/// RFC 7559 2: later ones, ever rarer.
const SOLICIT_EVERY_MAX: Duration = Duration::from_secs(3600);

/// A redirect that its router has not repeated expires, so that an unreachable hop is abandoned
/// eventually.
const REDIRECT_S: u32 = 600;
/// A message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To all routers.
    Solicit,
    /// Probes whether another station has this address (RFC 4862 5.4.2).
    Probe(Ipv6Addr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// RFC 4862 2: not ours until the probes have gone unanswered.
    Tentative {
        sent: u8,
        next_at: Instant,
    },
    Assigned,
    /// All identifiers were taken.
    Failed,
}

#[derive(Clone, Copy, Debug)]
struct Address {
    ip: Ipv6Addr,
    prefix: Ipv6Addr,
    attempt: u8,
    /// Nonce of the probes of this attempt.
    nonce: Option<[u8; 6]>,
    state: State,
    lifetimes: Lifetimes,
}

/// A value with its end.
#[derive(Clone, Copy, Debug)]
struct Until<T> {
    it: T,
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Router {
    ip: Ipv6Addr,
    preference: Preference,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeardRedirect {
    redirected: Redirected,
    router: Ipv6Addr,
}

/// One interface that solicits routers.
#[derive(Debug)]
pub struct Slaac {
    link: LinkId,
    identifiers: Identifiers,
    addresses_max: usize,
    addresses: Vec<Address>,
    networks: Vec<Until<(Ipv6Addr, u8)>>,
    routers: Vec<Until<Router>>,
    redirects: Vec<Until<HeardRedirect>>,
    mtu: Option<u16>,
    hop_limit: Option<u8>,
    reachable_ms: Option<u32>,
    retry_ms: Option<u32>,
    /// `None`: a router has answered.
    solicit_at: Option<Instant>,
    solicited: u32,
    /// Time of the last check for expired state.
    looked: Instant,
}

impl Slaac {
    /// Begins with the link-local address, or goes on with [`Slaac::image`] of the same link.
    pub fn new(config: &SlaacConfig, link: LinkId, image: &[u64], now: Instant) -> Slaac {
        let SlaacConfig {
            identifiers,
            addresses_max,
            ..
        } = *config;
        let mut slaac = Slaac {
            link,
            addresses_max,
            identifiers: identifiers.of_link(link),
            addresses: Vec::new(),
            networks: Vec::new(),
            routers: Vec::new(),
            redirects: Vec::new(),
            mtu: None,
            hop_limit: None,
            reachable_ms: None,
            retry_ms: None,
            solicit_at: None,
            solicited: 0,
            looked: now,
        };
        slaac.take_image(image);
        if slaac.addresses.is_empty() {
            slaac.add_address(LINK_LOCAL, Lifetimes::FOR_EVER, now);
        } else {
            slaac.solicit_at = Some(now);
        }
        slaac
    }

    fn add_address(&mut self, prefix: Ipv6Addr, lifetimes: Lifetimes, now: Instant) {
        if self.addresses.len() < self.addresses_max {
            self.addresses.push(Address {
                ip: zoned(self.identifiers.address(prefix, 0), self.link),
                prefix: network_of(prefix),
                attempt: 0,
                nonce: None,
                state: State::Tentative {
                    sent: 0,
                    next_at: now,
                },
                lifetimes,
            });
        }
    }

    /// RFC 4861 6.3.4; the caller has checked 6.1.2. `link_mtu`: the device's MTU.
    pub fn on_advertisement(
        &mut self,
        now: Instant,
        router: Ipv6Addr,
        advertisement: &RouterAdvertisement<'_>,
        link_mtu: u16,
    ) {
        if advertisement.hop_limit != 0 {
            self.hop_limit = Some(advertisement.hop_limit);
        }
        self.reachable_ms = stated(advertisement.reachable_ms).or(self.reachable_ms);
        self.retry_ms = stated(advertisement.retrans_ms).or(self.retry_ms);
        if let Some(mtu) = advertisement.mtu.and_then(|mtu| u16::try_from(mtu).ok())
            && (ipv6::MTU_MIN..=link_mtu).contains(&mtu)
        {
            self.mtu = Some(mtu);
        }
        self.on_router(now, router, advertisement);
        for prefix in advertisement.prefixes() {
            // RFC 4861 6.3.4, RFC 4862 5.5.3 (b): of the link-local prefix routers have nothing to
            // say.
            if prefix.prefix.is_unicast_link_local() || prefix.prefix.is_multicast() {
                continue;
            }
            if prefix.is_on_link {
                self.on_network(now, &prefix);
            }
            if prefix.is_autonomous {
                self.on_prefix(now, &prefix);
            }
        }
    }

    /// RFC 4191 3.1: the header describes the default route, unless a route option of this length
    /// replaces it.
    // DEVIATION(RFC 4191 3.1): more-specific routes are not followed (as on Linux:
    // accept_ra_rt_info_max_plen is 0).
    fn on_router(
        &mut self,
        now: Instant,
        router: Ipv6Addr,
        advertisement: &RouterAdvertisement<'_>,
    ) {
        let mut way = (
            u32::from(advertisement.lifetime_s),
            advertisement.preference,
        );
        for route in advertisement.routes().filter(|route| route.prefix_len == 0) {
            way = (route.lifetime_s, route.preference);
        }
        let (lifetime_s, preference) = way;
        let until = after_s(now, lifetime_s);
        let it = Router {
            ip: router,
            preference,
        };
        match self.routers.iter_mut().find(|known| known.it.ip == router) {
            Some(known) => *known = Until { it, until },
            None => note(&mut self.routers, Until { it, until }, ROUTERS_MAX),
        }
        if lifetime_s != 0 {
            // RFC 4861 6.3.7.
            self.solicit_at = None;
        }
    }

    /// Forgets a router, as when its time is over; its routes find another one. Returns `false` if
    /// it was none.
    pub fn forget_router(&mut self, router: Ipv6Addr) -> bool {
        let before = self.routers.len();
        self.routers.retain(|known| known.it.ip != router);
        let is_gone = self.routers.len() != before;
        if is_gone {
            self.redirects.retain(|known| known.it.router != router);
        }
        is_gone
    }

    fn on_network(&mut self, now: Instant, prefix: &Prefix) {
        let until = after_s(now, prefix.valid_s);
        let it = (masked(prefix.prefix, prefix.len), prefix.len);
        note(&mut self.networks, Until { it, until }, NETWORKS_MAX);
    }

    /// RFC 4862 5.5.3 (c) to (e).
    fn on_prefix(&mut self, now: Instant, prefix: &Prefix) {
        if prefix.preferred_s > prefix.valid_s || prefix.len != PREFIX_LEN {
            return;
        }
        let of = network_of(prefix.prefix);
        let known = self.addresses.iter_mut().find(|known| known.prefix == of);
        match known {
            Some(known) => known
                .lifetimes
                .renew(now, prefix.preferred_s, prefix.valid_s),
            None if prefix.valid_s != 0 => {
                let (preferred, valid) = (prefix.preferred_s, prefix.valid_s);
                let lifetimes = Lifetimes::new(after_s(now, preferred), after_s(now, valid));
                self.add_address(of, lifetimes, now);
            }
            None => {}
        }
    }

    /// RFC 4861 8.3; the caller has checked 8.1.
    pub fn on_redirect(&mut self, now: Instant, router: Ipv6Addr, redirected: Redirected) {
        let to = redirected.destination;
        self.redirects
            .retain(|known| known.it.redirected.destination != to);
        if self.redirects.len() == REDIRECTS_MAX {
            self.redirects.remove(0);
        }
        self.redirects.push(Until {
            it: HeardRedirect { redirected, router },
            until: after_s(now, REDIRECT_S),
        });
    }

    /// Handles another station that has, or wants, an address that is not ours yet (RFC 4862 5.4.3,
    /// 5.4.4). Returns `false` if it is none of those.
    pub fn on_claim(&mut self, now: Instant, ip: Ipv6Addr) -> bool {
        let is_meant = |known: &&mut Address| known.ip == ip && known.is_tentative();
        let Some(known) = self.addresses.iter_mut().find(is_meant) else {
            return false;
        };
        known.attempt += 1;
        known.nonce = None;
        known.state = if known.attempt < ATTEMPTS {
            let ip = self.identifiers.address(known.prefix, known.attempt);
            known.ip = zoned(ip, self.link);
            State::Tentative {
                sent: 0,
                next_at: now,
            }
        } else {
            State::Failed
        };
        true
    }

    /// Returns the nonce that identifies our probes for an address (RFC 7527 4.1); `fresh` is
    /// random.
    pub fn nonce_of(&mut self, ip: Ipv6Addr, fresh: u64) -> Option<[u8; 6]> {
        let known = self.addresses.iter_mut().find(|known| known.ip == ip)?;
        let [a, b, c, d, e, f, ..] = fresh.to_be_bytes();
        Some(*known.nonce.get_or_insert([a, b, c, d, e, f]))
    }

    /// RFC 7527 4.2: a probe of ours that a link has looped back.
    // DEVIATION(RFC 7527 4.1): no more probes follow because of it (as on Linux).
    pub fn is_own_probe(&self, ip: Ipv6Addr, nonce: Option<[u8; 6]>) -> bool {
        let is_it = |known: &Address| known.ip == ip && known.nonce == nonce;
        nonce.is_some() && self.addresses.iter().any(is_it)
    }

    /// Addresses whose groups are joined: ours, and tentative ones (RFC 4862 5.4.2).
    pub fn heard(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        let is_heard = |known: &&Address| known.state != State::Failed;
        self.addresses.iter().filter(is_heard).map(|known| known.ip)
    }

    /// Removes expired state, and returns due messages.
    pub fn on_time(&mut self, now: Instant, actions: &mut Vec<Action>) {
        self.looked = now;
        self.addresses
            .retain(|known| known.lifetimes.valid_until > now);
        self.networks.retain(|known| known.until > now);
        self.routers.retain(|known| known.until > now);
        let routers = &self.routers;
        // RFC 4861 5.3: destinations of a router that is gone look for another one.
        self.redirects.retain(|known| {
            known.until > now && routers.iter().any(|router| router.it.ip == known.it.router)
        });
        let mut has_first = false;
        for known in &mut self.addresses {
            has_first |= known.probe(now, actions);
        }
        if has_first {
            self.solicit_at = Some(now);
        }
        if let Some(at) = self.solicit_at
            && at <= now
        {
            actions.push(Action::Solicit);
            self.solicited += 1;
            self.solicit_at = Some(now + solicit_after(self.solicited));
        }
    }

    /// Time at which [`Slaac::on_time`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let deprecated = self
            .addresses
            .iter()
            .map(|known| known.lifetimes.preferred_until);
        let addresses = self.addresses.iter().flat_map(|known| {
            let probe_at = match known.state {
                State::Tentative { next_at, .. } => next_at,
                State::Assigned | State::Failed => Instant::FAR_FUTURE,
            };
            [known.lifetimes.valid_until, probe_at]
        });
        let networks = self.networks.iter().map(|known| known.until);
        let routers = self.routers.iter().map(|known| known.until);
        let redirects = self.redirects.iter().map(|known| known.until);
        deprecated
            .filter(|at| *at > self.looked)
            .chain(addresses)
            .chain(networks)
            .chain(routers)
            .chain(redirects)
            .chain(self.solicit_at)
            .filter(|at| *at != Instant::FAR_FUTURE)
            .min()
    }

    /// Nothing is tentative, and a router has answered or there seems to be none.
    pub fn is_settled(&self) -> bool {
        let is_tentative = self.addresses.iter().any(Address::is_tentative);
        !is_tentative && (self.solicit_at.is_none() || self.solicited > SOLICITATIONS)
    }

    fn routers(&self, now: Instant) -> Vec<Router> {
        in_force(&self.routers, |until| until > now)
    }

    /// Returns the configuration that holds now.
    pub fn learnt(&self, now: Instant) -> Learnt {
        let assigned = |known: &&Address| known.state == State::Assigned;
        let address = |known: &Address| LearntAddress {
            ip: known.ip,
            prefix_len: PREFIX_LEN,
            is_deprecated: known.lifetimes.preferred_until <= now,
            link: self.link.0,
        };
        let network = |&(address, prefix_len): &(Ipv6Addr, u8)| LearntNetwork {
            address,
            prefix_len,
            link: self.link.0,
        };
        let current = |until: Instant| until > now;
        Learnt {
            addresses: self
                .addresses
                .iter()
                .filter(assigned)
                .map(address)
                .collect(),
            networks: in_force(&self.networks, current)
                .iter()
                .map(network)
                .collect(),
            routers: ranked(self.routers(now)),
            redirects: self
                .redirects
                .iter()
                .map(|known| known.it.redirected)
                .collect(),
            mtu: self.mtu,
            further_mtus: Vec::new(),
            link_mtu: None,
            links: self.values().into_iter().collect(),
        }
    }

    /// The values that the link's routers advertise, if there are some.
    fn values(&self) -> Option<LearntLink> {
        let values = LearntLink {
            link: self.link.0,
            hop_limit: self.hop_limit,
            reachable_ms: self.reachable_ms,
            retry_ms: self.retry_ms,
        };
        let none = LearntLink {
            link: self.link.0,
            ..LearntLink::default()
        };
        (values != none).then_some(values)
    }
}

/// Returns the default routers, the preferred one first: among equals the one that was heard first.
fn ranked(mut routers: Vec<Router>) -> Vec<Ipv6Addr> {
    routers.sort_by_key(|router| Reverse(router.preference));
    routers.iter().map(|router| router.ip).collect()
}

impl Address {
    fn is_tentative(&self) -> bool {
        matches!(self.state, State::Tentative { .. })
    }

    /// The next probe, if it is due. `true`: the link-local address has become ours.
    fn probe(&mut self, now: Instant, actions: &mut Vec<Action>) -> bool {
        match self.state {
            State::Tentative { sent, next_at } if next_at <= now => {
                if sent == PROBES {
                    self.state = State::Assigned;
                    return self.prefix == LINK_LOCAL;
                }
                actions.push(Action::Probe(self.ip));
                self.state = State::Tentative {
                    sent: sent + 1,
                    next_at: now + PROBE_WAIT,
                };
                false
            }
            _ => false,
        }
    }
}

/// Adds a new item, or updates the lifetime of a known one.
fn note<T: PartialEq>(all: &mut Vec<Until<T>>, advertisement: Until<T>, max: usize) {
    let is_full = all.len() >= max;
    match all.iter_mut().find(|known| known.it == advertisement.it) {
        Some(known) => known.until = advertisement.until,
        None if !is_full => all.push(advertisement),
        None => {}
    }
}

fn in_force<T: Copy>(all: &[Until<T>], current: impl Fn(Instant) -> bool) -> Vec<T> {
    let known = all.iter().filter(|known| current(known.until));
    known.map(|known| known.it).collect()
}

/// RFC 4861 4.2: 0 is unspecified.
fn stated(ms: u32) -> Option<u32> {
    /// One hour: longer times are a mistake (RFC 4861 6.2.1).
    const MAX_MS: u32 = 3_600_000;
    (ms != 0).then(|| ms.min(MAX_MS))
}

fn solicit_after(sent: u32) -> Duration {
    let doublings = sent.saturating_sub(SOLICITATIONS).min(12);
    (SOLICIT_EVERY * (1 << doublings)).min(SOLICIT_EVERY_MAX)
}

fn network_of(ip: Ipv6Addr) -> Ipv6Addr {
    masked(ip, PREFIX_LEN)
}

fn masked(ip: Ipv6Addr, len: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
    Ipv6Addr::from_bits(ip.to_bits() & mask)
}

#[cfg(test)]
mod tests;
