//! The control connection, held by slot 0: it makes and ends links, and passes them to the slots.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::OFlags;
use rustix::net::SocketFlags;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use slipstack_mem::PrivateFd;

use super::board::Board;
use super::message::{self, AddRing, Hello, Message, VERSION};
use super::options::{LOG2_RING_MAX, Options, Role, SECRET_LEN};
use super::ring::{Connection, ConnectionShape, LaneShape, ProtocolViolation, RingPlace};
use crate::device::LinkNotice;
use crate::packets;

/// Most regions of a client.
const REGIONS_MAX: usize = 8;
/// Largest memory of each.
const REGION_LEN_MAX: u64 = 1 << 30;
/// Interval of a client's attempts to connect.
const RETRY: Duration = Duration::from_millis(200);
/// Time until the next attempt after a protocol error of the peer.
const RETRY_AFTER_LIE: Duration = Duration::from_secs(5);
/// Messages that are handled in one turn.
const MESSAGES_MAX: usize = 32;

const LISTENER: u64 = 0;
const PEER: u64 = 1;
const TIMER: u64 = 2;
const FIRST_PAIR: u64 = 3;

/// Another slot: the socket of its requests, and its doorbell.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub pair: PrivateFd,
    pub bell: PrivateFd,
}

/// The results of a turn.
#[derive(Debug, Default)]
pub(super) struct TurnOutcome {
    /// The link is another one than before, or none.
    pub has_changed: bool,
    /// The link that has ended because its peer did: frames may wait in its rings.
    pub former: Option<Connection>,
    pub notice: Option<LinkNotice>,
}

/// A connection that has not become a link yet, or has.
#[derive(Debug)]
struct Peer {
    socket: PrivateFd,
    /// Messages that a client still has to send, each after the answer to the last.
    queue: VecDeque<(Message, Option<OwnedFd>)>,
    /// The link that a client has made, until the server agrees.
    made: Option<Connection>,
    /// The client's offer, as sent to a server.
    offer: Offer,
    is_up: bool,
}

#[derive(Debug, Default)]
struct Offer {
    is_known: bool,
    takes_partial: bool,
    regions: Vec<(usize, OwnedFd)>,
    /// By their queues.
    rx: Vec<(RingPlace, OwnedFd)>,
    tx: Vec<(RingPlace, OwnedFd)>,
}

/// Reason why a connection ends.
enum End {
    /// The peer gets the reason.
    Refused(String),
    Gone,
}

#[derive(Debug)]
pub(super) struct Control {
    options: Options,
    listener: Option<PrivateFd>,
    epoll: PrivateFd,
    timer: PrivateFd,
    neighbours: Vec<Neighbour>,
    peer: Option<Peer>,
    generation: u32,
    violation: Option<ProtocolViolation>,
    is_absence_told: bool,
}

