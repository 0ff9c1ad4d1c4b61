//! Echo over TCP and UDP (RFC 862).

use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Duration;

use slipstack_service::{
    Answerer, ConnectionId, Context, Datagram, DatagramSocketId, Service, Shape, Via,
};

/// Bytes of one connection that are at the workers at a time.
const CHUNK_MAX: usize = 64 * 1024;

/// Options of the echo server.
#[derive(Clone, Debug)]
pub struct EchoOptions {
    /// Addresses of TCP and UDP.
    pub listen: Vec<SocketAddr>,
    pub backlog: u32,
    /// A connection that is silent for this time is reset.
    pub idle: Duration,
    /// The part of the server that sends the bytes back.
    pub shape: Shape,
    /// Under [`Shape::Mixed`]: longest piece, and longest datagram, that the engine sends back
    /// itself.
    pub mixed_max: usize,
}

/// See the [module documentation](self).
#[derive(Debug)]
pub struct Echo {
    options: EchoOptions,
}

/// One connection.
#[derive(Debug, Default)]
pub struct Conversation {
    /// A worker's answer that did not fit the send ring.
    rest: Vec<u8>,
    is_at_work: bool,
}

impl Echo {
    pub fn new(options: EchoOptions) -> Echo {
        Echo { options }
    }

    fn is_for_workers(&self, len: usize) -> bool {
        match self.options.shape {
            Shape::Run => false,
            Shape::Pipeline => true,
            Shape::Mixed(_) => len > self.options.mixed_max,
        }
    }

    /// Sends a worker's answer. Returns whether all of it is in the ring.
    fn send_rest(cx: &Context<'_, Vec<u8>>, id: ConnectionId, rest: &mut Vec<u8>) -> bool {
        let written = cx.write(id, rest);
        rest.drain(..written);
        rest.is_empty()
    }

    fn submit(cx: &Context<'_, Vec<u8>>, id: ConnectionId, state: &mut Conversation) {
        let bytes = cx.received(id).contiguous(CHUNK_MAX).into_owned();
        let len = bytes.len();
        match cx.submit(id, move || bytes) {
            Ok(()) => {
                cx.consume(id, len);
                state.is_at_work = true;
            }
            // The pool is full: the bytes stay in the ring, and the peer waits.
            Err(_) => cx.retry(id),
        }
    }
}

impl Service for Echo {
    type Connection = Conversation;
    type Result = Vec<u8>;

    fn on_start(&mut self, cx: &Context<'_, Vec<u8>>) {
        for addr in &self.options.listen {
            if cx.listen(*addr, self.options.backlog).is_err() || cx.bind(*addr).is_err() {
                cx.end();
            }
        }
    }

    fn on_open(
        &mut self,
        cx: &Context<'_, Vec<u8>>,
        id: ConnectionId,
        _: Via,
    ) -> Option<Conversation> {
        cx.set_timer(id, self.options.idle);
        Some(Conversation::default())
    }

    fn on_data(&mut self, cx: &Context<'_, Vec<u8>>, id: ConnectionId, state: &mut Conversation) {
        cx.set_timer(id, self.options.idle);
        if state.is_at_work || !state.rest.is_empty() {
            return;
        }
        let received = cx.received(id);
        if self.is_for_workers(received.len()) {
            return Echo::submit(cx, id, state);
        }
        let pieces = received.pieces().map(IoSlice::new);
        let written = cx.write_vectored(id, &pieces);
        cx.consume(id, written);
    }

    fn on_room(&mut self, cx: &Context<'_, Vec<u8>>, id: ConnectionId, state: &mut Conversation) {
        if Echo::send_rest(cx, id, &mut state.rest) && !cx.received(id).is_empty() {
            self.on_data(cx, id, state);
        }
        self.end_if_done(cx, id, state);
    }

    fn on_result(
        &mut self,
        cx: &Context<'_, Vec<u8>>,
        id: ConnectionId,
        state: &mut Conversation,
        result: Vec<u8>,
    ) {
        state.is_at_work = false;
        state.rest = result;
        self.on_room(cx, id, state);
    }

    fn on_end(&mut self, cx: &Context<'_, Vec<u8>>, id: ConnectionId, state: &mut Conversation) {
        self.end_if_done(cx, id, state);
    }

    fn on_datagram(
        &mut self,
        cx: &Context<'_, Vec<u8>>,
        socket: DatagramSocketId,
        datagram: &Datagram<'_>,
    ) {
        if !is_answered(datagram.from) {
            return;
        }
        if datagram.payload.len() > self.options.mixed_max && cx.pass(socket, datagram) {
            return;
        }
        let bytes = datagram.payload.contiguous(usize::MAX);
        // One that finds no room is lost, as on a wire.
        let _ = cx.send_to(socket, datagram.from, Some(datagram.to), &bytes);
    }
}

/// Returns whether a datagram from there is echoed: two echo servers must not answer each other for
/// ever (RFC 862 does not mention it).
fn is_answered(peer: SocketAddr) -> bool {
    peer.port() >= 1024
}

/// Sends datagrams back on a worker's thread.
#[derive(Clone, Copy, Debug)]
pub struct EchoAnswerer;

impl Answerer for EchoAnswerer {
    fn answer<'a>(
        &'a mut self,
        peer: SocketAddr,
        _: SocketAddr,
        question: &'a [u8],
    ) -> Option<&'a [u8]> {
        is_answered(peer).then_some(question)
    }
}

impl Echo {
    /// Closes a connection whose peer has ended, when all data has been sent back.
    fn end_if_done(&self, cx: &Context<'_, Vec<u8>>, id: ConnectionId, state: &Conversation) {
        let is_done = state.rest.is_empty() && !state.is_at_work && cx.received(id).is_empty();
        if is_done && cx.has_ended(id) {
            cx.close(id);
        }
    }
}
