//! What a socket is once it is decided.

mod classic;
mod dgram;
mod filter;
mod gathering;
mod listener;
mod moved;
mod stream;
mod told;
mod turns;
mod unsent;
mod urgent;
mod ways;

pub(crate) use dgram::{Dgram, SHUT_READ, SHUT_WRITE, Side, payload_longest, shut_bits};
pub(crate) use gathering::{Begun, Gathering};
pub(crate) use listener::Listener;
pub(crate) use stream::{How, Push, Stream, StreamError};
pub(crate) use told::{Tale, Told, Wishes as ToldWishes};

use crate::sigio::news;

/// What is new about a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edges {
    /// Epoll's bits, for all that watch.
    pub(crate) bits: u32,
    /// Of `news`, for its owner.
    pub(crate) news: u32,
}

impl Edges {
    /// Where the owner is told no less.
    pub(crate) fn of(bits: u32) -> Edges {
        let told = [
            (bits::IN, news::IN),
            (bits::OUT, news::OUT),
            (bits::ERR, news::ERR),
        ];
        let news = told.into_iter().filter(|(bit, _)| bits & bit != 0);
        Edges {
            bits,
            news: news.fold(0, |all, (_, what)| all | what),
        }
    }
}

/// Epoll's bits as Linux's poll functions give them.
pub(crate) mod bits {
    pub(crate) const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
    pub(crate) const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
    pub(crate) const PRI: u32 = libc::EPOLLPRI as u32;
    pub(crate) const RDHUP: u32 = libc::EPOLLRDHUP as u32;
    pub(crate) const HUP: u32 = libc::EPOLLHUP as u32;
    pub(crate) const ERR: u32 = libc::EPOLLERR as u32;
}
