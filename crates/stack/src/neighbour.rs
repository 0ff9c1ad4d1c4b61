//! The neighbour cache: link-layer addresses, their lifetimes, and frames that wait for them.
//!
//! States of an entry: asking (no address yet; frames are held, requests go out on every candidate
//! link; INCOMPLETE of RFC 4861), known (REACHABLE, or DELAY while it was only heard), and
//! verifying (known, but its reachable time is over: still used while requests are sent to it;
//! PROBE). STALE is a known entry whose time is over and that is not in use: it is verified with
//! its next use. An entry whose requests stay unanswered is removed and its held frames are
//! returned as unreachable.
//!
//! RFC 4861 5.2, 7.3.2 and 7.3.3.

mod times;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

use hashbrown::HashTable;
use slipstack_wire::TxOffload;
use slipstack_wire::arp::ArpPacket;
use slipstack_wire::ethernet;

use slipstack_network::NeighbourEntry;
use slipstack_wire::LinkId;
use slipstack_wire::zone::zoned_ip;

use crate::config::NeighbourConfig;
use crate::counters::{Counter, Counters};
use crate::effects::{Effects, FrameOut, Payload};
use crate::held::HeldFrame;
use crate::ndp::{Sender, send_solicitation};
use crate::network_layer::{Macs, transmit};
use crate::rng::SipKey;
use crate::time::Instant;

pub(crate) use times::ToldTimes;
use times::{LinkTimes, Times};

/// Frames kept at most for all neighbours that are being resolved, together.
const HELD_MAX: usize = 1024;

/// An answer of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    Known {
        mac: [u8; 6],
        valid_until: Instant,
    },
    /// Requests are on their way.
    Asking,
    /// No entry, and no room for one.
    TableFull,
}

/// The address that a request for a neighbour comes from, and its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Station {
    pub mac: [u8; 6],
    pub ip: IpAddr,
    /// 0 = on the device's own link.
    pub link: u16,
}

/// The source address and link of requests for a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Querier {
    pub ip: IpAddr,
    /// 0 = on the device's own link.
    pub link: u16,
}

/// A neighbour's link-layer address, as a packet states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Learned {
    pub ip: IpAddr,
    pub mac: [u8; 6],
    pub confidence: Confidence,
}

/// Source of a learned address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confidence {
    /// The neighbour answered us, or sent us an ARP request: the forward path works.
    Confirmed,
    /// The neighbour announced itself unasked: the return path is not proven (RFC 4861 7.3.1).
    Heard,
}

#[derive(Debug)]
struct Entry {
    ip: IpAddr,
    state: State,
    held: VecDeque<HeldFrame>,
    last_used: Instant,
    /// The source address of our requests, and the link that they go to.
    source: IpAddr,
    link: u16,
    /// The entry is configured: no request is sent, and received messages do not change it.
    is_permanent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asking {
        sent: u8,
        retry_at: Instant,
    },
    Known {
        mac: [u8; 6],
        until: Instant,
    },
    Verifying {
        mac: [u8; 6],
        sent: u8,
        retry_at: Instant,
    },
}

impl State {
    const fn is_busy(&self) -> bool {
        !matches!(self, Self::Known { .. })
    }
}

/// Neighbours that do not answer, with the frames that waited for them.
#[derive(Debug, Default)]
pub(crate) struct GivenUp {
    pub neighbours: Vec<IpAddr>,
    pub frames: Vec<(IpAddr, HeldFrame)>,
}

#[derive(Debug)]
pub(crate) struct Neighbours {
    entries: HashTable<Entry>,
    key: SipKey,
    config: NeighbourConfig,
    times6: LinkTimes,
    /// Changes whenever an address that may be cached is no longer right.
    epoch: u32,
    held_total: usize,
    /// Earliest `retry_at` of all entries; may be too early, never too late.
    next_retry: Option<Instant>,
}

impl Neighbours {
    pub fn new(config: NeighbourConfig, key: SipKey) -> Self {
        Self {
            entries: HashTable::new(),
            key,
            times6: LinkTimes::default(),
            config,
            epoch: 0,
            held_total: 0,
            next_retry: None,
        }
    }

    /// Follows the routers of links.
    pub fn set_times6(&mut self, links: &[ToldTimes]) {
        self.times6.follow(links, &self.config);
    }

