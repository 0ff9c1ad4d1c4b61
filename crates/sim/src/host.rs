//! A host: a stack and its effects, kept in plain vectors.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use slipstack_stack::rng::Rng;
use slipstack_stack::{
    CloseMode, ConnId, DatagramIn, Effects, Event, FrameOut, Instant, IpMeta, ListenerId, Payload,
    RxChecksum, RxMeta, Stack, StackConfig, UdpId,
};

use crate::gso;
use crate::machine::{FrameSource, Inbox, Message, Participant};
use crate::second_port;
use crate::streams::Streams;

/// A frame leaves a host.
#[derive(Debug)]
pub struct Departure {
    pub bytes: Vec<u8>,
    pub meta: RxMeta,
}

/// A program has closed a connection and dropped its sent data.
#[derive(Clone, Copy, Debug)]
pub struct Abort {
    /// The departure that it precedes.
    pub before: usize,
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// The way in which a program closed a connection, which decides which events may still follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    /// Written data is sent: acknowledgements, and the release, may come.
    Orderly,
    /// Nothing but the release.
    Abort,
}

/// The world around one stack.
#[derive(Debug)]
pub struct HostEffects {
    pub departures: Vec<Departure>,
    pub streams: HashMap<ConnId, Streams>,
    pub events: VecDeque<Event>,
    pub datagrams: VecDeque<(UdpId, SocketAddr, Vec<u8>)>,
    /// Frames that the stack has sent, a super-frame once.
    pub transmitted: u64,
    /// Violations found; the world stops at the first.
    pub violations: Vec<String>,
    released: HashSet<ConnId>,
    closed: HashMap<ConnId, Closing>,
    pub aborted: Vec<Abort>,
    rng: Rng,
    /// Frames leave whole and with partial checksums, as over a TAP or veth with offloads.
    pub leaves_offloads: bool,
    /// Share of stores that find no room, in hundredths of a percent.
    pub refusal: u32,
    /// The surroundings of a stack that shares its address with others.
    pub place: Option<Participant>,
    /// Messages to other slots, which leave at the end of the turn.
    pub outbox: Vec<(u16, Message)>,
    /// Segments that were left to others, and those of them that were put into an outbox.
    pub strays: u64,
    pub passed_on: u64,
}

#[derive(Debug)]
pub struct Host {
    pub stack: Stack,
    pub fx: HostEffects,
    pub inbox: VecDeque<(Vec<u8>, RxMeta)>,
    /// Time at which the host works off its inbox.
    pub turn_at: Option<Instant>,
    pub ip: IpAddr,
    pub mac: [u8; 6],
    /// The host gets no more events.
    pub is_gone: bool,
    /// No turn before this time: the process is stopped or swapped out.
    pub paused_until: Instant,
    /// Lead of its clock over the world's.
    pub skew_ns: u64,
    /// The host's program takes connections from the accept queue at once.
    pub accepts: bool,
    /// Connections offered and taken of each listener.
    accept_queues: HashMap<ListenerId, (u32, u32)>,
    /// Frames received by the device, and those of the stack to itself.
    pub arrived: u64,
    pub looped: u64,
    /// Frames that found the receive ring full while the host was paused.
    pub overruns: u64,
    /// Station on the network: engines of one machine share one.
    pub station: usize,
    pub post: Inbox,
    /// Frames from other engines, and those that had waited here.
    pub posted: u64,
}

/// Frames that a device's ring keeps for a host.
const RING_FRAMES: usize = 2048;

impl Host {
    pub fn new(config: StackConfig, now: Instant, rng: Rng) -> Self {
        let (ip, mac) = second_port::identity(&config);
        let fx = HostEffects {
            departures: Vec::new(),
            streams: HashMap::new(),
            events: VecDeque::new(),
            datagrams: VecDeque::new(),
            transmitted: 0,
            violations: Vec::new(),
            released: HashSet::new(),
            closed: HashMap::new(),
            aborted: Vec::new(),
            rng,
            leaves_offloads: false,
            refusal: 0,
            place: None,
            outbox: Vec::new(),
            strays: 0,
            passed_on: 0,
        };
        let stack = Stack::new(config, now);
        Self {
            stack,
            fx,
            inbox: VecDeque::new(),
            turn_at: None,
            ip,
            mac,
            is_gone: false,
            paused_until: Instant::ZERO,
            skew_ns: 0,
            accepts: true,
            accept_queues: HashMap::new(),
            arrived: 0,
            looped: 0,
            overruns: 0,
            station: 0,
            post: Inbox::default(),
            posted: 0,
        }
    }

    /// Returns the host's clock at a time of the world.
    pub fn clock(&self, now: Instant) -> Instant {
        now.plus_nanos(self.skew_ns)
    }

    /// Time at which the stack wants to run, in the world's time.
    pub fn next_deadline(&self) -> Option<Instant> {
        let at = self.stack.next_deadline()?;
        Some(Instant(at.0.saturating_sub(self.skew_ns)))
    }

