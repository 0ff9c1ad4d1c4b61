//! Giving away a connection that only one process uses, again and again.
//!
//! The steward gives the connection to the child that asks for it if no other process has it and
//! all sent data has been acknowledged; otherwise the child asks again later. The child confirms
//! when it has the connection; until then, and if the child ends, the steward keeps it.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstack_channel::{CloseMode, SockId};

use crate::attachment::Attachment;
use crate::idhash::BuildIdHasher;
use crate::lending::child::{Given, leave_all};
use crate::lending::pump::Pump;
use crate::lending::steward::Steward;
use crate::socket::borrowed::child_message::{Message, give, give_with, refuse};
use crate::socket::description::{Decided, Description, Kind};

impl Steward {
    pub(super) fn on_want(&mut self, key: u64, message: Message) {
        let Some(root) = self.children.get(&key).map(|child| child.root) else {
            return;
        };
        if self.give_datagrams(key, root, message) {
            return;
        }
        let carried = self.carry_out_for(root, message.id);
        let Some(child) = self.children.get_mut(&key) else {
            return;
        };
        let Some((pump, bytes)) = carried else {
            return refuse(&child.control, message.token);
        };
        let pair = self.pumps.get(&pump).map(|pump| pump.child().as_fd());
        let is_sent = give_with(&child.control, message.token, [&bytes, &[]], pair);
        let given = Given {
            id: message.id,
            pump,
            bytes,
        };
        match is_sent {
            true => child.given.push(given),
            false => {
                refuse(&child.control, message.token);
                self.come_back(&given);
            }
        }
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

    /// Removes a connection if only the child of `root` has it and no data is in transit.
    fn carry_out_for(&mut self, root: u64, id: u64) -> Option<(u64, Vec<u8>)> {
        if !self.is_only_child(root) {
            return None;
        }
        let is_it = |pump: &Pump| pump.is_named(root, id);
        let (key, pump) = self.pumps.iter_mut().find(|(_, pump)| is_it(pump))?;
        // Bytes that the child has written leave first.
        pump.run(&mut self.room);
        let socket = Arc::clone(pump.socket());
        let is_its_own = socket.lent.is_lent_once() && self.lender.is_left_to_steward(&socket);
        if !is_its_own
            || !pump.has_one_origin()
            || socket.kind != Kind::Stream
            || !socket.may_end()
            || !pump.is_at_rest()
        {
            return None;
        }
        let (attachment, sock) = place_of(&socket)?;
        let bytes = attachment.carry_out(sock)?;
        pump.pause(true);
        Some((*key, bytes))
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
        if let Some((attachment, sock)) = place_of(&socket) {
            if let Ok(slot) = u16::try_from(message.amount) {
                attachment.carried(&given.bytes, slot);
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
    if let Some((attachment, sock)) = place_of(pump.socket()) {
        attachment.carry_in(sock, &given.bytes);
    }
    pump.pause(false);
    pump.on_peer();
    ready.push(given.pump);
}

/// The engine of a connection that is open in both directions, and its number there.
pub(crate) fn place_of(socket: &Description) -> Option<(Arc<Attachment>, SockId)> {
    let Some(Decided::Stream(stream)) = socket.decided() else {
        return None;
    };
    if !stream.is_whole() {
        return None;
    }
    let (attachment, sock) = stream.attachment_and_sock();
    Some((Arc::clone(attachment), sock))
}
