//! Bytes from one connection to the other, ring to ring.

use slipstack_service::ConnectionId;

use super::server::{Cx, Proxy, Side};

/// One connection of a pair.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// `None`: the backend has not been reached.
    pub(super) partner: Option<ConnectionId>,
    /// Its peer's end has been passed on.
    has_passed_end: bool,
}

impl Stream {
    pub(super) fn with(partner: ConnectionId) -> Stream {
        Stream {
            partner: Some(partner),
            has_passed_end: false,
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
        self.put_side(id, Side::Stream(Stream::with(client)));
        cx.set_timer(client, self.options.idle);
        cx.set_timer(id, self.options.idle);
        self.pass_on(cx, client, id);
    }

    /// Passes on what has come, and its end.
    pub(super) fn pass_on(&mut self, cx: &Cx<'_>, from: ConnectionId, to: ConnectionId) {
        if !cx.is_open(from) || !cx.is_open(to) {
            return;
        }
        let received = cx.received(from);
        if !received.is_empty() {
            let pieces = received.pieces().map(std::io::IoSlice::new);
            let written = cx.write_vectored(to, &pieces);
            cx.consume(from, written);
        }
        if !cx.received(from).is_empty() || !cx.has_ended(from) {
            return;
        }
        if let Side::Stream(stream) = &mut self.place(from).side
            && !std::mem::replace(&mut stream.has_passed_end, true)
        {
            cx.shutdown(to);
        }
        let has_passed = |proxy: &mut Proxy, id| matches!(&proxy.place(id).side, Side::Stream(stream) if stream.has_passed_end);
        if has_passed(self, from) && has_passed(self, to) {
            cx.close(from);
            cx.close(to);
        }
    }

    /// One of a pair has gone: a failure is passed on as a reset.
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
