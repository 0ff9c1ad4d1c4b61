//! Views of an engine: counters, flows and sockets.

use slipstack_device::DeviceCounters;
use slipstack_stack::{LinkTraffic, Stack};

use crate::client::ClientId;
use crate::engine::Engine;
use crate::stats::{EngineCounters, SocketView};

/// Counters of a device that it has for each of its ports.
const LOSSES: [&str; 4] = ["rx_truncated", "rx_malformed", "rx_overrun", "tx_dropped"];

/// Traffic of each further link, by its number.
pub(crate) fn link_rows(stack: &Stack) -> impl Iterator<Item = (String, u64)> + '_ {
    stack.counters().links().flat_map(|(link, traffic)| {
        let LinkTraffic {
            rx_frames,
            rx_bytes,
            tx_frames,
            tx_bytes,
        } = traffic;
        [
            ("rx_frames", rx_frames),
            ("rx_bytes", rx_bytes),
            ("tx_frames", tx_frames),
            ("tx_bytes", tx_bytes),
        ]
        .map(|(name, value)| (format!("link_{link}_{name}"), value))
    })
}

/// Losses of ports after the first.
fn port_rows(ports: &[(u16, DeviceCounters)]) -> Vec<(String, u64)> {
    let rows = ports.iter().flat_map(|(link, counters)| {
        let losses = counters.rows().filter(|(name, _)| LOSSES.contains(name));
        losses.map(move |(name, value)| (format!("link_{link}_device_{name}"), value))
    });
    rows.collect()
}

impl Engine {
    pub fn counters(&self) -> &EngineCounters {
        &self.env.counters
    }

    /// All counters that are not zero, by name: engine, stack and device, and how many places for
    /// connections were made.
    pub fn counter_rows(&self) -> Vec<(String, u64)> {
        let stack = self.stack.counters().iter();
        let device = self.device.counters();
        self.env
            .counters
            .iter()
            .map(|(name, value)| (format!("engine_{name}"), value))
            .chain(stack.map(|(counter, value)| (counter.name().to_owned(), value)))
            .chain(
                device
                    .rows()
                    .map(|(name, value)| (format!("device_{name}"), value)),
            )
            .chain([("tcp_places".to_owned(), self.stack.tcp_places() as u64)])
            .chain(link_rows(&self.stack))
            .chain(port_rows(&self.device.port_counters()))
            .filter(|(_, value)| *value > 0)
            .collect()
    }

    /// Open flows, as the directory counts them.
    pub fn flow_count(&self) -> usize {
        self.env.flows.len()
    }

    /// Bytes of ring memory in use by this engine.
    pub fn rx_memory(&self) -> usize {
        let clients = self.env.clients.iter().flatten();
        clients.map(|client| client.end.rx_memory()).sum()
    }

    /// Up to `max` sockets of all clients.
    pub fn sockets(&self, max: usize) -> Vec<SocketView> {
        let mut views = Vec::new();
        for (id, client) in self.env.clients.iter().enumerate() {
            let Some(client) = client else { continue };
            for sock in client.sockets() {
                if views.len() >= max {
                    return views;
                }
                if let Some(socket) = client.socket(sock) {
                    views.push(self.view(ClientId(id as u32), socket));
                }
            }
        }
        views
    }
}
