//! The engine's side of a channel.
//!
//! Values written by the program are read once and checked. A contradiction is noted as a
//! [`Contradiction`]; the call that found it answers with something harmless, and the engine
//! detaches the client when it asks [`EngineEnd::contradiction`].

use core::ops::Range;
use core::sync::atomic::{Ordering, fence};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use slipstack_mem::{Arena, ByteRing, CommandReader, EventWriter, Lines, Region};

use crate::addr::Ends;
use crate::cell::{Cell, Limits};
use crate::command::{Coded, Command, Ticket};
use crate::event::RawEvent;
use crate::extents::Extents;
use crate::ids::{SockId, next_generation};
use crate::layout::{self, PROGRAM_SOCKETS, SOCKETS, header};
use slipstack_terms::SocketError;

use crate::reply::{self, Reply};
use slipstack_terms::Reason;

use crate::state::{State, StateWord};

/// A contradiction in a program's shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contradiction {
    /// A command that no program of this version sends.
    Command,
    /// A socket index out of range.
    Socket,
    /// A send ring outside the arena, or one too small for its announced contents.
    SendRing,
    /// A position that runs backwards or beyond the other side's.
    Position,
    /// The event ring overflowed, or its reader's position is impossible.
    Events,
    /// A datagram's header is impossible.
    Datagram,
}

/// The engine's end of a channel.
#[derive(Debug)]
pub struct EngineEnd {
    pub(crate) region: Region,
    header: Lines,
    cells: Lines,
    replies: Lines,
    commands: CommandReader,
    events: EventWriter,
    pub(crate) arena: Arena,
    /// Rings in which the program keeps bytes of a socket: see [`crate::retired`].
    pub(crate) retired: Vec<(u32, ByteRing)>,
    pub(crate) send_arena: Range<usize>,
    pub(crate) extents: Extents,
    /// Indices of the engine's half: free ones with the event position that the program must
    /// have passed, and the first never used.
    free: VecDeque<(u32, u64)>,
    untouched: u32,
    generations: Vec<u32>,
    has_news: bool,
    contradiction: Option<Contradiction>,
}

impl EngineEnd {
    /// A fresh channel in a region of its own; the program's end is
    /// [`crate::ProgramEnd::open`] on [`EngineEnd::region`] or its descriptor.
    pub fn create() -> io::Result<EngineEnd> {
        EngineEnd::create_of(layout::REGION_BYTES)
    }

    /// Creates the engine's end in a region of `len` bytes, for a program whose address space is
    /// limited.
    pub fn create_of(len: usize) -> io::Result<EngineEnd> {
        let len = len.clamp(layout::REGION_BYTES_MIN, layout::REGION_BYTES);
        let region = Region::create("slipstack-channel", len)?;
        let end = EngineEnd::map(region).ok_or(io::ErrorKind::InvalidData)?;
        let creator = end.header.line(header::CREATOR);
        creator.words[1].store(layout::LAYOUT_VERSION, Ordering::Relaxed);
        creator.words[0].store(layout::MAGIC, Ordering::Release);
        Ok(end)
    }

    fn map(region: Region) -> Option<EngineEnd> {
        Some(EngineEnd {
            header: Lines::new(&region, 0, 64)?,
            cells: Lines::new(&region, layout::CELLS_AT, SOCKETS * layout::CELL_LINES)?,
            replies: Lines::new(
                &region,
                layout::REPLIES_AT,
                layout::REPLIES * layout::REPLY_LINES,
            )?,
            commands: CommandReader::new(&region, layout::COMMANDS_AT, layout::COMMANDS)?,
            events: EventWriter::new(
                &region,
                layout::EVENTS_AT,
                layout::EVENTS,
                header::EVENT_POSITIONS * 64,
            )?,
            arena: Arena::new(layout::receive_arena(region.len())),
            retired: Vec::new(),
            send_arena: layout::send_arena(region.len()),
            extents: Extents::default(),
            free: VecDeque::new(),
            untouched: PROGRAM_SOCKETS as u32,
            generations: Vec::new(),
            has_news: false,
            contradiction: None,
            region,
        })
    }

    #[inline]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the program's first contradiction, if there was any.
    #[inline]
    pub fn contradiction(&self) -> Option<Contradiction> {
        self.contradiction
    }

    #[inline]
    pub(crate) fn note_contradiction(&mut self, contradiction: Contradiction) {
        self.contradiction.get_or_insert(contradiction);
    }

