//! Addresses that are shared with the kernel: which ports belong to it, and which flows stay where
//! they are when that changes.
//!
//! Ports that are leased to an engine for its own connections are the stack's whatever the list
//! says; in the range from which the kernel connects, only ports that a program of the stack has
//! claimed are the stack's, unless they are listed. A flow of the other side gets an exception
//! before its port changes hands, and keeps it as long as it lives.

use std::collections::HashSet;
use std::net::SocketAddr;

use slipstack_channel::control::net::{Listed, ShareAction};
use slipstack_device::{DeviceError, Flow, Transport};
use tracing::warn;

use super::Server;
use crate::kernel_flows;
use crate::leases::{PortSpan, Route, system_ports};
use crate::steer::OwnedFlow;

/// Interval at which connections left to the kernel are compared with those that it has.
const SWEEP_NS: u64 = 5_000_000_000;

/// All ports of both protocols.
pub(super) const ALL: [PortSpan; 2] = [all(Transport::Tcp), all(Transport::Udp)];

const fn all(protocol: Transport) -> PortSpan {
    PortSpan {
        protocol,
        first: 1,
        last: u16::MAX,
    }
}

impl Server {
    /// Updates the kernel's part of these ports according to the operator's list and the leases.
    pub(super) fn share_ports(&mut self, ranges: &[PortSpan]) {
        let Some(share) = &self.resources.network.state.share else {
            return;
        };
        let limited = self.resources.slots.steering().set_rates(share.rates);
        if let Err(error) = limited {
            warn!(%error, "the rate limits of frames to the kernel cannot be set");
        }
        let (to_kernel, to_stack) = self.moved_ports(ranges);
        let moved = self
            .move_to_kernel(&to_kernel)
            .and_then(|()| self.move_to_stack(&to_stack));
        if let Err(error) = moved {
            warn!(%error, "ports cannot be shared with the kernel");
        }
    }

    /// Ports that have to go to the kernel, and those that have to come from it.
    fn moved_ports(&self, ranges: &[PortSpan]) -> (PortSet, PortSet) {
        let (mut to_kernel, mut to_stack) = (PortSet::new(), PortSet::new());
        let steering = self.resources.slots.steering();
        let Some(share) = &self.resources.network.state.share else {
            return (to_kernel, to_stack);
        };
        // The kernel connects to others from these ports.
        let (first, last) = system_ports();
        let is_plain = (share.listed, share.action) == (Listed::Kernel, ShareAction::Default);
        let is_spared = |port| is_plain && (first..=last).contains(&port);
        for range in ranges {
            let protocol = range.protocol;
            for port in range.ports() {
                let is_asked = share.is_kernels(protocol == Transport::Udp, port);
                let leases = &self.resources.state.leases;
                let is_kernels_own =
                    is_spared(port) && leases.route(protocol, port) == Route::Keeper;
                let is_leased = || leases.blocks().find_owner(port).is_some();
                let wanted = (is_asked && !is_leased()) || is_kernels_own;
                match (steering.is_kernel_port(protocol, port), wanted) {
                    (false, true) => _ = to_kernel.insert((protocol, port)),
                    (true, false) => _ = to_stack.insert((protocol, port)),
                    _ => {}
                }
            }
        }
        (to_kernel, to_stack)
    }

    fn move_to_kernel(&mut self, ports: &PortSet) -> Result<(), DeviceError> {
        if ports.is_empty() {
            return Ok(());
        }
        let is_moved = |flow: &Flow| ports.contains(&(flow.proto, flow.local.port()));
        let carried = self.net.carried().map(|flow| (flow, 0));
        let flows = self.living_flows().into_iter().chain(carried);
        let flows: Vec<OwnedFlow> = flows.filter(|(flow, _)| is_moved(flow)).collect();
        let steering = self.resources.slots.steering();
        self.steer.except(steering, &flows)?;
        for &(proto, port) in ports {
            steering.set_kernel_port(proto, port, true)?;
        }
        Ok(())
    }

    fn move_to_stack(&mut self, ports: &PortSet) -> Result<(), DeviceError> {
        if ports.is_empty() {
            return Ok(());
        }
        let is_moved = |local: &SocketAddr| ports.contains(&(Transport::Tcp, local.port()));
        self.leave_to_kernel(is_moved)?;
        let steering = self.resources.slots.steering();
        for &(proto, port) in ports {
            steering.set_kernel_port(proto, port, false)?;
        }
        Ok(())
    }

    /// At the start all ports are already the stack's: existing flows of the kernel stay there.
    pub(super) fn leave_first_flows(&mut self) {
        if self.resources.network.state.share.is_none() {
            return;
        }
        self.share_ports(&ALL);
        let steering = self.resources.slots.steering();
        let kernels: HashSet<u16> = (1..=u16::MAX)
            .filter(|port| steering.is_kernel_port(Transport::Tcp, *port))
            .collect();
        if let Err(error) = self.leave_to_kernel(|local| !kernels.contains(&local.port())) {
            warn!(%error, "connections of the kernel cannot be left to it");
        }
    }

    fn leave_to_kernel(
        &mut self,
        is_meant: impl Fn(&SocketAddr) -> bool,
    ) -> Result<(), DeviceError> {
        let steering = self.resources.slots.steering();
        let mut ends = kernel_flows::read();
        ends.retain(|end| steering.is_own(end.local.ip()) && is_meant(&end.local));
        let flows: Vec<Flow> = ends.iter().copied().map(Flow::from).collect();
        steering.leave_to_kernel(&flows)?;
        let known = &mut self.resources.state.kernel_flows;
        for end in ends {
            if !known.contains(&end) {
                known.push(end);
            }
        }
        Ok(())
    }

    /// Forgets connections that the kernel does not have any more.
    pub(super) fn sweep_kernel_flows(&mut self, now: u64) {
        let is_due = now.saturating_sub(self.kernel_flows_swept_at) >= SWEEP_NS;
        if self.resources.state.kernel_flows.is_empty() || !is_due {
            return;
        }
        self.kernel_flows_swept_at = now;
        let living: HashSet<_> = kernel_flows::read().into_iter().collect();
        let steering = self.resources.slots.steering();
        self.resources.state.kernel_flows.retain(|ends| {
            // An exception that is already gone needs no removal.
            living.contains(ends) || steering.remove_exception(&Flow::from(*ends)).is_err()
        });
        self.resources.save();
    }
}

type PortSet = HashSet<(Transport, u16)>;
