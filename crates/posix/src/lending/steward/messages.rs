//! Messages of children: the steward hears them, and notices the end of those who send them.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::epoll::EventFlags;
use slipstack_mem::raised;

use crate::lending::child::{Child, lend_to_child};
use crate::lending::pump::{Origin, Pump};
use crate::lending::steward::Steward;
use crate::socket::borrowed::child_message::{
    Heard, Message, MessageKind, ReadRequest, answer, hear,
};

/// Messages of one child, taken at once: more than a control socket holds, so that all of them are
/// heard before an end of a pair that came after them.
const MESSAGES_MAX: usize = 512;

impl Steward {
    pub(super) fn listen_to_all(&mut self) {
        let keys: Vec<u64> = self.children.keys().copied().collect();
        keys.into_iter().for_each(|key| self.listen(key));
    }

    pub(super) fn listen(&mut self, key: u64) {
        self.post.note_listening(true);
        self.hear_from(key);
        self.post.note_listening(false);
    }

    fn hear_from(&mut self, key: u64) {
        for _ in 0..MESSAGES_MAX {
            match self.hear(key) {
                Heard::Message(message, 0, end) => self.on_message(key, message, end),
                Heard::Message(message, len, end) => {
                    self.refuse_end(end);
                    self.on_long_message(key, message, len);
                }
                Heard::Noise => {}
                Heard::Nothing => return,
                Heard::End => self.on_end(key),
            }
        }
    }

    /// Hears one message, and lists the descriptor that has come with it.
    fn hear(&mut self, key: u64) -> Heard {
        let Some(child) = self.children.get(&key) else {
            return Heard::Nothing;
        };
        let _unlisted = self.post.unlisted.lock();
        match hear(&child.control, &mut self.room) {
            Heard::Message(message, len, Some(end)) => {
                let end = raised(end).unlisted();
                self.lender.note(end.as_raw_fd());
                Heard::Message(message, len, Some(end))
            }
            heard => heard,
        }
    }

    /// A descriptor for which there is no use.
    fn refuse_end(&self, end: Option<OwnedFd>) {
        if let Some(end) = end {
            self.lender.close_noted(end);
        }
    }

    fn on_message(&mut self, key: u64, message: Message, end: Option<OwnedFd>) {
        let Some(child) = self.children.get_mut(&key) else {
            return self.refuse_end(end);
        };
        let root = child.root;
        match (message.kind, end) {
            (MessageKind::Take, Some(end)) => self.on_take(key, message, end),
            (MessageKind::GiveBack, None) => {
                if let Some(socket) = child.take_held(message.id) {
                    self.lender.take_back_unused(&socket);
                }
            }
            (MessageKind::Branch, end) => self.on_branch(key, end),
            (MessageKind::Want, None) => self.on_want(key, message),
            (MessageKind::Have, None) => self.on_have(key, message),
            (MessageKind::Leave, None) => self.on_leave(key, message),
            (MessageKind::Join, None) => self.on_join(key, message),
            (MessageKind::Hold, None) => {
                let mut pumps = self.pumps.values_mut();
                if let Some(pump) = pumps.find(|pump| pump.is_of(root, message.token)) {
                    pump.hold();
                }
            }
            (MessageKind::Share, None) => self.on_share(key, message),
            (MessageKind::Pass, None) => self.on_pass(root, message),
            (MessageKind::Part, None) => self.on_part(root, message),
            (MessageKind::Read | MessageKind::ReadNow | MessageKind::Shut, None) => {
                self.on_pump_message(root, message);
                let child = self.children.get(&key);
                if let Some(child) = child.filter(|_| message.kind == MessageKind::ReadNow) {
                    answer(&child.control);
                }
            }
            (_, end) => self.refuse_end(end),
        }
    }

    fn on_join(&mut self, key: u64, message: Message) {
        let joined = self.children.get(&key).and_then(|child| child.joined);
        if let Some(joined) = joined
            && let Some(pump) = self.pumps.get_mut(&joined)
        {
            pump.join(Origin::new(key, (message.id, message.token), false));
            self.ready.push(joined);
        }
    }

    /// A child is about to make one of its own. Without `end`, that cannot request anything.
    fn on_branch(&mut self, key: u64, end: Option<OwnedFd>) {
        let Some(child) = self.children.get(&key) else {
            return self.refuse_end(end);
        };
        let root = child.root;
        let held = end.is_some().then(|| child.held.clone());
        let pumps = self.pumps.iter_mut();
        for (key, pump) in pumps.filter(|(_, pump)| pump.is_roots(root)) {
            pump.note_branch();
            self.ready.push(*key);
        }
        if let (Some(end), Some(held)) = (end, held) {
            held.iter().for_each(|socket| lend_to_child(socket));
            let branch = self.key();
            self.add_child(branch, Child::new(end, root, held));
            self.note_unused();
        }
    }

