//! The environment of the stack, which its effects change: clients, owners of sockets, and frames
//! to send.

use std::net::IpAddr;

use slipstack_channel::Limits;
use slipstack_device::ProgramMap;
use slipstack_stack::{ConnId, Instant, ListenerId, UdpId};

use crate::authority::NeighbourTable;
use crate::client::{Client, ClientId, Owned, Socket};
use crate::departed::Departed;
use crate::drained::Drained;
use crate::frames::FrameQueue;
use crate::local::Local;
use crate::owners::{Deferred, Flows, LentOffers, Offers, Owner, Owners, Shared};
use crate::stats::EngineCounters;
use crate::waiting::Waiting;

/// Everything that belongs to an engine and is neither its stack nor its device.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) clients: Vec<Option<Client>>,
    /// Clients that live on this thread.
    pub(crate) owned: Vec<Owned>,
    /// Some of them have been given datagrams on arrival, and may have answered.
    pub(crate) has_responses: bool,
    pub(crate) conns: Owners,
    pub(crate) listeners: Owners,
    pub(crate) udps: Owners,
    pub(crate) flows: Flows,
    pub(crate) queue: FrameQueue,
    pub(crate) local: Local,
    pub(crate) deferred: Vec<Deferred>,
    /// Sockets with datagrams for which the turn had no time or the device no room.
    pub(crate) waiting: Waiting,
    /// While a listener is being closed: its connections that complete, which no program will
    /// accept from it.
    pub(crate) drained: Option<Drained>,
    /// Some client's listeners have accepted connections that were not reported to the stack,
    /// sockets wait to send datagrams, or shared ones have some to read.
    pub(crate) has_rest: bool,
    /// Time at which a listener or shared socket may have been left by its program, as of the last
    /// look.
    pub(crate) left_at: Instant,
    pub(crate) counters: EngineCounters,
    /// Time of the turn.
    pub(crate) now: Instant,
    /// Our link-layer address.
    pub(crate) mac: [u8; 6],
    /// The device completes partial checksums.
    pub(crate) has_tx_checksum: bool,
    /// Buffers of a new connection.
    pub(crate) initial: Limits,
    /// Neighbours that the keeper has learnt.
    pub(crate) neighbours: Option<Box<dyn NeighbourTable>>,
    /// Routers whose reachability is in doubt, with their answer counts at that time.
    pub(crate) doubted: Vec<(IpAddr, Option<u64>)>,
    pub(crate) departed: Departed,
    pub(crate) offers: Offers,
    /// Offered connections of killed programs, which are in `offers` too.
    pub(crate) lent_offers: LentOffers,
    /// Maps that programs of SO_REUSEPORT groups read, each with the port of its group.
    pub(crate) maps: Vec<(u16, ProgramMap)>,
    pub(crate) shared: Shared,
}

impl Environment {
    /// Returns a map that the program of a group refers to.
    pub(crate) fn map(&self, id: u32) -> Option<&ProgramMap> {
        let mut maps = self.maps.iter().map(|(_, map)| map);
        maps.find(|map| map.id() == id)
    }

    pub(crate) fn find_neighbour(&self, ip: IpAddr) -> Option<[u8; 6]> {
        let table = self.neighbours.as_ref()?;
        let mac = table.find(ip)?;
        let doubted = self.doubted.iter().find(|(doubted, _)| *doubted == ip);
        let is_silent = doubted.is_some_and(|(_, before)| *before == table.answers(ip));
        (!is_silent).then_some(mac)
    }

    /// Doubts a neighbour: earlier confirmations prove nothing any more.
    #[cold]
    pub(crate) fn doubt(&mut self, ip: IpAddr) {
        let table = self.neighbours.as_ref();
        let before = table.and_then(|table| table.answers(ip));
        if before.is_some() && self.doubted.iter().all(|(doubted, _)| *doubted != ip) {
            self.doubted.push((ip, before));
        }
    }

    #[inline]
    pub(crate) fn client(&mut self, id: ClientId) -> Option<&mut Client> {
        self.clients.get_mut(id.0 as usize)?.as_mut()
    }

    #[inline]
    pub(crate) fn conn_owner(&self, conn: ConnId) -> Option<Owner> {
        self.conns.find(conn.index, conn.generation)
    }

    #[inline]
    pub(crate) fn listener_owner(&self, id: ListenerId) -> Option<Owner> {
        self.listeners.find(id.index, id.generation)
    }

    #[inline]
    pub(crate) fn udp_owner(&self, id: UdpId) -> Option<Owner> {
        self.udps.find(id.index, id.generation)
    }

    /// Looks at or changes a socket in private memory.
    pub(crate) fn socket(&mut self, owner: Owner) -> Option<&mut Socket> {
        let (socket, _) = self.client(owner.client)?.find(owner.sock)?;
        Some(socket)
    }

    pub(crate) fn client_ids(&self) -> impl Iterator<Item = ClientId> + use<> {
        (0..self.clients.len() as u32).map(ClientId)
    }
}
