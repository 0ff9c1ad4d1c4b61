//! poll and select without the process: which of their descriptors are ready.

mod select;
mod sorted;

pub(crate) use select::{wanted, write_back};
pub(crate) use sorted::Sorted;
