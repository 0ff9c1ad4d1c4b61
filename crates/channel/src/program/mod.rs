//! The program's side of a channel. Threads may use it at the same time; what belongs to one
//! socket and direction is behind a lock of its own.

mod blocks;
mod carved;
mod frozen;
mod in_place;
mod kept;
mod recv;
mod requests;
mod returned;
mod send;
mod sockets;
mod starved;
mod udp;
mod unacked;
mod urgent;

use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use slipstack_mem::{Arena, CommandRing, EventReader, Lines, Lock, PAYLOAD_WORDS, Region};

use crate::cell::Cell;
use slipstack_terms::CloseMode;

use crate::command::{Command, Ticket};
use crate::event::{ChannelEvent, EventKind, RawEvent};
use slipstack_terms::Transport;

use crate::ids::SockId;
use crate::layout;
use crate::layout::header;
use crate::loan::Loan;
use slipstack_terms::Reason;

use crate::state::{State, StateWord};

use blocks::Carvings;
use requests::Tickets;
use sockets::Sockets;
use starved::Starved;

pub use carved::{CARVED_MAX, Carved};
pub use frozen::Frozen;
pub use in_place::{DatagramEnd, DatagramInPlace};
pub use kept::{KEPT_MAX, KeepError, Segment};
pub use recv::Given;
pub use udp::{Datagram, Receiving, Unsent};

/// No socket index, or no room, is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The program's end of a channel. Clones are the same end.
#[derive(Clone, Debug)]
pub struct ProgramEnd {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    region: Region,
    header: Lines,
    cells: Lines,
    replies: Lines,
    commands: CommandRing,
    /// Commands that found the ring full, oldest first.
    overflow: Lock<VecDeque<[u64; PAYLOAD_WORDS]>>,
    is_overflowing: AtomicBool,
    events: Lock<EventReader>,
    /// Events taken from the ring before a caller asked for them, oldest first.
    early: Lock<VecDeque<ChannelEvent>>,
    has_early: AtomicBool,
    sockets: Sockets,
    arena: Lock<Arena>,
    receive_arena: Range<usize>,
    tickets: Lock<Tickets>,
    /// Indices of sockets that may own a send ring, for [`ProgramEnd::release_idle`].
    ring_holders: Lock<VecDeque<u32>>,
    starved: Starved,
    carvings: Lock<Carvings>,
}

