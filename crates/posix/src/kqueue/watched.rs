//! The processes that a kqueue watches.

use std::collections::HashMap;
use std::sync::Arc;

use slipstack_mem::{PrivateFd, Trace};

/// A process with a note.
#[derive(Debug)]
pub(super) struct Watched {
    /// Becomes readable with its end; `None`: it has ended before it could be opened.
    pub(super) end: Option<PrivateFd>,
    /// Trace of an ancestor, if it is a tracked child.
    pub(super) trace: Option<Arc<Trace>>,
}

#[derive(Debug, Default)]
pub(crate) struct Processes {
    pub(super) watched: HashMap<usize, Watched>,
    pub(super) traces: Vec<Arc<Trace>>,
}
