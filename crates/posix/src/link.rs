//! The attachment to an engine: the channel's ends by the names this crate thinks in, and the
//! way from the channel's events to the sockets they speak of.

mod pump;

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use slipstack_channel::{
    Attachment, CloseMode, Command, Driver, Envelope, Exit, Info, Kind, Placement, ProgramEnd,
    Refusal, Reply, Returned, SockId, SocketOption, State, Unsent, WaitOn,
};
use slipstack_mem::{Lock, now_ns};

use crate::errno::Errno;
use crate::ready::Recipient;
use crate::seen::Seen;
use crate::socket::Push;
use crate::station::Station;

/// Sockets of a channel are numbered below this.
const SOCKETS: usize = slipstack_channel::SOCKETS;
const CHUNK: usize = 1024;

/// How long an engine may take to answer a request before it counts as gone.
const ANSWER_NS_MAX: u64 = 5_000_000_000;
/// After this time without an answer the asking thread sleeps between looks.
const ANSWER_SPIN_NS: u64 = 20_000;
const ANSWER_SLEEP: Duration = Duration::from_micros(50);

/// How long a process may take to end.
const END: Duration = Duration::from_secs(1);

/// Bytes of send rings that idle connections may keep together.
const RINGS_KEPT: usize = 1 << 20;

/// While a socket waits for memory it is looked for this often.
const MEMORY_LOOK_NS: u64 = 10_000_000;

pub(crate) use slipstack_channel::Datagram;

type Place = Lock<Option<(u32, Arc<dyn Recipient>)>>;

/// One engine, attached.
pub(crate) struct Link {
    program: ProgramEnd,
    pub(crate) driver: Arc<dyn Driver>,
    /// Who waits for it.
    pub(crate) station: Arc<Station>,
    pub(crate) describe: String,
    /// Taken by the thread that hands events out.
    pumping: Lock<()>,
    /// Somebody found `pumping` taken, or has not looked yet.
    has_news: AtomicBool,
    /// This process has let go of it.
    is_left: AtomicBool,
    /// And goes on without it.
    is_lost: AtomicBool,
    /// Who hears of the channel's sockets, in chunks.
    sockets: Box<[OnceLock<Box<[Place]>>]>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("describe", &self.describe)
            .finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(attachment: Attachment, station: Arc<Station>) -> Self {
        let Attachment {
            program,
            driver,
            describe,
        } = attachment;
        Link {
            program,
            driver,
            station,
            describe,
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

    /// Lets the engine work once, and hands out what came.
    pub(crate) fn turn(&self) {
        self.driver.turn();
        self.pump();
    }

    /// As [`Link::turn`], for a thread that answers what comes at once and waits again.
    pub(crate) fn turn_before_answers(&self) {
        self.driver.turn_before_answers();
        self.pump();
    }

    /// Lets what was pushed leave now, and hands out what that brought.
    pub(crate) fn commands(&self) {
        self.driver.commands();
        self.pump();
    }

    pub(crate) fn placement(&self) -> Placement {
        self.driver.placement()
    }

    pub(crate) fn may_spin(&self) -> bool {
        self.driver.may_spin()
    }

    pub(crate) fn would_nap(&self) -> bool {
        self.driver.would_nap()
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.driver.is_busy()
    }

    pub(crate) fn prepare_wait(&self, nap_ns_max: u64) -> Option<WaitOn> {
        self.driver.prepare_wait(nap_ns_max)
    }

    pub(crate) fn finish_wait(&self, ready: [bool; 2]) {
        self.driver.finish_wait(ready);
    }

    /// Whether somebody drives the engine while the program is away.
    pub(crate) fn has_ticker(&self) -> bool {
        self.driver.placement() == Placement::InProcess && self.driver.has_stand_in()
    }

    /// Not while the process ends: its other threads run on for a moment, and learn nothing of that.
    pub(crate) fn is_dead(&self) -> bool {
        self.driver.is_dead() || self.is_lost.load(Ordering::Relaxed)
    }

    /// The process did not end after all.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// What the engine's stand-in calls when it has brought something while no thread of the program's drives.
    pub(crate) fn set_relief(&self, call: Box<dyn Fn() + Send + Sync>) {
        self.driver.set_relief(call);
    }

    pub(crate) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    pub(crate) fn goodbye(&self, why: Exit) {
        self.is_left.store(true, Ordering::Release);
        self.driver.goodbye(why);
    }

    pub(crate) fn descriptors(&self) -> Vec<i32> {
        self.driver.descriptors()
    }

    fn place(&self, index: u32) -> Option<&Place> {
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

    /// From now on events of `sock` go to `recipient`.
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

    pub(crate) fn open(&self, kind: Kind) -> Result<SockId, Errno> {
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
                    self.driver.turn();
                }
            }
        }
    }

