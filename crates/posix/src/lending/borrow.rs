//! The child's side: a connection of the parent's becomes one end of a pair when it is used.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use slipstack_mem::{Descriptor, Lock};

use super::{MESSAGE, Names, Word};
use crate::description::Description;
use crate::errno::Errno;
use crate::outcome::Divert;
use crate::place::{replace, set_nonblocking};
use crate::process::Process;

/// A connection that lives in the parent of this process.
#[derive(Debug)]
pub(crate) struct Borrowed {
    /// The parent's number for it.
    id: u64,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    parent: Option<Arc<OwnedFd>>,
    is_taken: Lock<bool>,
    is_read: AtomicBool,
}

impl Borrowed {
    pub(crate) fn new(id: u64, names: Option<&Names>, parent: Option<Arc<OwnedFd>>) -> Borrowed {
        Borrowed {
            id,
            local: names.and_then(|names| names.local),
            remote: names.and_then(|names| names.remote),
            // What it does not lend cannot be asked for.
            parent: names.and(parent),
            is_taken: Lock::new(false),
            is_read: AtomicBool::new(false),
        }
    }

    /// One that another program has sent: the number is an end of a pair.
    pub(crate) fn received(local: SocketAddr, remote: SocketAddr) -> Borrowed {
        Borrowed {
            id: 0,
            local: Some(local),
            remote: Some(remote),
            parent: None,
            is_taken: Lock::new(true),
            is_read: AtomicBool::new(true),
        }
    }

    /// The same in a child of this process.
    pub(crate) fn for_child(&self) -> Borrowed {
        Borrowed {
            id: self.id,
            local: self.local,
            remote: self.remote,
            parent: self.parent.clone(),
            is_taken: Lock::new(self.is_taken()),
            is_read: AtomicBool::new(self.is_read.load(Ordering::Relaxed)),
        }
    }

    /// Puts an end of a pair under the numbers, if that has not been done; whether it could be.
    /// `reads`: the program wants to read from it.
    pub(crate) fn take(&self, process: &Process, socket: &Arc<Description>, reads: bool) {
        let mut is_taken = self.is_taken.lock();
        if !*is_taken {
            match self.make_pair(process, socket) {
                Ok(()) => *is_taken = true,
                Err(_) => return process.warn_of_foreign(socket),
            }
        }
        if reads && !self.is_read.swap(true, Ordering::AcqRel) {
            let _ = self.say(Word::Read, None);
        }
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken.try_lock().is_some_and(|taken| *taken)
    }

    /// The last number was closed.
    pub(crate) fn give_back(&self) {
        if !self.is_taken() {
            let _ = self.say(Word::GiveBack, None);
        }
    }

    fn make_pair(&self, process: &Process, socket: &Description) -> Result<(), Errno> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        limit_times(&ours, socket)?;
        if let (Some(local), Some(remote)) = (self.local, self.remote) {
            process.lending.nameplates.put(&theirs, local, remote);
        }
        self.say(Word::Take, Some(theirs.as_fd()))?;
        let numbers = socket.cold.lock().numbers.clone();
        for number in numbers.into_iter().filter_map(Descriptor::new) {
            replace(number, &ours)?;
            set_nonblocking(number, socket.is_nonblocking())?;
        }
        socket.has_kernel.store(true, Ordering::Release);
        process.report.on_borrowed(socket, self.local, self.remote);
        Ok(())
    }

    fn say(&self, word: Word, end: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let parent = self.parent.as_ref().ok_or(Errno::ENOTCONN)?;
        let mut message = [0; MESSAGE];
        message[0] = word as u8;
        message[1..].copy_from_slice(&self.id.to_le_bytes());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let ends: Vec<BorrowedFd<'_>> = end.into_iter().collect();
        if !ends.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&ends));
        }
        let bytes = [IoSlice::new(&message)];
        rustix::net::sendmsg(&**parent, &bytes, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// SO_RCVTIMEO and SO_SNDTIMEO as they are; from then on they are set where the connection is used.
fn limit_times(end: &OwnedFd, socket: &Description) -> Result<(), Errno> {
    let limits = [
        (Timeout::Recv, &socket.recv_timeout_ns),
        (Timeout::Send, &socket.send_timeout_ns),
    ];
    for (which, limit) in limits {
        match limit.load(Ordering::Relaxed) {
            0 => {}
            ns => set_socket_timeout(end, which, Some(Duration::from_nanos(ns)))?,
        }
    }
    Ok(())
}

impl Process {
    /// A call on a connection that lives in the parent: made on the pair's end, which the kernel
    /// serves.
    pub(crate) fn borrow(&self, socket: &Arc<Description>, it: &Borrowed, reads: bool) -> Divert {
        it.take(self, socket, reads);
        if it.is_taken() {
            Divert::Kernel
        } else {
            Errno::ENOTCONN.into()
        }
    }

    fn warn_of_foreign(&self, socket: &Description) {
        let fd = socket.cold.lock().numbers.first().copied().unwrap_or(-1);
        self.warn_once(&format!(
            "descriptor {fd} is a connection of the process this one was forked from, which has ended or cannot \
             lend it; it cannot be used here"
        ));
    }
}
