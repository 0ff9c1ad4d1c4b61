//! The length of a nap: as long as possible without losing frames.
//!
//! A longer nap saves more wake-ups. Where requests arrive independently it costs only latency; a
//! peer that sends its next request only after the answer is slowed down, and then a long nap
//! brings no more frames than a short one. The rate of frames shows which case it is: after some
//! naps another length is tried, twice or half of the present one, or none after the shortest, and
//! kept if frames then arrive at about the same rate or faster. After a trial that failed the other
//! direction is next, and later for each failure in a row. (Network cards moderate their interrupts
//! alike, Linux: lib/dim.)

/// The shortest nap.
const SHORTEST_NS: u64 = 25_000;
/// Naps of one length over which frames are counted.
const NAPS: u32 = 64;
/// Counts between trials, after one failure and after many.
const PATIENCE: u32 = 2;
const PATIENCE_MAX: u32 = 64;

/// A length that is being tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trial {
    /// The previous length, and its frames per second.
    instead_of_ns: u64,
    rate_before: u64,
}

#[derive(Debug)]
pub(super) struct Length {
    /// 0: a sleep ends with the first frame.
    ns: u64,
    trial: Option<Trial>,
    /// Whether the next trial is a longer one.
    is_longer_next: bool,
    /// Counts until then.
    wait: u32,
    patience: u32,
    /// Begin of the current count.
    since_ns: u64,
    naps: u32,
    frames: u64,
}

impl Length {
    pub(super) const NEW: Length = Length {
        ns: SHORTEST_NS,
        trial: None,
        is_longer_next: true,
        wait: 0,
        patience: PATIENCE,
        since_ns: 0,
        naps: 0,
        frames: 0,
    };

    /// Notes frames that have come, in naps or between them.
    #[inline]
    pub(super) fn on_frames(&mut self, frames: usize) {
        self.frames += frames as u64;
    }

    pub(super) fn is_none(&self) -> bool {
        self.ns == 0
    }

    /// A nap begins: how long it is, `max_ns` at most; 0 = it shall be none.
    pub(super) fn next_ns(&mut self, now_ns: u64, max_ns: u64) -> u64 {
        if self.naps == NAPS {
            let elapsed = now_ns.saturating_sub(self.since_ns).max(1);
            let rate = self.frames.saturating_mul(1_000_000_000) / elapsed;
            self.judge(rate, max_ns);
            self.naps = 0;
        }
        if self.naps == 0 {
            (self.since_ns, self.frames) = (now_ns, 0);
        }
        self.naps += 1;
        self.ns.min(max_ns)
    }

    fn judge(&mut self, rate: u64, max_ns: u64) {
        if let Some(trial) = self.trial.take() {
            if self.is_better_than(trial, rate) {
                self.patience = PATIENCE;
            } else {
                self.ns = trial.instead_of_ns;
                self.is_longer_next = !self.is_longer_next;
                self.wait = self.patience;
                self.patience = (self.patience * 2).min(PATIENCE_MAX);
            }
        }
        if self.wait > 0 {
            self.wait -= 1;
            return;
        }
        self.ns = self.ns.min(max_ns);
        // There is but one way to go from either end.
        self.is_longer_next = match self.ns {
            0 => true,
            ns => self.is_longer_next && ns < max_ns,
        };
        let next = match self.is_longer_next {
            true => (self.ns * 2).clamp(SHORTEST_NS.min(max_ns), max_ns),
            false if self.ns <= SHORTEST_NS => 0,
            false => self.ns / 2,
        };
        self.trial = Some(Trial {
            instead_of_ns: self.ns,
            rate_before: rate,
        });
        self.ns = next;
    }

    /// Returns whether a trial is better: a longer nap may cost an eighth of the frames, a shorter
    /// one has to gain as many.
    fn is_better_than(&self, before: Trial, rate: u64) -> bool {
        match self.ns > before.instead_of_ns {
            true => rate.saturating_mul(8) >= before.rate_before.saturating_mul(7),
            false => rate.saturating_mul(7) >= before.rate_before.saturating_mul(8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_NS: u64 = 100_000;
    /// Nanoseconds that a nap's turn, its answers and waking up take.
    const WORK_NS: u64 = 20_000;

    /// Share of naps of each length, shortest first; `frames` is the number of frames of a nap of
    /// some length.
    fn naps(it: &mut Length, count: u32, frames: impl Fn(u64) -> usize) -> Vec<(u64, u32)> {
        let mut seen: Vec<(u64, u32)> = Vec::new();
        let mut now = it.since_ns + WORK_NS;
        for _ in 0..count {
            let ns = it.next_ns(now, MAX_NS);
            now += ns + WORK_NS;
            it.on_frames(frames(ns + WORK_NS));
            match seen.iter_mut().find(|(length, _)| *length == ns) {
                Some((_, naps)) => *naps += 1,
                None => seen.push((ns, 1)),
            }
        }
        seen.sort_unstable();
        seen
    }

    fn most_common(seen: &[(u64, u32)]) -> u64 {
        seen.iter().max_by_key(|(_, count)| *count).unwrap().0
    }

    #[test]
    fn naps_become_as_long_as_allowed_when_requests_arrive_independently() {
        let mut it = Length::NEW;
        let seen = naps(&mut it, 64 * 200, |ns| (ns / 12_000) as usize);
        assert_eq!(most_common(&seen), MAX_NS, "{seen:?}");
        let shorter: u32 = seen
            .iter()
            .filter(|(ns, _)| *ns < MAX_NS)
            .map(|(_, n)| n)
            .sum();
        assert!(shorter < 64 * 20, "{seen:?}");
    }

    #[test]
    fn naps_end_when_each_peer_waits_for_its_answer_before_it_sends() {
        let mut it = Length::NEW;
        let seen = naps(&mut it, 64 * 200, |_| 2);
        assert_eq!(most_common(&seen), 0, "{seen:?}");
        let others: u32 = seen.iter().filter(|(ns, _)| *ns > 0).map(|(_, n)| n).sum();
        assert!(others < 64 * 16, "{seen:?}");
    }

    #[test]
    fn naps_end_when_peers_begin_to_wait_for_answers() {
        let mut it = Length::NEW;
        naps(&mut it, 64 * 100, |ns| (ns / 12_000) as usize);
        let seen = naps(&mut it, 64 * 400, |_| 2);
        assert_eq!(most_common(&seen), 0, "{seen:?}");
    }

    #[test]
    fn a_limit_holds_for_every_nap() {
        let mut it = Length::NEW;
        for now in 0..1000 {
            assert!(it.next_ns(now * 40_000, 10_000) <= 10_000);
            it.on_frames(3);
        }
    }
}
