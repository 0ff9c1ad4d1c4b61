//! Delayed actions of the keepers, and the ends of engines.

use std::collections::BTreeMap;

use slipstack_stack::Instant;

use crate::machine::Flow;

/// End of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The engine's programs close everything, and the keeper completes the rest.
    Orderly,
    /// The engine's programs close everything, and it is killed before the keeper gets the rest.
    Interrupted,
    /// Without a word.
    Crash,
}

/// A keeper's delayed action.
#[derive(Clone, Copy, Debug)]
pub(super) enum DelayedAction {
    /// The steering follows the directory.
    Steer(Flow),
    /// Notice to the keeper that an engine is gone.
    EngineEnded(usize, Ending),
    Sweep,
}

#[derive(Debug, Default)]
pub(super) struct DelayedActions {
    all: BTreeMap<(Instant, u64), (usize, DelayedAction)>,
    number: u64,
}

impl DelayedActions {
    pub(super) fn add(&mut self, at: Instant, machine: usize, deed: DelayedAction) {
        self.number += 1;
        self.all.insert((at, self.number), (machine, deed));
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.all.keys().next().map(|(at, _)| *at)
    }

    pub(super) fn pop(&mut self, now: Instant) -> Option<(usize, DelayedAction)> {
        self.next_due().filter(|at| *at <= now)?;
        self.all.pop_first().map(|(_, deed)| deed)
    }
}