    /// A thread that asks while another one ends the process gets no answer: it ends with it.
    fn refused(&self, refusal: Refusal) -> Errno {
        let is_ending = self.is_left() && !self.is_lost.load(Ordering::Relaxed);
        if is_ending && refusal == Refusal::NetDown {
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

    pub(crate) fn info(&self, sock: SockId) -> Result<Info, Errno> {
        match self.ask(Command::Info { sock })? {
            Reply::Info(info) => Ok(info),
            Reply::Done | Reply::Bound { .. } => Err(Errno::EINVAL),
        }
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

    /// A listener whose connections went to others takes them again.
    pub(crate) fn resume_listener(&self, sock: SockId) {
        self.program.push(Command::Resume { sock });
        self.driver.commands();
    }

    pub(crate) fn close(&self, sock: SockId, mode: CloseMode) {
        self.forget(sock);
        self.program.close(sock, mode);
    }

    // What the cells say.

    pub(crate) fn seen(&self, sock: SockId) -> Seen {
        let state = self.program.state(sock);
        if self.is_dead() && !state.contains(State::CLOSED) {
            return Seen(state | State::HUP | State::CLOSED);
        }
        Seen(state)
    }

    pub(crate) fn take_error(&self, sock: SockId) -> Option<Errno> {
        self.program.take_error(sock).map(Errno::from)
    }

    /// Room for up to `len` bytes in the send ring.
    pub(crate) fn reserve(&self, sock: SockId, len: usize) -> [libc::iovec; 2] {
        self.program
            .reserve(sock, len)
            .map(|space| space.as_iovec())
    }

    pub(crate) fn commit(&self, sock: SockId, len: usize) {
        self.program.commit(sock, len, false);
    }

    /// What waits to be read, where it lies.
    pub(crate) fn look_in_place(&self, sock: SockId) -> [libc::iovec; 2] {
        self.program.peek_in_place(sock).map(|slice| libc::iovec {
            iov_base: slice.as_ptr().cast_mut().cast(),
            iov_len: slice.len(),
        })
    }

    pub(crate) fn consume_in_place(&self, sock: SockId, len: usize) {
        self.program.consume(sock, len);
    }

    /// The error stays.
    pub(crate) fn peek_error(&self, sock: SockId) -> Option<Errno> {
        self.program.peek_error(sock).map(Errno::from)
    }

    pub(crate) fn available(&self, sock: SockId) -> usize {
        self.program.rx_available(sock)
    }

    /// Whether a read would give bytes.
    pub(crate) fn is_readable(&self, sock: SockId) -> bool {
        self.program.is_readable(sock)
    }

    /// Bytes up to the urgent mark or the end.
    pub(crate) fn unread(&self, sock: SockId) -> usize {
        self.program.rx_before_mark(sock)
    }

    /// Room in the send ring.
    pub(crate) fn space(&self, sock: SockId) -> usize {
        self.program.tx_space(sock)
    }

    /// Whether a third of the send buffer is free; if not, an event comes when it is.
    pub(crate) fn is_writable(&self, sock: SockId) -> bool {
        self.program.is_writable(sock)
    }

    /// Sizes of the send and the receive buffer, as they are now.
    pub(crate) fn buffers(&self, sock: SockId) -> [usize; 2] {
        [self.program.tx_limit(sock), self.program.rx_limit(sock)]
    }

    /// Bytes sent and not acknowledged.
    pub(crate) fn unacked(&self, sock: SockId) -> usize {
        self.program.tx_unacked(sock)
    }

    /// As [`Link::unacked`]; while there are any, an event comes when they become fewer.
    pub(crate) fn await_acked(&self, sock: SockId) -> usize {
        self.program.await_acked(sock)
    }

    /// Whether a datagram has come back that nobody has taken.
    pub(crate) fn has_returned(&self, sock: SockId) -> bool {
        self.program.has_returned(sock)
    }

    pub(crate) fn next_returned(&self, sock: SockId) -> Option<Returned> {
        self.program.next_returned(sock)
    }

    /// The first that came back, and how many bytes of it the buffers took.
    pub(crate) fn take_returned(
        &self,
        sock: SockId,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Option<(Returned, usize)> {
        self.program.take_returned(sock, bufs)
    }

    /// Length of the next datagram.
    pub(crate) fn next_datagram(&self, sock: SockId) -> Option<usize> {
        self.program.udp_next_len(sock)
    }

    /// Before a sleep: idle connections give their send rings back, when all rings together are
    /// worth it. A few stay: giving them back and taking them anew would cost every request.
    pub(crate) fn release_idle(&self) {
        if self.program.tx_memory() > RINGS_KEPT {
            self.program.release_idle();
        }
    }

    /// Before a sleep, or a call that gives up: sockets that wait for memory hear of it. How long to sleep until it is
    /// asked again: sk_stream_wait_memory() does not sleep without end either.
    #[inline]
    pub(crate) fn relieve(&self) -> Option<u64> {
        self.program
            .is_starving()
            .then(|| self.relieve_starved())
            .flatten()
    }

    #[cold]
    fn relieve_starved(&self) -> Option<u64> {
        let again = self.program.relieve();
        self.pump();
        again.then_some(MEMORY_LOOK_NS)
    }

    pub(crate) fn local(&self, sock: SockId) -> Option<SocketAddr> {
        self.program.local(sock)
    }

    pub(crate) fn remote(&self, sock: SockId) -> Option<SocketAddr> {
        self.program.remote(sock)
    }

    pub(crate) fn accept(&self, listener: SockId) -> Option<SockId> {
        self.program.accept(listener)
    }

    // Bytes.

    /// `peek_from`: look only, from this offset on.
    pub(crate) fn recv(
        &self,
        sock: SockId,
        bufs: &mut [IoSliceMut<'_>],
        peek_from: Option<usize>,
    ) -> usize {
        match peek_from {
            None => self.program.recv(sock, bufs),
            Some(skip) => self.program.peek(sock, bufs, skip),
        }
    }

    /// Drops waiting bytes unseen.
    pub(crate) fn discard(&self, sock: SockId, len: usize) -> usize {
        self.program.discard(sock, len)
    }

    pub(crate) fn send(&self, sock: SockId, bufs: &[IoSlice<'_>], push: Push) -> usize {
        match push {
            Push::Now => self.program.send(sock, bufs, false),
            Push::More => self.program.send(sock, bufs, true),
            Push::Urgent => self.program.send_urgent(sock, bufs),
        }
    }

    /// Bytes that have not left yet; at least those that have not when it was last asked to tell.
    pub(crate) fn unsent(&self, sock: SockId) -> usize {
        self.program.tx_unsent(sock)
    }

    pub(crate) fn tell_sent(&self, sock: SockId) {
        self.program.tell_sent(sock);
    }

    /// An event comes when less than half of `low_water` bytes have not left.
    pub(crate) fn want_sent(&self, sock: SockId, low_water: u32) {
        self.program.want_sent(sock, low_water);
    }

    /// The channel's side of urgent data.
    pub(crate) fn program(&self) -> &ProgramEnd {
        &self.program
    }

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

    pub(crate) fn udp_recv(
        &self,
        sock: SockId,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Option<Datagram> {
        self.program.udp_recv(sock, bufs, peek)
    }

    /// Where in its ring the next datagram lies, and its length.
    pub(crate) fn next_datagram_at(&self, sock: SockId) -> Option<(u64, usize)> {
        self.program.udp_next_at(sock)
    }

    /// Where in the ring the datagrams end.
    pub(crate) fn received_to(&self, sock: SockId) -> u64 {
        self.program.udp_received_to(sock)
    }

    /// SO_PEEK_OFF: from the byte `skip` of all that wait on.
    pub(crate) fn udp_peek_at(
        &self,
        sock: SockId,
        bufs: &mut [IoSliceMut<'_>],
        skip: usize,
        found_empty: &AtomicU64,
    ) -> Option<(Datagram, usize)> {
        self.program.udp_peek_at(sock, bufs, skip, found_empty)
    }
}

fn bound_of(reply: Reply) -> Option<SocketAddr> {
    match reply {
        Reply::Bound { local } => Some(local),
        Reply::Done | Reply::Info(_) => None,
    }
}
