//! Map from objects of the stack to the clients' sockets that own them, and from connections to
//! their lines in the flow directory.

use std::collections::HashMap;

use slipstack_channel::control::TimeWaitEntry;
use slipstack_channel::{Ends, FlowDirectory, HalfOpenRecords, PassedOn, SockId, TimeWaitRecords};
use slipstack_mem::Region;
use slipstack_stack::{ConnId, ConnectionOrigin, HalfOpenRecord, Instant};

use crate::client::ClientId;

/// The owner of a stack's connection, listener or UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) client: ClientId,
    pub(crate) sock: SockId,
}

/// The name that sharers have in common: the kernel's socket, by its cookie, and the address. A
/// client may claim any cookie, but on the stack only sockets that can share the address are bound
/// to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedName {
    pub(crate) cookie: u64,
    pub(crate) bound: slipstack_stack::Bound,
    pub(crate) port: u16,
    pub(crate) link: u16,
}

/// One of several sockets that are one datagram socket on the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharer {
    pub(crate) owner: Owner,
    pub(crate) name: SharedName,
    /// The place up to which its process had read at `read_at`, when it was last seen to read, or
    /// nothing was unread.
    pub(crate) read_upto: u64,
    pub(crate) read_at: Instant,
    /// Unread datagrams were taken back, and since then the program has neither read nor waited for
    /// one.
    pub(crate) is_passive: bool,
}

/// Sharers that have a cookie in common. Without any the place is free.
#[derive(Debug, Default)]
pub(crate) struct SharedSocket {
    pub(crate) sharers: Vec<Sharer>,
    /// Listed in [`Shared::watched`].
    pub(crate) is_watched: bool,
}

/// Another engine, and its beats at the time when it was called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Called {
    pub(crate) slot: usize,
    pub(crate) beats: u64,
    pub(crate) at: Instant,
}

/// Sockets that other processes may have too.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) sockets: Vec<SharedSocket>,
    /// Places of those that may have unread datagrams.
    pub(crate) watched: Vec<u32>,
    /// Time at which these are looked at.
    pub(crate) due_at: Instant,
    /// Other engines that have been called.
    pub(crate) called: Vec<Called>,
    /// The sockets that have received the present datagram to a group, each with the first part
    /// for which the stack had it.
    pub(crate) served: Vec<(SharedName, Owner)>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            sockets: Vec::new(),
            watched: Vec::new(),
            due_at: Instant::FAR_FUTURE,
            called: Vec::new(),
            served: Vec::new(),
        }
    }
}

/// Connections that may be claimed with their key, and the position up to which their program may
/// have written.
pub(crate) type Offers = HashMap<u128, (Owner, Option<u64>)>;
pub(crate) type LentOffers = HashMap<u128, HasAlready>;

/// The bytes of a killed program's connection that the program which claims it has already.
#[derive(Debug)]
pub(crate) struct HasAlready {
    pub(crate) has: PassedOn,
    pub(crate) unread: Vec<u8>,
}

/// The state of a connection for the directory, if it has one.
type Origin<'a> = Option<&'a ConnectionOrigin>;

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
    /// The client whose sockets are in the directory's region: its open connections are described.
    client: Option<ClientId>,
    /// Beside that client's directory.
    half_open: Option<HalfOpenRecords>,
    /// Beside the directory.
    time_waits: Option<TimeWaitRecords>,
    /// By the connection's index: its generation and its place.
    places: Vec<Option<(u32, u32)>>,
    open: usize,
}

impl Flows {
    /// `region` has the directory.
    pub(crate) fn new(region: Option<&Region>) -> Flows {
        Flows {
            directory: region.and_then(FlowDirectory::new),
            time_waits: region.and_then(TimeWaitRecords::new),
            ..Flows::default()
        }
    }

    /// Enters a connection; returns its place in the directory, if there is one with room.
    pub(crate) fn open(&mut self, conn: ConnId, ends: &Ends) -> Option<u32> {
        let directory = self.directory.as_mut()?;
        let place = directory.open(ends)?;
        let index = conn.index as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, None);
        }
        self.open += 1;
        if let Some((_, old)) = self.places[index].replace((conn.generation, place)) {
            directory.close(old);
            self.open -= 1;
        }
        Some(place)
    }

    /// A client comes; `region` is its channel's. Returns whether the directory is there too, so
    /// that half-open connections are recorded beside it.
    pub(crate) fn note_client(&mut self, client: ClientId, region: &Region) -> bool {
        let directory = self.directory.as_ref();
        let is_of = directory.is_some_and(|it| it.is_of(region));
        if is_of {
            self.client = Some(client);
            self.half_open = HalfOpenRecords::new(region);
        }
        is_of
    }

    /// Writes what is to be known of a half-open connection should this process be killed.
    #[inline]
    pub(crate) fn record_half_open(&mut self, place: u32, record: Option<HalfOpenRecord>) {
        if let Some(records) = &mut self.half_open {
            records.set(place, record.map(|it| it.0));
        }
    }

    /// Writes what is to be known of a TIME-WAIT entry should this process be killed.
    pub(crate) fn record_time_wait(
        &mut self,
        number: u32,
        entry: Option<&TimeWaitEntry>,
        now_ns: u64,
    ) {
        if let Some(records) = &mut self.time_waits {
            records.set(number, entry, now_ns);
        }
    }

    /// Returns whether TIME-WAIT entries have records.
    pub(crate) fn records_time_waits(&self) -> bool {
        self.time_waits.is_some()
    }

    /// Returns the place of a connection in the directory.
    pub(crate) fn find(&self, conn: ConnId) -> Option<u32> {
        let entry = self.places.get(conn.index as usize).copied().flatten();
        entry.filter(|it| it.0 == conn.generation).map(|it| it.1)
    }

    /// Writes the state with which the keeper could end the connection at `place`, should this
    /// process be killed; the directory has it only for one client.
    #[inline]
    pub(crate) fn describe(&mut self, owner: Owner, place: u32, origin: &ConnectionOrigin) {
        if self.client == Some(owner.client)
            && let Some(directory) = &mut self.directory
        {
            directory.describe(place, owner.sock, origin.words(), origin.way());
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

    /// A connection is about to have another owner: see [`FlowDirectory::set_leaving`].
    pub(crate) fn leave(&mut self, conn: ConnId) {
        if let (Some(place), Some(directory)) = (self.find(conn), &mut self.directory) {
            directory.set_leaving(place, true);
        }
    }

    /// A connection has another socket of the same client now, described by this; it is entered if
    /// it was not.
    pub(crate) fn stay(&mut self, conn: ConnId, ends: &Ends, owner: Owner, origin: Origin<'_>) {
        let known = self.find(conn);
        let Some(place) = known.or_else(|| self.open(conn, ends)) else {
            return;
        };
        // One store changes the socket, so that the entry names either the old or the new one.
        if let Some(origin) = origin {
            self.describe(owner, place, origin);
        }
        if let Some(directory) = &mut self.directory {
            directory.set_leaving(place, false);
        }
    }

    /// Removes a connection that is gone or has another owner now.
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

/// Work that effects leave until the stack can be called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deferred {
    /// A connection that no program can take.
    Abort(ConnId),
    /// An open connection's entry in the directory is to be completed.
    Describe(ConnId),
    /// A report is due when bytes of this connection have been sent.
    TellSent(ConnId),
    /// A socket whose connection has failed holds its port for nothing.
    Unbind(Owner),
    /// A closed socket whose connection is over still holds its port.
    Free(Owner),
}
