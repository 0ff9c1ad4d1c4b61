//! The stack's network as the keeper holds it: the published value, and the device below it.

use std::sync::Arc;

use slipstack_channel::control::DeviceSummary;
use slipstack_channel::control::net::NetworkState;
use slipstack_stack::{Role, SlaacConfig, StackConfig};

/// Addresses and names by which the stack appears on its link.
#[derive(Clone, Debug)]
pub struct Network {
    pub device: DeviceSummary,
    pub mac: [u8; 6],
    pub tso_max: u32,
    /// Whether the device segments joined datagrams.
    pub has_udp_segmentation: bool,
    /// Parameters of router solicitation, if it is used.
    pub slaac: Option<SlaacConfig>,
    /// The published network.
    pub state: NetworkState,
    /// Numbers of the keeper's own stack, with which it begins.
    pub tunables: Vec<(String, u32)>,
}

impl Network {
    /// Returns the configuration of the keeper's own stack.
    pub fn stack_config(&self) -> StackConfig {
        StackConfig {
            network: Arc::new(self.state.in_force()),
            mac: self.mac,
            tso_max: self.tso_max,
            has_udp_segmentation: self.has_udp_segmentation,
            role: Role::Keeper,
            slaac: self.slaac.clone(),
            ..StackConfig::default()
        }
    }
}
