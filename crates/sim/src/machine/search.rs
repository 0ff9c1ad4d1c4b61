//! Segments that an engine does not know: the next engine to try, and the time they wait (as in
//! `slipstack_keeper`'s `strays`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use slipstack_stack::Instant;

/// Time for which it is remembered where a segment was sent.
const SEGMENT_NS: u64 = 150_000_000;
/// Time for which a port counts as changing hands.
const MOVING_NS: u64 = 2_000_000_000;
/// Segments that wait at most.
const HELD_MAX: usize = 4096;
/// The first wait of a segment; each further one is twice as long.
const WAIT_NS: u64 = 500_000;
/// Waits of a segment: a second in all.
const WAITS: u8 = 11;

/// A segment that waits for its connection.
#[derive(Debug)]
pub struct WaitingSegment {
    pub frame: Vec<u8>,
    pub origin: Option<u16>,
    pub waits: u8,
    due: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    began: Instant,
    /// Slots that have refused, a bit for each.
    refused: u128,
}

#[derive(Debug, Default)]
pub struct Search {
    engines: Vec<u16>,
    segments: HashMap<u64, Asked>,
    moving: BTreeMap<u16, Instant>,
    held: VecDeque<WaitingSegment>,
    /// Segments that have waited without success, or found no room to wait.
    pub given_up: u64,
}

impl Search {
    pub fn set_engines(&mut self, slots: Vec<u16>) {
        self.engines = slots;
    }

    pub fn engines(&self) -> &[u16] {
        &self.engines
    }

    /// Returns the slot to try next; `first` is the tables' choice, `origin` the one that has just
    /// refused.
    pub fn next_slot(
        &mut self,
        segment: &[u8],
        (first, origin): (u16, Option<u16>),
        now: Instant,
    ) -> Option<u16> {
        let mut hasher = DefaultHasher::new();
        segment.hash(&mut hasher);
        let key = hasher.finish();
        let is_recent = |asked: &Asked| now.nanos_since(asked.began) < SEGMENT_NS;
        self.segments.retain(|_, asked| is_recent(asked));
        let asked = self.segments.entry(key).or_insert(Asked {
            began: now,
            refused: 0,
        });
        asked.refused |= origin.map_or(0, |slot| 1 << slot);
        let candidates = std::iter::once(first).chain(self.engines.iter().copied());
        let next = candidates
            .filter(|slot| self.engines.contains(slot))
            .find(|slot| asked.refused & 1 << slot == 0);
        if next.is_none() {
            self.segments.remove(&key);
        }
        next
    }

    /// Connections of this port are on their way.
    pub fn note_moving(&mut self, port: u16, now: Instant) {
        self.moving.insert(port, now.plus_nanos(MOVING_NS));
    }

    pub fn is_moving(&self, port: u16, now: Instant) -> bool {
        self.moving.get(&port).is_some_and(|until| now < *until)
    }

    /// Lets a segment wait; `waits` is how often it has.
    pub fn hold(&mut self, frame: Vec<u8>, origin: Option<u16>, waits: u8, now: Instant) {
        if waits >= WAITS || self.held.len() >= HELD_MAX {
            self.given_up += 1;
            return;
        }
        self.held.push_back(WaitingSegment {
            frame,
            origin,
            waits: waits + 1,
            due: now.plus_nanos(WAIT_NS << waits),
        });
    }

    /// Returns segments that have waited long enough, in the order of arrival.
    pub fn take_due(&mut self, now: Instant) -> Vec<WaitingSegment> {
        let all = std::mem::take(&mut self.held);
        let (due, waiting): (Vec<WaitingSegment>, Vec<WaitingSegment>) =
            all.into_iter().partition(|held| held.due <= now);
        self.held = waiting.into();
        due
    }

    pub fn next_due(&self) -> Option<Instant> {
        self.held.iter().map(|held| held.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_asks_the_steered_slot_first_and_each_slot_once() {
        let mut search = Search::default();
        search.set_engines(vec![1, 2, 3]);
        let mut next = |origin, now| search.next_slot(b"a", (2, origin), Instant(now));
        assert_eq!([next(None, 0), next(None, 0)], [Some(2), Some(2)]);
        assert_eq!([next(Some(2), 0), next(Some(1), 0)], [Some(1), Some(3)]);
        assert_eq!([next(Some(3), 0), next(None, 0)], [None, Some(2)]);
        assert_eq!(next(Some(2), 0), Some(1));
        assert_eq!(next(Some(1), SEGMENT_NS), Some(2), "the same again");
    }

    #[test]
    fn held_segments_are_due_at_doubled_intervals_and_given_up_after_a_second() {
        let mut search = Search::default();
        search.hold(vec![1], Some(3), 0, Instant(0));
        let mut now = Instant(0);
        while let Some(due) = search.next_due() {
            now = due;
            for held in search.take_due(now) {
                search.hold(held.frame, held.origin, held.waits, now);
            }
        }
        assert_eq!(search.given_up, 1);
        assert!((900_000_000..1_100_000_000).contains(&now.0), "{now:?}");
    }
}
