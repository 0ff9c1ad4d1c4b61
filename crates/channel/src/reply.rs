//! Replies of an engine to requests.

use core::sync::atomic::Ordering;
use std::net::SocketAddr;

use slipstack_mem::Line;
use slipstack_terms::{SavedSyn, SocketError, TcpInfo};

use crate::addr::AddrWords;
use crate::command::Ticket;
use crate::layout::REPLY_LINES;

/// With sequence and kind, the figures are the longest answer.
const _: () = assert!(2 + TcpInfo::WORDS <= REPLY_LINES * 8);
const _: () = assert!(SavedSyn::WORDS <= TcpInfo::WORDS);

/// The answer to a request that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    /// The local address the socket has now.
    Bound {
        local: SocketAddr,
    },
    Info(TcpInfo),
    Syn(SavedSyn),
}

const REFUSED: u64 = 1;
const DONE: u64 = 2;
const BOUND: u64 = 3;
const INFO: u64 = 4;
const SYN: u64 = 5;

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
            put_all((head, rest), &info.to_words());
        }
        Ok(Reply::Syn(syn)) => {
            put(1, SYN);
            put_all((head, rest), &syn.to_words());
        }
    }
    head.words[0].store(u64::from(ticket.sequence), Ordering::Release);
}

/// Writes the words of an answer that has many.
fn put_all((head, rest): (&Line, &[Line]), values: &[u64]) {
    let room = head.words[2..]
        .iter()
        .chain(rest.iter().flat_map(|line| line.words.iter()));
    for (word, value) in room.zip(values) {
        word.store(*value, Ordering::Relaxed);
    }
}

/// Program: the answer, once it is there.
pub(crate) fn read(slot: &[Line], ticket: Ticket) -> Option<Result<Reply, SocketError>> {
    let [head, rest @ ..] = slot else { return None };
    if head.words[0].load(Ordering::Acquire) != u64::from(ticket.sequence) {
        return None;
    }
    let word = |index: usize| head.words[index].load(Ordering::Relaxed);
    let words = head.words[2..]
        .iter()
        .chain(rest.iter().flat_map(|line| line.words.iter()));
    let words = words.map(|word| word.load(Ordering::Relaxed));
    Some(match word(1) {
        DONE => Ok(Reply::Done),
        BOUND => {
            let ip = [word(2), word(3)];
            let port = word(4) as u16;
            Ok(Reply::Bound {
                local: AddrWords { ip, port }.decode(),
            })
        }
        INFO => Ok(Reply::Info(TcpInfo::from_words(words))),
        SYN => match SavedSyn::from_words(words) {
            Some(syn) => Ok(Reply::Syn(syn)),
            None => Err(SocketError::InvalidState),
        },
        _ => Err(SocketError::from_code(word(2) as u8).unwrap_or(SocketError::InvalidState)),
    })
}
