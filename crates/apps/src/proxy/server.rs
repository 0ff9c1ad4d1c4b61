//! The service: the role of each connection, connection attempts, health checks of backends.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slipstack_service::{Closed, ConnectionId, Context, Reason, Refused, Service, Via};

use super::backends::{Backends, Balance, Tried};
use super::exchange::Client;
use super::stream::Stream;
use crate::tls::{HandshakeResult, Keys, Transport};

/// The kind of traffic that the proxy passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Bytes: each connection has one of its own to a backend.
    Tcp,
    /// Requests of HTTP/1.1 and 1.0: connections to backends are used again.
    Http,
}

/// Figures of one engine, for other threads.
#[derive(Debug, Default)]
pub struct Figures {
    /// Requests passed on; connections, if bytes are.
    pub requests: AtomicU64,
    /// Connections made to backends, checks not counted.
    pub connections: AtomicU64,
    /// Requests and connections for which no backend was found, or which failed on the way.
    pub failures: AtomicU64,
}

impl Figures {
    pub(crate) fn add(place: &AtomicU64) {
        place.fetch_add(1, Ordering::Relaxed);
    }
}

/// Options of the proxy.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    pub listen: Vec<SocketAddr>,
    pub backlog: u32,
    pub backends: Vec<SocketAddr>,
    pub balance: Balance,
    pub protocol: Protocol,
    /// Time after which a silent connection is closed.
    pub idle: Duration,
    /// Time that a backend may take to connect and to begin its answer.
    pub answer: Duration,
    /// Connections to each backend that are kept for further requests.
    pub idle_backends: usize,
    /// Interval of the checks of backends; `None`: one that refuses rests for two seconds.
    pub check_every: Option<Duration>,
    /// A check requests this path; without one it connects only.
    pub check_path: Option<String>,
    pub figures: Arc<Figures>,
    /// For TLS with clients.
    pub keys: Option<Arc<Keys>>,
}

/// The part that a connection plays for the proxy.
#[derive(Debug, Default)]
pub(super) enum Side {
    #[default]
    None,
    Stream(Stream),
    Client(Box<Client>),
    /// A backend at work for this client.
    Server(ConnectionId),
    /// A backend's connection between two requests.
    Idle,
    /// A check of a backend.
    Probe,
}

#[derive(Debug, Default)]
pub(super) struct ConnectionRole {
    pub(super) side: Side,
    /// The backend at the other end of the connection.
    pub(super) backend: Option<usize>,
}

/// A connection to a backend that is not there yet.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// `None`: a check.
    client: Option<ConnectionId>,
    backend: usize,
    tried: Tried,
}

pub(super) type Cx<'a> = Context<'a, Option<HandshakeResult>>;

/// See the [module documentation](self).
pub struct Proxy {
    pub(super) options: ProxyOptions,
    pub(super) backends: Backends,
    /// By the connections' index.
    places: Vec<ConnectionRole>,
    attempts: HashMap<u64, Attempt>,
    next_tag: u64,
}

impl Proxy {
    pub fn new(options: ProxyOptions) -> Proxy {
        let is_checked = options.check_every.is_some();
        Proxy {
            backends: Backends::new(&options.backends, options.balance, is_checked),
            options,
            places: Vec::new(),
            attempts: HashMap::new(),
            next_tag: 0,
        }
    }

    pub(super) fn place(&mut self, id: ConnectionId) -> &mut ConnectionRole {
        if self.places.len() <= id.index() {
            self.places
                .resize_with(id.index() + 1, ConnectionRole::default);
        }
        &mut self.places[id.index()]
    }

    pub(super) fn take_side(&mut self, id: ConnectionId) -> Side {
        std::mem::take(&mut self.place(id).side)
    }

    pub(super) fn put_side(&mut self, id: ConnectionId, side: Side) {
        self.place(id).side = side;
    }

    fn connect(&mut self, cx: &Cx<'_>, attempt: Attempt) -> bool {
        let tag = self.next_tag;
        self.next_tag += 1;
        let addr = self.backends.addr(attempt.backend);
        if cx.connect(addr, tag).is_err() {
            return false;
        }
        if attempt.client.is_some() {
            self.backends.begin(attempt.backend);
        }
        self.attempts.insert(tag, attempt);
        true
    }

    /// Opens a connection to a backend that has not been tried; `false`: there is none.
    pub(super) fn reach(&mut self, cx: &Cx<'_>, client: ConnectionId, tried: Tried) -> bool {
        let Some(backend) = self.backends.pick(tried, cx.now_ns()) else {
            return false;
        };
        let attempt = Attempt {
            client: Some(client),
            backend,
            tried: tried.with(backend),
        };
        self.connect(cx, attempt)
    }

    /// Opens a connection to this backend; `false`: no socket is left.
    pub(super) fn reach_backend(&mut self, cx: &Cx<'_>, client: ConnectionId, to: usize) -> bool {
        let attempt = Attempt {
            client: Some(client),
            backend: to,
            tried: Tried::default().with(to),
        };
        self.connect(cx, attempt)
    }