    #[inline]
    pub(crate) fn cell(&self, index: u32) -> Option<Cell<'_>> {
        let lines = self.cells.find(index as usize * layout::CELL_LINES)?;
        Some(Cell::new(lines))
    }

    // Commands.

    /// The next command, if it is well formed and names a possible socket.
    pub fn next_command(&mut self) -> Option<(Command, Ticket)> {
        let coded = self.next_coded()?;
        self.decode(&coded)
    }

    /// Returns the next command in its encoded form.
    #[inline]
    pub fn next_coded(&mut self) -> Option<Coded> {
        self.commands.pop().map(Coded)
    }

    /// Decodes a command; returns `None` if it is malformed.
    pub fn decode(&mut self, coded: &Coded) -> Option<(Command, Ticket)> {
        let decoded = Command::decode(&coded.0);
        if decoded.is_none() {
            self.note_contradiction(Contradiction::Command);
        }
        decoded
    }

    #[inline]
    pub fn has_commands(&self) -> bool {
        !self.commands.is_empty()
    }

    pub fn reply(&mut self, ticket: Ticket, result: Result<Reply, SocketError>) {
        if ticket == Ticket::NONE {
            return;
        }
        let place = usize::from(ticket.slot) * layout::REPLY_LINES;
        let Some(slot) = self.replies.find::<{ layout::REPLY_LINES }>(place) else {
            self.note_contradiction(Contradiction::Command);
            return;
        };
        reply::write(slot, ticket, result);
        self.has_news = true;
    }

    /// Announces that the engine sleeps until its doorbell rings, or that it is awake.
    pub fn set_sleeping(&self, sleeping: bool) {
        let word = &self.header.line(header::ENGINE).words[header::ENGINE_SLEEPING];
        if sleeping {
            word.store(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        } else if word.load(Ordering::Relaxed) != 0 {
            word.store(0, Ordering::Release);
        }
    }

    /// Tells the program that this engine ends.
    pub fn set_gone(&self) {
        self.header.line(header::ENGINE).words[header::ENGINE_GONE].store(1, Ordering::Release);
    }

    /// Publishes the revision of the network that the engine uses.
    pub fn set_network_revision(&self, revision: u64) {
        let word = &self.header.line(header::ENGINE).words[header::ENGINE_NETWORK];
        word.store(revision, Ordering::Release);
    }

    /// Says on which processor the engine is. Returns whether the program was last seen on the same
    /// one.
    pub fn meet(&self, cpu: usize) -> bool {
        let own = &self.header.line(header::ENGINE).words[header::ENGINE_CPU];
        let mark = cpu as u64 + 1;
        if own.load(Ordering::Relaxed) != mark {
            own.store(mark, Ordering::Relaxed);
        }
        let other = &self.header.line(header::PROGRAM).words[header::PROGRAM_CPU];
        other.load(Ordering::Relaxed) == mark
    }

    /// Returns whether events or replies were written while the program sleeps: then its doorbell
    /// has to be rung. To be called once at the end of a turn.
    pub fn take_doorbell(&mut self) -> bool {
        if !core::mem::take(&mut self.has_news) {
            return false;
        }
        fence(Ordering::SeqCst);
        let word = &self.header.line(header::PROGRAM).words[header::PROGRAM_SLEEPING];
        word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::AcqRel) != 0
    }

    /// Returns whether events or replies were written since the last [`EngineEnd::take_doorbell`].
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    // Events.

    /// Returns whether events wait for the program.
    pub fn has_unread_events(&self) -> bool {
        self.events.has_unread()
    }

    fn push_event(&mut self, event: RawEvent) {
        self.has_news = true;
        if self.events.push(event.encode()).is_err() {
            self.note_contradiction(Contradiction::Events);
        }
    }

    /// Something about the socket changed.
    #[inline]
    pub fn changed(&mut self, sock: SockId) {
        let raised = self.cell(sock.index).is_some_and(|cell| cell.raise_event());
        if raised {
            self.push_event(RawEvent::Changed { sock });
        }
    }

    /// The engine is done with a socket that the program has closed.
    pub fn released(&mut self, sock: SockId) {
        self.extents.forget(sock);
        if let Some(cell) = self.cell(sock.index) {
            cell.set_state(StateWord {
                generation: 0,
                state: State::NONE,
                reason: None,
                error_count: 0,
            });
        }
        self.push_event(RawEvent::Released { sock });
        if sock.index as usize >= PROGRAM_SOCKETS {
            self.free.push_back((sock.index, self.events.tail()));
        }
    }

    // Sockets.

    /// Begins a socket that the program opened; `false` when the id is impossible.
    pub fn begin(&mut self, sock: SockId, limits: Limits) -> bool {
        if sock.index as usize >= PROGRAM_SOCKETS || sock.generation == 0 {
            self.note_contradiction(Contradiction::Socket);
            return false;
        }
        self.reset(sock, limits);
        true
    }

    /// Records that the program opened a socket whose cell is in use.
    pub fn note_reopened(&mut self) {
        self.note_contradiction(Contradiction::Socket);
    }

    fn reset(&mut self, sock: SockId, limits: Limits) {
        let Some(cell) = self.cell(sock.index) else {
            return;
        };
        cell.reset_engine();
        cell.set_sndbuf(u64::from(limits.send));
        cell.set_rcvbuf(limits.receive);
        cell.set_state(StateWord {
            generation: sock.generation,
            state: State::NONE,
            reason: None,
            error_count: 0,
        });
    }

    /// A socket for a connection that the stack accepted, and its event. `None` when no index is
    /// free.
    pub fn accepted(&mut self, listener: SockId, ends: &Ends, limits: Limits) -> Option<SockId> {
        let index = self.take_index()?;
        let at = index as usize - PROGRAM_SOCKETS;
        let generation = next_generation(self.generations[at]);
        self.generations[at] = generation;
        let sock = SockId { index, generation };
        let state = StateWord {
            generation,
            state: State::CONNECTED | State::BOUND,
            reason: None,
            error_count: 0,
        };
        self.cell(index)?.begin_accepted(state, limits, ends);
        self.push_event(RawEvent::Accepted {
            sock,
            listener: listener.index as u16,
        });
        Some(sock)
    }

    fn take_index(&mut self) -> Option<u32> {
        if let Some(&(index, position)) = self.free.front() {
            match self.events.has_passed(position) {
                Ok(true) => {
                    self.free.pop_front();
                    return Some(index);
                }
                Ok(false) => {}
                Err(_) => {
                    self.note_contradiction(Contradiction::Events);
                    return None;
                }
            }
        }
        if self.untouched as usize >= SOCKETS {
            return None;
        }
        self.generations.push(0);
        self.untouched += 1;
        Some(self.untouched - 1)
    }

    /// Publishes a socket's state; the reason stays until the program takes it.
    pub fn set_state(&mut self, sock: SockId, state: State, reason: Option<Reason>, count: u8) {
        if let Some(cell) = self.cell(sock.index) {
            cell.set_state(StateWord {
                generation: sock.generation,
                state,
                reason,
                error_count: count,
            });
        }
    }

    /// To be called before the state that announces the addresses.
    pub fn set_addrs(
        &mut self,
        sock: SockId,
        local: Option<SocketAddr>,
        remote: Option<SocketAddr>,
    ) {
        if let Some(cell) = self.cell(sock.index) {
            cell.set_addrs(local, remote);
        }
    }

    /// Returns the addresses of [`EngineEnd::set_addrs`], local and remote: the program may have
    /// changed them.
    pub fn addrs(&self, sock: SockId) -> Option<(SocketAddr, SocketAddr)> {
        let cell = self.cell(sock.index)?;
        Some((cell.local()?, cell.remote()?))
    }

    pub fn set_sndbuf(&mut self, sock: SockId, bytes: u32) {
        if let Some(cell) = self.cell(sock.index) {
            cell.set_sndbuf(u64::from(bytes));
        }
    }

    /// To be called when it changes, which is rare; only the program's getsockopt reads it.
    pub fn set_rcvbuf(&mut self, sock: SockId, bytes: u32) {
        if let Some(cell) = self.cell(sock.index) {
            cell.set_rcvbuf(bytes);
        }
    }

    /// Returns whether the program has marked this accepted connection as taken.
    pub fn is_taken(&self, sock: SockId) -> bool {
        self.cell(sock.index)
            .is_some_and(|cell| cell.is_taken(sock.generation))
    }

    /// Records how far the receive ring of a killed program counts as read: its user has bytes that
    /// were still in the ring.
    pub fn set_read(&self, sock: SockId, upto: u64) {
        if let Some(cell) = self.cell(sock.index) {
            cell.set_rx_tail(upto);
        }
    }

    /// Takes an accepted connection back that the program has not taken; `false`: it has.
    pub fn withdraw(&self, sock: SockId) -> bool {
        self.cell(sock.index)
            .is_some_and(|cell| cell.withdraw(sock.generation))
    }

    /// Returns whether the program sleeps in a call and wants its doorbell rung.
    pub fn is_program_asleep(&self) -> bool {
        let word = &self.header.line(header::PROGRAM).words[header::PROGRAM_SLEEPING];
        word.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of connections of a listener that the program has taken, by its own
    /// count.
    #[inline]
    pub fn accept_taken(&self, listener: SockId) -> u64 {
        self.cell(listener.index)
            .map_or(0, |cell| cell.accept_taken())
    }
}
