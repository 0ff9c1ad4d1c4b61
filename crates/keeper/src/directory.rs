//! Flow directories of the engines, in the terms of the steering tables.

use slipstack_device::{Flow, Proto};
use slipstack_mem::Region;

/// The TCP flows that the engine of a channel region has now. Whatever the region holds, the answer
/// is bounded.
pub fn flows(region: &Region) -> Vec<Flow> {
    slipstack_channel::flows(region)
        .into_iter()
        .filter(|entry| !entry.is_udp)
        .map(|entry| Flow {
            proto: Proto::Tcp,
            local: entry.local,
            remote: entry.remote,
        })
        .collect()
}
