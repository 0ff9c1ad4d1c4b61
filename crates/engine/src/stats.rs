//! An engine's counters and views.

use std::net::SocketAddr;

use slipstack_channel::State;

use crate::client::ClientId;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of the engine itself; the stack has its own.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct EngineCounters { $($(#[$doc])* pub $name: u64,)* }

        impl EngineCounters {
            /// Names and values in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    turns,
    /// Turns that found nothing to do.
    turns_idle,
    /// Nanoseconds of work: from a turn that found something to do to the next turn or sleep, the
    /// program's time included where it drives the engine.
    busy_ns,
    commands,
    /// Commands for sockets that are gone or do not support them.
    commands_refused,
    accepted,
    connected,
    /// Times the card's map of its queues was given up, because answers came to other queues.
    queue_map_refuted,
    /// Connections refused because no socket could be given to them.
    accept_refused,
    tx_frames,
    /// Frames lost because the device or the queue before it had no room.
    tx_full,
    /// Frames whose connection was gone before they could leave.
    tx_stale,
    /// Segments for which no receive ring could be had at first.
    rx_no_room,
    /// Datagrams lost because the program did not read.
    rx_datagrams_lost,
    /// Errors about datagrams that a full error queue had no room for.
    returned_lost,
    /// Frames put into another engine's inbox.
    local_posted,
    local_received,
    local_lost,
    /// Messages in our inbox of a kind or version that an engine does not take.
    inbox_refused,
    doorbells,
    clients_attached,
    clients_left,
    clients_crashed,
    /// Clients detached because their shared memory contradicted itself.
    clients_lied,
    /// Connections that moved from a closed listener to another one, out and in.
    passed_out,
    passed_in,
    /// Handshakes under way that did.
    half_open_out,
    half_open_in,
    /// Connections and handshakes that could not be taken: their peers are reset.
    passed_refused,
    half_open_refused,
    /// Connections that moved to another engine of their program because its thread uses them, out
    /// and in.
    carried_out,
    carried_in,
    /// Frames of a flow that is not here, passed to the keeper.
    strays,
    /// Connections handed over at the end of their program.
    handed_over,
}

/// One socket, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketView {
    pub client: ClientId,
    pub is_udp: bool,
    pub is_listening: bool,
    pub state: State,
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
}
