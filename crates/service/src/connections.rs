//! Identifiers of a service's sockets, and the host's record of each connection.

use slipstack_channel::SockId;

/// A connection. Its number is used again after its end, with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(crate) SockId);

impl ConnectionId {
    /// The connection's number without its generation: an index for tables of a service's own.
    pub fn index(self) -> usize {
        self.0.index as usize
    }
}

/// A listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(crate) SockId);

/// A bound UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatagramSocketId(pub(crate) SockId);

/// Progress of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    None,
    /// Opened by the service; not answered yet.
    Connecting {
        tag: u64,
    },
    Open,
    /// The service has closed it.
    Closing,
}

/// One connection's notes, at its socket's index.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) generation: u32,
    pub(crate) phase: Phase,
    /// [`crate::Service::on_end`] has been called.
    pub(crate) is_end_told: bool,
    /// A write found no room: [`crate::Service::on_room`] is owed.
    pub(crate) wants_room: bool,
    /// The connection has ended in the stack, with bytes that the service has not taken.
    pub(crate) is_gone: bool,
    /// A worker's result is to come.
    pub(crate) jobs: u16,
}

/// All connections of a service.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    entries: Vec<Entry>,
    /// Connections that are not [`Phase::None`].
    pub(crate) live: usize,
    /// Number of connections that are gone ([`Entry::is_gone`]).
    pub(crate) gone: usize,
}

impl Entries {
    pub(crate) fn find(&mut self, sock: SockId) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(sock.index as usize)?;
        (entry.generation == sock.generation && entry.phase != Phase::None).then_some(entry)
    }

    pub(crate) fn begin(&mut self, sock: SockId, phase: Phase) {
        let index = sock.index as usize;
        if self.entries.len() <= index {
            self.entries.resize(index + 1, Entry::default());
        }
        debug_assert_eq!(self.entries[index].phase, Phase::None);
        self.entries[index] = Entry {
            generation: sock.generation,
            phase,
            ..Entry::default()
        };
        self.live += 1;
    }

    pub(crate) fn end(&mut self, sock: SockId) {
        if let Some(entry) = self.find(sock) {
            let was_gone = std::mem::take(entry).is_gone;
            self.live -= 1;
            self.gone -= usize::from(was_gone);
        }
    }

    /// Notes that a connection has ended in the stack before the service took its last bytes.
    pub(crate) fn note_gone(&mut self, sock: SockId) {
        if let Some(entry) = self.find(sock)
            && !std::mem::replace(&mut entry.is_gone, true)
        {
            self.gone += 1;
        }
    }

    /// Notes that the service has taken the last bytes; returns whether the connection was gone.
    pub(crate) fn take_gone(&mut self, sock: SockId) -> bool {
        let was_gone = (self.find(sock)).is_some_and(|entry| std::mem::take(&mut entry.is_gone));
        self.gone -= usize::from(was_gone);
        was_gone
    }

    /// The connection at an index.
    pub(crate) fn at(&self, index: u32) -> Option<SockId> {
        let entry = self.entries.get(index as usize)?;
        (entry.phase != Phase::None).then_some(SockId {
            index,
            generation: entry.generation,
        })
    }

    pub(crate) fn ids(&self) -> Vec<SockId> {
        let live = self.entries.iter().enumerate();
        live.filter(|(_, entry)| entry.phase != Phase::None)
            .map(|(index, entry)| SockId {
                index: index as u32,
                generation: entry.generation,
            })
            .collect()
    }
}
