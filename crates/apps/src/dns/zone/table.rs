//! The names of a zone: found by their hash, and iterated in a stable order.

use std::hash::{BuildHasher, Hasher as _, RandomState};

use hashbrown::HashTable;

use super::Node;
use crate::dns::hash::Hasher;

/// Names with their nodes.
#[derive(Debug)]
pub struct Table {
    entries: Vec<(Box<[u8]>, Node)>,
    places: HashTable<u32>,
    hasher: Hasher,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            entries: Vec::new(),
            places: HashTable::new(),
            hasher: Hasher::new(RandomState::new().build_hasher().finish()),
        }
    }
}

impl Table {
    /// The name as the zone has it, and its node.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<(&[u8], &Node)> {
        let hash = self.hasher.hash(name);
        let is_it = |at: &u32| *self.entries[*at as usize].0 == *name;
        let at = self.places.find(hash, is_it)?;
        self.at(*at as usize)
    }

    #[inline]
    pub fn node(&self, name: &[u8]) -> Option<&Node> {
        self.find(name).map(|(_, node)| node)
    }

    /// The node of a name, which is made if there is none.
    pub fn entry(&mut self, name: &[u8]) -> &mut Node {
        let hash = self.hasher.hash(name);
        let entries = &mut self.entries;
        let found = self
            .places
            .find(hash, |at| *entries[*at as usize].0 == *name);
        let at = match found {
            Some(at) => *at as usize,
            None => {
                let at = entries.len();
                entries.push((name.into(), Node::default()));
                let hasher = self.hasher;
                let hash_at = |at: &u32| hasher.hash(&entries[*at as usize].0);
                self.places.insert_unique(hash, at as u32, hash_at);
                at
            }
        };
        &mut self.entries[at].1
    }

    pub fn node_mut(&mut self, name: &[u8]) -> Option<&mut Node> {
        let hash = self.hasher.hash(name);
        let is_it = |at: &u32| *self.entries[*at as usize].0 == *name;
        let at = *self.places.find(hash, is_it)?;
        Some(&mut self.entries[at as usize].1)
    }

    /// The entry at a place, in the order in which names were added.
    pub fn at(&self, at: usize) -> Option<(&[u8], &Node)> {
        self.entries.get(at).map(|(name, node)| (&**name, node))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Node)> {
        self.entries.iter().map(|(name, node)| (&**name, node))
    }

    pub fn nodes_mut(&mut self) -> impl Iterator<Item = (&[u8], &mut Node)> {
        self.entries.iter_mut().map(|(name, node)| (&**name, node))
    }
}
