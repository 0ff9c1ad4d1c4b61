//! Passing a connection to the one process that keeps using it.
//!
//! The steward gives the connection to the child that asks for it if no other process has it and
//! nothing is on its way to the child, for which it waits as long as the child says; otherwise
//! the child asks again later. The child confirms when it has the connection; until then, and if
//! the child ends, the steward keeps it.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll::EventFlags;
use slipstack_channel::CloseMode;

use crate::idhash::BuildIdHasher;
use crate::lending::child::{Given, leave_all};
use crate::lending::pump::Pump;
use crate::lending::steward::Steward;
use crate::socket::borrowed::child_message::{Message, give, give_connection, refuse};
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::{Stream, Travelling};

/// Longest time for which bytes of a wanted connection may be on their way to its user.
const WAIT_MS_MAX: u64 = 1_000;
/// Interval at which it is looked whether a wanted connection may go.
pub(super) const WANTED_LOOK_NS: u64 = 1_000_000;

/// A child's request for a connection of which bytes are on their way to it.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The child's key.
    child: u64,
    message: Message,
    until_ns: u64,
}

/// Whether a connection can leave.
enum Leaving {
    /// The connection has left; its pump has that key.
    Gone(u64, Travelling),
    /// Bytes are on their way to the child, or the end of its direction to the peer.
    Later,
    NotNow,
}

impl Steward {
    pub(super) fn on_want(&mut self, key: u64, message: Message) {
        let Some(root) = self.children.get(&key).map(|child| child.root) else {
            return;
        };
        if self.give_datagrams(key, root, message) {
            return;
        }
        let wanted = Wanted {
            child: key,
            message,
            until_ns: self.lender.now_ns() + message.amount.min(WAIT_MS_MAX) * 1_000_000,
        };
        if !self.settle(&wanted) {
            self.wanted.push(wanted);
        }
    }

    /// Looks again for connections that could not be given at once.
    pub(super) fn settle_wanted(&mut self) {
        for wanted in std::mem::take(&mut self.wanted) {
            if !self.settle(&wanted) {
                self.wanted.push(wanted);
            }
        }
    }

    /// The time until it is to be looked again.
    pub(super) fn wanted_look_ns(&self) -> Option<u64> {
        (!self.wanted.is_empty()).then_some(WANTED_LOOK_NS)
    }

    /// The steward ends: children ask whoever goes on.
    pub(super) fn refuse_wanted(&mut self) {
        for wanted in std::mem::take(&mut self.wanted) {
            if let Some(child) = self.children.get(&wanted.child) {
                refuse(&child.control, wanted.message.token);
            }
        }
    }

    /// Gives a connection to the child or refuses it. Returns false if neither is possible yet.
    fn settle(&mut self, wanted: &Wanted) -> bool {
        let message = wanted.message;
        let Some(root) = self.children.get(&wanted.child).map(|child| child.root) else {
            return true;
        };
        let leaving = self.carry_out_for(root, message.id);
        let Some(child) = self.children.get_mut(&wanted.child) else {
            return true;
        };
        let (pump, travelling) = match leaving {
            Leaving::Gone(pump, travelling) => (pump, travelling),
            Leaving::Later if self.lender.now_ns() < wanted.until_ns => return false,
            Leaving::Later | Leaving::NotNow => {
                refuse(&child.control, message.token);
                return true;
            }
        };
        let pair = self.pumps.get(&pump).map(|pump| pump.child().as_fd());
        let bytes = travelling.to_bytes();
        let send = |pair| give_connection(&child.control, message.token, &bytes, pair);
        let is_sent = pair.is_some_and(send);
        let given = Given {
            id: message.id,
            pump,
            travelling,
        };
        match is_sent {
            true => child.given.push(given),
            false => {
                refuse(&child.control, message.token);
                self.come_back(&given);
            }
        }
        true
    }

    /// The child receives from a datagram socket by a part of its own.
    pub(super) fn on_share(&mut self, key: u64, message: Message) {
        let Some(child) = self.children.get(&key) else {
            return;
        };
        let mut held = child.held.iter();
        let mut pumps = self.pumps.values();
        let mut pumped = || pumps.find(|pump| pump.is_named(child.root, message.id));
        let held = held.find(|socket| socket.id == message.id);
        if let Some(socket) = held.or_else(|| pumped().map(Pump::socket)) {
            self.lender.share(socket);
        }
    }

    /// Whether the child of `root` has a datagram socket for itself.
    pub(super) fn is_free(&self, root: u64, socket: &Arc<Description>) -> bool {
        if !self.is_only_child(root) {
            return false;
        }
        let is_its_own = socket.lent.is_lent_once() && self.lender.is_left_to_steward(socket);
        is_its_own && socket.kind == Kind::Dgram && socket.may_end()
    }

