//! The service: datagrams answered in the turn in which they come, and TCP (RFC 7766).

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use slipstack_service::{
    Answerer, ConnectionId, Context, Datagram, DatagramSocketId, Service, Via,
};

use super::chaos::Chaos;
use super::edns::Identity;
use super::message::TCP_MAX;
use super::responder::Responder;
use super::store::Store;

/// Options of the name server on one engine.
#[derive(Clone, Debug)]
pub struct DnsOptions {
    pub listen: Vec<SocketAddr>,
    pub backlog: u32,
    pub store: Arc<Store>,
    pub identity: Arc<Identity>,
    pub chaos: Arc<Chaos>,
    /// Not to be known outside: makes keys that collide hard to find.
    pub seed: u64,
    /// A TCP connection on which nothing comes for so long is closed.
    pub idle: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct Dns {
    options: DnsOptions,
    responder: Responder,
}

impl Dns {
    pub fn new(options: DnsOptions) -> Dns {
        let responder = Responder::new(
            Arc::clone(&options.store),
            Arc::clone(&options.identity),
            Arc::clone(&options.chaos),
            options.seed,
        );
        Dns { options, responder }
    }
}

impl Answerer for Dns {
    fn answer<'a>(
        &'a mut self,
        from: SocketAddr,
        _: SocketAddr,
        question: &'a [u8],
    ) -> Option<&'a [u8]> {
        self.responder.respond(question, from.ip(), false)
    }
}

impl Service for Dns {
    type Connection = ();
    type Result = ();

    fn on_start(&mut self, cx: &Context<'_>) {
        for addr in &self.options.listen {
            if cx.bind(*addr).is_err() || cx.listen(*addr, self.options.backlog).is_err() {
                cx.end();
            }
        }
    }

    fn on_datagram(&mut self, cx: &Context<'_>, socket: DatagramSocketId, datagram: &Datagram<'_>) {
        let bytes = datagram.payload.contiguous(usize::MAX);
        // Workers take questions that may never be asked again; others the engine keeps ready.
        let is_passed = || cx.may_pass() && cx.pass(socket, datagram);
        let responder = &mut self.responder;
        let answer = responder.respond_unless(&bytes, datagram.from.ip(), false, is_passed);
        if let Some(answer) = answer {
            // One that finds no room is lost, as on a wire.
            let _ = cx.send_to(socket, datagram.from, Some(datagram.to), answer);
        }
    }

    fn on_open(&mut self, cx: &Context<'_>, id: ConnectionId, _: Via) -> Option<()> {
        cx.set_timer(id, self.options.idle);
        Some(())
    }

    fn on_data(&mut self, cx: &Context<'_>, id: ConnectionId, (): &mut ()) {
        cx.set_timer(id, self.options.idle);
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let ip = cx.remote(id).map_or(any, |remote| remote.ip());
        loop {
            let bytes = cx.received(id).contiguous(2 + TCP_MAX);
            let Some((length, rest)) = bytes.split_first_chunk::<2>() else {
                return;
            };
            let length = usize::from(u16::from_be_bytes(*length));
            let Some(bytes) = rest.get(..length) else {
                return;
            };
            // A response or an unreadable header gets no answer.
            let Some(reply) = self.responder.respond(bytes, ip, true) else {
                return cx.reset(id);
            };
            let prefix = (reply.len() as u16).to_be_bytes();
            let pieces = [IoSlice::new(&prefix), IoSlice::new(reply)];
            if cx.write_all(id, &pieces).is_err() {
                // The query stays in the ring until there is room for its answer.
                return;
            }
            cx.consume(id, 2 + length);
        }
    }

    fn on_timer(&mut self, cx: &Context<'_>, id: ConnectionId, (): &mut ()) {
        cx.close(id);
    }
}
