//! Loom's atomics and threads under the names by which the rings use them.

pub use loom::hint::spin_loop;
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
pub use loom::thread::{Thread, current, park};

/// One look is enough: loom tries every order.
pub const SPINS: u32 = 1;
