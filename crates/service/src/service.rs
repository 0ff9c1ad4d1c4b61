//! The trait that a service implements.

use slipstack_channel::Reason;

use crate::connections::{ConnectionId, DatagramSocketId};
use crate::context::Context;
use crate::outcome::{Closed, Refused, Via};
use crate::received::Datagram;

/// A server (or client) that its engine calls.
///
/// Handlers run on the engine's thread: while one runs, nothing else of that engine does. One that
/// takes 100 µs delays every connection of the engine by as much; [`Context::submit`] is for that.
#[allow(
    unused_variables,
    reason = "defaults do nothing with what they are told"
)]
pub trait Service: Send + Sized + 'static {
    /// Kept with each connection.
    type Connection: Send;
    /// Comes back from workers.
    type Result: Send + 'static;

    /// Called once, in the engine's first turn: listens, binds, connects.
    fn on_start(&mut self, cx: &Context<'_, Self::Result>);

    /// A connection exists. `None` resets it.
    fn on_open(
        &mut self,
        cx: &Context<'_, Self::Result>,
        id: ConnectionId,
        via: Via,
    ) -> Option<Self::Connection>;

    /// Called when bytes have arrived and [`Context::received`] is not empty. Bytes that are not
    /// consumed stay in the ring and reduce the peer's window.
    fn on_data(
        &mut self,
        cx: &Context<'_, Self::Result>,
        id: ConnectionId,
        connection: &mut Self::Connection,
    );

    /// Called when there is more room after a write that found too little. Continues reading by
    /// default.
    fn on_room(
        &mut self,
        cx: &Context<'_, Self::Result>,
        id: ConnectionId,
        connection: &mut Self::Connection,
    ) {
        if !cx.received(id).is_empty() {
            self.on_data(cx, id, connection);
        }
    }

    /// Called when the peer has ended its stream, and everything before that is consumed. Closes
    /// the connection by default; written bytes are still delivered.
    fn on_end(
        &mut self,
        cx: &Context<'_, Self::Result>,
        id: ConnectionId,
        connection: &mut Self::Connection,
    ) {
        cx.close(id);
    }

    /// Called when the timer of [`Context::set_timer`] expires. Resets the connection by default.
    fn on_timer(
        &mut self,
        cx: &Context<'_, Self::Result>,
        id: ConnectionId,
        connection: &mut Self::Connection,
    ) {
        cx.reset(id);
    }

    /// A job of this connection is done.
    fn on_result(
        &mut self,
        cx: &Context<'_, Self::Result>,
        id: ConnectionId,
        connection: &mut Self::Connection,
        result: Self::Result,
    ) {
    }

    /// Called when the connection has ended, by whichever side.
    fn on_closed(
        &mut self,
        cx: &Context<'_, Self::Result>,
        id: ConnectionId,
        connection: Self::Connection,
        why: Closed,
    ) {
    }

    /// A connection attempt failed.
    fn on_connect_failed(&mut self, cx: &Context<'_, Self::Result>, tag: u64, why: Reason) {}

    /// A datagram has come. On the stack its payload lies in the frame that is being received.
    fn on_datagram(
        &mut self,
        cx: &Context<'_, Self::Result>,
        socket: DatagramSocketId,
        datagram: &Datagram<'_>,
    ) {
    }

    /// The time of [`Context::wake_after`] has come.
    fn on_wake(&mut self, cx: &Context<'_, Self::Result>) {}

    /// The engine refused something.
    fn on_refused(&mut self, cx: &Context<'_, Self::Result>, what: Refused) {}

    /// Called once for each connection when the process is about to end, after the listeners are
    /// closed. Closes it by default.
    fn on_stop(
        &mut self,
        cx: &Context<'_, Self::Result>,
        id: ConnectionId,
        connection: &mut Self::Connection,
    ) {
        cx.close(id);
    }
}
