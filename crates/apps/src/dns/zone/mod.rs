//! Zones: immutable once built, so that they are read without locks.

mod build;
mod cursor;
mod hashed;
mod history;
mod load;
mod ordered;
mod parentheses;
mod set;
mod table;

use std::sync::Arc;

use super::types::{ANY, CNAME, NS, RRSIG, SOA};

pub use build::{ZoneError, soa_numbers};
pub use cursor::Cursor;
pub use hashed::Hashed;
pub use history::Difference;
pub use load::{LoadError, decode_base64, load, load_text, parse_name};
pub use ordered::Ordered;
pub use set::Zones;
use table::Table;

/// One record. The owner is in wire format and lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub owner: Box<[u8]>,
    pub rtype: u16,
    pub ttl: u32,
    pub data: Box<[u8]>,
}

/// A reference to a zone's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordRef<'a> {
    pub owner: &'a [u8],
    pub rtype: u16,
    pub ttl: u32,
    pub data: &'a [u8],
}

impl Record {
    pub fn as_ref(&self) -> RecordRef<'_> {
        RecordRef {
            owner: &self.owner,
            rtype: self.rtype,
            ttl: self.ttl,
            data: &self.data,
        }
    }
}

impl RecordRef<'_> {
    pub fn to_record(self) -> Record {
        Record {
            owner: self.owner.into(),
            rtype: self.rtype,
            ttl: self.ttl,
            data: self.data.into(),
        }
    }
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
    /// Position of the name's record in the zone's chain of hashed names.
    pub hashed_at: Option<u32>,
}

impl Node {
    #[inline]
    pub fn find(&self, rtype: u16) -> Option<&RrSet> {
        self.sets.iter().find(|set| set.rtype == rtype)
    }
}

/// Way in which a signed zone proves that something does not exist.
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
    nodes: Table,
    /// Owners of NSEC3 records, which are names for transfers alone (RFC 5155 7.2.8).
    hashes: Table,
    pub proofs: Proofs,
    pub records: usize,
    /// Changes since earlier versions, the oldest first.
    history: Vec<Arc<Difference>>,
}

impl Zone {
    #[inline]
    pub fn node(&self, name: &[u8]) -> Option<&Node> {
        self.nodes.node(name)
    }

    /// The name as the zone has it, and its node.
    #[inline]
    pub fn entry(&self, name: &[u8]) -> Option<(&[u8], &Node)> {
        self.nodes.find(name)
    }

    pub fn soa_set(&self) -> Option<&RrSet> {
        self.node(&self.apex)?.find(SOA)
    }

    /// Returns whether `name` is where another zone begins.
    pub fn is_cut(&self, name: &[u8], node: &Node) -> bool {
        *name != *self.apex && node.find(NS).is_some()
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

    /// Returns the alias at `node`, unless the question is for the alias itself or for a type that
    /// may be beside it.
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
