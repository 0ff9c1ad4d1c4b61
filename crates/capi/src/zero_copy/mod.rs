//! Buffers that a program fills and hands over, received bytes that it keeps (`ff_zc_…`), and
//! access to the bytes in a connection's rings.
//!
//! The program knows a buffer by an address in a reserved range (`sys.rs`), so that `ff_write` can
//! tell it from a pointer to bytes, and a buffer that was given back from one that is in use. All
//! but short buffers lie in the stack's memory, from which the device gathers frames.

pub mod abi;
mod chain;
mod memory;
pub mod received;
mod sys;

use std::sync::LazyLock;

use slipstack_mem::Lock;

use chain::Chains;

/// All buffers of the process that are not handed over yet.
static CHAINS: LazyLock<Lock<Option<Chains>>> = LazyLock::new(|| Lock::new(None));

/// Runs `work` with the buffers, if their range is to be had.
fn with_chains<T>(work: impl FnOnce(&mut Chains) -> T) -> Option<T> {
    let mut place = CHAINS.lock();
    if place.is_none() {
        *place = Some(Chains::new(sys::range()?));
    }
    place.as_mut().map(work)
}

/// Returns whether an address is that of a buffer, there still or given back.
pub fn is_head(at: usize) -> bool {
    sys::known_range().is_some_and(|range| range.contains(&at))
}

/// Before a fork: a child has none of the stack's memory. To be followed by one of the other two.
pub fn fork_prepare() {
    if let Some(chains) = CHAINS.lock().as_mut() {
        chains.save();
    }
    CHAINS.hold();
}

pub fn fork_parent() {
    if CHAINS.release()
        && let Some(chains) = CHAINS.lock().as_mut()
    {
        chains.forget_saved();
    }
}

pub fn fork_child() {
    if CHAINS.release()
        && let Some(chains) = CHAINS.lock().as_mut()
    {
        chains.become_saved();
    }
}
