//! Connections that another process uses while they live in the one that made them.
//!
//! A connection belongs to the engine of the process that made it, its *owner*. A child that is forked or
//! spawned gets a control socket to a thread of the owner, the [`steward`], and keeps it over `exec`; its own
//! children get one each. A connection that it never uses costs one counter, which is given back when it
//! closes the connection or ends. When it uses the connection for the first time it makes a pair of AF_UNIX
//! sockets, puts one end under the connection's numbers and sends the other to the steward, which moves bytes
//! between it and the connection from then on.
//!
//! The steward reads from the connection what the borrower asks for and no more: the rest is for whoever
//! asks next, the owner among them. A program without our library cannot ask. It gets the end of a pair
//! when it starts, and what comes is its own if it is its standard input, or as soon as the owner has closed
//! its own numbers.

mod borrow;
mod datagrams;
mod forking;
mod lingering;
mod nameplate;
mod passing;
mod post;
mod pump;
mod rest;
mod starting;
mod steward;
mod words;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use slipstack_mem::Lock;

use crate::description::{Decided, Description};
use crate::process::Process;
use crate::table::Entry;
use forking::Fork;
use words::Control;

pub(crate) use borrow::Borrowed;
pub(crate) use forking::Inheritance;
pub use passing::{Passing, is_passed};
pub use starting::Gift;
pub(crate) use starting::Ways;
pub(crate) use words::Wish;

/// Whether whoever uses a connection can say that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Heard,
    /// A program without the library.
    Unheard,
}

/// A connection's names at the time of the fork.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub(crate) id: u64,
    inode: u64,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
}

/// What a process lends and borrows.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    fork: Lock<Option<Fork>>,
    /// Descriptors of the stewards, and numbers of connections that only they use. Children close them.
    numbers: Lock<Vec<i32>>,
    /// The control sockets to the stewards of others.
    controls: Lock<Vec<Arc<Control>>>,
    pub(crate) post: post::Post,
    nameplates: nameplate::Nameplates,
}

impl Lending {
    pub(crate) fn descriptors(&self) -> Vec<i32> {
        let mut all = self.numbers.lock().clone();
        all.extend(self.controls.lock().iter().map(|control| control.number()));
        all
    }

    fn is_stewards(&self, number: i32) -> bool {
        self.numbers.lock().contains(&number)
    }

    fn note(&self, number: i32) {
        self.numbers.lock().push(number);
    }

    fn forget(&self, number: i32) {
        self.numbers.lock().retain(|other| *other != number);
    }
}

impl Process {
    pub(crate) fn hold_lending(&self) {
        self.lending.fork.hold();
        self.lending.numbers.hold();
        self.lending.controls.hold();
        self.lending.post.hold();
    }

    pub(crate) fn release_lending(&self) {
        self.lending.post.release();
        self.lending.controls.release();
        self.lending.numbers.release();
        self.lending.fork.release();
    }

    fn names_of(&self, socket: &Description) -> Names {
        let (local, remote) = match socket.decided() {
            Some(Decided::Stream(stream)) => (stream.local(), stream.remote().ok()),
            Some(Decided::Dgram(dgram)) => {
                let bound = socket.cold.lock().bound.map(|bound| bound.addr);
                (dgram.local().or(bound), *dgram.remote.lock())
            }
            _ => (None, None),
        };
        Names {
            id: socket.id,
            inode: self.inode_of(socket),
            local,
            remote,
        }
    }

    /// Whether this process has a connection of another one: it is the session of a server, which starts no workers.
    pub(crate) fn is_session(&self) -> bool {
        self.table.all().iter().any(|(_, entry)| match entry {
            Entry::Socket(socket) => matches!(socket.decided(), Some(Decided::Foreign(_))),
            _ => false,
        })
    }
}

/// A connection's children.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// How many may use it.
    shares: AtomicUsize,
    is_left_unread: AtomicBool,
}

impl Lent {
    pub(crate) fn is_lent(&self) -> bool {
        self.shares.load(Ordering::SeqCst) > 0
    }

    /// A child has ended with bytes that it had been given: nobody can read them any more, so the last close
    /// resets the connection whoever it comes from.
    pub(crate) fn is_left_unread(&self) -> bool {
        self.is_left_unread.load(Ordering::Acquire)
    }

    fn leave_unread(&self) {
        self.is_left_unread.store(true, Ordering::Release);
    }

    fn add(&self) {
        self.shares.fetch_add(1, Ordering::AcqRel);
    }

    /// True: nobody borrows it any more.
    fn remove(&self) -> bool {
        self.shares.fetch_sub(1, Ordering::SeqCst) == 1
    }
}
