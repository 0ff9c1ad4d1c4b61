//! Views of an engine: counters, flows and sockets.

use crate::client::ClientId;
use crate::engine::Engine;
use crate::stats::{EngineCounters, SocketView};

impl Engine {
    pub fn counters(&self) -> &EngineCounters {
        &self.world.counters
    }

    /// All counters that are not zero, by name: engine, stack and device, and how many places for
    /// connections were made.
    pub fn counter_rows(&self) -> Vec<(String, u64)> {
        let stack = self.stack.counters().iter();
        let device = self.device.counters();
        self.world
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
            .filter(|(_, value)| *value > 0)
            .collect()
    }

    /// Open flows, as the directory counts them.
    pub fn flow_count(&self) -> usize {
        self.world.flows.len()
    }

    /// Bytes of ring memory in use by this engine.
    pub fn rx_memory(&self) -> usize {
        let clients = self.world.clients.iter().flatten();
        clients.map(|client| client.end.rx_memory()).sum()
    }

    /// Up to `max` sockets of all clients.
    pub fn sockets(&self, max: usize) -> Vec<SocketView> {
        let mut views = Vec::new();
        for (id, client) in self.world.clients.iter().enumerate() {
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
