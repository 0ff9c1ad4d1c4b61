//! The keeper's leases: slots, blocks of ports, listening ports.
//!
//! Everything here is plain data without descriptors, so that it can be written to the journal
//! after every change and read back by a successor. Steering follows from it: [`Leases::route`]
//! returns the slot or group for a local port.

mod clients;
mod groups;
mod listeners;
mod ports;

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use slipstack_device::Transport;

pub use clients::{CLIENTS_MAX, Client, ClientId, Clients, Family, ProcessKey};
pub use groups::{Choice, Chosen, Groups, MEMBERS_MAX};
pub use listeners::{Bound, LISTENERS_MAX, ListenRefused, Listener, Listeners, Server};
pub use ports::{PortBlocks, ports_beside, system_ports};

/// The keeper's own slot.
pub const KEEPER_SLOT: u16 = 0;
/// Most blocks of ports that one engine may hold.
pub const BLOCKS_PER_SLOT_MAX: usize = 64;

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotState {
    Free,
    Leased(ClientId),
    /// The slot's engine died; the keeper empties it.
    Draining,
}

/// Destination of frames for a local port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    Keeper,
    Slot(u16),
    /// Several engines listen there.
    Shared(Vec<u16>),
}

/// Reason why a lease was not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseError {
    UnknownClient,
    ClientsFull,
    /// Every slot of the device is taken.
    NoSlot {
        slots: usize,
    },
    HasSlot(u16),
    NoSlotLeased,
    NoPorts,
    Listen(ListenRefused),
}

/// Consecutive local ports of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSpan {
    pub protocol: Transport,
    pub first: u16,
    /// Included.
    pub last: u16,
}

impl PortSpan {
    pub const fn one(protocol: Transport, port: u16) -> PortSpan {
        PortSpan {
            protocol,
            first: port,
            last: port,
        }
    }

    pub fn ports(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

/// The leases of a client that has gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    pub client: Client,
    /// Local ports whose route may have changed.
    pub ports: Vec<PortSpan>,
}

/// All leases of one keeper.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Leases {
    pub clients: Clients,
    pub listeners: Listeners,
    #[serde(default)]
    pub groups: Groups,
    slots: Vec<SlotState>,
    blocks: PortBlocks,
}

impl Leases {
    /// Leases of a device with `slots` slots, the keeper's own included.
    pub fn new(slots: usize, blocks: PortBlocks) -> Leases {
        Leases {
            clients: Clients::default(),
            listeners: Listeners::default(),
            groups: Groups::default(),
            slots: vec![SlotState::Free; slots],
            blocks,
        }
    }

    /// Slots that engines can lease (all but the keeper's).
    pub fn slot_count(&self) -> usize {
        self.slots.len().saturating_sub(1)
    }

    pub fn slot_state(&self, slot: u16) -> Option<SlotState> {
        self.slots.get(usize::from(slot)).copied()
    }

    pub fn enter(&mut self, client: Client) -> Result<ClientId, LeaseError> {
        self.clients.insert(client).ok_or(LeaseError::ClientsFull)
    }

    /// Leases a free slot to a client, which serves its claimed ports from then on.
    pub fn lease_slot(&mut self, id: ClientId) -> Result<u16, LeaseError> {
        let client = self.clients.find_mut(id).ok_or(LeaseError::UnknownClient)?;
        if let Some(slot) = client.slot {
            return Err(LeaseError::HasSlot(slot));
        }
        let free = (1..self.slots.len()).find(|slot| self.slots[*slot] == SlotState::Free);
        let slot = free.ok_or(LeaseError::NoSlot {
            slots: self.slots.len().saturating_sub(1),
        })?;
        self.slots[slot] = SlotState::Leased(id);
        client.slot = Some(slot as u16);
        self.listeners.serve(id, Some(slot as u16));
        Ok(slot as u16)
    }

    /// Records the thread that took a slot for a client's engine.
    pub fn note_thread(&mut self, id: ClientId, thread: u32) {
        if let Some(client) = self.clients.find_mut(id) {
            client.thread = thread;
        }
    }

    /// Takes back a slot whose engine has never started.
    pub fn unlease_slot(&mut self, id: ClientId) -> Vec<u16> {
        let Some(slot) = self
            .clients
            .find_mut(id)
            .and_then(|client| client.slot.take())
        else {
            return Vec::new();
        };
        self.listeners.serve(id, None);
        if let Some(state) = self.slots.get_mut(usize::from(slot)) {
            *state = SlotState::Free;
        }
        self.blocks.release(slot)
    }