    fn times(&self, ip: IpAddr, link: u16) -> Times {
        self.times6.find((ip, link), &self.config)
    }

    /// Sets the configured neighbours; those that were and are not in `wanted` are forgotten.
    /// Frames that wait for one of them are dropped: their senders send again.
    pub fn set_permanent(&mut self, wanted: &[NeighbourEntry]) {
        let ip_of = |it: &NeighbourEntry| zoned_ip(it.ip, LinkId(it.link));
        self.entries
            .retain(|entry| !entry.is_permanent || wanted.iter().any(|it| ip_of(it) == entry.ip));
        for it in wanted {
            let (ip, mac) = (ip_of(it), it.mac);
            let state = State::Known {
                mac,
                until: Instant::FAR_FUTURE,
            };
            let hash = hash(&self.key, ip);
            if let Some(entry) = self.entries.find_mut(hash, |entry| entry.ip == ip) {
                self.held_total -= entry.held.len();
                entry.held.clear();
                entry.state = state;
                entry.is_permanent = true;
            } else if self.make_room() {
                self.insert(Entry {
                    ip,
                    state,
                    held: VecDeque::new(),
                    last_used: Instant::ZERO,
                    source: ip,
                    link: 0,
                    is_permanent: true,
                });
            }
        }
    }

    /// Forgets what was learnt; who waits for an answer goes on waiting.
    pub fn forget_learnt(&mut self) {
        let held_total = &mut self.held_total;
        self.entries.retain(|entry| {
            let is_kept = entry.is_permanent || matches!(entry.state, State::Asking { .. });
            if !is_kept {
                *held_total -= entry.held.len();
            }
            is_kept
        });
        self.renew_epoch();
    }

    /// Updates the sources and links of requests: `source_of` returns them, given a neighbour and
    /// the previous source.
    pub fn renew_sources(&mut self, source_of: impl Fn(IpAddr, IpAddr) -> (IpAddr, u16)) {
        for entry in self.entries.iter_mut() {
            (entry.source, entry.link) = source_of(entry.ip, entry.source);
        }
    }

