//! The descriptors and parameters of a slot on their way to the engine that leases it.

use std::os::fd::{AsFd, OwnedFd};

use slipstack_channel::control::{Descriptor, Refusal, Reply, SlotLease};
use slipstack_mem::process::explained;
use tracing::warn;

use super::Server;
use super::clients::Answer;
use crate::claims;

impl Server {
    /// Descriptors and parameters of a leased slot.
    pub(super) fn pass_slot(&self, slot: u16, ports: (u16, u16), is_claimed: bool) -> Answer {
        let (descriptors, fds) = self.lease_descriptors(slot, is_claimed).map_err(|error| {
            (
                Refusal::Failed,
                format!(
                    "the descriptors of slot {slot} could not be passed: {}",
                    explained(&error)
                ),
            )
        })?;
        let network = &self.resources.network;
        let params = self.resources.slots.params(slot);
        let lease = SlotLease {
            slot,
            slots: self.resources.slots.count(),
            mac: network.mac,
            mtu: network.state.own().mtu,
            params: params.map_or_else(String::new, |params| params.to_text()),
            ports,
            port_pool: self.resources.state.leases.blocks().pool(),
            sequence_key: self.resources.state.sequence_key,
            descriptors,
        };
        Ok((Reply::Slot(Box::new(lease)), fds))
    }

    fn lease_descriptors(
        &self,
        slot: u16,
        is_claimed: bool,
    ) -> std::io::Result<(Vec<Descriptor>, Vec<OwnedFd>)> {
        let resources = &self.resources;
        let mut roles = Vec::new();
        let mut fds = Vec::new();
        let mut add = |role, fd: OwnedFd| {
            roles.push(role);
            fds.push(fd);
        };
        for fd in resources.slots.parts(slot)?.fds {
            add(Descriptor::Device, fd);
        }
        for map in resources
            .slots
            .steering()
            .read_only_fds()
            .map_err(std::io::Error::other)?
        {
            add(Descriptor::SteeringMap, map);
        }
        let chosen = resources.slots.steering().chosen_fd();
        if let Some(flows) = chosen.map_err(std::io::Error::other)? {
            add(Descriptor::SteeringMap, flows);
        }
        add(Descriptor::Slots, resources.words.region().try_clone_fd()?);
        add(
            Descriptor::Inbox,
            resources.inboxes.region().try_clone_fd()?,
        );
        for bell in resources.inboxes.bells() {
            add(
                Descriptor::InboxDoorbell,
                bell.as_fd().try_clone_to_owned()?,
            );
        }
        add(
            Descriptor::Neighbours,
            resources.neighbours.fd().try_clone_to_owned()?,
        );
        if !is_claimed {
            return Ok((roles, fds));
        }
        // Without it the engine still works: the lock matters only if keeper and standby both die.
        match claims::claim(&resources.dir, slot) {
            Ok(claim) => add(Descriptor::Claim, claim),
            Err(error) => warn!(slot, %error, "a slot cannot be claimed"),
        }
        Ok((roles, fds))
    }
}
