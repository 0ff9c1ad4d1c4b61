//! TLS handshake of a client's connection.

use slipstack_service::ConnectionId;

use super::server::{Cx, Proxy, Side};
use crate::http::status::Status;
use crate::tls::{Handed, HandshakeResult, Transport};

impl Side {
    /// Returns whether its bytes may be processed: there is no handshake in progress.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        match self {
            Side::Client(client) => client.transport.is_ready(),
            Side::Stream(stream) => stream.transport.is_ready(),
            Side::None | Side::Server(_) | Side::Idle | Side::Probe => true,
        }
    }

    fn transport(&mut self) -> Option<&mut Transport> {
        match self {
            Side::Client(client) => Some(&mut client.transport),
            Side::Stream(stream) => Some(&mut stream.transport),
            Side::None | Side::Server(_) | Side::Idle | Side::Probe => None,
        }
    }
}

impl Proxy {
    /// Hands received bytes of a handshake to a worker.
    pub(super) fn advance_handshake(&mut self, cx: &Cx<'_>, id: ConnectionId, mut side: Side) {
        let handed = match side.transport() {
            Some(transport) => transport.advance_handshake(cx, id, |result| result),
            None => Handed::On,
        };
        match (handed, side) {
            (Handed::SomethingElse, Side::Client(mut client)) => {
                self.end_with(cx, id, &mut client, Status::BadRequest.line());
                self.put_client(id, client);
            }
            (Handed::SomethingElse, side) => {
                self.put_side(id, side);
                cx.close(id);
            }
            (Handed::On, side) => self.put_side(id, side),
        }
    }

    /// Continues with a worker's result.
    pub(super) fn on_handshake_result(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        result: Option<HandshakeResult>,
    ) {
        let mut side = self.take_side(id);
        let outcome = match (side.transport(), result) {
            (Some(transport), Some(result)) => {
                transport.on_handshake_result(cx, id, result).is_ok()
            }
            _ => false,
        };
        let goes_on = side.is_ready() || !cx.received(id).is_empty();
        self.put_side(id, side);
        match (outcome, goes_on) {
            (true, true) => self.on_progress(cx, id),
            (true, false) if !cx.has_ended(id) => {}
            _ => cx.close(id),
        }
    }
}
