//! The latest published revision of the network, and the sysctls of the keeper's own stack.

use slipstack_stack::{Stack, Tunable};

/// Revisions that have been passed on.
#[derive(Default)]
pub(super) struct Announced {
    pub(super) revision: u32,
    pub(super) heard: u64,
    /// Slots of engines that have not been notified yet.
    pub(super) left: Vec<u16>,
    /// Slots of engines that have to fetch the BPF programs of a port.
    pub(super) choosers: Vec<(u16, u16)>,
    pub(super) again_at: u64,
}

/// Sets the numbers of the own stack.
pub(super) fn tune(stack: &mut Stack, numbers: &[(String, u32)]) {
    for (name, number) in numbers {
        if let Some(tunable) = Tunable::find(name) {
            stack.tune(tunable, *number);
        }
    }
}