    #[inline]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Ends all next hops that are kept somewhere.
    pub fn renew_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.next_retry
    }

    /// Requests a call of `on_timers` at this time for another part of the stack.
    pub fn look_at(&mut self, at: Instant) {
        note_retry(&mut self.next_retry, at);
    }

    /// Returns whether frames wait for neighbours.
    pub fn holds_frames(&self) -> bool {
        self.held_total > 0
    }

    /// Neighbours that are being resolved or verified.
    pub fn pending(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.entries
            .iter()
            .filter(|entry| entry.state.is_busy())
            .map(|entry| entry.ip)
    }

    /// Looks a neighbour up and sends a request if needed; `station` is the source of the request.
    pub fn resolve(
        &mut self,
        now: Instant,
        ip: IpAddr,
        station: Station,
        counters: &mut Counters,
        fx: &mut impl Effects,
    ) -> Resolution {
        let hash = hash(&self.key, ip);
        let times = self.times(ip, station.link);
        let retry_at = now + times.retry;
        if let Some(entry) = self.entries.find_mut(hash, |entry| entry.ip == ip) {
            entry.last_used = now;
            let mac = match entry.state {
                State::Asking { .. } => return Resolution::Asking,
                State::Verifying { mac, .. } => mac,
                State::Known { mac, until } if now < until => {
                    return Resolution::Known {
                        mac,
                        valid_until: until,
                    };
                }
                State::Known { mac, .. } => {
                    entry.state = State::Verifying {
                        mac,
                        sent: 1,
                        retry_at,
                    };
                    send_request(ip, mac, station, counters, fx);
                    note_retry(&mut self.next_retry, retry_at);
                    mac
                }
            };
            return Resolution::Known {
                mac,
                valid_until: retry_at,
            };
        }
        if !self.make_room() {
            return Resolution::TableFull;
        }
        let known = fx.find_neighbour(ip);
        let until = now + times.reachable;
        let state = match known {
            Some(mac) => State::Known { mac, until },
            None => State::Asking { sent: 1, retry_at },
        };
        self.insert(Entry {
            ip,
            state,
            held: VecDeque::new(),
            last_used: now,
            source: station.ip,
            link: station.link,
            is_permanent: false,
        });
        if let Some(mac) = known {
            return Resolution::Known {
                mac,
                valid_until: until,
            };
        }
        note_retry(&mut self.next_retry, retry_at);
        send_request(ip, ethernet::BROADCAST, station, counters, fx);
        Resolution::Asking
    }

    /// Keeps a frame until its neighbour answers; a full queue loses its oldest frame.
    pub fn hold(&mut self, ip: IpAddr, frame: HeldFrame, counters: &mut Counters) {
        let hash = hash(&self.key, ip);
        let Some(entry) = self.entries.find_mut(hash, |entry| entry.ip == ip) else {
            counters.bump(Counter::DropNeighbourQueue);
            return;
        };
        let is_full = entry.held.len() >= self.config.queue_len_max || self.held_total >= HELD_MAX;
        if is_full {
            counters.bump(Counter::DropNeighbourQueue);
            if entry.held.pop_front().is_none() {
                return;
            }
            self.held_total -= 1;
        }
        entry.held.push_back(frame);
        self.held_total += 1;
    }

    /// The address that is used now.
    pub fn find_mac(&self, ip: IpAddr) -> Option<[u8; 6]> {
        let entry = self
            .entries
            .find(hash(&self.key, ip), |entry| entry.ip == ip)?;
        match entry.state {
            State::Asking { .. } => None,
            State::Known { mac, .. } | State::Verifying { mac, .. } => Some(mac),
        }
    }

    /// Neighbours whose address was learnt and is known, with it.
    pub fn known(&self) -> impl Iterator<Item = (IpAddr, [u8; 6])> + '_ {
        let learnt = self.entries.iter().filter(|entry| !entry.is_permanent);
        learnt.filter_map(|entry| match entry.state {
            State::Asking { .. } => None,
            State::Known { mac, .. } | State::Verifying { mac, .. } => Some((entry.ip, mac)),
        })
    }

    /// Returns whether the cache has an entry, in any state.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.entries
            .find(hash(&self.key, ip), |entry| entry.ip == ip)
            .is_some()
    }

    /// Stores an address and releases the frames that waited for it. Returns `true` if it is new or
    /// has changed.
    pub fn learn(
        &mut self,
        now: Instant,
        learned: Learned,
        asker: Querier,
        counters: &mut Counters,
        fx: &mut impl Effects,
    ) -> bool {
        let Learned {
            ip,
            mac,
            confidence,
        } = learned;
        let until = match confidence {
            Confidence::Confirmed => now + self.times(ip, asker.link).reachable,
            Confidence::Heard => now + self.config.heard,
        };
        let state = State::Known { mac, until };
        let hash = hash(&self.key, ip);
        let Some(entry) = self.entries.find_mut(hash, |entry| entry.ip == ip) else {
            if self.make_room() {
                self.insert(Entry {
                    ip,
                    state,
                    held: VecDeque::new(),
                    last_used: now,
                    source: asker.ip,
                    link: asker.link,
                    is_permanent: false,
                });
            }
            return true;
        };
        if entry.is_permanent {
            return false;
        }
        let is_new = match entry.state {
            State::Asking { .. } => true,
            // RFC 4861 7.2.3: a repeated message neither confirms nor removes anything.
            State::Known { mac: old, .. } | State::Verifying { mac: old, .. }
                if old == mac && confidence == Confidence::Heard =>
            {
                return false;
            }
            State::Known { mac: old, .. } | State::Verifying { mac: old, .. } => {
                if old != mac {
                    self.epoch = self.epoch.wrapping_add(1);
                }
                old != mac
            }
        };
        entry.state = state;
        self.held_total -= entry.held.len();
        for mut frame in core::mem::take(&mut entry.held) {
            frame.send(mac, counters, fx);
        }
        is_new
    }

    /// Returns when a route by this neighbour was last looked up.
    pub fn last_used(&self, ip: IpAddr) -> Option<Instant> {
        let hash = hash(&self.key, ip);
        let entry = self.entries.find(hash, |entry| entry.ip == ip)?;
        Some(entry.last_used)
    }

    /// Repeats requests; reports neighbours that do not answer, and the frames that waited for
    /// them.
    pub fn on_timers(
        &mut self,
        now: Instant,
        macs: &Macs,
        given_up: &mut GivenUp,
        counters: &mut Counters,
        fx: &mut impl Effects,
    ) {
        if self.next_retry.is_none_or(|at| now < at) {
            return;
        }
        self.next_retry = None;
        let probes_max = self.config.probes_max;
        let (times6, config) = (&self.times6, &self.config);
        let before = self.entries.len();
        let next_retry = &mut self.next_retry;
        let held_total = &mut self.held_total;
        self.entries.retain(|entry| {
            let to = match entry.state {
                State::Known { .. } => return true,
                State::Asking { .. } => ethernet::BROADCAST,
                State::Verifying { mac, .. } => mac,
            };
            let (State::Asking { sent, retry_at } | State::Verifying { sent, retry_at, .. }) =
                &mut entry.state
            else {
                return true;
            };
            if now < *retry_at {
                note_retry(next_retry, *retry_at);
                return true;
            }
            if *sent >= probes_max {
                *held_total -= entry.held.len();
                counters.add(Counter::DropNeighbourFailed, entry.held.len() as u64);
                let held = entry.held.drain(..);
                given_up.frames.extend(held.map(|frame| (entry.ip, frame)));
                given_up.neighbours.push(entry.ip);
                return false;
            }
            *sent += 1;
            let times = times6.find((entry.ip, entry.link), config);
            *retry_at = now + times.retry.max(Duration::from_millis(1));
            note_retry(next_retry, *retry_at);
            let station = Station {
                mac: macs.on(entry.link),
                ip: entry.source,
                link: entry.link,
            };
            send_request(entry.ip, to, station, counters, fx);
            true
        });
        if self.entries.len() != before {
            self.epoch = self.epoch.wrapping_add(1);
        }
    }

    fn insert(&mut self, entry: Entry) {
        let key = self.key;
        self.entries
            .insert_unique(hash(&key, entry.ip), entry, |entry| hash(&key, entry.ip));
    }

    /// Evicts the longest unused idle entry from a full table; returns `false` if all are busy.
    fn make_room(&mut self) -> bool {
        if self.entries.len() < self.config.entries_max {
            return true;
        }
        let oldest = self
            .entries
            .iter()
            .filter(|entry| !entry.state.is_busy() && !entry.is_permanent)
            .min_by_key(|entry| entry.last_used)
            .map(|entry| entry.ip);
        let Some(ip) = oldest else { return false };
        if let Ok(entry) = self
            .entries
            .find_entry(hash(&self.key, ip), |entry| entry.ip == ip)
        {
            entry.remove();
        }
        true
    }
}

