//! The common state of threads that wait for one engine.

use std::sync::Arc;

use slipstack_channel::{Heuristics, Spin};

use crate::batch::Batch;
use crate::ready::Sleepers;
use crate::spin::Spinner;

/// Sleepers, spinning and batching of one engine.
#[derive(Debug)]
pub(crate) struct Station {
    pub(crate) sleepers: Arc<Sleepers>,
    pub(crate) spin: Spinner,
    pub(crate) batch: Batch,
}

impl Station {
    pub(crate) fn new(spin: Spin, gather_us: u32, rules: Heuristics) -> Station {
        Station {
            sleepers: Arc::default(),
            spin: Spinner::new(spin, gather_us, rules),
            batch: Batch::new(rules),
        }
    }
}
