//! Loom's atomics under the names by which the rings use them.

pub use loom::hint::spin_loop;
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// One look is enough: loom tries every order.
pub const SPINS: u32 = 1;