    fn on_take(&mut self, key: u64, message: Message, end: OwnedFd) {
        let Some(child) = self.children.get_mut(&key) else {
            return self.refuse_end(Some(end));
        };
        let name = (message.id, message.token);
        let root = child.root;
        let origin = Origin::new(root, name, message.amount != 0);
        let Some(socket) = child.take_held(message.id) else {
            return self.refuse_end(Some(end));
        };
        socket.lent.begin_use();
        match self.lender.steward_number(&socket) {
            Some(number) => {
                self.post.note_pump();
                let mut pump = Pump::new(socket, number, end, origin).with_end(message.amount);
                // Another thread may have forked between the pair and this message.
                if !self.is_only_child(root) {
                    pump.note_branch();
                }
                self.add(pump);
            }
            None => {
                self.refuse_end(Some(end));
                self.lender.take_back(&socket);
            }
        }
    }

    fn on_pass(&mut self, root: u64, message: Message) {
        let mut pumps = self.pumps.iter_mut();
        if let Some((key, pump)) = pumps.find(|(_, pump)| pump.is_of(root, message.token)) {
            pump.pass();
            if message.amount != 0 {
                pump.read(ReadRequest::All);
            }
            self.ready.push(*key);
        }
    }

    fn on_part(&mut self, root: u64, message: Message) {
        let is_it = |pump: &Pump| pump.is_of(root, message.token);
        // Children of the child may have the pair too.
        if self.is_only_child(root) {
            let mut pumps = self.pumps.iter_mut();
            let found = pumps.find(|(_, pump)| is_it(pump));
            let over = found.and_then(|(key, pump)| pump.note_gone(root).then_some(*key));
            self.ready.extend(over);
        }
        if message.amount == 0 {
            self.part(root, is_it);
        }
    }

    /// A child has closed its ends of pairs, which others may have.
    fn part(&mut self, root: u64, is_it: impl Fn(&Pump) -> bool) {
        let pumps = self.pumps.iter_mut();
        let parted = pumps.filter(|(_, pump)| is_it(pump)).map(|(key, pump)| {
            pump.part(root);
            *key
        });
        for key in parted.collect::<Vec<u64>>() {
            self.watch_leaving(Some(key));
        }
    }

    fn on_pump_message(&mut self, root: u64, message: Message) {
        if message.kind == MessageKind::Shut {
            self.run_others(root, message.token);
        }
        let is_alone = self.is_only_child(root);
        let mut pumps = self.pumps.iter_mut();
        let found = pumps.find(|(_, pump)| pump.is_of(root, message.token));
        let Some((key, pump)) = found else { return };
        let request = ReadRequest::of(message.amount);
        match message.kind {
            MessageKind::Shut => pump.shut([1, 2].map(|bit| message.amount & bit != 0)),
            // The reply comes after the bytes, so that its receiver finds them.
            MessageKind::ReadNow => pump.read_now(self.lender, request, &mut self.room),
            // Others that have the pair may wait for what they have requested.
            _ if request == ReadRequest::None && !(is_alone && pump.has_one_origin()) => {}
            _ => pump.read(request),
        }
        self.ready.push(*key);
    }

    /// Sends what other users of a connection have written before one of them ends its stream.
    fn run_others(&mut self, root: u64, token: u64) {
        let is_it = |pump: &&Pump| pump.is_of(root, token);
        let Some(id) = self.pumps.values().find(is_it).map(|it| it.socket().id) else {
            return;
        };
        for (key, pump) in &mut self.pumps {
            if pump.socket().id == id && !pump.is_of(root, token) {
                pump.on_child(EventFlags::IN);
                pump.run(self.lender, &mut self.room);
                self.ready.push(*key);
            }
        }
    }

    pub(super) fn on_end(&mut self, key: u64) {
        let Some(child) = self.children.remove(&key) else {
            return;
        };
        self.rest.unwatch(&child.control);
        self.lender.close_noted(child.control);
        self.take_all_back(&child.given);
        for socket in child.held {
            self.lender.take_back_unused(&socket);
        }
        if self.children.values().all(|other| other.root != child.root) {
            self.part(child.root, |pump| pump.is_roots(child.root));
            let pumps = self.pumps.iter_mut();
            let over = pumps.filter_map(|(key, pump)| pump.note_gone(child.root).then_some(*key));
            self.ready.extend(over);
        }
    }
}
