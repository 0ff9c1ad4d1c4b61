//! Source filters of a group (RFC 3376 3.1, 3.2; RFC 3810 4.1, 4.2).

use alloc::vec::Vec;
use core::net::IpAddr;

/// Sources of one merged filter at most. Beyond it all are taken, and each socket judges for
/// itself.
pub const SOURCES_MAX: usize = 64;

/// The sources that are wanted, or those that are not, in order and without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupFilter {
    pub is_exclude: bool,
    pub sources: Vec<IpAddr>,
}

impl GroupFilter {
    /// No source: no listener.
    pub const NOTHING: Self = Self {
        is_exclude: false,
        sources: Vec::new(),
    };

    /// Every source.
    pub const ALL: Self = Self {
        is_exclude: true,
        sources: Vec::new(),
    };

    pub fn is_nothing(&self) -> bool {
        !self.is_exclude && self.sources.is_empty()
    }

    pub fn allows(&self, source: IpAddr) -> bool {
        self.sources.binary_search(&source).is_ok() != self.is_exclude
    }

    /// Puts a source on the list, or takes it off.
    pub fn set(&mut self, source: IpAddr, is_listed: bool) {
        match (self.sources.binary_search(&source), is_listed) {
            (Err(at), true) => self.sources.insert(at, source),
            (Ok(at), false) => {
                self.sources.remove(at);
            }
            _ => {}
        }
    }

    /// Returns a filter that satisfies all filters.
    pub fn merge<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let (excluding, including): (Vec<_>, Vec<_>) = all.partition(|filter| filter.is_exclude);
        let is_included = |source: &IpAddr| {
            let mut all = including.iter();
            all.any(|filter| filter.sources.binary_search(source).is_ok())
        };
        let merged = match excluding.split_first() {
            Some((first, others)) => {
                let is_unwanted = |source: &&IpAddr| {
                    let mut all = others.iter();
                    all.all(|filter| !filter.allows(**source)) && !is_included(source)
                };
                let unwanted = first.sources.iter().filter(is_unwanted);
                Self {
                    is_exclude: true,
                    sources: unwanted.copied().collect(),
                }
            }
            None => {
                let mut wanted: Vec<IpAddr> = including
                    .iter()
                    .flat_map(|filter| filter.sources.iter().copied())
                    .collect();
                wanted.sort_unstable();
                wanted.dedup();
                Self {
                    is_exclude: false,
                    sources: wanted,
                }
            }
        };
        if merged.sources.len() > SOURCES_MAX {
            return Self::ALL;
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> GroupFilter {
        let (mode, sources) = text.split_at(2);
        GroupFilter {
            is_exclude: mode == "EX",
            sources: sources
                .bytes()
                .map(|n| IpAddr::from([10, 0, 0, n]))
                .collect(),
        }
    }

    #[test]
    fn filters_merge_as_in_rfc_3376() {
        // RFC 3376 3.2, RFC 3810 4.2.
        let table: [(&[&str], &str); 7] = [
            (&[], "IN"),
            (&["INab", "INbc"], "INabc"),
            (&["EX"], "EX"),
            (&["EXab", "EXbc"], "EXb"),
            (&["EXabc", "INb"], "EXac"),
            (&["INa", "EX"], "EX"),
            // The example of section 3.2.
            (&["EXabcd", "EXbcde", "INdef"], "EXbc"),
        ];
        for (all, want) in table {
            let all: Vec<_> = all.iter().map(|text| filter(text)).collect();
            assert_eq!(GroupFilter::merge(all.iter()), filter(want), "{want}");
        }
    }

    #[test]
    fn more_sources_than_the_limit_become_all_sources() {
        let mut many = GroupFilter::NOTHING;
        for n in 0..=SOURCES_MAX {
            many.set([10, 0, 1, n as u8].into(), true);
        }
        assert_eq!(GroupFilter::merge([&many].into_iter()), GroupFilter::ALL);
    }

    #[test]
    fn a_source_is_allowed_by_its_mode() {
        // RFC 3376 3.1, RFC 3810 4.1.
        let a = IpAddr::from([10, 0, 0, b'a']);
        assert!(filter("INa").allows(a) && !filter("INb").allows(a));
        assert!(filter("EXb").allows(a) && !filter("EXa").allows(a));
        assert!(!GroupFilter::NOTHING.allows(a) && GroupFilter::ALL.allows(a));
    }
}
