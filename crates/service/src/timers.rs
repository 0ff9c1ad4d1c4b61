//! One deadline per connection and one of the service.
//!
//! Most deadlines are moved long before they expire, so moving one is only a store. The heap has
//! about one entry per socket index; an entry that is popped before its deadline is filed again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A place without a deadline, or without an entry in the heap.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Deadline {
    due: u64,
    /// The time of its newest entry in the heap.
    filed: u64,
}

/// Deadlines by index.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    places: Vec<Deadline>,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Timers {
    pub(crate) fn set(&mut self, index: u32, due: u64) {
        let at = index as usize;
        if self.places.len() <= at {
            let empty = Deadline {
                due: NEVER,
                filed: NEVER,
            };
            self.places.resize(at + 1, empty);
        }
        let place = &mut self.places[at];
        place.due = due;
        if due < place.filed {
            place.filed = due;
            self.heap.push(Reverse((due, index)));
        }
    }

    pub(crate) fn clear(&mut self, index: u32) {
        if let Some(place) = self.places.get_mut(index as usize) {
            place.due = NEVER;
        }
    }

    /// Returns an index whose deadline has expired, and clears it.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<u32> {
        while let Some(&Reverse((time, index))) = self.heap.peek() {
            if time > now {
                return None;
            }
            self.heap.pop();
            let place = &mut self.places[index as usize];
            if place.filed != time {
                continue;
            }
            place.filed = NEVER;
            if place.due <= now {
                place.due = NEVER;
                return Some(index);
            }
            if place.due != NEVER {
                place.filed = place.due;
                self.heap.push(Reverse((place.due, index)));
            }
        }
        None
    }

    /// Time at which [`Timers::pop_due`] may find something.
    pub(crate) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((time, _))| *time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_comes_once_and_at_its_time() {
        let mut timers = Timers::default();
        timers.set(3, 100);
        timers.set(5, 50);
        assert_eq!(timers.next(), Some(50));
        assert_eq!(timers.pop_due(49), None);
        assert_eq!(timers.pop_due(120), Some(5));
        assert_eq!(timers.pop_due(120), Some(3));
        assert_eq!((timers.pop_due(u64::MAX - 1), timers.next()), (None, None));
    }

    #[test]
    fn a_deadline_that_is_moved_or_cleared_does_not_come_early() {
        let mut timers = Timers::default();
        for due in 1..1000 {
            timers.set(0, due * 10);
        }
        assert_eq!(timers.heap.len(), 1, "moving it files nothing");
        assert_eq!(timers.pop_due(9_989), None);
        assert_eq!(timers.pop_due(9_990), Some(0));
        timers.set(0, 20_000);
        timers.set(0, 10_000);
        assert_eq!(timers.pop_due(10_000), Some(0));
        timers.set(0, 30_000);
        timers.clear(0);
        assert_eq!(timers.pop_due(40_000), None);
    }
}
