//! The station: common state of the threads that wait for one engine.

use std::sync::Arc;

use slipstack_channel::{Heuristics, Spin};

use crate::ready::Sleepers;
use crate::ready::Spinner;
use crate::ready::answers::Answers;
use crate::ready::batch::Batch;

/// Sleepers, spinning and batching of one engine.
#[derive(Debug)]
pub(crate) struct Station {
    /// Tells it from others of the process.
    pub(crate) number: usize,
    pub(crate) sleepers: Arc<Sleepers>,
    pub(crate) spin: Spinner,
    pub(crate) batch: Batch,
    pub(crate) answers: Answers,
}

impl Station {
    /// Makes the station of the first engine; `number` identifies others.
    pub(crate) fn new(spin: Spin, gather_us: u32, rules: Heuristics) -> Station {
        Station {
            number: 0,
            sleepers: Arc::default(),
            spin: Spinner::new(spin, gather_us, rules),
            batch: Batch::new(rules),
            answers: Answers::default(),
        }
    }

    pub(crate) fn numbered(self, number: usize) -> Station {
        Station { number, ..self }
    }
}
