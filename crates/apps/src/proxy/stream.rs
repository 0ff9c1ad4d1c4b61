//! Copying from one connection to the other, ring to ring or through TLS.

use slipstack_service::ConnectionId;

use super::body::{End, Moved, move_run};
use super::server::{Cx, Proxy, Side};
use crate::tls::Transport;

/// One connection of a pair.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) transport: Transport,
    /// `None`: the backend has not been reached.
    pub(super) partner: Option<ConnectionId>,
    /// The end of the peer's stream has been passed on.
    has_passed_end: bool,
}

impl Stream {
    /// A client's, for which a backend is to be reached.
    pub(super) fn new(transport: Transport) -> Stream {
        Stream {
            transport,
            ..Stream::default()
        }
    }

    pub(super) fn with(partner: ConnectionId, transport: Transport) -> Stream {
        Stream {
            partner: Some(partner),
            ..Stream::new(transport)
        }
    }
}

impl Proxy {
    /// The backend's connection of a client is there.
    pub(super) fn join(
        &mut self,
        cx: &Cx<'_>,
        (client, mut stream): (ConnectionId, Stream),
        id: ConnectionId,
    ) {
        stream.partner = Some(id);
        self.put_side(client, Side::Stream(stream));
        self.put_side(id, Side::Stream(Stream::with(client, Transport::Plain)));
        cx.set_timer(client, self.options.idle);
        cx.set_timer(id, self.options.idle);
        self.pass_on(cx, client, id);
    }

    /// Forwards received bytes, and their end.
    pub(super) fn pass_on(&mut self, cx: &Cx<'_>, from: ConnectionId, to: ConnectionId) {
        if !cx.is_open(from) || !cx.is_open(to) {
            return;
        }
        let [mut source, mut sink] = [from, to].map(|id| self.take_transport(id));
        let has_ended = source.is_ready()
            && sink.is_ready()
            && pass_bytes(cx, (from, &mut source), (to, &mut sink));
        if let Side::Stream(stream) = &mut self.place(from).side
            && has_ended
            && !std::mem::replace(&mut stream.has_passed_end, true)
        {
            sink.shutdown(cx, to);
        }
        self.put_transport(from, source);
        self.put_transport(to, sink);
        let has_passed = |proxy: &mut Proxy, id| match &proxy.place(id).side {
            Side::Stream(stream) => stream.has_passed_end,
            _ => false,
        };
        if has_ended && has_passed(self, from) && has_passed(self, to) {
            cx.close(from);
            cx.close(to);
        }
    }

    fn take_transport(&mut self, id: ConnectionId) -> Transport {
        match &mut self.place(id).side {
            Side::Stream(stream) => std::mem::take(&mut stream.transport),
            _ => Transport::Plain,
        }
    }

    fn put_transport(&mut self, id: ConnectionId, transport: Transport) {
        if let Side::Stream(stream) = &mut self.place(id).side {
            stream.transport = transport;
        }
    }

    /// Handles the end of one connection of a pair: a failure is forwarded as a reset.
    pub(super) fn on_stream_gone(
        &mut self,
        cx: &Cx<'_>,
        stream: Stream,
        backend: Option<usize>,
        has_failed: bool,
    ) {
        if let Some(backend) = backend {
            self.backends.end(backend);
        }
        if let Some(partner) = stream.partner
            && (has_failed || !stream.has_passed_end)
        {
            cx.reset(partner);
        }
    }
}

/// Forwards received bytes. Returns whether the end has been reached too.
fn pass_bytes(
    cx: &Cx<'_>,
    (from, source): (ConnectionId, &mut Transport),
    (to, sink): (ConnectionId, &mut Transport),
) -> bool {
    let (mut from_end, mut to_end) = (
        End {
            id: from,
            transport: source,
        },
        End {
            id: to,
            transport: sink,
        },
    );
    let (_, outcome) = move_run(cx, &mut from_end, &mut to_end, u64::MAX);
    outcome == Moved::Starved && from_end.transport.has_ended(cx, from)
}