#[inline]
fn hash(key: &SipKey, ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => key.hash_words([u64::from(ip.to_bits())]),
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            key.hash_words([(bits >> 64) as u64, bits as u64])
        }
    }
}

fn note_retry(next_retry: &mut Option<Instant>, at: Instant) {
    *next_retry = Some(next_retry.map_or(at, |earliest| earliest.min(at)));
}

fn send_request(
    target: IpAddr,
    to: [u8; 6],
    station: Station,
    counters: &mut Counters,
    fx: &mut impl Effects,
) {
    let Station { mac, ip, link } = station;
    let (target, ip) = match (target, ip) {
        (IpAddr::V4(target), IpAddr::V4(ip)) => (target, ip),
        (IpAddr::V6(target), IpAddr::V6(ip)) => {
            let to = (to != ethernet::BROADCAST).then_some(to);
            let sender = Sender { mac, ip, link };
            return send_solicitation(target, to, sender, counters, fx);
        }
        _ => return,
    };
    counters.bump(Counter::TxArpRequests);
    send_arp(
        &ArpPacket::request(mac, ip, target),
        (to, link),
        counters,
        fx,
    );
}

/// Puts an ARP packet on the link.
pub(crate) fn send_arp(
    arp: &ArpPacket,
    (to, link): ([u8; 6], u16),
    counters: &mut Counters,
    fx: &mut impl Effects,
) {
    let frame = arp.frame_to(to);
    let frame = FrameOut {
        header: &frame,
        payload: Payload::None,
        offload: TxOffload::on(link),
        local: false,
    };
    transmit(frame, counters, fx);
}
