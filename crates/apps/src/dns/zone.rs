//! Zones: read once from master files, then never changed.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use domain::base::rdata::ComposeRecordData;
use domain::base::{Name, ToName};
use domain::zonefile::inplace::{Entry, Zonefile};

use super::name;

pub const NS: u16 = 2;
pub const CNAME: u16 = 5;
pub const SOA: u16 = 6;
pub const MX: u16 = 15;
pub const SRV: u16 = 33;
pub const DNAME: u16 = 39;
pub const OPT: u16 = 41;
pub const DS: u16 = 43;
pub const A: u16 = 1;
pub const AAAA: u16 = 28;
pub const ANY: u16 = 255;

/// Files that include each other, at most so deep.
const INCLUDES_MAX: usize = 8;

/// Records of one name and type.
#[derive(Debug)]
pub struct RrSet {
    pub rtype: u16,
    pub ttl: u32,
    pub rdata: Vec<Box<[u8]>>,
}

/// All of a name. One without sets exists because of names below it.
#[derive(Debug, Default)]
pub struct Node {
    pub sets: Vec<RrSet>,
}

impl Node {
    pub fn find(&self, rtype: u16) -> Option<&RrSet> {
        self.sets.iter().find(|set| set.rtype == rtype)
    }
}

/// One zone. Names are in wire format and lower case.
#[derive(Debug)]
pub struct Zone {
    pub apex: Vec<u8>,
    pub nodes: HashMap<Vec<u8>, Node>,
}

/// All zones, by apex.
#[derive(Debug, Default)]
pub struct Zones {
    zones: HashMap<Vec<u8>, Zone>,
}

/// Why a zone cannot be served.
#[derive(Debug)]
pub enum LoadError {
    Origin(String),
    Read(PathBuf, std::io::Error),
    /// With line and column.
    Syntax(PathBuf, String),
    OutOfZone(PathBuf, String),
    NoSoa(PathBuf),
    /// Beside a CNAME there is nothing else.
    CnameAndOther(PathBuf, String),
    TooDeep(PathBuf),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Origin(text) => write!(f, "{text} is no domain name"),
            LoadError::Read(path, error) => {
                write!(f, "{} cannot be read: {error}", path.display())
            }
            LoadError::Syntax(path, error) => write!(f, "{}:{error}", path.display()),
            LoadError::OutOfZone(path, name) => {
                write!(f, "{}: {name} is not in the zone", path.display())
            }
            LoadError::NoSoa(path) => write!(f, "{}: the zone has no SOA record", path.display()),
            LoadError::CnameAndOther(path, name) => write!(
                f,
                "{}: {name} has a CNAME and other records beside it",
                path.display()
            ),
            LoadError::TooDeep(path) => {
                write!(f, "{}: files include each other too deeply", path.display())
            }
        }
    }
}

impl std::error::Error for LoadError {}

impl Zones {
    /// Reads a zone from a master file.
    ///
    /// # Errors
    /// The file cannot be read or is no zone; the line and column are named.
    pub fn load(&mut self, origin: &str, path: &Path) -> Result<(), LoadError> {
        let apex: Name<Vec<u8>> =
            Name::from_str(origin).map_err(|_| LoadError::Origin(origin.to_owned()))?;
        let mut zone = Zone {
            apex: name::lower(apex.as_slice()),
            nodes: HashMap::new(),
        };
        zone.read(&apex, path, 0)?;
        zone.check(path)?;
        zone.add_empty();
        self.zones.insert(zone.apex.clone(), zone);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }

    /// The zone that has this name (lower case): the one with the longest apex.
    pub fn find(&self, qname: &[u8]) -> Option<&Zone> {
        let mut at = Some(qname);
        while let Some(name) = at {
            if let Some(zone) = self.zones.get(name) {
                return Some(zone);
            }
            at = name::parent(name);
        }
        None
    }

    /// The zone that has the DS records of this name: the one above its cut.
    pub fn find_parent(&self, qname: &[u8]) -> Option<&Zone> {
        name::parent(qname)
            .and_then(|parent| self.find(parent))
            .or_else(|| self.find(qname))
    }
}

impl Zone {
    fn read(&mut self, origin: &Name<Vec<u8>>, path: &Path, depth: usize) -> Result<(), LoadError> {
        if depth > INCLUDES_MAX {
            return Err(LoadError::TooDeep(path.to_owned()));
        }
        let unreadable = |error| LoadError::Read(path.to_owned(), error);
        let mut file = File::open(path).map_err(unreadable)?;
        let mut entries = Zonefile::load(&mut file).map_err(unreadable)?;
        entries.set_origin(origin.to_bytes());
        loop {
            let syntax =
                |error: &dyn fmt::Display| LoadError::Syntax(path.to_owned(), error.to_string());
            match entries.next_entry().map_err(|error| syntax(&error))? {
                None => return Ok(()),
                Some(Entry::Record(record)) => {
                    let owner: Name<Vec<u8>> = record.owner().to_name();
                    let mut rdata = Vec::new();
                    record
                        .data()
                        .compose_rdata(&mut rdata)
                        .map_err(|_| syntax(&"a record is too long"))?;
                    let ttl = record.ttl().as_secs();
                    self.add(path, &owner, (record.rtype().to_int(), ttl), rdata)?;
                }
                Some(Entry::Include {
                    path: other,
                    origin: of,
                }) => {
                    let folder = path.parent().unwrap_or(Path::new(""));
                    let other = folder.join(&*other);
                    let of = of.map_or_else(|| origin.clone(), |of| of.to_name());
                    self.read(&of, &other, depth + 1)?;
                }
            }
        }
    }

    fn add(
        &mut self,
        path: &Path,
        owner: &Name<Vec<u8>>,
        (rtype, ttl): (u16, u32),
        rdata: Vec<u8>,
    ) -> Result<(), LoadError> {
        let key = name::lower(owner.as_slice());
        if !name::is_within(&key, &self.apex) {
            return Err(LoadError::OutOfZone(path.to_owned(), owner.to_string()));
        }
        let node = self.nodes.entry(key).or_default();
        let rdata = rdata.into_boxed_slice();
        match node.sets.iter_mut().find(|set| set.rtype == rtype) {
            Some(set) if set.rdata.contains(&rdata) => {}
            Some(set) => {
                // RFC 2181 5.2: one set, one TTL; the smallest is on the safe side.
                set.ttl = set.ttl.min(ttl);
                set.rdata.push(rdata);
            }
            None => node.sets.push(RrSet {
                rtype,
                ttl,
                rdata: vec![rdata],
            }),
        }
        let has_other = node.find(CNAME).is_some() && node.sets.len() > 1;
        if has_other {
            return Err(LoadError::CnameAndOther(path.to_owned(), owner.to_string()));
        }
        Ok(())
    }

    fn check(&self, path: &Path) -> Result<(), LoadError> {
        let apex = self.nodes.get(&self.apex);
        match apex.and_then(|apex| apex.find(SOA)) {
            Some(_) => Ok(()),
            None => Err(LoadError::NoSoa(path.to_owned())),
        }
    }

    /// Names that exist because of what is below them.
    fn add_empty(&mut self) {
        let names: Vec<Vec<u8>> = self.nodes.keys().cloned().collect();
        for name in names {
            let mut at = name::parent(&name);
            while let Some(above) = at.filter(|above| above.len() > self.apex.len()) {
                if self.nodes.contains_key(above) {
                    break;
                }
                self.nodes.insert(above.to_vec(), Node::default());
                at = name::parent(above);
            }
        }
    }

    pub fn node(&self, name: &[u8]) -> Option<&Node> {
        self.nodes.get(name)
    }
}