    /// Time at which a keeper has something to do of its own accord.
    pub fn keeper_deadline(&self) -> Option<Instant> {
        match &self.fx.place {
            Some(Participant::Keeper(keeper)) => keeper.next_deadline(),
            _ => None,
        }
    }

    /// A frame arrives at the device.
    pub fn push(&mut self, bytes: Vec<u8>, meta: RxMeta) {
        self.arrived += 1;
        if self.inbox.len() == RING_FRAMES {
            self.overruns += 1;
            return;
        }
        self.inbox.push_back((bytes, meta));
    }

    /// Lets the stack process the device's frames.
    pub fn receive(&mut self, now: Instant) {
        let now = self.clock(now);
        self.fx.set_coming(Some(FrameSource::from_the_wire(now)));
        while let Some((bytes, meta)) = self.inbox.pop_front() {
            self.stack.on_burst_frame(now, &bytes, meta, &mut self.fx);
        }
        self.stack.end_burst(now, &mut self.fx);
        self.fx.set_coming(None);
        self.turn_at = None;
    }

    /// Processes a frame that came from another stack of the same machine.
    pub fn take_posted(&mut self, (frame, meta): (&[u8], RxMeta), coming: FrameSource) {
        self.posted += 1;
        self.fx.set_coming(Some(coming));
        self.stack.on_frame(coming.now, frame, meta, &mut self.fx);
        self.fx.set_coming(None);
    }

    /// Takes the messages that others have sent: frames go to the stack, connections and handshakes
    /// to the caller.
    pub fn take_post(&mut self, now: Instant) -> Vec<Message> {
        let mut passages = Vec::new();
        while let Some(message) = self.post.pop(now) {
            match message {
                Message::Connection(_) | Message::HalfOpen(..) => passages.push(message),
                Message::Frame {
                    frame,
                    meta,
                    origin,
                } => {
                    let coming = FrameSource {
                        now,
                        origin,
                        is_astray: true,
                        waits: 0,
                    };
                    self.take_posted((&frame, meta), coming);
                }
            }
        }
        passages
    }

    /// Handles a connection in an accept queue.
    pub fn on_accepted(&mut self, listener: ListenerId) {
        self.accept_queues.entry(listener).or_default().0 += 1;
        if self.accepts {
            self.accept_all();
        }
    }

    /// The program empties its accept queues, from now on at once.
    pub fn accept_all(&mut self) {
        self.accepts = true;
        for (listener, (offered, taken)) in &mut self.accept_queues {
            if offered != taken {
                *taken = *offered;
                self.stack.tcp_accepted(*listener, *taken);
            }
        }
    }

    /// Closes a connection; the error names an event that the stack may not have afterwards.
    pub fn close(&mut self, now: Instant, conn: ConnId, mode: CloseMode) -> Result<(), String> {
        let unread = self.has_unread(conn);
        let is_abort = mode == CloseMode::Abort || unread;
        let Self { stack, fx, .. } = self;
        if is_abort && let Some((local, remote)) = stack.tcp_endpoints(conn) {
            let before = fx.departures.len();
            fx.aborted.push(Abort {
                before,
                local,
                remote,
            });
        }
        fx.on_close(conn, is_abort);
        stack.tcp_close(now.plus_nanos(self.skew_ns), conn, mode, unread, fx);
        match is_abort && !fx.released.contains(&conn) {
            true => Err("aborted and not released".into()),
            false => Ok(()),
        }
    }

    /// End of the bytes that can be read.
    pub fn available(&self, conn: ConnId) -> u64 {
        self.fx.streams.get(&conn).map_or(0, Streams::available)
    }

    pub fn has_unread(&self, conn: ConnId) -> bool {
        let streams = self.fx.streams.get(&conn);
        streams.is_some_and(|streams| streams.available() > streams.read_upto())
    }
}

impl HostEffects {
    fn on_close(&mut self, conn: ConnId, is_abort: bool) {
        let closing = match is_abort {
            true => Closing::Abort,
            false => Closing::Orderly,
        };
        self.closed.insert(conn, closing);
    }

    fn set_coming(&mut self, coming: Option<FrameSource>) {
        match &mut self.place {
            Some(Participant::Keeper(keeper)) => keeper.coming = coming,
            Some(Participant::Engine(engine)) => {
                engine.now = coming.map_or(engine.now, |it| it.now)
            }
            None => {}
        }
    }

    /// Removes a connection that moves: it may have no more events here.
    pub fn leave(&mut self, conn: ConnId) -> Streams {
        self.released.insert(conn);
        self.streams.remove(&conn).unwrap_or_default()
    }

    fn streams_of(&mut self, conn: ConnId, what: &str) -> Option<&mut Streams> {
        if self.released.contains(&conn) {
            self.violations
                .push(format!("{what} after the end of {conn:?}"));
            return None;
        }
        Some(self.streams.entry(conn).or_default())
    }

