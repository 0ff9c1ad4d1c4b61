//! Everything around the stack that its effects touch: clients, who owns what, frames to send.

use std::net::IpAddr;

use slipstack_channel::{Ends, FlowDirectory, Limits, SockId};
use slipstack_stack::{ConnId, Instant, ListenerId, UdpId};

use crate::authority::NeighbourTable;
use crate::client::{Client, ClientId, Socket};
use crate::frames::FrameQueue;
use crate::local::Local;
use crate::stats::EngineCounters;

/// Whose a stack's object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) client: ClientId,
    pub(crate) sock: SockId,
}

/// Owners by the index of the stack's id; the generation decides.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    entries: Vec<Option<(u32, Owner)>>,
}

impl Owners {
    #[inline]
    pub(crate) fn find(&self, index: u32, generation: u32) -> Option<Owner> {
        match self.entries.get(index as usize) {
            Some(Some((of, owner))) if *of == generation => Some(*owner),
            _ => None,
        }
    }

    pub(crate) fn set(&mut self, index: u32, generation: u32, owner: Owner) {
        let index = index as usize;
        if self.entries.len() <= index {
            self.entries.resize(index + 1, None);
        }
        self.entries[index] = Some((generation, owner));
    }

    pub(crate) fn remove(&mut self, index: u32, generation: u32) {
        if let Some(entry) = self.entries.get_mut(index as usize)
            && entry.is_some_and(|(of, _)| of == generation)
        {
            *entry = None;
        }
    }
}

/// The flow directory's places by connection.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    directory: Option<FlowDirectory>,
    /// By the connection's index: its generation and its place.
    places: Vec<Option<(u32, u32)>>,
    open: usize,
}

impl Flows {
    pub(crate) fn new(directory: Option<FlowDirectory>) -> Flows {
        Flows {
            directory,
            ..Flows::default()
        }
    }

    pub(crate) fn open(&mut self, conn: ConnId, ends: &Ends) {
        let Some(directory) = &mut self.directory else {
            return;
        };
        let Some(place) = directory.open(ends) else {
            return;
        };
        let index = conn.index as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, None);
        }
        self.open += 1;
        if let Some((_, old)) = self.places[index].replace((conn.generation, place)) {
            directory.close(old);
            self.open -= 1;
        }
    }

    pub(crate) fn open_datagrams(&mut self, ends: &Ends) -> Option<u32> {
        self.directory.as_mut()?.open_datagrams(ends)
    }

    pub(crate) fn close_datagrams(&mut self, place: u32) {
        if let Some(directory) = &mut self.directory {
            directory.close(place);
        }
    }

    /// The connection is gone, or is somebody else's now.
    pub(crate) fn close(&mut self, conn: ConnId) {
        let Some(entry) = self.places.get_mut(conn.index as usize) else {
            return;
        };
        if let Some((_, place)) = entry.take_if(|(generation, _)| *generation == conn.generation)
            && let Some(directory) = &mut self.directory
        {
            directory.close(place);
            self.open -= 1;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.open
    }
}

/// What effects leave to be done when the stack can be called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deferred {
    /// A connection that no program can take.
    Abort(ConnId),
    /// How far the bytes of one have left is to be told when they have.
    TellSent(ConnId),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) clients: Vec<Option<Client>>,
    pub(crate) conns: Owners,
    pub(crate) listeners: Owners,
    pub(crate) udps: Owners,
    pub(crate) flows: Flows,
    pub(crate) queue: FrameQueue,
    pub(crate) local: Local,
    pub(crate) deferred: Vec<Deferred>,
    /// Sockets with datagrams that the turn had no time for; the next one takes them, whoever asks for it.
    pub(crate) unsent: Vec<Owner>,
    /// While a listener is being closed: its connections that complete, which no program will
    /// accept from it.
    pub(crate) drained: Option<(ListenerId, Vec<ConnId>)>,
    /// Some client's listeners have connections whose taking the stack has not been told, or `unsent` names somebody.
    pub(crate) has_rest: bool,
    /// When a listener may have been left by its program, as of the last look.
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
    /// What the keeper has learned.
    pub(crate) neighbours: Option<Box<dyn NeighbourTable>>,
    /// Routers that are asked whether they are still there, with the answers that had come by then.
    pub(crate) doubted: Vec<(IpAddr, Option<u64>)>,
}

impl World {
    pub(crate) fn find_neighbour(&self, ip: IpAddr) -> Option<[u8; 6]> {
        let table = self.neighbours.as_ref()?;
        let mac = table.find(ip)?;
        let doubted = self.doubted.iter().find(|(doubted, _)| *doubted == ip);
        let is_silent = doubted.is_some_and(|(_, before)| *before == table.answers(ip));
        (!is_silent).then_some(mac)
    }

    /// What has been said of a neighbour so far proves nothing any more.
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