impl ProgramEnd {
    /// Opens the program's end of a channel whose region another process created with
    /// [`crate::EngineEnd::create`]. A region has one program's end in its life.
    pub fn open(region: Region) -> io::Result<ProgramEnd> {
        ProgramEnd::map(region).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "not a channel of this version")
        })
    }

    fn map(region: Region) -> Option<ProgramEnd> {
        let header = Lines::new(&region, 0, 64)?;
        let creator = header.line(header::CREATOR);
        if creator.words[0].load(Ordering::Acquire) != layout::MAGIC
            || creator.words[1].load(Ordering::Relaxed) != layout::LAYOUT_VERSION
        {
            return None;
        }
        let cell_lines = layout::SOCKETS * layout::CELL_LINES;
        let inner = Inner {
            cells: Lines::new(&region, layout::CELLS_AT, cell_lines)?,
            replies: Lines::new(
                &region,
                layout::REPLIES_AT,
                layout::REPLIES * layout::REPLY_LINES,
            )?,
            commands: CommandRing::new(&region, layout::COMMANDS_AT, layout::COMMANDS)?,
            overflow: Lock::new(VecDeque::new()),
            is_overflowing: AtomicBool::new(false),
            events: Lock::new(EventReader::new(
                &region,
                layout::EVENTS_AT,
                layout::EVENTS,
                header::EVENT_POSITIONS * 64,
            )?),
            early: Lock::new(VecDeque::new()),
            has_early: AtomicBool::new(false),
            sockets: Sockets::new(),
            arena: Lock::new(Arena::new(layout::send_arena(region.len()))),
            receive_arena: layout::receive_arena(region.len()),
            tickets: Lock::new(Tickets::new()),
            ring_holders: Lock::new(VecDeque::new()),
            starved: Starved::default(),
            carvings: Lock::new(Carvings::default()),
            header,
            region,
        };
        Some(ProgramEnd {
            inner: Arc::new(inner),
        })
    }

    /// The shared region, for passing its descriptor on.
    pub fn region(&self) -> &Region {
        &self.inner.region
    }

    #[inline]
    fn cell(&self, index: u32) -> Option<Cell<'_>> {
        let place = index as usize * layout::CELL_LINES;
        Some(Cell::new(self.inner.cells.find(place)?))
    }

    /// The engine's word on this socket; `None` while the engine has not seen its opening, or
    /// the id is old.
    #[inline]
    fn state_word(&self, sock: SockId) -> Option<StateWord> {
        let word = self.cell(sock.index)?.state();
        (word.generation == sock.generation).then_some(word)
    }

    // Commands.

    /// Sends a command without a reply. It never fails: a command that does not fit the ring waits
    /// in private memory until the next call.
    #[inline]
    pub fn push(&self, command: Command) {
        self.push_ticketed(command, Ticket::NONE);
    }

    #[inline]
    fn push_ticketed(&self, command: Command, ticket: Ticket) {
        let payload = command.encode(ticket);
        if self.inner.is_overflowing.load(Ordering::Acquire) || !self.inner.commands.push(&payload)
        {
            self.push_overflow(Some(payload));
        }
    }

    #[cold]
    fn push_overflow(&self, payload: Option<[u64; PAYLOAD_WORDS]>) {
        let mut overflow = self.inner.overflow.lock();
        overflow.extend(payload);
        while let Some(first) = overflow.front() {
            if !self.inner.commands.push(first) {
                break;
            }
            overflow.pop_front();
        }
        self.inner
            .is_overflowing
            .store(!overflow.is_empty(), Ordering::Release);
    }

    /// Moves commands that found the ring full into it. Drivers call it before they run the engine.
    #[inline]
    pub fn flush_overflow(&self) {
        if self.inner.is_overflowing.load(Ordering::Acquire) {
            self.push_overflow(None);
        }
    }

    /// Returns whether the engine sleeps and its doorbell has to be rung. Calling it clears the
    /// flag, so the caller must ring.
    #[inline]
    pub fn needs_doorbell(&self) -> bool {
        core::sync::atomic::fence(Ordering::SeqCst);
        let word = &self.inner.header.line(header::ENGINE).words[header::ENGINE_SLEEPING];
        word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::AcqRel) != 0
    }

    /// Informs the engine that this side blocks and needs its doorbell rung on events. Returns
    /// `false` if there are events already (the flag is then cleared).
    pub fn prepare_sleep(&self) -> bool {
        let word = &self.inner.header.line(header::PROGRAM).words[header::PROGRAM_SLEEPING];
        word.store(1, Ordering::SeqCst);
        core::sync::atomic::fence(Ordering::SeqCst);
        if self.has_events() || self.inner.is_overflowing.load(Ordering::Acquire) {
            word.store(0, Ordering::Release);
            return false;
        }
        true
    }

    pub fn finish_sleep(&self) {
        self.inner.header.line(header::PROGRAM).words[header::PROGRAM_SLEEPING]
            .store(0, Ordering::Release);
    }

    /// Says on which processor the calling thread is. Returns whether the engine was last seen on
    /// the same one.
    pub fn meet(&self, cpu: usize) -> bool {
        let own = &self.inner.header.line(header::PROGRAM).words[header::PROGRAM_CPU];
        let mark = cpu as u64 + 1;
        if own.load(Ordering::Relaxed) != mark {
            own.store(mark, Ordering::Relaxed);
        }
        let other = &self.inner.header.line(header::ENGINE).words[header::ENGINE_CPU];
        other.load(Ordering::Relaxed) == mark
    }

    /// Says which thread of the program drives the engine, by the kernel's id.
    pub fn set_driving_thread(&self, thread: u32) {
        let word = &self.inner.header.line(header::PROGRAM).words[header::PROGRAM_THREAD];
        word.store(thread.into(), Ordering::Relaxed);
    }

    /// Revision of the network that the engine uses.
    pub fn network_revision(&self) -> u64 {
        let word = &self.inner.header.line(header::ENGINE).words[header::ENGINE_NETWORK];
        word.load(Ordering::Acquire)
    }

    /// Returns whether the engine has announced its end.
    pub fn is_engine_gone(&self) -> bool {
        self.inner.header.line(header::ENGINE).words[header::ENGINE_GONE].load(Ordering::Acquire)
            != 0
    }

    // Events.

    /// Returns whether an event waits. Another thread that takes events right now counts as none.
    pub fn has_events(&self) -> bool {
        let in_ring = || {
            self.inner
                .events
                .try_lock()
                .is_some_and(|mut e| !e.is_empty())
        };
        self.inner.has_early.load(Ordering::Acquire) || in_ring()
    }

    /// The next event. `None` also while another thread takes one.
    pub fn poll_event(&self) -> Option<ChannelEvent> {
        self.flush_overflow();
        if self.inner.has_early.load(Ordering::Acquire) {
            let mut early = self.inner.early.lock();
            let event = early.pop_front();
            self.inner
                .has_early
                .store(!early.is_empty(), Ordering::Release);
            if event.is_some() {
                return event;
            }
        }
        self.poll_ring()
    }

    fn poll_ring(&self) -> Option<ChannelEvent> {
        loop {
            let word = self.inner.events.try_lock()?.pop()?;
            let event = RawEvent::decode(word)?;
            if let Some(event) = self.on_event(event) {
                return Some(event);
            }
        }
    }

    /// Takes all events of the ring, so that connections on their way to a listener are known.
    fn take_early(&self) {
        let mut early = self.inner.early.lock();
        for _ in 0..layout::EVENTS {
            let Some(event) = self.poll_ring() else { break };
            early.push_back(event);
        }
        self.inner
            .has_early
            .store(!early.is_empty(), Ordering::Release);
    }

    fn on_event(&self, event: RawEvent) -> Option<ChannelEvent> {
        match event {
            RawEvent::Changed { sock } => {
                self.cell(sock.index)?.lower_event();
                self.inner.sockets.find(sock)?;
                Some(ChannelEvent {
                    sock,
                    kind: EventKind::Changed,
                })
            }
            RawEvent::Accepted { sock, listener } => self.on_accepted(sock, listener),
            RawEvent::Released { sock } => {
                let local = self.inner.sockets.find(sock)?;
                let listener = self.inner.sockets.unqueue(local, sock);
                self.drop_rings(local);
                self.inner.sockets.release(sock);
                let kind = listener.map_or(EventKind::Released, |listener| EventKind::Withdrawn {
                    listener,
                });
                Some(ChannelEvent { sock, kind })
            }
        }
    }

    fn on_accepted(&self, sock: SockId, listener: u16) -> Option<ChannelEvent> {
        if !self.inner.sockets.adopt(sock) {
            return None;
        }
        self.cell(sock.index)?.lower_event();
        let Some(listener) = self.inner.sockets.queue_accepted(listener, sock) else {
            // The listener was closed while the connection was on its way.
            self.refuse_accepted(sock);
            return None;
        };
        Some(ChannelEvent {
            sock,
            kind: EventKind::Accepted { listener },
        })
    }

    // Sockets.

    /// A new socket. The engine learns of it with the next commands.
    pub fn open_socket(&self, kind: Transport) -> Result<SockId, Full> {
        let sock = self.inner.sockets.open(kind).ok_or(Full)?;
        self.cell(sock.index).ok_or(Full)?.reset_program();
        self.push(Command::Open { sock, kind });
        Ok(sock)
    }

    /// Lets go of a socket. Its id is of no use afterwards; the index returns with
    /// [`EventKind::Released`]. Connections that wait to be accepted go to another listener of the
    /// same address, or are reset.
    pub fn close(&self, sock: SockId, mode: CloseMode) {
        self.close_as(sock, mode, false);
    }

    /// As [`ProgramEnd::close`], of a connection whose bytes another process has taken and not
    /// read: it is reset.
    pub fn close_unread(&self, sock: SockId) {
        self.close_as(sock, CloseMode::Abort, true);
    }

    fn close_as(&self, sock: SockId, mode: CloseMode, is_left_unread: bool) {
        let Some(local) = self.inner.sockets.find(sock) else {
            return;
        };
        if self.state(sock).contains(State::LISTENING) {
            self.take_early();
        }
        if local.is_closing.swap(true, Ordering::AcqRel) {
            return;
        }
        for waiting in self.inner.sockets.take_accepted(local) {
            self.refuse_accepted(waiting);
        }
        self.give_all_back(sock);
        let unread = is_left_unread || self.rx_available(sock) > 0;
        self.push(Command::Close { sock, mode, unread });
    }

    /// Gives a connection back that no program will accept.
    fn refuse_accepted(&self, sock: SockId) {
        if let Some(local) = self.inner.sockets.find(sock) {
            local.is_closing.store(true, Ordering::Release);
        }
        self.push(Command::Close {
            sock,
            mode: CloseMode::Pass,
            unread: true,
        });
    }

    /// Returns the socket's state: [`State::NONE`] for a fresh one, [`State::CLOSED`] with all
    /// hang-up bits when the engine is gone.
    #[inline]
    pub fn state(&self, sock: SockId) -> State {
        match self.state_word(sock) {
            Some(word) => {
                let taken = self
                    .inner
                    .sockets
                    .find(sock)
                    .is_some_and(|local| local.has_taken(word));
                if taken {
                    word.state.without(State::ERR)
                } else {
                    word.state
                }
            }
            None => State::NONE,
        }
    }

    /// The socket's pending error, left in place.
    pub fn peek_error(&self, sock: SockId) -> Option<Reason> {
        let word = self.state_word(sock)?;
        let local = self.inner.sockets.find(sock)?;
        if local.has_taken(word) {
            return None;
        }
        word.reason
    }

    /// The socket's pending error, taken.
    pub fn take_error(&self, sock: SockId) -> Option<Reason> {
        let word = self.state_word(sock)?;
        let reason = word.reason?;
        let local = self.inner.sockets.find(sock)?;
        let before = local.errors_taken.swap(word.error_count, Ordering::AcqRel);
        (before != word.error_count).then_some(reason)
    }

    /// The next connection of a listener.
    pub fn accept(&self, listener: SockId) -> Option<SockId> {
        let local = self.inner.sockets.find(listener)?;
        let mut accepted = local.accepted.lock();
        // Connections that the engine has taken back leave the queue with the event that reports
        // it.
        let is_there = |sock: &SockId| {
            let cell = self.cell(sock.index);
            cell.is_some_and(|cell| cell.take(sock.generation))
        };
        let queue = accepted.get_mut()?;
        let at = queue.iter().position(is_there)?;
        let sock = queue.remove(at)?;
        drop(accepted);
        self.inner.sockets.on_taken(sock);
        self.cell(listener.index)?.add_accept_taken();
        Some(sock)
    }

    /// Records which other processes may use a connection.
    pub fn set_loan(&self, sock: SockId, loan: Loan) {
        if let (Some(_), Some(cell)) = (self.inner.sockets.find(sock), self.cell(sock.index)) {
            cell.set_loan(loan.at(cell.tx_head(), cell.rx_tail()));
        }
    }

    pub fn local(&self, sock: SockId) -> Option<SocketAddr> {
        self.state_word(sock)?;
        self.cell(sock.index)?.local()
    }

    pub fn remote(&self, sock: SockId) -> Option<SocketAddr> {
        self.state_word(sock)?;
        self.cell(sock.index)?.remote()
    }
}

/// Returns the kernel's id of the thread that drives the engine, as the program of a channel's
/// region says it; 0: it has not said.
pub fn driving_thread(region: &Region) -> u32 {
    Lines::new(region, 0, 64).map_or(0, |lines| {
        lines.line(header::PROGRAM).words[header::PROGRAM_THREAD].load(Ordering::Relaxed) as u32
    })
}
