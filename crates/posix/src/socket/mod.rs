//! Sockets whose placement is decided.

pub(crate) mod ancillary;
pub(crate) mod borrowed;
pub(crate) mod bound;
mod coming_back;
mod datagram_flags;
pub(crate) mod description;
mod dgram;
mod ended;
mod error_queue;
mod filter;
mod gathering;
pub(crate) mod kernel_socket;
mod last_bytes;
mod left;
mod listener;
mod moved;
pub(crate) mod options;
mod polling;
mod rings;
pub(crate) mod sigio;
pub(crate) mod stamping;
mod stream;
mod travelling;
mod turns;
mod unsent;
mod urgent;

pub(crate) use dgram::{Dgram, SHUT_READ, SHUT_WRITE, Side, payload_longest, shut_bits};
pub(crate) use error_queue::{ErrorQueue, QueuedMessage, RequestedMessages as ErrorQueueMessages};
pub(crate) use gathering::{Begun, Gathering};
pub(crate) use left::Left;
pub(crate) use listener::Listener;
pub(crate) use stream::{How, Push, Stream, StreamError};
pub(crate) use travelling::Travelling;

use crate::ready::bits;
use crate::socket::sigio::news;

/// New events of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edges {
    /// Epoll's bits, for all that watch.
    pub(crate) bits: u32,
    /// News for the socket's owner.
    pub(crate) news: u32,
}

impl Edges {
    /// Whether the owner gets the same signals.
    pub(crate) fn of(bits: u32) -> Edges {
        let kinds = [
            (bits::IN, news::IN),
            (bits::OUT, news::OUT),
            (bits::ERR, news::ERR),
        ];
        let news = kinds.into_iter().filter(|(bit, _)| bits & bit != 0);
        Edges {
            bits,
            news: news.fold(0, |all, (_, what)| all | what),
        }
    }
}
