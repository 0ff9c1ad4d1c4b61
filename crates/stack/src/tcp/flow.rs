//! Flow keys, their keyed hash, and the demultiplexer over the three storages.
//!
//! SipHash with a secret per stack prevents hash flooding; values that leave the machine (sequence
//! numbers, ports) use other keys than the tables.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hashbrown::HashTable;
use slipstack_wire::protocol;

use crate::bound;
use crate::fib::Query;
use crate::rng::{Rng, SipKey};

/// Addresses and ports of a connection; IPv4 is kept in its v4-mapped form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowKey {
    local: [u8; 16],
    remote: [u8; 16],
    pub local_port: u16,
    pub remote_port: u16,
}

/// An address in the form in which it is stored.
#[inline(always)]
pub fn pack(ip: IpAddr) -> [u8; 16] {
    bound::bits(ip).to_le_bytes()
}

#[inline]
fn unpack(bytes: [u8; 16]) -> IpAddr {
    let bits = u128::from_be_bytes(bytes);
    if bits >> 32 == 0xffff {
        IpAddr::V4(Ipv4Addr::from_bits(bits as u32))
    } else {
        IpAddr::V6(Ipv6Addr::from_bits(bits))
    }
}

impl FlowKey {
    /// Returns the route query for packets of this flow.
    pub fn query(&self) -> Query {
        Query::between(Some(self.local_ip()), self.remote_ip())
            .carrying(protocol::TCP, (self.local_port, self.remote_port))
    }

    // Where the family is known nothing is left of the choice.
    #[inline(always)]
    pub fn new(local: IpAddr, local_port: u16, remote: IpAddr, remote_port: u16) -> FlowKey {
        FlowKey {
            local: pack(local),
            remote: pack(remote),
            local_port,
            remote_port,
        }
    }

    #[inline]
    pub fn local_ip(&self) -> IpAddr {
        unpack(self.local)
    }

    #[inline]
    pub fn remote_ip(&self) -> IpAddr {
        unpack(self.remote)
    }

    /// The own address as [`bound::bits`] has it.
    #[inline]
    pub fn local_bits(&self) -> u128 {
        u128::from_le_bytes(self.local)
    }

    /// The peer's address likewise.
    #[inline]
    pub fn remote_bits(&self) -> u128 {
        u128::from_le_bytes(self.remote)
    }

    /// A MAC over the two addresses.
    pub fn address_mac(&self, secret: &SipKey) -> u64 {
        let [a, b, _, d, e] = self.words();
        secret.mac_words([a, b, d, e])
    }

    /// A MAC over the two addresses as Linux makes Fast Open cookies of a key
    /// (__tcp_fastopen_cookie_gen_cipher()), so that servers of both kinds can share one.
    pub fn cookie_mac(&self, key: &SipKey) -> u64 {
        let low = |bytes: [u8; 16]| u64::from_le_bytes(bytes[..8].try_into().unwrap_or_default());
        let high = |bytes: [u8; 16]| u64::from_le_bytes(bytes[8..].try_into().unwrap_or_default());
        match (self.remote_ip(), self.local_ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let (from, to) = (from.to_bits().swap_bytes(), to.to_bits().swap_bytes());
                key.mac_words([u64::from(to) << 32 | u64::from(from)])
            }
            (from, to) => {
                let octets = |ip: IpAddr| match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                };
                let (from, to) = (octets(from), octets(to));
                key.mac_words([low(from), high(from), low(to), high(to)])
            }
        }
    }

    /// Returns a MAC over the flow and one more word, for values that leave the machine.
    pub fn mac(&self, secret: &SipKey, word: u64) -> u64 {
        let [a, b, c, d, e] = self.words();
        secret.mac_words([a, b, c, d, e, word])
    }

    /// Own and peer's address of a flow over IPv4.
    #[inline]
    pub fn v4(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let word = |a: &[u8; 16]| Ipv4Addr::new(a[12], a[13], a[14], a[15]);
        // Both are of one family.
        let is_mapped = self.local[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        is_mapped.then(|| (word(&self.local), word(&self.remote)))
    }

    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.local_ip(), self.local_port)
    }

    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.remote_ip(), self.remote_port)
    }

    #[inline]
    pub fn is_v4(&self) -> bool {
        u128::from_be_bytes(self.remote) >> 32 == 0xffff
    }

    #[inline]
    fn words(&self) -> [u64; 5] {
        let (local, remote) = (self.local_bits(), self.remote_bits());
        let ports = u64::from(self.local_port) << 16 | u64::from(self.remote_port);
        [
            (remote >> 64) as u64,
            (local >> 64) as u64,
            ports,
            remote as u64,
            local as u64,
        ]
    }
}

/// The keyed functions of a flow.
#[derive(Clone, Debug)]
pub struct FlowHasher {
    table: SipKey,
    sequence: SipKey,
    port: SipKey,
    spread: SipKey,
}

