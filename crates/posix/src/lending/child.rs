//! The steward's record of a child, and the parts of a steward that outlive its thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use slipstack_channel::Loan;

use crate::lending::pump::Pump;
use crate::socket::Travelling;
use crate::socket::borrowed::child_message::leave;
use crate::socket::description::{Decided, Description, Kind};

/// The loans of one child.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) control: OwnedFd,
    /// The key of the child that the program made itself: this one, or its ancestor.
    pub(crate) root: u64,
    /// Sockets that it may use and has not used.
    pub(crate) held: Vec<Arc<Description>>,
    /// The key of the pump that it has joined, if it came by an end of a pair.
    pub(crate) joined: Option<u64>,
    /// Connections that it has not confirmed.
    pub(crate) given: Vec<Given>,
}

/// A connection that has been given to a child which has not confirmed it.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) id: u64,
    /// The key of its pump.
    pub(crate) pump: u64,
    pub(crate) travelling: Travelling,
}

impl Child {
    pub(crate) fn new(control: OwnedFd, root: u64, held: Vec<Arc<Description>>) -> Child {
        Child {
            control,
            root,
            held,
            joined: None,
            given: Vec::new(),
        }
    }

    /// Takes the sockets whose ids follow each other in `bytes`.
    pub(crate) fn take_all_held(&mut self, bytes: &[u8]) -> Vec<Arc<Description>> {
        let (ids, _) = bytes.as_chunks();
        let mut ids: Vec<u64> = ids.iter().map(|id| u64::from_le_bytes(*id)).collect();
        ids.sort_unstable();
        let is_it = |socket: &mut Arc<Description>| ids.binary_search(&socket.id).is_ok();
        self.held.extract_if(.., is_it).collect()
    }

    /// Whether there are connections that it may use and has not used.
    pub(crate) fn holds_connections(&self) -> bool {
        self.held.iter().any(|socket| socket.kind == Kind::Stream)
    }

    /// Records that it can go on with the connections which it has not used and no other process
    /// uses any more.
    pub(crate) fn note_user(&self) {
        for socket in self.held.iter().filter(|it| it.lent.users() == 0) {
            // Another thread may lend it once more.
            let _cold = socket.cold.lock();
            if let Some(Decided::Stream(stream)) = socket.decided()
                && socket.lent.users() == 0
            {
                stream.set_loan(Loan::to(0, 0, 0));
            }
        }
    }

    pub(crate) fn take_held(&mut self, id: u64) -> Option<Arc<Description>> {
        let at = self.held.iter().position(|socket| socket.id == id)?;
        Some(self.held.swap_remove(at))
    }
}

/// Counts a child that may use a connection from now on, and says so before it does. It can go on
/// with one that nobody uses if this process is killed.
pub(crate) fn lend_to_child(socket: &Description) {
    // Another thread may take the last loan back.
    let _cold = socket.cold.lock();
    // If there is a user, its loan holds; the steward writes that it is not the only one.
    if socket.lent.users() == 0
        && let Some(Decided::Stream(stream)) = socket.decided()
    {
        stream.set_loan(Loan::to(0, 0, 0));
    }
    socket.lent.add_unused();
}

/// Leaves the received datagrams of a socket to a child.
pub(crate) fn leave_all(child: &Child, socket: &Description) {
    if let Some(Decided::Dgram(dgram)) = socket.decided() {
        while let Some(left) = dgram.take_for_other() {
            if !leave(&child.control, socket.id, &left) {
                return;
            }
        }
    }
}

/// The children and pumps of a steward whose thread has ended, with their keys.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    pub(crate) children: Vec<(u64, Child)>,
    pub(crate) pumps: Vec<(u64, Pump)>,
}
