//! Start and end of a connection with TLS.

use slipstack_service::ConnectionId;

use super::exchange::{Done, Exchange, Step};
use super::server::{Cx, Http};
use super::status::Status;
use crate::tls::{Handed, HandshakeResult, Transport};

impl Http {
    /// Hands received bytes of a handshake to a worker.
    pub(super) fn advance_handshake(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        state: &mut Exchange,
    ) {
        if state
            .transport
            .advance_handshake(cx, id, Done::HandshakeResult)
            == Handed::SomethingElse
        {
            self.refuse(cx, id, state, Status::BadRequest);
        }
    }

    /// Continues with a worker's result.
    pub(super) fn on_handshake_result(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        state: &mut Exchange,
        result: HandshakeResult,
    ) {
        if state.transport.on_handshake_result(cx, id, result).is_err() {
            return cx.close(id);
        }
        if state.transport.is_ready() {
            state.is_timed = false;
            cx.set_timer(id, self.options.idle);
            return self.advance(cx, id, state);
        }
        if !cx.received(id).is_empty() {
            return self.advance_handshake(cx, id, state);
        }
        if state.has_ended {
            cx.close(id);
        }
    }

    /// Closes a TLS session whose peer has ended, once all its bytes are processed. Without TLS
    /// [`slipstack_service::Service::on_end`] follows the last byte.
    pub(super) fn close_ended(&self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange) {
        if let Transport::Plain = state.transport {
            return;
        }
        let is_over = state.step == Step::Head
            && state.transport.is_drained()
            && (state.has_ended || state.transport.has_ended(cx, id));
        if is_over {
            state.transport.close(cx, id);
        }
    }
}
