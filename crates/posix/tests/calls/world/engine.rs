//! An engine without a network: connections lead to listeners of the same engine, and bytes go
//! from one ring to the other.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use slipstack_channel::{
    Command, Driver, Ends, EngineEnd, Envelope, Limits, Placement, Reason, ReceiveRing, Reply,
    SendSide, SockId, SocketError, SocketState, State, TcpInfo, Ticket, Transport, TurnOutcome,
    WaitOn,
};
use slipstack_mem::Doorbell;

pub const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// A port on which connection attempts get no answer.
pub const SILENT_PORT: u16 = 9;
const BUFFER: u64 = 64 * 1024;
const LIMITS: Limits = Limits {
    send: BUFFER as u32,
    receive: 2 * BUFFER as u32,
};
const STEP: u64 = 1024;

struct Sock {
    kind: Transport,
    local: SocketAddr,
    remote: Option<SocketAddr>,
    state: State,
    tx: SendSide,
    rx: ReceiveRing,
    peer: Option<SockId>,
    is_shut: bool,
    is_closed: bool,
    is_fin_delivered: bool,
}

impl Sock {
    fn new(kind: Transport) -> Self {
        Sock {
            kind,
            local: SocketAddr::from((OWN, 0)),
            remote: None,
            state: State::NONE,
            tx: SendSide::NEW,
            rx: ReceiveRing::NEW,
            peer: None,
            is_shut: false,
            is_closed: false,
            is_fin_delivered: false,
        }
    }
}

struct Inner {
    end: EngineEnd,
    socks: HashMap<SockId, Sock>,
    next_port: u16,
    /// Listeners have been notified that others take their connections.
    is_yielding: bool,
    holds_datagrams: bool,
    /// Every address is in use.
    is_full: bool,
    /// Done in place of an answer to the next socket that is bound.
    at_bind: Option<Box<dyn FnOnce() + Send>>,
}

/// The driver of the engine without a network.
pub struct FakeEngine {
    inner: Mutex<Inner>,
    bell: Doorbell,
    is_dead: AtomicBool,
}

impl FakeEngine {
    pub fn new(end: EngineEnd, is_full: bool) -> Self {
        FakeEngine {
            inner: Mutex::new(Inner {
                end,
                socks: HashMap::new(),
                next_port: 40_000,
                is_yielding: false,
                holds_datagrams: false,
                is_full,
                at_bind: None,
            }),
            bell: Doorbell::new().unwrap(),
            is_dead: AtomicBool::new(false),
        }
    }

