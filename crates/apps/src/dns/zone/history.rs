//! Changes between versions of a zone, for incremental transfers (RFC 1995).

use std::collections::HashSet;
use std::sync::Arc;

use super::{Record, RecordRef, Zone};

/// Differences that are kept.
const DIFFERENCES_MAX: usize = 64;
/// Records of differences that are kept, however small the zone.
const RECORDS_MIN: usize = 1000;

/// Records that one version of a zone has and another has not.
#[derive(Debug)]
pub struct Difference {
    from_serial: u32,
    /// The older SOA record, removed records, the newer SOA record, added records.
    records: Vec<Record>,
}

impl Difference {
    /// `None`: one of them has no SOA record.
    fn between(old: &Zone, new: &Zone) -> Option<Difference> {
        let mut records = vec![old.soa_record()?.to_record()];
        let before: HashSet<RecordRef<'_>> = old.records().collect();
        let after: HashSet<RecordRef<'_>> = new.records().collect();
        records.extend(before.difference(&after).map(|record| record.to_record()));
        records.push(new.soa_record()?.to_record());
        records.extend(after.difference(&before).map(|record| record.to_record()));
        Some(Difference {
            from_serial: old.soa.serial,
            records,
        })
    }
}

impl Zone {
    /// Adds the difference to the previous version, `old`, to the history. The history keeps at
    /// most as many records as a large zone has; older differences are dropped whole.
    pub fn follow(&mut self, old: &Zone) {
        if old.soa.serial == self.soa.serial {
            self.history.clone_from(&old.history);
            return;
        }
        let Some(difference) = Difference::between(old, self) else {
            return;
        };
        self.history.clone_from(&old.history);
        self.history.push(Arc::new(difference));
        let mut room = self.records.max(RECORDS_MIN);
        let fits = |difference: &&Arc<Difference>| {
            let len = difference.records.len();
            room.checked_sub(len).is_some_and(|left| {
                room = left;
                true
            })
        };
        let kept = self.history.iter().rev().take(DIFFERENCES_MAX);
        let kept = kept.take_while(fits).count();
        self.history.drain(..self.history.len() - kept);
    }

    /// Returns the difference at which the way from this version to the present one begins.
    pub fn changes_since(&self, serial: u32) -> Option<usize> {
        let mut history = self.history.iter();
        history.position(|difference| difference.from_serial == serial)
    }

    /// Returns the record at a place of the history, and moves the place on.
    pub fn change_at(&self, number: &mut usize, place: &mut usize) -> Option<RecordRef<'_>> {
        loop {
            let difference = self.history.get(*number)?;
            if let Some(record) = difference.records.get(*place) {
                *place += 1;
                return Some(record.as_ref());
            }
            (*number, *place) = (*number + 1, 0);
        }
    }
}
