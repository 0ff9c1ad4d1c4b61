//! The names of a zone with NSEC records, in canonical order (RFC 4034 4, 6.1).

use super::table::Table;
use crate::dns::name;
use crate::dns::types::NSEC;

/// The owner of an NSEC record, in the order of the keys.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Owner {
    key: Box<[u8]>,
    name: Box<[u8]>,
}

/// Owners of NSEC records by their canonical keys.
#[derive(Debug)]
pub struct Ordered {
    names: Vec<Owner>,
}

impl Ordered {
    pub(super) fn new(nodes: &Table) -> Ordered {
        let with_nsec = nodes.iter().filter(|(_, node)| node.find(NSEC).is_some());
        let mut names: Vec<Owner> = with_nsec
            .map(|(name, _)| Owner {
                key: name::canonical_key(name).into(),
                name: name.into(),
            })
            .collect();
        names.sort_unstable();
        Ordered { names }
    }

    /// Returns the owner whose record covers `name` (lower case), or is its own.
    pub fn covering(&self, name: &[u8]) -> Option<&[u8]> {
        let key = name::canonical_key(name);
        let after = self.names.partition_point(|owner| *owner.key <= *key);
        let at = after.checked_sub(1).or(self.names.len().checked_sub(1))?;
        Some(&self.names[at].name)
    }
}
