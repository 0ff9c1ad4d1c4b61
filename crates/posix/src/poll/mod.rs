//! poll and select without the process: which of their descriptors are ready.

mod looks;
mod select;
mod sorted;

pub(crate) use looks::{LooksAt, PollLooks};
pub(crate) use select::{wanted, write_back};
pub(crate) use sorted::Sorted;
