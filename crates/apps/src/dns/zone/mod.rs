//! Zones: made once, then never changed, so that they are read without locks.

mod build;
mod hashed;
mod load;
mod ordered;

use std::collections::HashMap;
use std::sync::Arc;

use super::name;
use super::types::{ANY, CNAME, DS, NS, RRSIG, SOA};

pub use build::{ZoneError, soa_numbers};
pub use hashed::Hashed;
pub use load::{LoadError, load, parse_name};
pub use ordered::Ordered;

/// One record. The owner is in wire format and lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub owner: Box<[u8]>,
    pub rtype: u16,
    pub ttl: u32,
    pub data: Box<[u8]>,
}

/// A record of a zone, where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordRef<'a> {
    pub owner: &'a [u8],
    pub rtype: u16,
    pub ttl: u32,
    pub data: &'a [u8],
}

/// Records of one name and type, with their signatures.
#[derive(Clone, Debug)]
pub struct RrSet {
    pub rtype: u16,
    pub ttl: u32,
    pub rdata: Vec<Box<[u8]>>,
    pub sigs: Vec<Box<[u8]>>,
}

/// All of a name. One without sets exists because of names below it.
#[derive(Debug, Default)]
pub struct Node {
    pub sets: Vec<RrSet>,
    /// Where the name's record is in the zone's chain of hashed names.
    pub hashed_at: Option<u32>,
}

impl Node {
    #[inline]
    pub fn find(&self, rtype: u16) -> Option<&RrSet> {
        self.sets.iter().find(|set| set.rtype == rtype)
    }
}

/// How a signed zone proves that something does not exist.
#[derive(Debug)]
pub enum Proofs {
    Unsigned,
    Ordered(Ordered),
    Hashed(Hashed),
}

/// The numbers of a zone's SOA record (RFC 1035 3.3.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Soa {
    pub serial: u32,
    pub refresh: u32,
    pub retry: u32,
    pub expire: u32,
    pub minimum: u32,
}

/// One zone. Names are in wire format and lower case.
#[derive(Debug)]
pub struct Zone {
    pub apex: Box<[u8]>,
    pub soa: Soa,
    nodes: HashMap<Box<[u8]>, Node>,
    /// Owners of NSEC3 records, which are names for transfers alone (RFC 5155 7.2.8).
    hashes: HashMap<Box<[u8]>, Node>,
    pub proofs: Proofs,
    pub records: usize,
}

/// All zones, by apex. `None`: there is a zone, but its contents are not known (yet).
#[derive(Clone, Debug, Default)]
pub struct Zones {
    zones: HashMap<Box<[u8]>, Option<Arc<Zone>>>,
}

impl Zones {
    pub fn insert(&mut self, zone: Arc<Zone>) {
        self.zones.insert(zone.apex.clone(), Some(zone));
    }

    /// A zone whose contents are not known: questions for it get SERVFAIL.
    pub fn insert_unknown(&mut self, apex: Box<[u8]>) {
        self.zones.insert(apex, None);
    }

    pub fn remove(&mut self, apex: &[u8]) {
        self.zones.remove(apex);
    }

    pub fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }

    pub fn contains(&self, apex: &[u8]) -> bool {
        self.zones.contains_key(apex)
    }

    /// The zone with this apex, if its contents are known.
    pub fn at(&self, apex: &[u8]) -> Option<&Arc<Zone>> {
        self.zones.get(apex).and_then(Option::as_ref)
    }

    /// The zone that has this name (lower case): the one with the longest apex. `Some(None)`: its
    /// contents are not known.
    pub fn find(&self, qname: &[u8]) -> Option<Option<&Zone>> {
        let mut at = Some(qname);
        while let Some(name) = at {
            if let Some(zone) = self.zones.get(name) {
                return Some(zone.as_deref());
            }
            at = name::parent(name);
        }
        None
    }

    /// The zone that answers questions of this type for the name: DS records of an apex are in the
    /// zone above it.
    pub fn find_for(&self, qname: &[u8], qtype: u16) -> Option<Option<&Zone>> {
        let above = name::parent(qname).filter(|_| qtype == DS);
        above
            .and_then(|above| self.find(above))
            .or_else(|| self.find(qname))
    }
}

impl Zone {
    #[inline]
    pub fn node(&self, name: &[u8]) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// The name as the zone has it, and its node.
    #[inline]
    pub fn entry(&self, name: &[u8]) -> Option<(&[u8], &Node)> {
        let (own, node) = self.nodes.get_key_value(name)?;
        Some((own, node))
    }

    pub fn soa_set(&self) -> Option<&RrSet> {
        self.node(&self.apex)?.find(SOA)
    }

    /// Whether `name` is where another zone begins.
    pub fn is_cut(&self, name: &[u8], node: &Node) -> bool {
        *name != *self.apex && node.find(NS).is_some()
    }

    /// All records but the SOA record, signatures included.
    pub fn records(&self) -> impl Iterator<Item = RecordRef<'_>> {
        let nodes = self.nodes.iter().chain(&self.hashes);
        let sets = nodes.flat_map(|(owner, node)| node.sets.iter().map(move |set| (owner, set)));
        sets.flat_map(|(owner, set)| {
            let record = move |rtype, data| RecordRef {
                owner,
                rtype,
                ttl: set.ttl,
                data,
            };
            let own = set.rdata.iter().filter(|_| set.rtype != SOA);
            let own = own.map(move |data| record(set.rtype, data));
            own.chain(set.sigs.iter().map(move |sig| record(RRSIG, sig)))
        })
    }

    /// The SOA record.
    pub fn soa_record(&self) -> Option<RecordRef<'_>> {
        let set = self.soa_set()?;
        Some(RecordRef {
            owner: &self.apex,
            rtype: SOA,
            ttl: set.ttl,
            data: &set.rdata[0],
        })
    }

    /// The alias at `node`, unless the question is for the alias itself or for what may be beside
    /// it.
    pub fn alias(node: &Node, qtype: u16) -> Option<&RrSet> {
        let alias = node.find(CNAME)?;
        let is_answered = match qtype {
            CNAME | ANY => true,
            RRSIG => !alias.sigs.is_empty(),
            qtype => node.find(qtype).is_some(),
        };
        (!is_answered).then_some(alias)
    }
}
