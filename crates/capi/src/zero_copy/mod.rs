//! Buffers that a program fills and hands over (`ff_zc_mbuf_*`), and bytes where they lie in a
//! connection's rings.
//!
//! A buffer is known to the program by an address in a range that holds nothing (`sys.rs`), so that
//! `ff_write` can tell it from bytes whatever it points to, and one that was given back from one
//! that is still there.

pub mod abi;
mod chain;
mod sys;

use std::sync::Mutex;

use chain::Chains;

/// All buffers of the process that are not handed over yet.
static CHAINS: Mutex<Option<Chains>> = Mutex::new(None);

/// Runs `work` with the buffers, if their range is to be had.
fn with_chains<T>(work: impl FnOnce(&mut Chains) -> T) -> Option<T> {
    let mut place = CHAINS.lock().ok()?;
    if place.is_none() {
        *place = Some(Chains::new(sys::range()?));
    }
    place.as_mut().map(work)
}

/// Whether an address is that of a buffer, there still or given back.
pub fn is_head(at: usize) -> bool {
    sys::known_range().is_some_and(|range| range.contains(&at))
}
