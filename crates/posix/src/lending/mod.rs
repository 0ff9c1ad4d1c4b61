//! Connections that a forked child uses while they live in its parent.
//!
//! A connection belongs to the engine of the process that made it. After a fork the parent keeps it
//! open for the child: a thread of the parent, the [`steward`], waits on a control socket that only
//! that child holds. When the child uses the connection for the first time it makes a pair of
//! AF_UNIX sockets, puts one end under the connection's numbers and sends the other to the steward,
//! which moves bytes between it and the connection from then on. What the child never uses costs one
//! counter; it is given back when the child closes it, replaces itself or ends.
//!
//! The steward reads from the connection only when the child wants to read, or when the parent has
//! closed its own numbers: bytes that it takes are the child's.

mod borrow;
mod nameplate;
mod passing;
mod post;
mod pump;
mod rest;
mod steward;

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use slipstack_mem::{Lock, raised};

use crate::description::{Decided, Description};
use crate::process::Process;
use crate::table::Entry;
use post::Charge;

pub(crate) use borrow::Borrowed;
pub use passing::{Passing, is_passed};

/// What the child says of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Word {
    /// Carries one end of a pair.
    Take = 1,
    /// The child wants to read.
    Read = 2,
    /// The child has closed it unused.
    GiveBack = 3,
}

/// Length of a message: the word, and the description's number.
const MESSAGE: usize = 9;

/// A connection's names at the time of the fork.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub(crate) id: u64,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
}

/// A fork in preparation.
#[derive(Debug)]
pub(crate) struct Fork {
    parents: OwnedFd,
    childs: OwnedFd,
    shared: Vec<Arc<Description>>,
    names: Vec<Names>,
}

/// What a process lends and borrows.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    fork: Lock<Option<Fork>>,
    /// Descriptors of the stewards, and numbers of connections that only they use. Children close them.
    numbers: Lock<Vec<i32>>,
    /// The control socket to the parent's steward.
    parent: Lock<Option<Arc<OwnedFd>>>,
    pub(crate) post: post::Post,
    nameplates: nameplate::Nameplates,
}

impl Lending {
    pub(crate) fn descriptors(&self) -> Vec<i32> {
        let mut all = self.numbers.lock().clone();
        all.extend(self.parent.lock().as_ref().map(|fd| fd.as_raw_fd()));
        all
    }

    pub(crate) fn parent(&self) -> Option<Arc<OwnedFd>> {
        self.parent.lock().clone()
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
    /// Before a fork: a control socket, if there is anything that the child could use.
    pub(crate) fn prepare_lending(&self) {
        let mut shared: Vec<Arc<Description>> = Vec::new();
        for (number, entry) in self.table.all() {
            let Entry::Socket(socket) = entry else {
                continue;
            };
            match socket.decided() {
                Some(Decided::Stream(stream))
                    if !stream.is_failed() && !self.lending.is_stewards(number) =>
                {
                    shared.push(socket);
                }
                // From here on it is a kernel socket, which a fork shares by itself.
                Some(Decided::Foreign(borrowed)) => borrowed.take(self, &socket, false),
                _ => {}
            }
        }
        shared.sort_by_key(|socket| socket.id);
        shared.dedup_by_key(|socket| socket.id);
        if shared.is_empty() {
            return;
        }
        let made = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        let Ok((parents, childs)) = made else { return };
        let names = shared.iter().map(|socket| names_of(socket)).collect();
        // Before anybody can close them in the parent.
        for socket in &shared {
            socket.lent.add();
        }
        *self.lending.fork.lock() = Some(Fork {
            parents: raised(parents),
            childs: raised(childs),
            shared,
            names,
        });
    }

    pub(crate) fn hold_lending(&self) {
        self.lending.fork.hold();
        self.lending.numbers.hold();
        self.lending.parent.hold();
        self.lending.post.hold();
    }

    pub(crate) fn release_lending(&self) {
        self.lending.post.release();
        self.lending.parent.release();
        self.lending.numbers.release();
        self.lending.fork.release();
    }

    /// In the parent, after the fork: keeps what the child may use. Without this call nothing is lent.
    pub fn lend(&'static self) {
        let Some(fork) = self.lending.fork.lock().take() else {
            return;
        };
        drop(fork.childs);
        self.charge(Charge::Child {
            control: fork.parents,
            shared: fork.shared,
        });
    }

    /// In the child: what it needs to borrow. The stewards are the parent's.
    pub(crate) fn begin_borrowing(&self) -> Vec<Names> {
        self.lending.post.forget();
        let numbers = std::mem::take(&mut *self.lending.numbers.lock());
        for number in numbers {
            std::mem::forget(self.table.take(number));
            if let Some(number) = slipstack_mem::Descriptor::new(number) {
                number.close();
            }
        }
        let Some(fork) = self.lending.fork.lock().take() else {
            *self.lending.parent.lock() = None;
            return Vec::new();
        };
        // The descriptions are the parent's: not even their destructors run.
        std::mem::forget(fork.shared);
        drop(fork.parents);
        *self.lending.parent.lock() = Some(Arc::new(fork.childs));
        fork.names
    }

    /// Whether this process has a connection of another one: it is the session of a server, which starts no workers.
    pub(crate) fn is_session(&self) -> bool {
        self.table.all().iter().any(|(_, entry)| match entry {
            Entry::Socket(socket) => matches!(socket.decided(), Some(Decided::Foreign(_))),
            _ => false,
        })
    }
}

fn names_of(socket: &Description) -> Names {
    let (local, remote) = match socket.decided() {
        Some(Decided::Stream(stream)) => (stream.local(), stream.remote().ok()),
        _ => (None, None),
    };
    Names {
        id: socket.id,
        local,
        remote,
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
