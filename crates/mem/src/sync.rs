//! The atomics that rings are made of, and how threads sleep. The models of `benches/models` put
//! loom's in their place.

pub use core::hint::spin_loop;
pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
pub use std::thread::{Thread, current, park};

/// Number of looks of a lock's taker before it sleeps; sections are short.
pub const SPINS: u32 = 100;
