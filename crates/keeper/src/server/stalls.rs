//! Engines whose process does not run: stopped by a signal or a debugger, or frozen with its
//! cgroup.
//!
//! On the kernel one queue serves all listeners of a port, and a process that does not run holds up
//! only its own connections. Here its engine has a share of the port's flows. While frames wait for
//! an engine that does not begin a turn, other engines get new flows, and the SYNs that already
//! wait for it. A process that is ready to run but has no processor is given more time: where
//! processors are short, the other engines lack them too.

use std::collections::HashMap;

/// Time for which frames may wait for an engine that begins no turn. Even a program that computes
/// has one every 20 ms.
const STALL_NS: u64 = 30_000_000;
/// Time limit for an engine whose process is ready to run.
const READY_STALL_NS: u64 = 500_000_000;
/// Interval of checks while frames wait for an engine, and otherwise.
const SUSPECT_NS: u64 = 10_000_000;
const LOOK_NS: u64 = 50_000_000;

/// The keeper's view of the engines that share ports.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    engines: HashMap<u16, Seen>,
    looked_at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    beats: u64,
    /// Time since when frames wait and no turn has begun.
    waits_since: Option<u64>,
    is_stalled: bool,
}

/// An engine as it is now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) slot: u16,
    pub(super) beats: u64,
    pub(super) has_frames: bool,
    /// Whether its process is ready to run; checked only while it is suspected.
    pub(super) is_ready: bool,
}

impl Stalls {
    /// Returns whether no engine is watched.
    pub(super) fn is_empty(&self) -> bool {
        self.engines.is_empty()
    }

    /// Returns the time of the next check.
    pub(super) fn next_look(&self) -> u64 {
        let is_suspect = |seen: &Seen| seen.waits_since.is_some();
        let pause_ns = match self.engines.values().any(is_suspect) {
            true => SUSPECT_NS,
            false => LOOK_NS,
        };
        self.looked_at + pause_ns
    }

    /// Processes the observations; returns the engines that have stopped or run again.
    pub(super) fn learn(&mut self, looks: &[Look], now: u64) -> Vec<(u16, bool)> {
        self.looked_at = now;
        let mut changes = Vec::new();
        self.engines.retain(|slot, seen| {
            let is_there = looks.iter().any(|look| look.slot == *slot);
            if !is_there && seen.is_stalled {
                changes.push((*slot, false));
            }
            is_there
        });
        for look in looks {
            let seen = self.engines.entry(look.slot).or_insert(Seen {
                beats: look.beats,
                waits_since: None,
                is_stalled: false,
            });
            let has_run = seen.beats != look.beats;
            seen.beats = look.beats;
            let since = seen.waits_since.filter(|_| !has_run);
            seen.waits_since = look.has_frames.then(|| since.unwrap_or(now));
            let patience = match look.is_ready {
                true => READY_STALL_NS,
                false => STALL_NS,
            };
            let is_late = |since: u64| now.saturating_sub(since) >= patience;
            let is_stalled = match seen.is_stalled {
                true => !has_run,
                false => seen.waits_since.is_some_and(is_late),
            };
            if is_stalled != seen.is_stalled {
                seen.is_stalled = is_stalled;
                changes.push((look.slot, is_stalled));
            }
        }
        changes
    }

    /// Returns whether frames have waited for an engine since the last check, without a turn.
    pub(super) fn is_suspect(&self, slot: u16, beats: u64) -> bool {
        let seen = self.engines.get(&slot);
        seen.is_some_and(|it| it.waits_since.is_some() && it.beats == beats && !it.is_stalled)
    }

    pub(super) fn is_stalled(&self, slot: u16) -> bool {
        self.engines.get(&slot).is_some_and(|seen| seen.is_stalled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(beats: u64, has_frames: bool) -> [Look; 1] {
        [Look {
            slot: 3,
            beats,
            has_frames,
            is_ready: false,
        }]
    }

    #[test]
    fn an_engine_that_has_no_processor_is_waited_for_longer() {
        let mut stalls = Stalls::default();
        let [ready] = look(7, true).map(|look| Look {
            is_ready: true,
            ..look
        });
        stalls.learn(&look(7, true), 0);
        assert!(stalls.is_suspect(3, 7) && !stalls.is_suspect(3, 8));
        assert_eq!(stalls.learn(&[ready], READY_STALL_NS - 1), []);
        assert_eq!(stalls.learn(&[ready], READY_STALL_NS), [(3, true)]);
    }

    #[test]
    fn an_engine_that_lets_frames_wait_has_stopped_until_it_begins_a_turn() {
        let mut stalls = Stalls::default();
        assert_eq!(stalls.learn(&look(7, true), 0), []);
        assert_eq!(stalls.next_look(), SUSPECT_NS);
        assert_eq!(stalls.learn(&look(7, true), STALL_NS - 1), []);
        assert_eq!(stalls.learn(&look(7, true), STALL_NS), [(3, true)]);
        assert!(stalls.is_stalled(3));
        assert_eq!(stalls.learn(&look(7, false), 2 * STALL_NS), []);
        assert_eq!(stalls.learn(&look(8, true), 3 * STALL_NS), [(3, false)]);
    }

    #[test]
    fn an_engine_without_work_or_with_too_much_has_not_stopped() {
        let mut stalls = Stalls::default();
        for round in 0..10 {
            let now = round * 2 * STALL_NS;
            assert_eq!(stalls.learn(&look(7, false), now), []);
            assert_eq!(stalls.learn(&look(8 + round, true), now + 1), []);
            assert_eq!(stalls.learn(&look(7, false), now + 2), []);
        }
    }

    #[test]
    fn a_stalled_engine_that_is_gone_is_forgotten() {
        let mut stalls = Stalls::default();
        stalls.learn(&look(7, true), 0);
        stalls.learn(&look(7, true), STALL_NS);
        assert_eq!(stalls.learn(&[], STALL_NS + 1), [(3, false)]);
        assert!(!stalls.is_stalled(3));
    }
}
