//! Operations of a handler.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use slipstack_channel::{
    CloseMode, Command, Envelope, Outgoing, OutgoingDatagram, ProgramEnd, SockId, SocketOption,
    State, Ticket, Transport,
};

use crate::connections::{ConnectionId, DatagramSocketId, Entries, ListenerId, Phase};
use crate::control::Shared;
use crate::counts::Counts;
use crate::dispatch::Dispatcher;
use crate::limits::Limits;
use crate::outcome::Closed;
use crate::raw;
use crate::received::{Datagram, Received};
use crate::timers::Timers;
use crate::workers::{Busy, Pool, Promise, Results};

/// Time for which a handler that found the pool busy waits.
const RETRY_NS: u64 = 1_000_000;

/// A named limit is reached: the socket table, or the room of a send ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The request to which an answer of the engine belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    BindListener { sock: SockId, backlog: u32 },
    Listen { sock: SockId },
    BindDatagrams { sock: SockId },
    Connect { sock: SockId },
}

/// All of a host that handlers touch.
pub(crate) struct Core<R> {
    pub(crate) program: ProgramEnd,
    pub(crate) entries: RefCell<Entries>,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) wake_at: Cell<Option<u64>>,
    pub(crate) listeners: RefCell<Vec<SockId>>,
    pub(crate) datagram_sockets: RefCell<Vec<SockId>>,
    /// A datagram is being handled on its arrival: responses go to `outgoing`.
    pub(crate) is_arriving: Cell<bool>,
    pub(crate) outgoing: RefCell<Outgoing>,
    /// Requests under way.
    pub(crate) asked: RefCell<Vec<(Ticket, Asked)>>,
    /// Attempts for which there was no ticket yet; at most as many as there are connections.
    pub(crate) attempts: RefCell<VecDeque<(SockId, SocketAddr)>>,
    /// Connections that a handler has closed.
    pub(crate) ended: RefCell<Vec<SockId>>,
    /// Connections that had ended in the stack, and whose last bytes have been taken since.
    pub(crate) read_out: RefCell<Vec<SockId>>,
    /// Connections that are to be checked again, each once, with the time.
    pub(crate) retries: RefCell<Vec<SockId>>,
    pub(crate) retry_at: Cell<Option<u64>>,
    /// Something has been written since the last check of the send rings.
    pub(crate) has_written: Cell<bool>,
    pub(crate) results: Arc<Results<R>>,
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) dispatcher: RefCell<Option<Dispatcher>>,
    pub(crate) limits: Limits,
    pub(crate) shares_ports: bool,
    pub(crate) counts: Arc<Counts>,
    pub(crate) shared: Arc<Shared>,
}

/// The service's access to its sockets during one call.
///
/// All methods take `&self`: their effects happen after the handler has returned, within the same
/// turn of the engine.
pub struct Context<'a, R = ()> {
    pub(crate) core: &'a Core<R>,
    pub(crate) now_ns: u64,
}