impl Control {
    pub(super) fn new(
        options: Options,
        listener: Option<OwnedFd>,
        neighbours: Vec<Neighbour>,
    ) -> io::Result<Control> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let control = Control {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?.into(),
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?.into(),
            options,
            listener: listener.map(PrivateFd::from),
            neighbours,
            peer: None,
            // Another one than any predecessor had.
            generation: slipstack_mem::now_ns() as u32 | 1,
            violation: None,
            is_absence_told: false,
        };
        control.watch(control.timer.as_fd(), TIMER)?;
        if let Some(listener) = &control.listener {
            control.watch(listener.as_fd(), LISTENER)?;
        }
        for (neighbour, data) in control.neighbours.iter().zip(FIRST_PAIR..) {
            control.watch(neighbour.pair.as_fd(), data)?;
        }
        if control.options.role == Role::Client {
            control.retry_after(Duration::from_nanos(1));
        }
        Ok(control)
    }

    fn watch(&self, fd: BorrowedFd<'_>, data: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(data);
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)?;
        Ok(())
    }

    pub(super) fn poll_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        let own = [Some(&self.epoll), Some(&self.timer), self.listener.as_ref()];
        let peer = self.peer.as_ref().map(|peer| &peer.socket);
        let others = self.neighbours.iter().flat_map(|it| [&it.pair, &it.bell]);
        let all = own.into_iter().flatten().chain(peer).chain(others);
        all.map(AsRawFd::as_raw_fd).collect()
    }

    /// Returns whether a client has still to connect, or has connected and waits for the answer.
    pub(super) fn is_connecting(&self) -> bool {
        self.options.role == Role::Client && (self.peer.is_some() || !self.is_absence_told)
    }

    /// Records a protocol error of the peer that this slot has seen.
    pub(super) fn set_violation(&mut self, violation: ProtocolViolation) {
        self.violation = Some(violation);
    }

    /// Wakes the slots of these bits.
    pub(super) fn wake(&self, slots: u64) {
        for (neighbour, slot) in self.neighbours.iter().zip(1u32..) {
            if slots & 1u64.checked_shl(slot).unwrap_or(0) != 0 {
                let _ = rustix::io::write(&neighbour.bell, &1u64.to_ne_bytes());
            }
        }
    }

    /// Does due work; never waits.
    pub(super) fn turn(&mut self, board: &Board, link: &mut Option<Connection>) -> TurnOutcome {
        let mut outcome = TurnOutcome::default();
        if self.peer.as_ref().is_some_and(|peer| peer.is_up) && board.has_violation(self.generation)
        {
            let violation = self
                .violation
                .take()
                .map_or("its rings are invalid", |violation| violation.0);
            self.end(
                End::Refused(violation.to_owned()),
                (board, link),
                &mut outcome,
            );
            self.retry_after(RETRY_AFTER_LIE);
        }
        let mut events = Vec::with_capacity(16);
        let none = Timespec::default();
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&none));
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept(board, link, &mut outcome),
                PEER => self.hear(board, link, &mut outcome),
                TIMER => self.find_server(&mut outcome),
                pair => self.answer((pair - FIRST_PAIR) as usize, link.as_ref()),
            }
        }
        outcome
    }

    /// Sends the link to a slot that asks.
    fn answer(&self, index: usize, link: Option<&Connection>) {
        let Some(neighbour) = self.neighbours.get(index) else {
            return;
        };
        let mut is_asked = false;
        while packets::receive(&neighbour.pair, &mut [0; 8]).is_ok_and(|(len, _)| len > 0) {
            is_asked = true;
        }
        if let Some(link) = link.filter(|_| is_asked) {
            let shape = serde_json::to_vec(&link.shape).unwrap_or_default();
            let _ = packets::send(&neighbour.pair, &shape, &link.descriptors());
        }
    }

    fn retry_after(&self, pause: Duration) {
        let zero = Timespec::default();
        let it_value = match self.options.role {
            Role::Client => Timespec {
                tv_sec: pause.as_secs().cast_signed(),
                tv_nsec: pause.subsec_nanos().into(),
            },
            Role::Server => zero,
        };
        let timing = Itimerspec {
            it_interval: zero,
            it_value,
        };
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timing);
    }

    fn find_server(&mut self, outcome: &mut TurnOutcome) {
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        if self.peer.is_some() {
            return;
        }
        match self.options.connect() {
            Ok(socket) => self.take_on(socket),
            Err(error) => {
                if !std::mem::replace(&mut self.is_absence_told, true) {
                    let (socket, why) = (&self.options.socket, explained(&error));
                    let notice = format!("memif: waiting for a server at \"{socket}\": {why}");
                    outcome.notice = Some(notice.into());
                }
                self.retry_after(RETRY);
            }
        }
    }

    fn take_on(&mut self, socket: OwnedFd) {
        let socket = PrivateFd::of_engine(socket);
        if self.watch(socket.as_fd(), PEER).is_ok() {
            self.peer = Some(Peer {
                socket,
                queue: VecDeque::new(),
                made: None,
                offer: Offer::default(),
                is_up: false,
            });
        }
    }

    fn accept(&mut self, board: &Board, link: &mut Option<Connection>, outcome: &mut TurnOutcome) {
        let Some(listener) = &self.listener else {
            return;
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = rustix::net::accept_with(listener, flags) else {
            return;
        };
        if self.peer.as_ref().is_some_and(|peer| peer.is_up) {
            let busy = Message::Disconnect("another client is connected".to_owned());
            let _ = packets::send(&socket, &busy.to_bytes(), &[]);
            return;
        }
        // One that has not finished makes room.
        self.peer = None;
        self.take_on(socket);
        let hello = Message::Hello(Hello {
            min_version: VERSION,
            max_version: VERSION,
            max_region: REGIONS_MAX as u16 - 1,
            max_to_client: self.options.queues - 1,
            max_to_server: self.options.queues - 1,
            max_log2_ring: LOG2_RING_MAX,
            takes_partial: true,
        });
        if self.send(&hello, None).is_err() {
            self.end(End::Gone, (board, link), outcome);
        }
    }

    fn send(&self, message: &Message, fd: Option<BorrowedFd<'_>>) -> Result<(), End> {
        let Some(peer) = &self.peer else {
            return Err(End::Gone);
        };
        let fds = fd.as_slice();
        packets::send(&peer.socket, &message.to_bytes(), fds).map_err(|_| End::Gone)
    }

    fn hear(&mut self, board: &Board, link: &mut Option<Connection>, outcome: &mut TurnOutcome) {
        for _ in 0..MESSAGES_MAX {
            let Some(peer) = &self.peer else {
                return;
            };
            let mut bytes = [0; message::LEN];
            let (len, fds) = match packets::receive(&peer.socket, &mut bytes) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => (0, Vec::new()),
            };
            let heard = match (len, Message::parse(bytes)) {
                (0, _) => Err(End::Gone),
                (message::LEN, Some(message)) => self.on_message(message, fds),
                _ => Err(End::Refused("a message is not of memif 2.0".to_owned())),
            };
            match heard {
                Ok(None) => {}
                Ok(Some(new)) => self.open_link(new, (board, link), outcome),
                Err(end) => self.end(end, (board, link), outcome),
            }
        }
    }

    /// Handles a message; returns the link when it is complete.
    fn on_message(
        &mut self,
        message: Message,
        fds: Vec<OwnedFd>,
    ) -> Result<Option<Connection>, End> {
        if let Message::Disconnect(why) = message {
            let is_told = !why.is_empty();
            return Err(match is_told {
                true => End::Refused(format!("it says \"{why}\"")),
                false => End::Gone,
            });
        }
        match self.options.role {
            Role::Client => self.on_servers_message(message),
            Role::Server => self.on_clients_message(message, fds),
        }
    }

    fn on_servers_message(&mut self, message: Message) -> Result<Option<Connection>, End> {
        match message {
            Message::Hello(hello) => self.introduce(hello)?,
            Message::Ack => {}
            Message::Connected => {
                let peer = self.peer.as_mut();
                return Ok(peer.and_then(|peer| peer.made.take()));
            }
            _ => return Err(unexpected()),
        }
        let next = self.peer.as_mut().and_then(|peer| peer.queue.pop_front());
        if let Some((message, fd)) = next {
            self.send(&message, fd.as_ref().map(AsFd::as_fd))?;
        }
        Ok(None)
    }

    /// Prepares everything that a client has to say.
    fn introduce(&mut self, hello: Hello) -> Result<(), End> {
        if !(hello.min_version..=hello.max_version).contains(&VERSION) {
            return Err(End::Refused("it does not speak memif 2.0".to_owned()));
        }
        let log2 = self.options.log2_ring.min(hello.max_log2_ring);
        let failed = |error: io::Error| End::Refused(explained(&error));
        let most = hello.max_to_client.min(hello.max_to_server);
        let queues = self.options.queues.min(most.saturating_add(1));
        let bells = (0..queues).map(|_| Ok([bell()?, bell()?]));
        let bells = bells.collect::<io::Result<Vec<_>>>().map_err(failed)?;
        self.generation = self.generation.wrapping_add(2);
        let link = Connection::make(self.generation, log2, bells, hello.takes_partial);
        let link = link.map_err(failed)?;
        let link = link.map_err(|violation| End::Refused(violation.0.to_owned()))?;
        let mut secret = [0; SECRET_LEN];
        secret[..self.options.secret.len()].copy_from_slice(self.options.secret.as_bytes());
        let init = Message::Init {
            version: VERSION,
            id: self.options.id,
            is_ethernet: true,
            secret,
            takes_partial: true,
        };
        let queue = VecDeque::from([(init, None)]);
        let queue = described(queue, &link).map_err(failed)?;
        if let Some(peer) = &mut self.peer {
            peer.queue = queue;
            peer.made = Some(link);
        }
        Ok(())
    }

    fn on_clients_message(
        &mut self,
        message: Message,
        fds: Vec<OwnedFd>,
    ) -> Result<Option<Connection>, End> {
        let refused = |why: &str| Err(End::Refused(why.to_owned()));
        let Some(peer) = &mut self.peer else {
            return Ok(None);
        };
        let offer = &mut peer.offer;
        let fd = fds.into_iter().next();
        match message {
            Message::Init { version, .. } if version != VERSION => {
                return refused("it does not speak memif 2.0");
            }
            Message::Init { id, .. } if id != self.options.id => {
                return refused("there is no interface of that number");
            }
            Message::Init { is_ethernet, .. } if !is_ethernet => {
                return refused("the interface carries Ethernet frames");
            }
            Message::Init {
                secret,
                takes_partial,
                ..
            } => {
                let mut wanted = [0; SECRET_LEN];
                let own = self.options.secret.as_bytes();
                wanted[..own.len()].copy_from_slice(own);
                if secret != wanted {
                    return refused("its secret is wrong");
                }
                offer.is_known = true;
                offer.takes_partial = takes_partial;
            }
            _ if !offer.is_known || peer.is_up => return Err(unexpected()),
            Message::AddRegion { index, size } => offer.add_region(index, size, fd)?,
            Message::AddRing(ring) => offer.add_ring(ring, self.options.queues, fd)?,
            Message::Connect => {
                self.generation = self.generation.wrapping_add(2);
                let link = std::mem::take(offer).link(self.generation)?;
                self.send(&Message::Connected, None)?;
                return Ok(Some(link));
            }
            _ => return Err(unexpected()),
        }
        self.send(&Message::Ack, None)?;
        Ok(None)
    }

    fn open_link(
        &mut self,
        new: Connection,
        (board, link): (&Board, &mut Option<Connection>),
        outcome: &mut TurnOutcome,
    ) {
        if let Some(peer) = &mut self.peer {
            peer.is_up = true;
        }
        self.is_absence_told = false;
        self.violation = None;
        *link = Some(new);
        board.set_generation(self.generation);
        self.wake(u64::MAX);
        outcome.has_changed = true;
        outcome.notice = Some(LinkNotice {
            sentence: format!("memif: connected at \"{}\"", self.options.socket),
            has_new_peer: true,
        });
    }

    fn end(
        &mut self,
        end: End,
        (board, link): (&Board, &mut Option<Connection>),
        outcome: &mut TurnOutcome,
    ) {
        let socket = &self.options.socket;
        let was_up = self.peer.as_ref().is_some_and(|peer| peer.is_up);
        match end {
            End::Refused(why) => {
                let told = Message::Disconnect(why.clone());
                let _ = self.send(&told, None);
                let notice = format!("memif: the link at \"{socket}\" is down: {why}");
                if was_up || !std::mem::replace(&mut self.is_absence_told, true) {
                    outcome.notice = Some(notice.into());
                }
            }
            End::Gone if was_up => {
                let notice = format!("memif: the link at \"{socket}\" is down: the peer has ended");
                outcome.notice = Some(notice.into());
            }
            End::Gone => {}
        }
        self.peer = None;
        self.retry_after(RETRY);
        if was_up {
            outcome.former = link.take();
            board.set_generation(0);
            self.wake(u64::MAX);
            outcome.has_changed = true;
        }
    }
}

