//! The attachment to an engine: the program's end of the channel under the names of this crate, and
//! the dispatch of the channel's events to sockets.

mod carrying;
mod pump;
pub(crate) mod seen;

use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use slipstack_channel::{
    CloseMode, Command, Driver, EngineHandle, Envelope, Placement, ProgramEnd, Reply, SavedSyn,
    SockId, SocketError, SocketOption, State, TcpInfo, Transport, Unsent,
};
use slipstack_mem::thread::thread_id;
use slipstack_mem::{Lock, now_ns};

use crate::attachment::seen::Seen;
use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::ready::Recipient;
use crate::ready::Station;

/// Sockets of a channel are numbered below this.
const SOCKETS: usize = slipstack_channel::SOCKETS;
const CHUNK: usize = 1024;

/// Time within which an engine has to answer a request before it counts as gone.
const ANSWER_NS_MAX: u64 = 5_000_000_000;
/// After this time without an answer the requesting thread sleeps between checks.
const ANSWER_SPIN_NS: u64 = 20_000;
const ANSWER_SLEEP: Duration = Duration::from_micros(50);

/// Datagrams are held only within this time after a turn of the program's: a stand-in which drives
/// the engine while the program is away sees them then, as it looks after each turn.
const ATTENDED_NS: u64 = 1_000_000;

/// Time that a process may take to end.
const END: Duration = Duration::from_secs(1);

/// Bytes of send rings that idle connections may keep together.
const RINGS_KEPT: usize = 1 << 20;

/// Interval of attempts while a socket waits for memory.
const MEMORY_LOOK_NS: u64 = 10_000_000;

pub(crate) use slipstack_channel::Datagram;

type RecipientSlot = Lock<Option<(u32, Arc<dyn Recipient>)>>;

/// A program's attachment to one engine.
pub(crate) struct Attachment {
    pub(crate) program: ProgramEnd,
    pub(crate) driver: Arc<dyn Driver>,
    /// The threads that wait for it.
    pub(crate) station: Arc<Station>,
    pub(crate) describe: String,
    /// The processor for the thread that drives the engine, if the user has named several.
    pub(crate) core: Option<usize>,
    /// The thread that the channel names as the engine's driver; 0 = none.
    driven_by: AtomicUsize,
    /// The program confines itself: its threads may not be allowed to ask for their numbers.
    names_no_drivers: AtomicBool,
    /// Taken by the thread that hands events out.
    pumping: Lock<()>,
    /// A thread found `pumping` taken, or has not looked yet.
    has_news: AtomicBool,
    /// Set once this process has released the attachment.
    is_left: AtomicBool,
    /// Set if the process goes on without the attachment.
    is_lost: AtomicBool,
    /// The listeners to the channel's sockets, in chunks.
    sockets: Box<[OnceLock<Box<[RecipientSlot]>>]>,
}

impl std::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attachment")
            .field("describe", &self.describe)
            .finish_non_exhaustive()
    }
}

impl Attachment {
    pub(crate) fn new(engine: EngineHandle, station: Arc<Station>) -> Self {
        let EngineHandle {
            program,
            driver,
            describe,
            core,
        } = engine;
        Attachment {
            program,
            driver,
            station,
            describe,
            core,
            driven_by: AtomicUsize::new(0),
            names_no_drivers: AtomicBool::new(false),
            pumping: Lock::new(()),
            has_news: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            sockets: (0..SOCKETS.div_ceil(CHUNK))
                .map(|_| OnceLock::new())
                .collect(),
        }
    }

    // Driving.

    /// Runs the engine once, and hands out events.
    #[inline]
    pub(crate) fn turn(&self, now_ns: u64) {
        let sleepers = &self.station.sleepers;
        sleepers.turned_ns.store(now_ns, Ordering::Relaxed);
        self.driver.turn(now_ns);
        self.pump();
        sleepers.nudge(|| now_ns);
    }

