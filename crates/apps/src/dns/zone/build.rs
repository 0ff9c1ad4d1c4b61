//! Builds a zone from its records, which come from a master file or a transfer.

use std::fmt;

use super::hashed::Hashed;
use super::ordered::Ordered;
use super::table::Table;
use super::{Proofs, Record, RrSet, Soa, Zone};
use crate::dns::message::{u16_at, u32_at};
use crate::dns::name;
use crate::dns::types::{CNAME, DNAME, KEY, NSEC, NSEC3, NSEC3PARAM, RRSIG, SOA};

/// Reason why records make no zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneError {
    OutOfZone(Vec<u8>),
    NoSoa,
    SeveralSoa,
    /// An SOA record elsewhere than at the apex.
    StraySoa(Vec<u8>),
    BadSoa,
    /// Beside a CNAME there is nothing else.
    CnameAndOther(Vec<u8>),
    SeveralAliases(Vec<u8>),
}

impl fmt::Display for ZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ZoneError::OutOfZone(owner) => write!(f, "{} is not in the zone", name::text(owner)),
            ZoneError::NoSoa => write!(f, "the zone has no SOA record"),
            ZoneError::SeveralSoa => write!(f, "the zone has several SOA records"),
            ZoneError::StraySoa(owner) => {
                write!(
                    f,
                    "{} has an SOA record and is not the apex",
                    name::text(owner)
                )
            }
            ZoneError::BadSoa => write!(f, "the zone's SOA record is malformed"),
            ZoneError::CnameAndOther(owner) => write!(
                f,
                "{} has a CNAME and other records beside it",
                name::text(owner)
            ),
            ZoneError::SeveralAliases(owner) => {
                write!(
                    f,
                    "{} has several CNAME or DNAME records",
                    name::text(owner)
                )
            }
        }
    }
}

impl std::error::Error for ZoneError {}

/// Reads the numbers of an SOA record's data.
pub fn soa_numbers(data: &[u8]) -> Option<Soa> {
    let first = name::len_of(data)?;
    let at = first + name::len_of(data.get(first..)?)?;
    let number = |index: usize| u32_at(data, at + 4 * index);
    Some(Soa {
        serial: number(0)?,
        refresh: number(1)?,
        retry: number(2)?,
        expire: number(3)?,
        minimum: number(4)?,
    })
}

impl Zone {
    /// Makes a zone of its records.
    ///
    /// # Errors
    /// The records break a rule that answers depend on.
    pub fn build(
        apex: &[u8],
        records: impl IntoIterator<Item = Record>,
    ) -> Result<Zone, ZoneError> {
        let mut maker = Maker::default();
        for record in records {
            if !name::is_within(&record.owner, apex) {
                return Err(ZoneError::OutOfZone(record.owner.into()));
            }
            maker.add(record);
        }
        maker.finish(apex)
    }
}

#[derive(Default)]
struct Maker {
    nodes: Table,
    hashes: Table,
    /// Signatures, until all sets are known.
    sigs: Vec<Record>,
    records: usize,
}

impl Maker {
    fn add(&mut self, record: Record) {
        self.records += 1;
        match record.rtype {
            RRSIG => self.sigs.push(record),
            NSEC3 => add_to(&mut self.hashes, record),
            _ => add_to(&mut self.nodes, record),
        }
    }

    fn finish(mut self, apex: &[u8]) -> Result<Zone, ZoneError> {
        self.attach_signatures();
        let soa = self.check(apex)?;
        self.add_empty(apex);
        let mut zone = Zone {
            apex: apex.into(),
            soa,
            nodes: self.nodes,
            hashes: self.hashes,
            proofs: Proofs::Unsigned,
            records: self.records,
            history: Vec::new(),
        };
        zone.proofs = proofs(&zone);
        if let Proofs::Hashed(chain) = &zone.proofs {
            for (name, node) in zone.nodes.nodes_mut() {
                node.hashed_at = chain.find(name);
            }
        }
        Ok(zone)
    }

    /// Puts signatures to their sets; one of a set that does not exist is left out.
    fn attach_signatures(&mut self) {
        for sig in self.sigs.drain(..) {
            let covered = u16_at(&sig.data, 0);
            let nodes = match covered {
                Some(NSEC3) => &mut self.hashes,
                _ => &mut self.nodes,
            };
            let node = nodes.node_mut(&sig.owner);
            let set = node.and_then(|node| {
                let mut sets = node.sets.iter_mut();
                sets.find(|set| Some(set.rtype) == covered)
            });
            if let Some(set) = set
                && !set.sigs.contains(&sig.data)
            {
                set.sigs.push(sig.data);
            }
        }
    }

    fn check(&self, apex: &[u8]) -> Result<Soa, ZoneError> {
        for (owner, node) in self.nodes.iter() {
            let owner = || owner.to_vec();
            let is_beside = |set: &RrSet| !matches!(set.rtype, CNAME | NSEC | KEY);
            if node.find(CNAME).is_some() && node.sets.iter().any(is_beside) {
                return Err(ZoneError::CnameAndOther(owner()));
            }
            let is_alias = |set: &&RrSet| matches!(set.rtype, CNAME | DNAME);
            let mut aliases = node.sets.iter().filter(is_alias);
            if aliases.any(|set| set.rdata.len() > 1) {
                return Err(ZoneError::SeveralAliases(owner()));
            }
            if node.find(SOA).is_some() && owner() != apex {
                return Err(ZoneError::StraySoa(owner()));
            }
        }
        let soa = self.nodes.node(apex).and_then(|node| node.find(SOA));
        let soa = soa.ok_or(ZoneError::NoSoa)?;
        if soa.rdata.len() > 1 {
            return Err(ZoneError::SeveralSoa);
        }
        soa_numbers(&soa.rdata[0]).ok_or(ZoneError::BadSoa)
    }

    /// Adds empty non-terminals.
    fn add_empty(&mut self, apex: &[u8]) {
        let mut missing: Vec<Box<[u8]>> = Vec::new();
        for (name, _) in self.nodes.iter() {
            let mut at = name::parent(name);
            while let Some(above) = at.filter(|above| above.len() > apex.len()) {
                if self.nodes.node(above).is_some() {
                    break;
                }
                missing.push(above.into());
                at = name::parent(above);
            }
        }
        for name in missing {
            self.nodes.entry(&name);
        }
    }
}

fn add_to(nodes: &mut Table, record: Record) {
    let Record {
        owner,
        rtype,
        ttl,
        data,
    } = record;
    let node = nodes.entry(&owner);
    match node.sets.iter_mut().find(|set| set.rtype == rtype) {
        Some(set) if set.rdata.contains(&data) => {}
        Some(set) => {
            // RFC 2181 5.2: one set, one TTL; the smallest is on the safe side.
            set.ttl = set.ttl.min(ttl);
            set.rdata.push(data);
        }
        None => node.sets.push(RrSet {
            rtype,
            ttl,
            rdata: vec![data],
            sigs: Vec::new(),
        }),
    }
}

/// Determines the zone's proofs of non-existence.
fn proofs(zone: &Zone) -> Proofs {
    let Some(apex) = zone.node(&zone.apex) else {
        return Proofs::Unsigned;
    };
    if apex.find(NSEC).is_some() {
        return Proofs::Ordered(Ordered::new(&zone.nodes));
    }
    let params = apex.find(NSEC3PARAM);
    params
        .and_then(|params| Hashed::new(&params.rdata, &zone.hashes))
        .map_or(Proofs::Unsigned, Proofs::Hashed)
}