impl Offer {
    fn add_region(&mut self, index: u16, size: u64, fd: Option<OwnedFd>) -> Result<(), End> {
        let is_next = usize::from(index) == self.regions.len() && self.regions.len() < REGIONS_MAX;
        match fd {
            Some(fd) if is_next && (1..=REGION_LEN_MAX).contains(&size) => {
                self.regions.push((size as usize, fd));
                Ok(())
            }
            _ => Err(End::Refused("it adds an invalid region".to_owned())),
        }
    }

    fn add_ring(&mut self, ring: AddRing, queues: u16, fd: Option<OwnedFd>) -> Result<(), End> {
        let Some(fd) = fd else {
            return Err(End::Refused("a ring has no eventfd".to_owned()));
        };
        let side = match ring.is_to_server {
            true => &mut self.rx,
            false => &mut self.tx,
        };
        if usize::from(ring.index) != side.len() || side.len() >= usize::from(queues) {
            let why = format!("there are {queues} rings in each direction, added in their order");
            return Err(End::Refused(why));
        }
        // A peer's descriptor must not hold us up.
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(|_| End::Gone)?;
        let _ = rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK);
        let place = RingPlace {
            region: ring.region,
            offset: ring.offset,
            log2: ring.log2_ring,
        };
        side.push((place, fd));
        Ok(())
    }

    fn link(self, generation: u32) -> Result<Connection, End> {
        if self.rx.len() != self.tx.len() || self.rx.is_empty() {
            return Err(End::Refused(
                "there must be as many rings in one direction as in the other".to_owned(),
            ));
        }
        let (mut lanes, mut fds) = (Vec::new(), Vec::new());
        for ((rx, rx_bell), (tx, tx_bell)) in self.rx.into_iter().zip(self.tx) {
            lanes.push(LaneShape { rx, tx });
            fds.extend([rx_bell, tx_bell]);
        }
        let (regions, files): (Vec<usize>, Vec<OwnedFd>) = self.regions.into_iter().unzip();
        let shape = ConnectionShape {
            generation,
            is_client: false,
            takes_partial: self.takes_partial,
            lanes,
            regions,
        };
        fds.extend(files);
        Connection::open(shape, fds).map_err(|violation| End::Refused(violation.0.to_owned()))
    }
}

