//! Messages of children that carry data.

use std::sync::Arc;

use crate::errno::Errno;
use crate::lending::giving::stream_of;
use crate::lending::pump::Pump;
use crate::lending::steward::Steward;
use crate::socket::borrowed::child_message::{Message, MessageKind, give};
use crate::socket::borrowed::requests::{Call, Reply, Request};

impl Steward {
    /// Handles a message that `len` bytes in the room follow.
    pub(super) fn on_long_message(&mut self, key: u64, message: Message, len: usize) {
        match message.kind {
            // The child has not waited that long.
            MessageKind::Call if message.amount != 0 && message.amount < self.lender.now_ns() => {}
            MessageKind::Call => {
                let request = self.room[..len].to_vec();
                self.on_call(key, message, &request);
            }
            MessageKind::GiveAllBack => {
                if let Some(child) = self.children.get_mut(&key) {
                    let given = child.take_all_held(&self.room[..len]);
                    given
                        .iter()
                        .for_each(|socket| self.lender.take_back_unused(socket));
                }
            }
            _ => {}
        }
    }

    fn on_call(&mut self, key: u64, message: Message, request: &[u8]) {
        let Some(child) = self.children.get(&key) else {
            return;
        };
        let held = child.held.iter().find(|socket| socket.id == message.id);
        let is_it = |pump: &Pump| pump.is_named(child.root, message.id);
        let pumped = self.pumps.iter().find(|(_, pump)| is_it(pump));
        let socket = held.or(pumped.map(|(_, pump)| pump.socket()));
        let pumped = pumped.map(|(key, _)| *key);
        let (mut reply, len) = match (socket, Request::parse(request)) {
            (Some(socket), Some((request, data))) => {
                self.lender.call(socket, &request, data, &mut self.room)
            }
            _ => (Reply::refused(Errno::ENOTCONN), 0),
        };
        reply.signs = pumped.map_or(0, |key| self.pumps[&key].answered_signs());
        reply.is_free =
            pumped.is_some() && socket.is_some_and(|socket| self.is_free(child.root, socket));
        let parts = [&reply.bytes()[..], &self.room[..len]];
        give(&child.control, message.token, parts);
        let only_looks = Request::parse(request)
            .is_some_and(|(it, _)| it.call == Call::Readiness && it.numbers[0] == 0);
        if let Some(key) = pumped.filter(|_| !only_looks)
            && let Some(pump) = self.pumps.get_mut(&key)
        {
            let is_of_end = Request::parse(request).is_some_and(|(it, _)| it.call.is_of_end());
            if let Some(stream) = stream_of(&Arc::clone(pump.socket())).filter(|_| is_of_end) {
                pump.note_question(stream);
            }
            // The remaining bytes cause another event.
            pump.on_peer();
            self.ready.push(key);
        }
    }
}