    /// Gives the received datagrams of a socket to a child that uses it alone and has made its part
    /// on the stack. Returns false if it is another kind of socket, or in use.
    fn give_datagrams(&mut self, key: u64, root: u64, message: Message) -> bool {
        let is_it = |pump: &Pump| pump.is_named(root, message.id);
        let found = self.pumps.iter().find(|(_, pump)| is_it(pump));
        let (Some((pump, socket)), Some(child)) = (
            found.map(|(key, pump)| (*key, Arc::clone(pump.socket()))),
            self.children.get(&key),
        ) else {
            return false;
        };
        if !self.is_free(root, &socket) {
            return false;
        }
        if let Some(attachment) = self.lender.living_attachment() {
            self.lender.turn(&attachment);
        }
        leave_all(child, &socket);
        give(&child.control, message.token, [&[], &[]]);
        self.end_pump(pump);
        true
    }

    /// Removes a connection if only the child of `root` has it and the pair has no bytes for it.
    fn carry_out_for(&mut self, root: u64, id: u64) -> Leaving {
        if !self.is_only_child(root) {
            return Leaving::NotNow;
        }
        let is_it = |pump: &Pump| pump.is_named(root, id);
        let Some((key, pump)) = self.pumps.iter_mut().find(|(_, pump)| is_it(pump)) else {
            return Leaving::NotNow;
        };
        // Bytes that the child has written leave first.
        pump.on_child(EventFlags::IN);
        let has_more = pump.run(self.lender, &mut self.room);
        let socket = Arc::clone(pump.socket());
        let is_its_own = socket.lent.is_lent_once() && self.lender.is_left_to_steward(&socket);
        let is_movable = pump.has_one_origin() && pump.may_stop() && socket.may_end();
        let (Some(stream), true) = (stream_of(&socket), is_its_own && is_movable) else {
            return Leaving::NotNow;
        };
        if has_more {
            self.ready.push(*key);
        }
        if !pump.is_at_rest() || !pump.may_take_end(stream) {
            return Leaving::Later;
        }
        // A peer that takes nothing holds up what the child has written.
        let Some(unsent) = pump.take_unsent(self.lender, &mut self.room) else {
            return Leaving::Later;
        };
        let Some(mut travelling) = stream.depart() else {
            pump.put_back(unsent);
            return Leaving::NotNow;
        };
        travelling.add_unsent(unsent);
        if pump.ends_unsent() {
            travelling.shut_writing();
        }
        if pump.has_shut_reading() {
            travelling.shut_reading();
        }
        pump.pause(true);
        Leaving::Gone(*key, travelling)
    }

    fn come_back(&mut self, given: &Given) {
        come_back(&mut self.pumps, &mut self.ready, given);
    }

    /// The child has it: nothing of it is left here.
    pub(super) fn on_have(&mut self, key: u64, message: Message) {
        let Some(given) = self.take_given(key, message.id) else {
            return;
        };
        let Some(socket) = self
            .pumps
            .get(&given.pump)
            .map(|it| Arc::clone(it.socket()))
        else {
            return;
        };
        if let Some(stream) = stream_of(&socket) {
            let (attachment, sock) = stream.attachment_and_sock();
            if let Ok(slot) = u16::try_from(message.amount) {
                given.travelling.has_arrived(attachment, slot);
            }
            socket.has_ended.store(true, Ordering::Release);
            attachment.close(sock, CloseMode::Abort);
            attachment.commands();
        }
        // Other holders of the pair are served by the child, which has its other end too.
        self.end_pump_as(given.pump, Pump::end_here);
    }

    /// The child has no use for it now.
    pub(super) fn on_leave(&mut self, key: u64, message: Message) {
        // The child no longer waits, but takes an owner that never answers for a stopped one.
        let is_it = |it: &mut Wanted| (it.child, it.message.id) == (key, message.id);
        for wanted in self.wanted.extract_if(.., is_it) {
            if let Some(child) = self.children.get(&key) {
                refuse(&child.control, wanted.message.token);
            }
        }
        if let Some(given) = self.take_given(key, message.id) {
            self.come_back(&given);
        }
    }

    /// Takes back connections whose child has ended before it confirmed them.
    pub(super) fn take_all_back(&mut self, given: &[Given]) {
        for given in given {
            self.come_back(given);
        }
    }

    fn take_given(&mut self, key: u64, id: u64) -> Option<Given> {
        let child = self.children.get_mut(&key)?;
        let at = child.given.iter().position(|given| given.id == id)?;
        Some(child.given.swap_remove(at))
    }
}

/// A connection that a child does not take is the steward's as before.
pub(crate) fn come_back(
    pumps: &mut HashMap<u64, Pump, BuildIdHasher>,
    ready: &mut Vec<u64>,
    given: &Given,
) {
    let Some(pump) = pumps.get_mut(&given.pump) else {
        return;
    };
    if let Some(stream) = stream_of(pump.socket()) {
        stream.come_back(&given.travelling);
        pump.put_back(given.travelling.unsent().to_vec());
    }
    pump.pause(false);
    pump.on_peer();
    ready.push(given.pump);
}

pub(crate) fn stream_of(socket: &Description) -> Option<&Stream> {
    match socket.decided() {
        Some(Decided::Stream(stream)) => Some(stream),
        _ => None,
    }
}