    /// A connection to a backend exists.
    fn on_reached(&mut self, cx: &Cx<'_>, id: ConnectionId, attempt: Attempt) -> Option<()> {
        let backend = attempt.backend;
        *self.place(id) = ConnectionRole {
            side: Side::None,
            backend: Some(backend),
        };
        let Some(client) = attempt.client else {
            self.begin_check(cx, id, backend);
            return Some(());
        };
        if !cx.is_open(client) {
            self.backends.end(backend);
            return None;
        }
        Figures::add(&self.options.figures.connections);
        match self.take_side(client) {
            Side::Stream(stream) => self.join(cx, (client, stream), id),
            Side::Client(mut state) => {
                state.use_backend(id, false);
                self.put_side(id, Side::Server(client));
                self.advance(cx, client, &mut state);
                self.put_client(client, state);
            }
            _ => {
                self.backends.end(backend);
                return None;
            }
        }
        Some(())
    }

    fn on_unreached(&mut self, cx: &Cx<'_>, tag: u64) {
        let Some(attempt) = self.attempts.remove(&tag) else {
            return;
        };
        self.backends.set_ill(attempt.backend, cx.now_ns());
        let Some(client) = attempt.client else {
            return;
        };
        self.backends.end(attempt.backend);
        if cx.is_open(client) && !self.reach(cx, client, attempt.tried) {
            Figures::add(&self.options.figures.failures);
            match self.take_side(client) {
                Side::Client(mut state) => {
                    self.give_up(cx, client, &mut state);
                    self.put_client(client, state);
                }
                _ => cx.reset(client),
            }
        }
    }

    // Checks.

    fn check_all(&mut self, cx: &Cx<'_>) {
        let Some(every) = self.options.check_every else {
            return;
        };
        for backend in 0..self.backends.len() {
            let attempt = Attempt {
                client: None,
                backend,
                tried: Tried::default(),
            };
            self.connect(cx, attempt);
        }
        cx.wake_after(every);
    }

    fn begin_check(&mut self, cx: &Cx<'_>, id: ConnectionId, backend: usize) {
        let Some(path) = &self.options.check_path else {
            self.backends.set_well(backend);
            return cx.close(id);
        };
        let host = self.backends.addr(backend);
        let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        cx.write(id, text.as_bytes());
        cx.set_timer(id, self.options.answer);
        self.put_side(id, Side::Probe);
    }

    /// A check's answer; `false`: it has not come.
    fn on_checked(&mut self, cx: &Cx<'_>, id: ConnectionId) -> bool {
        let bytes = cx.received(id).contiguous(16).into_owned();
        let Some(code) = bytes.get(9..12) else {
            return false;
        };
        let is_well = bytes.starts_with(b"HTTP/1.") && matches!(code[0], b'2' | b'3');
        self.end_check(cx, id, is_well);
        cx.reset(id);
        true
    }

    fn end_check(&mut self, cx: &Cx<'_>, id: ConnectionId, is_well: bool) {
        self.put_side(id, Side::None);
        if let Some(backend) = self.place(id).backend {
            match is_well {
                true => self.backends.set_well(backend),
                false => self.backends.set_ill(backend, cx.now_ns()),
            }
        }
    }

    // One connection.

    fn drop_idle(&mut self, id: ConnectionId) {
        if let Some(backend) = self.place(id).backend {
            self.backends.forget_idle(backend, id);
        }
        self.put_side(id, Side::None);
    }

    /// Something has come on a connection, or there is more room on it.
    pub(super) fn on_progress(&mut self, cx: &Cx<'_>, id: ConnectionId) {
        match self.take_side(id) {
            side if !side.is_ready() => self.advance_handshake(cx, id, side),
            Side::None => {
                let len = cx.received(id).len();
                cx.consume(id, len);
            }
            Side::Stream(stream) => {
                let partner = stream.partner;
                self.put_side(id, Side::Stream(stream));
                if let Some(partner) = partner {
                    cx.set_timer(id, self.options.idle);
                    cx.set_timer(partner, self.options.idle);
                    self.pass_on(cx, id, partner);
                    self.pass_on(cx, partner, id);
                }
            }
            Side::Client(mut state) => {
                if let Some(backend) = state.backend() {
                    self.answer(cx, id, &mut state, backend);
                }
                self.advance(cx, id, &mut state);
                self.put_client(id, state);
            }
            Side::Server(client) => {
                self.put_side(id, Side::Server(client));
                self.on_server(cx, client, id);
            }
            Side::Idle => {
                // A backend that sends before it is asked.
                self.drop_idle(id);
                cx.reset(id);
            }
            Side::Probe => {
                self.put_side(id, Side::Probe);
                self.on_checked(cx, id);
            }
        }
    }

    pub(super) fn put_client(&mut self, id: ConnectionId, state: Box<Client>) {
        // The connection may have become a stream meanwhile.
        if let Side::None = self.place(id).side {
            self.put_side(id, Side::Client(state));
        }
    }

