//! Outgoing ports of engines, and changes of the kernel's range.

use slipstack_channel::control::{Refusal, Reply};
use tracing::warn;

use super::Server;
use super::clients::Answer;
use crate::leases::{ClientId, LeaseError, both_protocols};
use crate::random::random_u64;

/// The first and last place of leased ports.
type Leased = Result<(u16, u16), (Refusal, String)>;

impl Server {
    /// Leases one more block: of the pool, or of this range beyond it.
    pub(super) fn on_lease_ports(
        &mut self,
        client: ClientId,
        beyond: Option<(u16, u16)>,
    ) -> Answer {
        let (first, last) = match beyond {
            Some(range) => self.lease_beyond(client, range)?,
            None => self.lease_blocks(client, 1)?,
        };
        self.done()?;
        Ok((Reply::Ports { first, last }, Vec::new()))
    }

    pub(super) fn lease_blocks(&mut self, client: ClientId, wanted: usize) -> Leased {
        let leases = &mut self.resources.state.leases;
        let leased = leases.lease_ports(client, random_u64(), wanted);
        self.steer_leased(leased)
    }

    /// A kernel with the stack's addresses has ports of its own there.
    fn lease_beyond(&mut self, client: ClientId, range: (u16, u16)) -> Leased {
        let leases = &mut self.resources.state.leases;
        let leased = match self.resources.network.state.share {
            None => leases.lease_ports_beyond(client, random_u64(), range),
            Some(_) => Err(LeaseError::NoPorts),
        };
        self.steer_leased(leased)
    }

    fn steer_leased(&mut self, leased: Result<(u16, u16), LeaseError>) -> Leased {
        let places = leased.map_err(|error| self.explain(&error))?;
        let ports = self.resources.state.leases.blocks().ports(places);
        self.steer_ports(&both_protocols(&ports).collect::<Vec<_>>());
        Ok(places)
    }

    /// Publishes the kernel's range of local ports if it has been changed.
    pub(super) fn follow_local_ports(&mut self, now: u64) {
        let Some(ports) = self.resources.local_ports.as_ref().map(|it| it.take()) else {
            return;
        };
        let state = &self.resources.network.state;
        let known = state.local_ports;
        if known.unwrap_or(self.resources.state.leases.blocks().pool()) == ports {
            return;
        }
        let mut next = state.clone();
        next.revision += 1;
        next.local_ports = Some(ports);
        if let Err(error) = self.publish(next, now) {
            warn!(%error, "the range of local ports cannot be published");
        }
    }
}