    /// Ends without a word, like a killed instance.
    pub fn die(&self) {
        self.inner.lock().unwrap().end.set_gone();
        self.is_dead.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    /// As [`FakeEngine::die`], from within the engine.
    pub fn end_at_work(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    /// `run` comes in place of an answer to the next socket that is bound.
    pub fn at_bind(&self, run: impl FnOnce() + Send + 'static) {
        self.inner.lock().unwrap().at_bind = Some(Box::new(run));
    }

    /// Whether connections to this address would come to a listener.
    pub fn listens(&self, addr: SocketAddr) -> bool {
        let inner = self.inner.lock().unwrap();
        inner.find_listener(addr.port()).is_some()
    }

    /// Makes `count` connections arrive at a listener at once, from a silent peer.
    pub fn call(&self, listener: SocketAddr, count: usize) {
        self.inner.lock().unwrap().call(listener, count);
        self.bell.ring();
    }

    /// One comes, and goes to another listener at once.
    pub fn call_and_withdraw(&self, listener: SocketAddr) {
        let mut inner = self.inner.lock().unwrap();
        inner.call(listener, 1);
        assert_eq!(inner.withdraw(), 1);
        drop(inner);
        self.bell.ring();
    }

    /// Connections that the program has not accepted go to another listener; how many.
    pub fn withdraw(&self) -> usize {
        let withdrawn = self.inner.lock().unwrap().withdraw();
        self.bell.ring();
        withdrawn
    }

    /// Whether a listener leaves its connections to the other.
    pub fn is_yielding(&self) -> bool {
        self.inner.lock().unwrap().is_yielding
    }

    /// Datagrams stay in their rings, as while an instance has other things to do; or they go on.
    pub fn hold_datagrams(&self, on: bool) {
        self.inner.lock().unwrap().holds_datagrams = on;
        self.bell.ring();
    }

    /// The peer of the connection whose remote address is `remote` resets it.
    pub fn reset(&self, remote: SocketAddr) {
        let mut inner = self.inner.lock().unwrap();
        let found = inner.socks.iter().find(|(_, s)| s.remote == Some(remote));
        let sock = *found.unwrap().0;
        let state = inner.socks[&sock].state | State::ERR | State::HUP | State::CLOSED;
        inner.set(sock, state, Some(Reason::Reset));
        drop(inner);
        self.bell.ring();
    }
}

impl Driver for FakeEngine {
    fn turn(&self, _now_ns: u64) -> TurnOutcome {
        let Ok(mut inner) = self.inner.try_lock() else {
            return TurnOutcome::Busy;
        };
        inner.turn();
        TurnOutcome::Progress
    }

    fn commands(&self) {
        self.inner.lock().unwrap().turn();
        self.bell.ring();
    }

    fn prepare_wait(&self, _now_ns: u64, _nap_ns_max: u64) -> Option<WaitOn> {
        if self.is_dead() {
            return None;
        }
        Some(WaitOn {
            fds: [self.bell.raw_fd(), -1],
            timeout_ns: None,
        })
    }

    fn finish_wait(&self, [has_rung, _]: [bool; 2], _now_ns: u64) {
        if has_rung {
            self.bell.clear();
        }
    }

    fn wake_waiters(&self) {
        self.bell.ring();
    }

    fn placement(&self) -> Placement {
        Placement::InProcess
    }

    fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    fn end_session(&self, _until_ns: u64) {}
}

impl Inner {
    fn set(&mut self, sock: SockId, state: State, reason: Option<Reason>) {
        if let Some(it) = self.socks.get_mut(&sock) {
            it.state = state;
        }
        self.end
            .set_state(sock, state, reason, u8::from(reason.is_some()));
        self.end.changed(sock);
    }

    fn turn(&mut self) {
        while let Some((command, ticket)) = self.end.next_command() {
            self.on_command(command, ticket);
        }
        let all: Vec<SockId> = self.socks.keys().copied().collect();
        for sock in all {
            match self.socks.get(&sock).map(|sock| sock.kind) {
                Some(Transport::Tcp) => self.move_bytes(sock),
                Some(Transport::Udp) if !self.holds_datagrams => self.move_datagrams(sock),
                Some(Transport::Udp) | None => {}
            }
        }
    }

    fn on_command(&mut self, command: Command, ticket: Ticket) {
        match command {
            Command::Open { sock, kind } => {
                assert!(self.end.begin(sock, LIMITS));
                self.socks.insert(sock, Sock::new(kind));
            }
            Command::Bind { sock, addr, .. } => self.bind(sock, addr, ticket),
            Command::Listen { sock, .. } => {
                let local = self.socks[&sock].local;
                self.set(sock, State::LISTENING, None);
                self.end.reply(ticket, Ok(Reply::Bound { local }));
            }
            Command::Connect { sock, remote } => self.connect(sock, remote, ticket),
            Command::Shutdown { sock, .. } => self.socks.get_mut(&sock).unwrap().is_shut = true,
            Command::Close { sock, .. } => {
                let it = self.socks.get_mut(&sock).unwrap();
                it.is_shut = true;
                it.is_closed = true;
                if it.peer.is_none() {
                    self.socks.remove(&sock);
                    self.end.released(sock);
                }
            }
            Command::UdpConnect { sock, remote } => {
                let it = self.socks.get_mut(&sock).unwrap();
                it.remote = remote;
                let local = it.local;
                self.end.set_addrs(sock, Some(local), remote);
                self.end.reply(ticket, Ok(Reply::Bound { local }));
            }
            Command::Info { sock } => {
                let result = match self.socks.contains_key(&sock) {
                    true => Ok(Reply::Info(TcpInfo {
                        state: SocketState::Established,
                        snd_mss: 1460,
                        ..TcpInfo::default()
                    })),
                    false => Err(SocketError::UnknownId),
                };
                self.end.reply(ticket, result);
            }
            Command::SetOption { .. } => self.end.reply(ticket, Ok(Reply::Done)),
            Command::Resume { .. } => self.is_yielding = false,
            Command::Unlisten { .. }
            | Command::Send { .. }
            | Command::Consumed { .. }
            | Command::Urgent { .. }
            | Command::Record { .. }
            | Command::Extent { .. }
            | Command::TellSent { .. }
            | Command::EndSession => {}
            Command::FindPort { local, .. } => {
                let mut used = self.socks.values().filter(|it| it.remote.is_some());
                let answer = match used.any(|it| it.local.port() == local.port()) {
                    true => Err(SocketError::AddrInUse),
                    false => Ok(Reply::Done),
                };
                self.end.reply(ticket, answer);
            }
            Command::TakeSyn { .. } => self.end.reply(ticket, Ok(Reply::Done)),
            Command::Offer { .. } | Command::Claim { .. } => {
                self.end.reply(ticket, Err(SocketError::NotPermitted));
            }
        }
    }

    fn bind(&mut self, sock: SockId, addr: SocketAddr, ticket: Ticket) {
        if let Some(run) = self.at_bind.take() {
            return run();
        }
        if self.is_full {
            return self.end.reply(ticket, Err(SocketError::AddrInUse));
        }
        let local = self.named(addr);
        self.socks.get_mut(&sock).unwrap().local = local;
        self.end.set_addrs(sock, Some(local), None);
        self.end.reply(ticket, Ok(Reply::Bound { local }));
    }

    fn named(&mut self, addr: SocketAddr) -> SocketAddr {
        let ip = if addr.ip().is_unspecified() {
            OWN.into()
        } else {
            addr.ip()
        };
        let port = if addr.port() == 0 {
            self.next_port += 1;
            self.next_port
        } else {
            addr.port()
        };
        SocketAddr::new(ip, port)
    }

    fn connect(&mut self, sock: SockId, remote: SocketAddr, ticket: Ticket) {
        let local = match self.socks[&sock].local {
            local if local.port() == 0 => self.named(local),
            local => local,
        };
        self.end.set_addrs(sock, Some(local), Some(remote));
        self.end.reply(ticket, Ok(Reply::Bound { local }));
        let it = self.socks.get_mut(&sock).unwrap();
        it.local = local;
        it.remote = Some(remote);
        if remote.port() == SILENT_PORT {
            return;
        }
        let Some(listener) = self.find_listener(remote.port()) else {
            let state = State::ERR | State::HUP | State::CLOSED;
            self.set(sock, state, Some(Reason::Refused));
            return;
        };
        let accepted = self.accept(listener, remote, local);
        self.socks.get_mut(&accepted).unwrap().peer = Some(sock);
        self.socks.get_mut(&sock).unwrap().peer = Some(accepted);
        self.set(sock, State::CONNECTED | State::BOUND, None);
    }

    fn call(&mut self, listener: SocketAddr, count: usize) {
        let found = self.find_listener(listener.port()).unwrap();
        for _ in 0..count {
            let remote = self.named(SocketAddr::from((OWN, 0)));
            self.accept(found, listener, remote);
        }
    }

    fn withdraw(&mut self) -> usize {
        let socks: Vec<SockId> = self.socks.keys().copied().collect();
        let is_back = |sock: &SockId| self.end.withdraw(*sock);
        let withdrawn: Vec<SockId> = socks.into_iter().filter(is_back).collect();
        for &sock in &withdrawn {
            self.socks.remove(&sock);
            self.end.released(sock);
        }
        self.is_yielding |= !withdrawn.is_empty();
        withdrawn.len()
    }

    fn find_listener(&self, port: u16) -> Option<SockId> {
        let listens = |sock: &Sock| sock.state.contains(State::LISTENING);
        let mut all = self.socks.iter();
        let found = all.find(|(_, sock)| listens(sock) && sock.local.port() == port);
        found.map(|(id, _)| *id)
    }

    /// A connection to a listener comes about.
    fn accept(&mut self, listener: SockId, local: SocketAddr, remote: SocketAddr) -> SockId {
        let ends = Ends::of(local, remote);
        let accepted = self.end.accepted(listener, &ends, LIMITS).unwrap();
        let mut sock = Sock::new(Transport::Tcp);
        sock.state = State::CONNECTED | State::BOUND;
        sock.local = local;
        sock.remote = Some(remote);
        self.socks.insert(accepted, sock);
        accepted
    }

    fn move_bytes(&mut self, sock: SockId) {
        let Some(it) = self.socks.get_mut(&sock) else {
            return;
        };
        let Some(peer) = it.peer else { return };
        let sent = it.tx.look(&mut self.end, sock);
        let from = it.tx.acked();
        let mut tx = it.tx;
        let (is_shut, is_reported) = (it.is_shut, it.is_fin_delivered);
        let Some(other) = self.socks.get_mut(&peer) else {
            return;
        };
        let consumed = other.rx.look(&mut self.end, peer);
        let room = BUFFER - (from - consumed);
        let len = (sent.upto - from).min(room) as usize;
        if len > 0 {
            let mut bytes = Vec::new();
            for slice in tx.gather(&self.end, sock, from, len) {
                let at = bytes.len();
                bytes.resize(at + slice.len(), 0);
                slice.copy_to(&mut bytes[at..]);
            }
            assert!(other.rx.store(&mut self.end, peer, from, &bytes));
            let upto = from + len as u64;
            other.rx.publish(&mut self.end, peer, upto, STEP);
            self.end.changed(peer);
            tx.on_acked(&mut self.end, sock, upto);
        }
        self.socks.get_mut(&sock).unwrap().tx = tx;
        if is_shut && !is_reported && tx.acked() == sent.upto {
            self.finish(sock, peer);
        }
    }

    /// The FIN of `sock` arrives at `peer`.
    fn finish(&mut self, sock: SockId, peer: SockId) {
        self.socks.get_mut(&sock).unwrap().is_fin_delivered = true;
        let mut state = self.socks[&peer].state | State::RDHUP;
        let is_over = self.socks[&peer].is_fin_delivered;
        if is_over {
            state |= State::HUP;
        }
        self.set(peer, state, None);
        if is_over {
            let state = self.socks[&sock].state | State::HUP;
            self.set(sock, state, None);
            for sock in [sock, peer] {
                if self.socks[&sock].is_closed {
                    self.socks.remove(&sock);
                    self.end.released(sock);
                }
            }
        }
    }

    fn move_datagrams(&mut self, sock: SockId) {
        let it = self.socks.get_mut(&sock).unwrap();
        it.tx.look(&mut self.end, sock);
        let (from, connected) = (it.local, it.remote);
        let mut payload = Vec::new();
        loop {
            let it = self.socks.get_mut(&sock).unwrap();
            let Some(sent) = it
                .tx
                .next_datagram(&mut self.end, sock, &mut payload, |_| true)
            else {
                return;
            };
            let Some(to) = sent.peer.or(connected) else {
                continue;
            };
            let found = self
                .socks
                .iter_mut()
                .find(|(_, s)| s.kind == Transport::Udp && s.local.port() == to.port());
            if let Some((peer, other)) = found {
                let peer = *peer;
                let envelope = Envelope {
                    peer: Some(from),
                    local: Some(to),
                    ..sent
                };
                if other
                    .rx
                    .push_datagram(&mut self.end, peer, &envelope, &payload, BUFFER)
                {
                    self.end.changed(peer);
                }
            }
        }
    }
}
