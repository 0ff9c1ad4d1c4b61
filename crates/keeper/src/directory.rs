//! Flow directories of the engines, in the terms of the steering tables.

use slipstack_device::{Flow, Transport};
use slipstack_mem::Region;

/// The TCP flows that the engine of a channel region has now. Whatever the region holds, the answer
/// is bounded.
pub fn flows(region: &Region) -> Vec<Flow> {
    let is_tcp = |flow: &Flow| flow.proto == Transport::Tcp;
    all_flows(region).into_iter().filter(is_tcp).collect()
}

/// With those of connected datagram sockets.
pub fn all_flows(region: &Region) -> Vec<Flow> {
    let flow = |entry: slipstack_channel::FlowEntry| Flow {
        proto: if entry.is_udp {
            Transport::Udp
        } else {
            Transport::Tcp
        },
        local: entry.local,
        remote: entry.remote,
    };
    slipstack_channel::flows(region)
        .into_iter()
        .map(flow)
        .collect()
}