    /// Names the calling thread in the channel as the one that drives the engine, for `status`.
    #[inline]
    pub(crate) fn note_driver(&self, thread: usize) {
        if self.driven_by.load(Ordering::Relaxed) != thread {
            self.name_driver(thread);
        }
    }

    /// As [`Attachment::note_driver`], for a thread that drives beside others and never sleeps: it
    /// is named if no other one has been.
    #[inline]
    pub(crate) fn note_first_driver(&self, thread: usize) {
        if self.driven_by.load(Ordering::Relaxed) == 0 {
            self.name_driver(thread);
        }
    }

    /// Names the calling thread for the last time.
    pub(crate) fn note_last_driver(&self, thread: usize) {
        self.note_driver(thread);
        self.names_no_drivers.store(true, Ordering::Relaxed);
    }

    #[cold]
    fn name_driver(&self, thread: usize) {
        self.driven_by.store(thread, Ordering::Relaxed);
        let may_name = !self.names_no_drivers.load(Ordering::Relaxed);
        if may_name && self.driver.placement() == Placement::InProcess {
            self.program.set_driving_thread(thread_id());
        }
    }

    /// Carries out pushed commands now, and hands out the resulting events.
    pub(crate) fn commands(&self) {
        self.driver.commands();
        self.pump();
    }

    /// Something for the wire was pushed on this socket: it leaves now or with the batch.
    pub(crate) fn after_push(&self, kernel: &dyn Kernel, socket: u64) {
        let thread = kernel.thread();
        let Station {
            batch, sleepers, ..
        } = &*self.station;
        if batch.is_due(thread, socket, || kernel.now_ns()) {
            self.commands();
            sleepers.nudge(|| kernel.now_ns());
        } else if !batch.is_in_burst(thread) {
            self.driver.note_held();
        }
    }

    /// Sends `count` datagrams that were pushed on this socket of the channel, as
    /// [`Attachment::after_push`], or holds them while more input waits there.
    pub(crate) fn after_datagrams(
        &self,
        kernel: &dyn Kernel,
        (socket, sock): (u64, SockId),
        count: usize,
    ) {
        let thread = kernel.thread();
        let Station {
            batch,
            answers,
            sleepers,
            ..
        } = &*self.station;
        if batch.is_in_burst(thread) {
            return;
        }
        let now_ns = kernel.now_ns();
        let turned_ns = sleepers.turned_ns.load(Ordering::Relaxed);
        let is_attended = now_ns.saturating_sub(turned_ns) < ATTENDED_NS;
        let has_more = || self.program.rx_available(sock) > 0;
        if batch.holds() && is_attended && answers.are_held(thread, count, has_more(), now_ns) {
            self.driver.note_held();
            sleepers.nudge(|| now_ns);
            return;
        }
        self.after_push(kernel, socket);
    }

    /// Nothing is left to be read: datagrams that the thread holds leave.
    pub(crate) fn let_answers_leave(&self, kernel: &dyn Kernel) -> bool {
        let is_due = self.station.answers.take(kernel.thread());
        if is_due {
            self.turn(kernel.now_ns());
        }
        is_due
    }

    /// Returns whether a ticker drives the engine while the program is away.
    pub(crate) fn has_ticker(&self) -> bool {
        self.driver.placement() == Placement::InProcess && self.driver.has_stand_in()
    }

    /// Returns whether the engine has ended; `false` while the process ends, whose other threads
    /// run on for a moment.
    pub(crate) fn is_dead(&self) -> bool {
        self.driver.is_dead() || self.is_lost.load(Ordering::Relaxed)
    }

    /// Marks the engine as lost, because the process did not end after all.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    /// Ends the use of the engine; frames that wait for a neighbour may leave until `until_ns`.
    pub(crate) fn end_session(&self, until_ns: u64) {
        self.is_left.store(true, Ordering::Release);
        self.driver.end_session(until_ns);
    }

