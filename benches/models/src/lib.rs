//! The rings of `crates/mem` on loom's atomics: the same sources with other atomic types.

// The rings' own tests need real regions; they run in `crates/mem`.
#![cfg(not(test))]

pub mod futex;
pub mod raw;
pub mod region;
pub mod sync;

#[path = "../../../crates/mem/src/bytering.rs"]
pub mod bytering;
#[path = "../../../crates/mem/src/command_ring.rs"]
pub mod command_ring;
#[path = "../../../crates/mem/src/event_ring.rs"]
pub mod event_ring;
#[path = "../../../crates/mem/src/inbox.rs"]
pub mod inbox;
#[path = "../../../crates/mem/src/lock/mod.rs"]
pub mod lock;
#[path = "../../../crates/mem/src/sleeper.rs"]
pub mod sleeper;
