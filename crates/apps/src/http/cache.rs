//! Recently found files, bounded in bytes and entries. Each engine has its own: no lock.

use std::collections::{HashMap, VecDeque};

use super::files::{About, Found};

/// Time for which an entry is used before its file is checked again.
const FRESH_NS: u64 = 1_000_000_000;
/// Bytes that an entry costs beside its content.
const OVERHEAD: usize = 256;

struct Entry {
    found: Found,
    checked_at: u64,
    /// Used since it was last passed over.
    is_used: bool,
    /// The head from Content-Type on, ready to be sent.
    head: std::sync::Arc<[u8]>,
}

/// Entries by normalised path.
pub struct Cache {
    entries: HashMap<String, Entry>,
    /// In the order in which they are passed over for room (the clock algorithm).
    ring: VecDeque<String>,
    bytes: usize,
    bytes_max: usize,
}

/// The result of looking up a path.
pub enum Lookup {
    /// With the time at which it is checked again.
    Fresh(Found, std::sync::Arc<[u8]>, u64),
    /// Found a while ago: to be compared with the file.
    Stale(About),
    Absent,
}

fn cost(path: &str, found: &Found) -> usize {
    let content = match found {
        Found::Whole(content) => content.bytes.len(),
        _ => 0,
    };
    OVERHEAD + path.len() + content
}

impl Cache {
    pub fn new(bytes_max: usize) -> Cache {
        Cache {
            entries: HashMap::new(),
            ring: VecDeque::new(),
            bytes: 0,
            bytes_max,
        }
    }

    pub fn find(&mut self, path: &str, now: u64) -> Lookup {
        let Some(entry) = self.entries.get_mut(path) else {
            return Lookup::Absent;
        };
        entry.is_used = true;
        if now.saturating_sub(entry.checked_at) < FRESH_NS {
            let until = entry.checked_at.saturating_add(FRESH_NS);
            return Lookup::Fresh(entry.found.clone(), entry.head.clone(), until);
        }
        match &entry.found {
            Found::Whole(content) => Lookup::Stale(content.about.clone()),
            Found::Long(file) => Lookup::Stale(file.about.clone()),
            _ => Lookup::Absent,
        }
    }

    /// The file is as it was.
    pub fn refresh(&mut self, path: &str, now: u64) -> Option<(Found, std::sync::Arc<[u8]>)> {
        let entry = self.entries.get_mut(path)?;
        entry.checked_at = now;
        Some((entry.found.clone(), entry.head.clone()))
    }

    /// Stores a found file; others are evicted for it.
    pub fn put(&mut self, path: &str, found: Found, head: std::sync::Arc<[u8]>, now: u64) {
        self.remove(path);
        let cost = cost(path, &found);
        if cost > self.bytes_max / 2 {
            return;
        }
        while self.bytes + cost > self.bytes_max {
            if !self.pass_over() {
                return;
            }
        }
        self.bytes += cost;
        let entry = Entry {
            found,
            checked_at: now,
            is_used: false,
            head,
        };
        self.entries.insert(path.to_owned(), entry);
        self.ring.push_back(path.to_owned());
    }

    fn remove(&mut self, path: &str) {
        if let Some(entry) = self.entries.remove(path) {
            self.bytes -= cost(path, &entry.found);
            self.ring.retain(|other| other != path);
        }
    }

    /// Drops the first entry that has not been used since it was last passed over.
    fn pass_over(&mut self) -> bool {
        while let Some(path) = self.ring.pop_front() {
            match self.entries.get_mut(&path) {
                Some(entry) if entry.is_used => {
                    entry.is_used = false;
                    self.ring.push_back(path);
                }
                Some(_) => {
                    if let Some(entry) = self.entries.remove(&path) {
                        self.bytes -= cost(&path, &entry.found);
                    }
                    return true;
                }
                None => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::status::Status;

    fn found() -> Found {
        Found::Refused(Status::NotFound)
    }

    #[test]
    fn recently_used_entries_stay_and_the_cache_is_bounded() {
        let mut cache = Cache::new(10 * (OVERHEAD + 8));
        for number in 0..1000 {
            cache.put(&format!("p{number:03}"), found(), [].into(), 0);
            assert!(
                matches!(cache.find("p000", 0), Lookup::Fresh(..)),
                "{number}"
            );
            assert!(cache.bytes <= cache.bytes_max);
        }
        assert_eq!(cache.entries.len(), cache.ring.len());
        assert!(matches!(cache.find("p500", 0), Lookup::Absent));
        assert!(!matches!(cache.find("p000", FRESH_NS), Lookup::Fresh(..)));
    }
}