    fn place(&self, index: u32) -> Option<&RecipientSlot> {
        let index = index as usize;
        let chunk = self.sockets.get(index / CHUNK)?;
        let places = chunk.get_or_init(|| (0..CHUNK).map(|_| Lock::new(None)).collect());
        places.get(index % CHUNK)
    }

    fn find(&self, sock: SockId) -> Option<Arc<dyn Recipient>> {
        match &*self.place(sock.index)?.lock() {
            Some((generation, socket)) if *generation == sock.generation => {
                Some(Arc::clone(socket))
            }
            _ => None,
        }
    }

    /// Sends events of `sock` to `recipient` from now on.
    pub(crate) fn name<R: Recipient + 'static>(&self, sock: SockId, recipient: &Arc<R>) {
        if let Some(place) = self.place(sock.index) {
            *place.lock() = Some((sock.generation, Arc::<R>::clone(recipient)));
        }
    }

    pub(crate) fn forget(&self, sock: SockId) {
        if let Some(place) = self.place(sock.index) {
            let mut place = place.lock();
            if place
                .as_ref()
                .is_some_and(|(generation, _)| *generation == sock.generation)
            {
                *place = None;
            }
        }
    }

    // Requests.

    pub(crate) fn open(&self, kind: Transport) -> Result<SockId, Errno> {
        self.program.open_socket(kind).map_err(|_| Errno::ENOBUFS)
    }

    /// Asks and waits for the answer; in-process it comes with the turn that this makes.
    fn ask(&self, command: Command) -> Result<Reply, Errno> {
        let ticket = self.program.request(command);
        let begun = now_ns();
        loop {
            self.driver.commands();
            if let Some(reply) = self.program.reply(ticket) {
                return reply.map_err(|refusal| self.refused(refusal));
            }
            if self.is_dead() {
                return Err(Errno::ENETDOWN);
            }
            let waited = now_ns().wrapping_sub(begun);
            if waited > ANSWER_NS_MAX {
                return Err(Errno::ENETDOWN);
            }
            if waited > ANSWER_SPIN_NS {
                std::thread::sleep(ANSWER_SLEEP);
                if !self.has_ticker() {
                    // An instance that has ended is found out about by turns.
                    self.driver.turn(now_ns());
                }
            }
        }
    }

    /// A thread that waits for a reply while another one ends the process gets none: it ends with
    /// it.
    fn refused(&self, refusal: SocketError) -> Errno {
        let is_ending = self.is_left() && !self.is_lost.load(Ordering::Relaxed);
        if is_ending && refusal == SocketError::NetDown {
            std::thread::sleep(END);
        }
        Errno::from(refusal)
    }

    pub(crate) fn bind(
        &self,
        sock: SockId,
        addr: SocketAddr,
        is_v6_only: bool,
        is_shared: bool,
    ) -> Result<SocketAddr, Errno> {
        let reply = self.ask(Command::Bind {
            sock,
            addr,
            reuse_addr: true,
            reuse_port: is_shared,
            v6_only: is_v6_only,
        })?;
        Ok(bound_of(reply).unwrap_or(addr))
    }

    pub(crate) fn listen(&self, sock: SockId, backlog: u32) -> Result<(), Errno> {
        self.ask(Command::Listen { sock, backlog }).map(drop)
    }

    /// Starts a connection attempt.
    pub(crate) fn connect(&self, sock: SockId, remote: SocketAddr) -> Result<(), Errno> {
        self.ask(Command::Connect { sock, remote }).map(drop)
    }

    pub(crate) fn udp_connect(
        &self,
        sock: SockId,
        remote: Option<SocketAddr>,
    ) -> Result<(), Errno> {
        self.ask(Command::UdpConnect { sock, remote }).map(drop)
    }

    pub(crate) fn info(&self, sock: SockId) -> Result<TcpInfo, Errno> {
        match self.ask(Command::Info { sock })? {
            Reply::Info(info) => Ok(info),
            Reply::Done | Reply::Bound { .. } | Reply::Syn(_) => Err(Errno::EINVAL),
        }
    }

    /// Takes the headers of the SYN that opened a connection, if the engine has saved them.
    pub(crate) fn take_syn(&self, sock: SockId) -> Result<Option<SavedSyn>, Errno> {
        match self.ask(Command::TakeSyn { sock })? {
            Reply::Syn(syn) => Ok(Some(syn)),
            Reply::Done | Reply::Bound { .. } | Reply::Info(_) => Ok(None),
        }
    }

    /// Returns whether a connection of the engine, or the TIME-WAIT of one, has this local port.
    pub(crate) fn has_port(&self, local: SocketAddr, is_v6_only: bool) -> bool {
        let asked = Command::FindPort {
            local,
            v6_only: is_v6_only,
        };
        self.ask(asked) == Err(Errno::EADDRINUSE)
    }

    // Commands without an answer.

    pub(crate) fn set_option(&self, sock: SockId, option: SocketOption) {
        self.program.push(Command::SetOption { sock, option });
    }

    pub(crate) fn shutdown(&self, sock: SockId, is_full: bool) {
        self.program.push(Command::Shutdown { sock, is_full });
    }

    pub(crate) fn unlisten(&self, sock: SockId) {
        self.program.push(Command::Unlisten { sock });
    }

    /// Lets a listener whose connections went to others take them again.
    pub(crate) fn resume(&self, sock: SockId) {
        self.program.push(Command::Resume { sock });
        self.driver.commands();
    }

    pub(crate) fn close(&self, sock: SockId, mode: CloseMode) {
        self.forget(sock);
        self.program.close(sock, mode);
    }

    /// As [`ProgramEnd::close_unread`].
    pub(crate) fn close_unread(&self, sock: SockId) {
        self.forget(sock);
        self.program.close_unread(sock);
    }

    // State read from the cells.

    pub(crate) fn seen(&self, sock: SockId) -> Seen {
        let state = self.program.state(sock);
        if self.is_dead() && !state.contains(State::CLOSED) {
            return Seen(state | State::HUP | State::CLOSED);
        }
        Seen(state)
    }

    /// Frees the send rings of idle connections before a sleep, when all rings together are worth
    /// it. A few stay: giving them back and taking them again would cost every request.
    pub(crate) fn release_idle(&self) {
        if self.program.tx_memory() > RINGS_KEPT {
            self.program.release_idle();
        }
    }

    /// Wakes sockets that wait for memory before a sleep, or before a call gives up. Returns the
    /// time after which to try again: sk_stream_wait_memory() does not sleep without end either.
    #[inline]
    pub(crate) fn relieve(&self) -> Option<u64> {
        self.program
            .is_starving()
            .then(|| self.notify_starved())
            .flatten()
    }

    #[cold]
    fn notify_starved(&self) -> Option<u64> {
        let again = self.program.notify_starved();
        self.pump();
        again.then_some(MEMORY_LOOK_NS)
    }

    // Bytes.

    /// `Ok(None)`: the send buffer is full.
    pub(crate) fn udp_send(
        &self,
        sock: SockId,
        envelope: &Envelope,
        bufs: &[IoSlice<'_>],
    ) -> Result<Option<usize>, Errno> {
        match self.program.udp_send(sock, envelope, bufs) {
            Ok(count) => Ok(Some(count)),
            Err(Unsent::Full) => Ok(None),
            Err(Unsent::NoMemory) => Err(Errno::ENOBUFS),
        }
    }
}

fn bound_of(reply: Reply) -> Option<SocketAddr> {
    match reply {
        Reply::Bound { local } => Some(local),
        Reply::Done | Reply::Info(_) | Reply::Syn(_) => None,
    }
}