impl<R> Context<'_, R> {
    /// The time of the turn: monotonic nanoseconds, or virtual ones.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    // Listeners, datagram sockets, connections out.

    /// Listens on an address. A refusal comes as [`crate::Service::on_refused`].
    ///
    /// # Errors
    /// No socket is left.
    pub fn listen(&self, addr: SocketAddr, backlog: u32) -> Result<ListenerId, Full> {
        let sock = self.open(Transport::Tcp)?;
        self.bind_socket(sock, addr, Asked::BindListener { sock, backlog });
        self.core.listeners.borrow_mut().push(sock);
        Ok(ListenerId(sock))
    }

    /// Binds a UDP socket. A refusal comes as [`crate::Service::on_refused`].
    ///
    /// # Errors
    /// No socket is left.
    pub fn bind(&self, addr: SocketAddr) -> Result<DatagramSocketId, Full> {
        let sock = self.open(Transport::Udp)?;
        self.bind_socket(sock, addr, Asked::BindDatagrams { sock });
        self.core.datagram_sockets.borrow_mut().push(sock);
        Ok(DatagramSocketId(sock))
    }

    /// Stops listening. Connections that are open stay.
    pub fn unlisten(&self, id: ListenerId) {
        self.core
            .listeners
            .borrow_mut()
            .retain(|sock| *sock != id.0);
        self.core.program.close(id.0, CloseMode::Orderly);
    }

    /// Opens a connection: [`crate::Service::on_open`] or
    /// [`crate::Service::on_connect_failed`] follows, with `tag`.
    ///
    /// # Errors
    /// The service has as many connections as it may.
    pub fn connect(&self, remote: SocketAddr, tag: u64) -> Result<ConnectionId, Full> {
        if self.core.entries.borrow().live >= self.core.limits.connections_max {
            return Err(Full);
        }
        let sock = self.open(Transport::Tcp)?;
        self.core
            .entries
            .borrow_mut()
            .begin(sock, Phase::Connecting { tag });
        self.core.attempts.borrow_mut().push_back((sock, remote));
        Ok(ConnectionId(sock))
    }

    fn open(&self, kind: Transport) -> Result<SockId, Full> {
        let sock = self.core.program.open_socket(kind).map_err(|_| Full)?;
        if kind == Transport::Tcp {
            // Nagle's delay serves programs that write in small pieces; here a turn's writes
            // leave together.
            let option = SocketOption::NoDelay(true);
            self.core.program.push(Command::SetOption { sock, option });
        }
        Ok(sock)
    }

    fn bind_socket(&self, sock: SockId, addr: SocketAddr, asked: Asked) {
        let is_shared = self.core.shares_ports;
        let ticket = self.core.program.request(Command::Bind {
            sock,
            addr,
            reuse_addr: matches!(asked, Asked::BindListener { .. }),
            reuse_port: is_shared,
            // An address family is listened on by itself.
            v6_only: true,
        });
        self.core.asked.borrow_mut().push((ticket, asked));
    }

    // One connection.

    /// Returns the unconsumed bytes in place.
    #[inline]
    pub fn received(&self, id: ConnectionId) -> Received<'_> {
        let [first, second] = self.core.program.peek_in_place(id.0);
        Received::new(raw::bytes(first, self), raw::bytes(second, self))
    }

    /// Takes up to `len` of them: room for the peer to send more.
    #[inline]
    pub fn consume(&self, id: ConnectionId, len: usize) {
        self.core.program.consume(id.0, len);
        if self.core.entries.borrow().gone > 0 {
            self.note_read(id);
        }
    }

    #[cold]
    fn note_read(&self, id: ConnectionId) {
        let is_read = self.core.program.rx_available(id.0) == 0;
        if is_read && self.core.entries.borrow_mut().take_gone(id.0) {
            self.core.read_out.borrow_mut().push(id.0);
        }
    }

    /// Puts bytes into the send ring, as many as there is room for, and returns how many. If that
    /// is fewer than given, [`crate::Service::on_room`] follows.
    #[inline]
    pub fn write(&self, id: ConnectionId, bytes: &[u8]) -> usize {
        self.write_vectored(id, &[IoSlice::new(bytes)])
    }

    /// As [`Context::write`], of several pieces.
    pub fn write_vectored(&self, id: ConnectionId, pieces: &[IoSlice<'_>]) -> usize {
        let written = self.core.program.send(id.0, pieces, false);
        self.core.has_written.set(true);
        let wanted: usize = pieces.iter().map(|piece| piece.len()).sum();
        if written < wanted {
            self.note_wish(id);
        }
        written
    }

    /// Puts all of the pieces into the send ring, or nothing.
    ///
    /// # Errors
    /// There is too little room; [`crate::Service::on_room`] follows when there is more.
    pub fn write_all(&self, id: ConnectionId, pieces: &[IoSlice<'_>]) -> Result<(), Full> {
        let wanted: usize = pieces.iter().map(|piece| piece.len()).sum();
        if self.room(id) < wanted {
            self.note_wish(id);
            return Err(Full);
        }
        if self.write_vectored(id, pieces) < wanted {
            // The arena is full: half an answer is useless.
            self.reset(id);
            return Err(Full);
        }
        Ok(())
    }

    /// Bytes that [`Context::write`] would take.
    pub fn room(&self, id: ConnectionId) -> usize {
        self.core.program.tx_space(id.0)
    }

    /// Bytes written that the peer has not acknowledged.
    pub fn unacknowledged(&self, id: ConnectionId) -> usize {
        self.core.program.tx_unacked(id.0)
    }

    /// Has [`crate::Service::on_room`] follow when there is more room than now.
    pub fn await_room(&self, id: ConnectionId) {
        self.note_wish(id);
    }

    #[cold]
    fn note_wish(&self, id: ConnectionId) {
        // Requests an event from the engine, if the write did not.
        let is_writable = self.core.program.is_writable(id.0);
        if let Some(entry) = self.core.entries.borrow_mut().find(id.0) {
            entry.wants_room = true;
        }
        debug_assert!(!is_writable || self.room(id) > 0);
    }

    /// Sends FIN after the written bytes; the peer may go on sending.
    pub fn shutdown(&self, id: ConnectionId) {
        let sock = id.0;
        self.core.program.push(Command::Shutdown {
            sock,
            is_full: false,
        });
    }

    /// Closes a connection: written bytes are delivered. With unconsumed bytes the peer gets a
    /// reset, as on the kernel.
    pub fn close(&self, id: ConnectionId) {
        self.let_go(id, CloseMode::Orderly);
    }

    /// Resets a connection.
    pub fn reset(&self, id: ConnectionId) {
        self.let_go(id, CloseMode::Abort);
    }

    fn let_go(&self, id: ConnectionId, mode: CloseMode) {
        let mut entries = self.core.entries.borrow_mut();
        let Some(entry) = entries.find(id.0) else {
            return;
        };
        if entry.phase == Phase::Closing {
            return;
        }
        entry.phase = Phase::Closing;
        self.core.ended.borrow_mut().push(id.0);
        self.core.program.close(id.0, mode);
    }

    /// Returns whether the connection exists and the service has not closed it.
    pub fn is_open(&self, id: ConnectionId) -> bool {
        let mut entries = self.core.entries.borrow_mut();
        entries
            .find(id.0)
            .is_some_and(|entry| entry.phase == Phase::Open)
    }

    /// Returns whether the peer has ended its stream.
    pub fn has_ended(&self, id: ConnectionId) -> bool {
        self.core.program.state(id.0).contains(State::RDHUP)
    }

    pub fn local(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.core.program.local(id.0)
    }

    pub fn remote(&self, id: ConnectionId) -> Option<SocketAddr> {
        self.core.program.remote(id.0)
    }

    /// Schedules [`crate::Service::on_timer`] after this time, replacing an earlier timer.
    pub fn set_timer(&self, id: ConnectionId, after: Duration) {
        let due = self.now_ns.saturating_add(after.as_nanos() as u64);
        self.core.timers.borrow_mut().set(id.0.index, due);
    }

    pub fn clear_timer(&self, id: ConnectionId) {
        self.core.timers.borrow_mut().clear(id.0.index);
    }

    /// Hands a job to the pool; [`crate::Service::on_result`] follows, unless the connection ends
    /// first.
    ///
    /// # Errors
    /// The pool's queue is full, or the connection has as many jobs as it may.
    pub fn submit(
        &self,
        id: ConnectionId,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Result<(), Busy>
    where
        R: Send + 'static,
    {
        let pool = self.core.pool.as_ref().ok_or(Busy)?;
        let mut entries = self.core.entries.borrow_mut();
        let entry = entries.find(id.0).ok_or(Busy)?;
        if usize::from(entry.jobs) >= self.core.limits.jobs_per_connection {
            return Err(Busy);
        }
        let results = Arc::clone(&self.core.results);
        let submitted = pool.submit(Box::new(move || {
            let promise = Promise::new(results, id);
            promise.keep(job());
        }));
        match submitted {
            Ok(()) => entry.jobs += 1,
            Err(Busy) => self.core.counts.busy.add(1),
        }
        submitted
    }

    /// Returns whether a job of the connection is under way.
    pub fn is_at_work(&self, id: ConnectionId) -> bool {
        let mut entries = self.core.entries.borrow_mut();
        entries.find(id.0).is_some_and(|entry| entry.jobs > 0)
    }

    /// Calls [`crate::Service::on_data`] again in a millisecond, for a handler that found the pool
    /// busy.
    pub fn retry(&self, id: ConnectionId) {
        let mut retries = self.core.retries.borrow_mut();
        if !retries.contains(&id.0) {
            retries.push(id.0);
        }
        if self.core.retry_at.get().is_none() {
            self.core.retry_at.set(Some(self.now_ns + RETRY_NS));
        }
    }

    // Datagrams.

    /// Sends a datagram from `local` (an address of the stack; `None`: the route's) to `peer`.
    ///
    /// # Errors
    /// The send ring is full: the datagram is dropped by the caller.
    pub fn send_to(
        &self,
        socket: DatagramSocketId,
        peer: SocketAddr,
        local: Option<SocketAddr>,
        bytes: &[u8],
    ) -> Result<(), Full> {
        let sent = self.try_send_to(socket, peer, local, bytes);
        if sent.is_err() {
            self.core.counts.unsent.add(1);
        }
        sent
    }

    /// As [`Context::send_to`], of a datagram that is kept if there is no room.
    pub(crate) fn try_send_to(
        &self,
        socket: DatagramSocketId,
        peer: SocketAddr,
        local: Option<SocketAddr>,
        bytes: &[u8],
    ) -> Result<(), Full> {
        let local = local.filter(|local| !local.ip().is_unspecified());
        if self.core.is_arriving.get() {
            let response = OutgoingDatagram {
                sock: socket.0,
                peer,
                local: local.map(|local| local.ip()),
                payload: bytes,
            };
            if self.core.outgoing.borrow_mut().push(&response) {
                return Ok(());
            }
        }
        let envelope = Envelope {
            peer: Some(peer),
            local,
            ..Envelope::default()
        };
        let sent = self
            .core
            .program
            .udp_send(socket.0, &envelope, &[IoSlice::new(bytes)]);
        self.core.has_written.set(true);
        sent.map(|_| ()).map_err(|_| Full)
    }

    /// Returns whether [`Context::pass`] has workers to pass datagrams on to.
    pub fn may_pass(&self) -> bool {
        let dispatcher = self.core.dispatcher.borrow();
        dispatcher.as_ref().is_some_and(Dispatcher::may_pass)
    }

    /// Passes a datagram on to the workers, for a handler that would take too long for it. Returns
    /// `false` if it is the engine's: there are no workers, or the shape leaves the handler no
    /// choice ([`crate::Shape`]). One that is passed on while all rings are full is dropped and
    /// counted ([`Counts::ring_full`]).
    pub fn pass(&self, socket: DatagramSocketId, datagram: &Datagram<'_>) -> bool {
        let mut dispatcher = self.core.dispatcher.borrow_mut();
        match dispatcher.as_mut().filter(|it| it.may_pass()) {
            Some(dispatcher) => {
                dispatcher.pass(socket, datagram, &self.core.counts);
                true
            }
            None => false,
        }
    }

    // The service as a whole.

    /// Schedules [`crate::Service::on_wake`] after this time, replacing an earlier one.
    pub fn wake_after(&self, after: Duration) {
        let due = self.now_ns.saturating_add(after.as_nanos() as u64);
        self.core.wake_at.set(Some(due));
    }

    /// Ends the engine, because the service has done its work ([`crate::Control::is_over`]).
    pub fn end(&self) {
        self.core.shared.set_over();
    }

    /// Connections that exist, attempts included.
    pub fn connections(&self) -> usize {
        self.core.entries.borrow().live
    }

    pub fn counts(&self) -> &Counts {
        &self.core.counts
    }

    /// Takes the next connection that a handler has closed off the list, to report its end.
    pub(crate) fn take_ended(&self) -> Option<(SockId, Closed)> {
        let sock = self.core.ended.borrow_mut().pop()?;
        Some((sock, Closed::ByService))
    }
}