impl FlowHasher {
    /// `sequence` is the key of [`FlowHasher::sequence`], if others have it too.
    pub fn new(rng: &mut Rng, sequence: Option<[u64; 2]>) -> FlowHasher {
        FlowHasher {
            table: rng.sip_key(),
            sequence: sequence.map_or_else(|| rng.sip_key(), |[k0, k1]| SipKey { k0, k1 }),
            port: rng.sip_key(),
            spread: rng.sip_key(),
        }
    }

    /// For the demultiplexer. Where the family is known nothing is left of the choice.
    #[inline(always)]
    pub fn table(&self, key: &FlowKey) -> u64 {
        let [a, b, c, d, e] = key.words();
        // The upper halves of v4-mapped addresses are zero: two words say everything.
        if d | e == 0 {
            self.table.hash_words([a & !0xffff_ffff | b >> 32, c])
        } else {
            self.table.hash_words([a, b, c, d, e])
        }
    }

    /// For initial sequence numbers and timestamp offsets (RFC 6528 3).
    pub fn sequence(&self, key: &FlowKey) -> u64 {
        let [a, b, c, d, e] = key.words();
        let ports = c as u32;
        if d | e == 0 {
            let addresses = a & !0xffff_ffff | b >> 32;
            self.sequence.mac_words_and_half([addresses], ports)
        } else {
            self.sequence.mac_words_and_half([a, b, d, e], ports)
        }
    }

    /// For the choice of a local port (RFC 6056 3.3.3: the local port does not go in).
    pub fn port(&self, key: &FlowKey) -> u64 {
        let [a, b, c, d, e] = key.words();
        self.port.mac_words([a, b, c & 0xffff, d, e])
    }

    /// For the choice among the listeners of a group.
    pub fn spread(&self, key: &FlowKey) -> u64 {
        self.spread.hash_words(key.words())
    }
}

/// Place of the state of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    Connection(u32),
    Syn(u32),
    TimeWait(u32),
}

const KIND_SHIFT: u32 = 30;
/// Indices need to stay below this in every storage.
pub const INDEX_MAX: u32 = (1 << KIND_SHIFT) - 1;

impl FlowState {
    /// In one word; a connection is its index.
    #[inline]
    pub fn pack(self) -> u32 {
        match self {
            FlowState::Connection(i) => i,
            FlowState::Syn(i) => 1 << KIND_SHIFT | i,
            FlowState::TimeWait(i) => 2 << KIND_SHIFT | i,
        }
    }

    #[inline]
    pub fn unpack(word: u32) -> FlowState {
        let index = word & INDEX_MAX;
        match word >> KIND_SHIFT {
            0 => FlowState::Connection(index),
            1 => FlowState::Syn(index),
            _ => FlowState::TimeWait(index),
        }
    }
}

/// A packed [`FlowState`] with the flow's hash: most other flows are excluded without reading their
/// keys, and a growing table needs no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    place: u32,
    hash: u32,
}

impl Slot {
    #[inline]
    fn new(hash: u64, place: FlowState) -> Slot {
        Slot {
            place: place.pack(),
            hash: hash as u32,
        }
    }

    #[inline]
    fn place(self) -> FlowState {
        FlowState::unpack(self.place)
    }
}

/// The table takes its bucket from the low bits and its tag from the high ones: the kept half is
/// good for both.
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// Flow key → place, eight bytes an entry; the keys are in the storages.
#[derive(Debug, Default)]
pub struct Demux {
    table: HashTable<Slot>,
}

impl Demux {
    /// Bytes of an entry where the table is emptiest, just grown at 7/8 to twice its size: a slot
    /// and a control byte for each 7/16 of an entry.
    pub const ENTRY_BYTES_MAX: usize = ((size_of::<Slot>() + 1) * 16).div_ceil(7);

    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(FlowState) -> bool) -> Option<FlowState> {
        let tag = hash as u32;
        self.table
            .find(spread(tag), |slot| slot.hash == tag && is_it(slot.place()))
            .map(|slot| slot.place())
    }

    pub fn insert(&mut self, hash: u64, place: FlowState) {
        let slot = Slot::new(hash, place);
        self.table
            .insert_unique(spread(slot.hash), slot, |slot| spread(slot.hash));
    }

    pub fn remove(&mut self, hash: u64, place: FlowState) {
        let wanted = Slot::new(hash, place);
        if let Ok(entry) = self
            .table
            .find_entry(spread(wanted.hash), |slot| *slot == wanted)
        {
            entry.remove();
        }
    }

    /// The state of a flow moves to another storage: the entry stays where it is.
    pub fn replace(&mut self, hash: u64, old: FlowState, new: FlowState) {
        let wanted = Slot::new(hash, old);
        if let Some(slot) = self
            .table
            .find_mut(spread(wanted.hash), |slot| *slot == wanted)
        {
            *slot = Slot::new(hash, new);
        }
    }
}