    fn on_server(&mut self, cx: &Cx<'_>, client: ConnectionId, id: ConnectionId) {
        let Side::Client(mut state) = self.take_side(client) else {
            return cx.reset(id);
        };
        // Room for the rest of the request, or bytes of the answer.
        self.advance(cx, client, &mut state);
        self.answer(cx, client, &mut state, id);
        self.put_client(client, state);
    }

    /// Handles the end of a connection.
    fn on_gone(&mut self, cx: &Cx<'_>, id: ConnectionId, why: Closed) {
        let place = std::mem::take(self.place(id));
        let has_failed = matches!(why, Closed::Failed(_) | Closed::Panicked);
        match place.side {
            Side::None => {}
            Side::Stream(stream) => self.on_stream_gone(cx, stream, place.backend, has_failed),
            Side::Client(mut state) => self.drop_backend(cx, &mut state),
            Side::Server(client) => {
                if let Some(backend) = place.backend {
                    self.backends.end(backend);
                }
                if let Side::Client(mut state) = self.take_side(client) {
                    self.on_server_gone(cx, client, &mut state, has_failed);
                    self.put_client(client, state);
                }
            }
            Side::Idle => {
                if let Some(backend) = place.backend {
                    self.backends.forget_idle(backend, id);
                }
            }
            Side::Probe => {
                if let Some(backend) = place.backend {
                    self.backends.set_ill(backend, cx.now_ns());
                }
            }
        }
    }
}

impl Service for Proxy {
    type Connection = ();
    /// `None`: the session was somewhere else.
    type Result = Option<HandshakeResult>;

    fn on_start(&mut self, cx: &Cx<'_>) {
        for addr in &self.options.listen {
            if cx.listen(*addr, self.options.backlog).is_err() {
                cx.end();
            }
        }
        self.check_all(cx);
    }

    fn on_open(&mut self, cx: &Cx<'_>, id: ConnectionId, via: Via) -> Option<()> {
        if let Via::Connect(tag) = via {
            let attempt = self.attempts.remove(&tag)?;
            return self.on_reached(cx, id, attempt);
        }
        *self.place(id) = ConnectionRole::default();
        let transport = Transport::new(self.options.keys.as_deref())?;
        match self.options.protocol {
            Protocol::Http => {
                let peer = cx.remote(id).map(|addr| addr.ip());
                self.put_side(id, Side::Client(Box::new(Client::new(peer, transport))));
                cx.set_timer(id, self.options.idle);
            }
            Protocol::Tcp => {
                Figures::add(&self.options.figures.requests);
                self.put_side(id, Side::Stream(Stream::new(transport)));
                cx.set_timer(id, self.options.answer);
                if !self.reach(cx, id, Tried::default()) {
                    Figures::add(&self.options.figures.failures);
                    return None;
                }
            }
        }
        Some(())
    }

    fn on_data(&mut self, cx: &Cx<'_>, id: ConnectionId, (): &mut ()) {
        self.on_progress(cx, id);
    }

    fn on_room(&mut self, cx: &Cx<'_>, id: ConnectionId, (): &mut ()) {
        self.on_progress(cx, id);
    }

    fn on_result(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        (): &mut (),
        result: Option<HandshakeResult>,
    ) {
        self.on_handshake_result(cx, id, result);
    }

    fn on_end(&mut self, cx: &Cx<'_>, id: ConnectionId, (): &mut ()) {
        match self.take_side(id) {
            Side::Server(client) => {
                if let Some(backend) = self.place(id).backend {
                    self.backends.end(backend);
                }
                cx.close(id);
                if let Side::Client(mut state) = self.take_side(client) {
                    self.on_server_gone(cx, client, &mut state, false);
                    self.put_client(client, state);
                }
            }
            Side::Idle => {
                self.drop_idle(id);
                cx.close(id);
            }
            Side::Probe => {
                self.end_check(cx, id, false);
                cx.close(id);
            }
            side => {
                let is_over = matches!(side, Side::None);
                self.put_side(id, side);
                match is_over {
                    true => cx.close(id),
                    false => self.on_progress(cx, id),
                }
            }
        }
    }

    fn on_timer(&mut self, cx: &Cx<'_>, id: ConnectionId, (): &mut ()) {
        match self.take_side(id) {
            Side::Client(mut state) => {
                self.on_late(cx, id, &mut state);
                self.put_client(id, state);
            }
            side => {
                let is_idle = matches!(side, Side::Idle);
                self.put_side(id, side);
                match is_idle {
                    true => cx.close(id),
                    false => cx.reset(id),
                }
            }
        }
    }

    fn on_closed(&mut self, cx: &Cx<'_>, id: ConnectionId, (): (), why: Closed) {
        self.on_gone(cx, id, why);
    }

    fn on_connect_failed(&mut self, cx: &Cx<'_>, tag: u64, _: Reason) {
        self.on_unreached(cx, tag);
    }

    fn on_refused(&mut self, cx: &Cx<'_>, what: Refused) {
        if let Refused::Connect(tag, _) = what {
            self.on_unreached(cx, tag);
        }
    }

    fn on_wake(&mut self, cx: &Cx<'_>) {
        self.check_all(cx);
    }
}
