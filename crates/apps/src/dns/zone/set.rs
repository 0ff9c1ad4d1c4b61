//! All zones of a server, each with its policy.

use std::collections::HashMap;
use std::sync::Arc;

use super::Zone;
use crate::dns::name;
use crate::dns::policy::Policy;
use crate::dns::tsig::Keys;
use crate::dns::types::DS;

/// A zone. Without contents (they have not come yet, or have expired) questions for it get
/// SERVFAIL.
#[derive(Clone, Debug)]
pub struct Served {
    pub zone: Option<Arc<Zone>>,
    pub policy: Arc<Policy>,
}

/// All zones, by apex, and the keys that peers have.
#[derive(Clone, Debug, Default)]
pub struct Zones {
    zones: HashMap<Box<[u8]>, Served>,
    pub keys: Arc<Keys>,
}

impl Zones {
    /// Adds or replaces a zone.
    pub fn set(&mut self, apex: &[u8], zone: Option<Arc<Zone>>, policy: Arc<Policy>) {
        self.zones.insert(apex.into(), Served { zone, policy });
    }

    /// Replaces the contents of a zone that there is.
    pub fn replace(&mut self, apex: &[u8], zone: Option<Arc<Zone>>) {
        if let Some(served) = self.zones.get_mut(apex) {
            served.zone = zone;
        }
    }

    /// Keeps the zones for which this holds.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&[u8], &Policy) -> bool) {
        self.zones
            .retain(|apex, served| is_kept(apex, &served.policy));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Served)> {
        self.zones.iter().map(|(apex, served)| (&**apex, served))
    }

    /// The zone with this apex.
    pub fn at(&self, apex: &[u8]) -> Option<&Served> {
        self.zones.get(apex)
    }

    /// The zone that has this name (lower case): the one with the longest apex.
    pub fn find(&self, qname: &[u8]) -> Option<&Served> {
        let mut at = Some(qname);
        while let Some(name) = at {
            if let Some(served) = self.zones.get(name) {
                return Some(served);
            }
            at = name::parent(name);
        }
        None
    }

    /// The zone that answers questions of this type for the name: DS records of an apex are in the
    /// zone above it.
    pub fn find_for(&self, qname: &[u8], qtype: u16) -> Option<&Served> {
        let above = name::parent(qname).filter(|_| qtype == DS);
        above
            .and_then(|above| self.find(above))
            .or_else(|| self.find(qname))
    }
}
