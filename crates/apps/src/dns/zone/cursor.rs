//! Iteration over the records of a zone, from a position that can be stored.

use super::{Node, RecordRef, Zone};
use crate::dns::types::{RRSIG, SOA};

/// A place among the records of a zone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    table: usize,
    name: usize,
    set: usize,
    item: usize,
}

impl Zone {
    /// Returns the record at a place, and moves the place on. The SOA record is left out.
    pub fn record_at(&self, cursor: &mut Cursor) -> Option<RecordRef<'_>> {
        loop {
            let table = match cursor.table {
                0 => &self.nodes,
                1 => &self.hashes,
                _ => return None,
            };
            let Some((owner, node)) = table.at(cursor.name) else {
                *cursor = Cursor {
                    table: cursor.table + 1,
                    ..Cursor::default()
                };
                continue;
            };
            match record_of(owner, node, cursor) {
                Some(record) => return Some(record),
                None => (cursor.name, cursor.set, cursor.item) = (cursor.name + 1, 0, 0),
            }
        }
    }

    /// All records but the SOA record, signatures included.
    pub fn records(&self) -> impl Iterator<Item = RecordRef<'_>> {
        let mut cursor = Cursor::default();
        std::iter::from_fn(move || self.record_at(&mut cursor))
    }
}

fn record_of<'a>(owner: &'a [u8], node: &'a Node, cursor: &mut Cursor) -> Option<RecordRef<'a>> {
    loop {
        let set = node.sets.get(cursor.set)?;
        let own: &[Box<[u8]>] = if set.rtype == SOA { &[] } else { &set.rdata };
        let item = cursor.item;
        let found = match own.get(item) {
            Some(data) => Some((set.rtype, data)),
            None => set.sigs.get(item - own.len()).map(|sig| (RRSIG, sig)),
        };
        match found {
            Some((rtype, data)) => {
                cursor.item += 1;
                return Some(RecordRef {
                    owner,
                    rtype,
                    ttl: set.ttl,
                    data,
                });
            }
            None => (cursor.set, cursor.item) = (cursor.set + 1, 0),
        }
    }
}
