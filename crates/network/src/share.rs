//! Addresses that are shared with the kernel, and the ports of each side.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use slipstack_terms::{Listed, ShareAction};

/// Ranges of ports at most.
const RANGES_MAX: usize = 256;

/// Sharing of the stack's addresses with the kernel. Ports are inclusive ranges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelShare {
    pub listed: Listed,
    pub tcp: Vec<(u16, u16)>,
    pub udp: Vec<(u16, u16)>,
    pub action: ShareAction,
    /// Largest number of packets per second to the kernel: ARP and multicast, the rest, and both
    /// together; 0 = no limit.
    #[serde(default)]
    pub rates: [u32; 3],
}

impl KernelShare {
    /// Returns whether new flows to the port are the kernel's.
    pub fn is_kernels(&self, is_udp: bool, port: u16) -> bool {
        let ranges = if is_udp { &self.udp } else { &self.tcp };
        let mut ranges = ranges.iter();
        let mut is_listed = || ranges.any(|(first, last)| (*first..=*last).contains(&port));
        match (self.action, self.listed) {
            (ShareAction::AllToKernel, _) => true,
            (ShareAction::AllToStack, _) => false,
            (ShareAction::Default, Listed::Kernel) => is_listed(),
            (ShareAction::Default, Listed::Stack) => !is_listed(),
        }
    }

    pub(crate) fn is_sound(&self) -> bool {
        let mut ranges = self.tcp.iter().chain(&self.udp);
        self.tcp.len() + self.udp.len() <= RANGES_MAX
            && ranges.all(|(first, last)| *first != 0 && first <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_list_and_the_action_decide_the_owner_of_a_port() {
        let mut share = KernelShare {
            listed: Listed::Stack,
            tcp: vec![(80, 80), (8000, 8999)],
            udp: Vec::new(),
            action: ShareAction::Default,
            rates: [0; 3],
        };
        assert!(!share.is_kernels(false, 80) && !share.is_kernels(false, 8999));
        assert!(share.is_kernels(false, 22) && share.is_kernels(true, 80));
        share.listed = Listed::Kernel;
        assert!(share.is_kernels(false, 80) && !share.is_kernels(true, 80));
        share.action = ShareAction::AllToStack;
        assert!(!share.is_kernels(false, 80));
        share.action = ShareAction::AllToKernel;
        assert!(share.is_kernels(false, 22));
    }
}
