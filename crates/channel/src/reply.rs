//! Replies of an engine to requests.

use core::sync::atomic::Ordering;
use std::net::SocketAddr;

use slipstack_mem::Line;
use slipstack_terms::{SocketError, TcpInfo};

use crate::addr::AddrWords;
use crate::command::Ticket;
use crate::layout::REPLY_LINES;

/// With sequence and kind, the figures are the longest answer.
const _: () = assert!(2 + TcpInfo::WORDS <= REPLY_LINES * 8);

/// The answer to a request that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    /// The local address the socket has now.
    Bound {
        local: SocketAddr,
    },
    Info(TcpInfo),
}

const REFUSED: u64 = 1;
const DONE: u64 = 2;
const BOUND: u64 = 3;
const INFO: u64 = 4;

/// Engine: writes the answer into its slot.
pub(crate) fn write(slot: &[Line], ticket: Ticket, result: Result<Reply, SocketError>) {
    let [head, rest @ ..] = slot else { return };
    let put = |word: usize, value: u64| head.words[word].store(value, Ordering::Relaxed);
    match result {
        Err(refusal) => {
            put(1, REFUSED);
            put(2, u64::from(refusal.code()));
        }
        Ok(Reply::Done) => put(1, DONE),
        Ok(Reply::Bound { local }) => {
            let words = AddrWords::encode(local);
            put(1, BOUND);
            put(2, words.ip[0]);
            put(3, words.ip[1]);
            put(4, u64::from(words.port));
        }
        Ok(Reply::Info(info)) => {
            put(1, INFO);
            let room = head.words[2..]
                .iter()
                .chain(rest.iter().flat_map(|line| line.words.iter()));
            for (word, value) in room.zip(info.to_words()) {
                word.store(value, Ordering::Relaxed);
            }
        }
    }
    head.words[0].store(u64::from(ticket.sequence), Ordering::Release);
}

/// Program: the answer, once it is there.
pub(crate) fn read(slot: &[Line], ticket: Ticket) -> Option<Result<Reply, SocketError>> {
    let [head, rest @ ..] = slot else { return None };
    if head.words[0].load(Ordering::Acquire) != u64::from(ticket.sequence) {
        return None;
    }
    let word = |index: usize| head.words[index].load(Ordering::Relaxed);
    Some(match word(1) {
        DONE => Ok(Reply::Done),
        BOUND => {
            let ip = [word(2), word(3)];
            let port = word(4) as u16;
            Ok(Reply::Bound {
                local: AddrWords { ip, port }.decode(),
            })
        }
        INFO => {
            let words = head.words[2..]
                .iter()
                .chain(rest.iter().flat_map(|line| line.words.iter()));
            let words = words.map(|word| word.load(Ordering::Relaxed));
            Ok(Reply::Info(TcpInfo::from_words(words)))
        }
        _ => Err(SocketError::from_code(word(2) as u8).unwrap_or(SocketError::InvalidState)),
    })
}