    /// Returns the streams of a connection, which its program must not have closed.
    fn open_streams_of(&mut self, conn: ConnId, what: &str) -> Option<&mut Streams> {
        if self.closed.contains_key(&conn) && !self.released.contains(&conn) {
            self.violations
                .push(format!("{what} after {conn:?} was closed"));
            return None;
        }
        self.streams_of(conn, what)
    }

    /// Returns the streams of a connection, which may be closed but not aborted.
    fn sending_streams_of(&mut self, conn: ConnId, what: &str) -> Option<&mut Streams> {
        if self.closed.get(&conn) == Some(&Closing::Abort) && !self.released.contains(&conn) {
            self.violations
                .push(format!("{what} after {conn:?} was aborted"));
            return None;
        }
        self.streams_of(conn, what)
    }

    fn check(&mut self, conn: ConnId, outcome: Result<(), String>) {
        if let Err(why) = outcome {
            self.violations.push(format!("{conn:?}: {why}"));
        }
    }
}

impl Effects for HostEffects {
    fn transmit(&mut self, frame: FrameOut<'_>) {
        self.transmitted += 1;
        let payload = match frame.payload {
            Payload::None => &[],
            Payload::Inline(bytes) => bytes,
            // A frame that waited for its neighbour may name a connection that is gone.
            Payload::Stream { conn, .. } if self.released.contains(&conn) => return,
            Payload::Stream { conn, offset, len } => {
                let Some(streams) = self.sending_streams_of(conn, "data") else {
                    return;
                };
                let gathered = streams.gather(offset, len).map(<[u8]>::to_vec);
                match gathered {
                    Ok(bytes) => &{ bytes },
                    Err(why) => {
                        let why = format!("{conn:?}: {why}");
                        self.violations.push(why);
                        return;
                    }
                }
            }
        };
        if frame.local || self.leaves_offloads {
            let checksum = match frame.offload.checksum {
                Some(_) => RxChecksum::Partial,
                None => RxChecksum::Unknown,
            };
            let meta = RxMeta {
                checksum,
                gso: frame.offload.gso.is_some(),
                segment: frame.offload.gso.map_or(0, |gso| gso.mss),
                local: frame.local,
                link: frame.offload.link,
            };
            let bytes = gso::leave(frame.header, payload);
            self.departures.push(Departure { bytes, meta });
            return;
        }
        let frames = gso::finish(frame.header, payload, frame.offload)
            .into_iter()
            .map(|bytes| Departure {
                bytes,
                meta: RxMeta::UNKNOWN,
            });
        self.departures.extend(frames);
    }

    fn store(&mut self, conn: ConnId, offset: u64, bytes: &[u8]) -> bool {
        if self.refusal != 0 && self.rng.below(10_000) < self.refusal {
            return false;
        }
        let Some(streams) = self.open_streams_of(conn, "store") else {
            return false;
        };
        let outcome = streams.store(offset, bytes);
        self.check(conn, outcome);
        true
    }

    fn datagram(&mut self, udp: UdpId, datagram: &DatagramIn<'_>) {
        let bytes = datagram.payload.to_vec();
        self.datagrams.push_back((udp, datagram.from, bytes));
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Received { conn, upto } => {
                if let Some(streams) = self.open_streams_of(conn, "received") {
                    let outcome = streams.on_received(upto);
                    self.check(conn, outcome);
                }
            }
            Event::Acked { conn, upto } => {
                if let Some(streams) = self.sending_streams_of(conn, "acked") {
                    let outcome = streams.on_acked(upto);
                    self.check(conn, outcome);
                }
            }
            Event::Accepted { conn, .. }
            | Event::Connected { conn }
            | Event::Opening { conn }
            | Event::Failed { conn, .. }
            | Event::Urgent { conn, .. } => {
                self.open_streams_of(conn, "event");
            }
            // The peer ends, and what is written is still on its way.
            Event::SendLimit { conn, .. } | Event::Fin { conn } => {
                self.sending_streams_of(conn, "event");
            }
            Event::Released { conn } => {
                self.streams_of(conn, "second release");
                self.released.insert(conn);
            }
            Event::FlowOpened { .. }
            | Event::Neighbour { .. }
            | Event::Conflict { .. }
            | Event::UdpFailed { .. } => {}
        }
        self.events.push_back(event);
    }

    fn find_neighbour(&self, ip: IpAddr) -> Option<[u8; 6]> {
        match &self.place {
            Some(Participant::Engine(engine)) => engine.neighbours.get(&ip).copied(),
            _ => None,
        }
    }

    fn stray(&mut self, ip: &IpMeta, segment: &[u8]) -> bool {
        let message = match &mut self.place {
            None => None,
            Some(Participant::Engine(engine)) => engine.stray(ip, segment).map(Some),
            Some(Participant::Keeper(keeper)) => keeper.stray(ip, segment),
        };
        let Some(message) = message else {
            return false;
        };
        self.strays += 1;
        self.passed_on += u64::from(message.is_some());
        self.outbox.extend(message);
        true
    }
}
