//! The service: datagrams answered in the turn in which they arrive, and TCP (RFC 7766).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use slipstack_service::{
    Answerer, Closed, ConnectionId, Context, Datagram, DatagramSocketId, Reason, Service, Via,
};

use super::connection::Connection;
use super::manager::{Manager, Task};
use super::responder::{Arrival, Common, Responder};
use super::zone::Zones;

/// Interval at which an engine looks after transfers; and if there are none.
const TURN: Duration = Duration::from_millis(200);
const IDLE_TURN: Duration = Duration::from_secs(1);
/// Transfers out at a time, on each engine; further ones are reset.
const TRANSFERS_OUT_MAX: usize = 64;

/// Options of the name server on one engine.
#[derive(Clone, Debug)]
pub struct DnsOptions {
    pub listen: Vec<SocketAddr>,
    pub backlog: u32,
    pub common: Common,
    /// A TCP connection on which nothing comes for so long is closed.
    pub idle: Duration,
    /// Whether this engine queries primaries and notifies secondaries; one of them does.
    pub is_manager: bool,
    /// Writes a line for the operator.
    pub log: fn(&str),
}

/// See the [module documentation](self).
#[derive(Debug)]
pub struct Dns {
    pub(super) options: DnsOptions,
    pub(super) responder: Responder,
    pub(super) manager: Manager,
    sockets: Vec<(SocketAddr, DatagramSocketId)>,
    transfers_out: usize,
    /// For workers, which have no engine's time.
    started: Instant,
}

impl Dns {
    pub fn new(options: DnsOptions) -> Dns {
        Dns {
            responder: Responder::new(options.common.clone()),
            manager: Manager::new(options.common.seed >> 32),
            options,
            sockets: Vec::new(),
            transfers_out: 0,
            started: Instant::now(),
        }
    }

    fn turn(&mut self, cx: &Context<'_>) {
        let messages = self.options.common.mailbox.take();
        let version = self.options.common.store.version();
        let zones = Arc::clone(self.responder.zones());
        let tasks = self.manager.turn(version, &zones, messages, cx.now_ns());
        for task in tasks {
            self.perform(cx, task, &zones);
        }
        let is_idle = self.manager.is_idle();
        cx.wake_after(if is_idle { IDLE_TURN } else { TURN });
    }

    fn perform(&mut self, cx: &Context<'_>, task: Task, zones: &Zones) {
        match task {
            Task::Log(line) => (self.options.log)(&line),
            Task::Expire(apex) => {
                self.options
                    .common
                    .store
                    .change(|zones| zones.replace(&apex, None));
                let name = super::name::text(&apex);
                (self.options.log)(&format!("zone {name}: expired, no primary was reached"));
            }
            Task::Tell(peer, message) => {
                let is_family = |(addr, _): &&(SocketAddr, _)| addr.is_ipv4() == peer.is_ipv4();
                if let Some((_, socket)) = self.sockets.iter().find(is_family) {
                    // A notice that finds no room is sent again.
                    let _ = cx.send_to(*socket, peer, None, &message);
                }
            }
            Task::Connect(peer, tag) => {
                if cx.connect(peer, tag).is_err() {
                    self.finish(cx, tag, Err("there are too many connections".into()), zones);
                }
            }
        }
    }

    /// Tells the manager how a transfer has ended.
    pub(super) fn finish(
        &mut self,
        cx: &Context<'_>,
        tag: u64,
        outcome: Result<Option<u32>, String>,
        zones: &Zones,
    ) {
        let task = self.manager.finish(tag, outcome, zones, cx.now_ns());
        if let Some(Task::Log(line)) = task {
            (self.options.log)(&line);
        }
    }

    /// Returns whether one more transfer out may begin; it is counted.
    pub(super) fn may_transfer(&mut self) -> bool {
        let may = self.transfers_out < TRANSFERS_OUT_MAX;
        self.transfers_out += usize::from(may);
        may
    }

    pub(super) fn transfer_is_over(&mut self) {
        self.transfers_out = self.transfers_out.saturating_sub(1);
    }
}

impl Answerer for Dns {
    fn answer<'a>(
        &'a mut self,
        from: SocketAddr,
        _: SocketAddr,
        question: &'a [u8],
    ) -> Option<&'a [u8]> {
        let arrival = Arrival {
            ip: from.ip(),
            is_tcp: false,
            now_ns: self.started.elapsed().as_nanos() as u64,
        };
        self.responder.respond(question, arrival)
    }
}

impl Service for Dns {
    type Connection = Connection;
    type Result = ();

    fn on_start(&mut self, cx: &Context<'_>) {
        for addr in &self.options.listen {
            let bound = cx.bind(*addr);
            if bound.is_err() || cx.listen(*addr, self.options.backlog).is_err() {
                cx.end();
            }
            self.sockets
                .extend(bound.ok().map(|socket| (*addr, socket)));
        }
        if self.options.is_manager {
            cx.wake_after(Duration::from_millis(1));
        }
    }

    fn on_wake(&mut self, cx: &Context<'_>) {
        self.turn(cx);
    }

    fn on_datagram(&mut self, cx: &Context<'_>, socket: DatagramSocketId, datagram: &Datagram<'_>) {
        let bytes = datagram.payload.contiguous(usize::MAX);
        // Workers take questions that may never be repeated; the engine caches the others.
        let is_passed = || cx.may_pass() && cx.pass(socket, datagram);
        let responder = &mut self.responder;
        let arrival = Arrival {
            ip: datagram.from.ip(),
            is_tcp: false,
            now_ns: cx.now_ns(),
        };
        let answer = responder.respond_unless(&bytes, arrival, is_passed);
        if let Some(answer) = answer {
            // One that finds no room is lost, as on a wire.
            let _ = cx.send_to(socket, datagram.from, Some(datagram.to), answer);
        }
    }

    fn on_open(&mut self, cx: &Context<'_>, id: ConnectionId, via: Via) -> Option<Connection> {
        cx.set_timer(id, self.options.idle);
        match via {
            Via::Listener(_) => {
                let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
                let ip = cx.remote(id).map_or(any, |remote| remote.ip());
                Some(Connection::Queries(ip))
            }
            Via::Connect(tag) => self.begin_transfer_in(cx, id, tag),
        }
    }

    fn on_connect_failed(&mut self, cx: &Context<'_>, tag: u64, why: Reason) {
        let zones = Arc::clone(self.responder.zones());
        self.finish(cx, tag, Err(format!("no connection: {why:?}")), &zones);
    }

    fn on_data(&mut self, cx: &Context<'_>, id: ConnectionId, connection: &mut Connection) {
        cx.set_timer(id, self.options.idle);
        self.read(cx, id, connection);
    }

    fn on_room(&mut self, cx: &Context<'_>, id: ConnectionId, connection: &mut Connection) {
        cx.set_timer(id, self.options.idle);
        self.read(cx, id, connection);
    }

    fn on_timer(&mut self, cx: &Context<'_>, id: ConnectionId, _: &mut Connection) {
        cx.close(id);
    }

    fn on_closed(&mut self, cx: &Context<'_>, _: ConnectionId, connection: Connection, _: Closed) {
        match connection {
            Connection::Queries(_) | Connection::Done => {}
            Connection::TransferOut(..) => self.transfer_is_over(),
            Connection::TransferIn(tag, _) => {
                let zones = Arc::clone(self.responder.zones());
                self.finish(cx, tag, Err("it ended in the middle".into()), &zones);
            }
        }
    }
}