/// The messages in which a client describes its connection, after those that it has sent.
fn described(
    mut queue: VecDeque<(Message, Option<OwnedFd>)>,
    link: &Connection,
) -> io::Result<VecDeque<(Message, Option<OwnedFd>)>> {
    let fds = link.descriptors();
    let own = |at: usize| fds.get(at).map(|fd| fd.try_clone_to_owned()).transpose();
    let size = link.shape.regions.iter().sum::<usize>() as u64;
    let region = own(2 * link.lanes())?;
    queue.push_back((Message::AddRegion { index: 0, size }, region));
    let ring = |index: usize, place: RingPlace, is_to_server| {
        Message::AddRing(AddRing {
            is_to_server,
            index: index as u16,
            region: place.region,
            offset: place.offset,
            log2_ring: place.log2,
            private_len: 0,
        })
    };
    for (index, lane) in link.shape.lanes.iter().enumerate() {
        queue.push_back((ring(index, lane.tx, true), own(2 * index + 1)?));
        queue.push_back((ring(index, lane.rx, false), own(2 * index)?));
    }
    queue.push_back((Message::Connect, None));
    Ok(queue)
}

fn unexpected() -> End {
    End::Refused("a message comes out of order".to_owned())
}

fn explained(error: &io::Error) -> String {
    slipstack_mem::process::explained(error).to_string()
}

/// A new eventfd.
pub(super) fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)
}