    /// Gives `wanted` blocks of outgoing ports in a row, or one: first and last place in the pool's
    /// order.
    pub fn lease_ports(
        &mut self,
        id: ClientId,
        hint: u64,
        wanted: usize,
    ) -> Result<(u16, u16), LeaseError> {
        let client = self.clients.find(id).ok_or(LeaseError::UnknownClient)?;
        let slot = client.slot.ok_or(LeaseError::NoSlotLeased)?;
        self.blocks
            .lease(slot, hint, wanted, BLOCKS_PER_SLOT_MAX)
            .ok_or(LeaseError::NoPorts)
    }

    /// Gives a block of ports of this range that are not in the pool.
    pub fn lease_ports_beyond(
        &mut self,
        id: ClientId,
        hint: u64,
        range: (u16, u16),
    ) -> Result<(u16, u16), LeaseError> {
        let client = self.clients.find(id).ok_or(LeaseError::UnknownClient)?;
        let slot = client.slot.ok_or(LeaseError::NoSlotLeased)?;
        self.blocks
            .lease_beyond(slot, hint, range, BLOCKS_PER_SLOT_MAX)
            .ok_or(LeaseError::NoPorts)
    }

    /// Number of blocks of outgoing ports that an engine begins with.
    pub fn first_blocks(&self) -> usize {
        let is_free = |state: &&SlotState| **state == SlotState::Free;
        self.blocks
            .first_lease(self.slots.iter().filter(is_free).count())
    }

    pub fn blocks(&self) -> &PortBlocks {
        &self.blocks
    }

    /// Claims a port for listening, or for datagrams. If it is among an engine's outgoing ports,
    /// that engine sees the claim in the steering table and uses others.
    pub fn listen(
        &mut self,
        id: ClientId,
        protocol: Transport,
        bound: Bound,
        reuse_port: bool,
    ) -> Result<(), LeaseError> {
        let client = self.clients.find(id).ok_or(LeaseError::UnknownClient)?;
        let wanted = Listener {
            client: id,
            family: client.family,
            uid: client.uid,
            protocol,
            address: bound.address,
            is_v6_only: bound.is_v6_only,
            port: bound.port,
            link: bound.link,
            reuse_port,
            slot: client.slot,
            is_yielding: false,
            has_own_queue: false,
            count: 1,
        };
        self.listeners.claim(wanted).map_err(LeaseError::Listen)
    }

    /// Removes a client. Its ports are free at once; its slot is `Draining` until
    /// [`Leases::free_slot`].
    pub fn leave(&mut self, id: ClientId) -> Option<Left> {
        let client = self.clients.remove(id)?;
        let mut ports: Vec<PortSpan> = self
            .listeners
            .release_all(id)
            .into_iter()
            .map(|(protocol, port)| PortSpan::one(protocol, port))
            .collect();
        if let Some(slot) = client.slot {
            ports.extend(both_protocols(&self.blocks.release(slot)));
            if let Some(state) = self.slots.get_mut(usize::from(slot)) {
                *state = SlotState::Draining;
            }
        }
        Some(Left { client, ports })
    }

    pub fn free_slot(&mut self, slot: u16) {
        if let Some(state) = self.slots.get_mut(usize::from(slot))
            && *state == SlotState::Draining
        {
            *state = SlotState::Free;
        }
    }

    pub fn draining(&self) -> impl Iterator<Item = u16> + '_ {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, state)| **state == SlotState::Draining)
            .map(|(slot, _)| slot as u16)
    }

    /// Destination of frames for a local port.
    pub fn route(&self, protocol: Transport, port: u16) -> Route {
        let slots = self.listeners.slots(protocol, port);
        match slots.as_slice() {
            [] => self
                .blocks
                .find_owner(port)
                .map_or(Route::Keeper, Route::Slot),
            [slot] => Route::Slot(*slot),
            _ => Route::Shared(slots),
        }
    }

    /// Leases read back from a former keeper fit the device.
    pub fn is_sound(&self, slots: usize) -> bool {
        let in_range = |slot: u16| slot != KEEPER_SLOT && usize::from(slot) < slots;
        self.slots.len() == slots
            && self.blocks.is_sound(slots)
            && self.clients.iter().all(|(id, client)| {
                client.slot.is_none_or(|slot| {
                    in_range(slot) && self.slots[usize::from(slot)] == SlotState::Leased(id)
                })
            })
            && self.listeners.iter().all(|l| l.slot.is_none_or(in_range))
    }
}

/// Each of the ports, of TCP and of UDP.
pub fn both_protocols(ports: &[u16]) -> impl Iterator<Item = PortSpan> + '_ {
    let of = |protocol| ports.iter().map(move |port| PortSpan::one(protocol, *port));
    of(Transport::Tcp).chain(of(Transport::Udp))
}

#[cfg(test)]
mod tests;
