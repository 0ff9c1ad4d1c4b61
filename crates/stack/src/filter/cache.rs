//! Cache of verdicts: packets of one flow that are alike to all rules are looked up once.

use alloc::vec::Vec;

use slipstack_wire::protocol;
use slipstack_wire::tcp::TcpFlags;

use super::Verdict;
use super::packet::Packet;
use super::ranges::V4;
use slipstack_terms::FilterDirection;

/// Places for flows; a second flow takes another's place if the two meet.
const FLOWS_MAX: usize = 16_384;
const FLOWS_MIN: usize = 64;
/// Rules that count a packet on its way.
const RULES: usize = 4;
/// Headers of a plain packet up to the ports: those of IPv4 without options, and 4 bytes.
const PLAIN_LEN: usize = 24;
/// Place of the TCP flags.
const FLAGS_AT: usize = 33;
/// Bits of the fragment word: more fragments, and the fragment's offset.
const FRAGMENT: u32 = 0x3fff;

/// The fields that the classifier uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key([u64; 5]);

impl Key {
    /// No packet's: each has its highest bit set.
    const NONE: Key = Key([0; 5]);

    #[inline]
    pub fn of(packet: &Packet) -> Key {
        let rest = u64::from(packet.ports.0)
            | u64::from(packet.ports.1) << 17
            | u64::from(packet.protocol) << 34
            | u64::from(packet.link) << 42
            | (packet.kind() as u64) << 58
            | 1 << 63;
        Key([
            packet.src as u64,
            (packet.src >> 64) as u64,
            packet.dst as u64,
            (packet.dst >> 64) as u64,
            rest,
        ])
    }

    /// Returns the key of a plain IPv4 packet from its headers: no options, no fragment, TCP or
    /// UDP. `None` if it is not plain, or has to be examined as a whole.
    #[inline]
    pub fn of_plain(direction: FilterDirection, link: u16, ip: &[u8]) -> Option<Key> {
        let h = ip.first_chunk::<PLAIN_LEN>()?;
        let word = |at: usize| u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
        let is_tcp = h[9] == protocol::TCP;
        if h[0] != 0x45 || word(4) & FRAGMENT != 0 || !(is_tcp || h[9] == protocol::UDP) {
            return None;
        }
        let total_len = usize::from(u16::from_be_bytes([h[2], h[3]]));
        let flags = match is_tcp {
            true => *ip.get(FLAGS_AT).filter(|_| total_len > FLAGS_AT)?,
            false if total_len < PLAIN_LEN => return None,
            false => 0,
        };
        let flags = TcpFlags(flags);
        let kind = u64::from(direction == FilterDirection::Out)
            | u64::from(flags.intersects(TcpFlags::ACK | TcpFlags::RST)) << 2
            | u64::from(flags.is_syn() && !flags.is_ack()) << 3;
        let ports = word(20);
        let rest = u64::from(ports >> 16)
            | u64::from(ports & 0xffff) << 17
            | u64::from(h[9]) << 34
            | u64::from(link) << 42
            | kind << 58
            | 1 << 63;
        let address = |at: usize| V4 as u64 | u64::from(word(at));
        Some(Key([address(12), 0, address(16), 0, rest]))
    }

    /// Returns whether the two are equal, without a call of memcmp.
    #[inline]
    fn is(&self, other: &Key) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        pairs.fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
    }

    /// Returns the place of a key. A sender of chosen packets can make flows take each other's
    /// place, and no more.
    #[inline]
    fn place(&self, places: usize) -> usize {
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let [a, b, c, d, e] = self.0;
        let low = (a ^ b.rotate_left(32)).wrapping_add(e);
        let high = (c ^ d.rotate_left(32)) ^ MULTIPLIER;
        let product = u128::from(low) * u128::from(high);
        let mixed = (product as u64 ^ (product >> 64) as u64).wrapping_mul(MULTIPLIER);
        (mixed >> 32) as usize & (places - 1)
    }
}

/// The verdict of a flow's packets, and the rules that count them.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    key: Key,
    rules: [u16; RULES],
    len: u8,
    pub verdict: Verdict,
}

impl Known {
    #[inline]
    pub fn rules(&self) -> &[u16] {
        self.rules.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

/// The rules by which a packet has come, as far as they decide about all packets like it.
#[derive(Debug, Default)]
pub struct MatchedRules {
    rules: [u16; RULES],
    len: usize,
    is_spoilt: bool,
}

impl MatchedRules {
    pub fn add(&mut self, rule: usize) {
        match (self.rules.get_mut(self.len), u16::try_from(rule)) {
            (Some(place), Ok(rule)) => *place = rule,
            _ => self.is_spoilt = true,
        }
        self.len += 1;
    }

    /// Disables caching, because a rule has examined a field that differs between packets of a
    /// flow.
    pub fn spoil(&mut self) {
        self.is_spoilt = true;
    }
}

#[derive(Debug, Default)]
pub struct Cache {
    /// As many as a power of two, or none.
    flows: Vec<Known>,
    /// Flows that took another's place since the cache has grown.
    displaced: usize,
}

impl Cache {
    #[inline]
    pub fn find(&self, key: &Key) -> Option<&Known> {
        let places = self.flows.len();
        if places == 0 {
            return None;
        }
        let known = self.flows.get(key.place(places))?;
        known.key.is(key).then_some(known)
    }

    pub fn keep(&mut self, key: Key, verdict: Verdict, matched: &MatchedRules) {
        if matched.is_spoilt {
            return;
        }
        if self.displaced >= self.flows.len() && self.flows.len() < FLOWS_MAX {
            self.grow();
        }
        let known = Known {
            key,
            rules: matched.rules,
            len: matched.len as u8,
            verdict,
        };
        self.put(known);
    }

    fn put(&mut self, known: Known) {
        let places = self.flows.len();
        if let Some(place) = self.flows.get_mut(known.key.place(places)) {
            self.displaced += usize::from(place.key != Key::NONE);
            *place = known;
        }
    }

    fn grow(&mut self) {
        let places = (self.flows.len() * 2).max(FLOWS_MIN);
        let nobody = Known {
            key: Key::NONE,
            rules: [0; RULES],
            len: 0,
            verdict: Verdict::Pass,
        };
        let before = core::mem::replace(&mut self.flows, alloc::vec![nobody; places]);
        for known in before.into_iter().filter(|known| known.key != Key::NONE) {
            self.put(known);
        }
        self.displaced = 0;
    }
}
