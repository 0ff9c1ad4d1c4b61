//! Conversion of the engines' flow directories to keys of the steering table.

use slipstack_channel::FlowEntry;
use slipstack_device::{Flow, Transport};
use slipstack_mem::Region;

/// Returns the TCP flows in the directory of a channel region. Whatever the region holds, the
/// number is bounded.
pub fn flows(region: &Region) -> Vec<Flow> {
    let is_tcp = |flow: &Flow| flow.proto == Transport::Tcp;
    all_flows(region).into_iter().filter(is_tcp).collect()
}

/// All flows of an engine, those of connected datagram sockets included, but for those that are
/// leaving it.
pub fn all_flows(region: &Region) -> Vec<Flow> {
    let flows = slipstack_channel::flows(region).into_iter();
    let staying = flows.filter(|entry| !entry.is_leaving);
    staying.map(|entry| flow_of(&entry)).collect()
}

pub fn flow_of(entry: &FlowEntry) -> Flow {
    Flow {
        proto: match entry.is_udp {
            true => Transport::Udp,
            false => Transport::Tcp,
        },
        local: entry.local,
        remote: entry.remote,
    }
}
