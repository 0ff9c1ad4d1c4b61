//! The steward: the parent's thread that holds the sockets which its children may use, and moves
//! the bytes of those that they do use.

mod long_messages;
mod messages;
mod packing;

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll::EventFlags;

use crate::epoll::{Set, Target};
use crate::idhash::BuildIdHasher;
use crate::lending::child::{Child, leave_all};
use crate::lending::giving::{Wanted, stream_of};
use crate::lending::lender::Lender;
use crate::lending::post::{Charge, Inline, Post};
use crate::lending::pump::{Pump, ROOM};
use crate::lending::steward_wait::{KernelCheck, StewardWait};
use crate::ready::{Awaited, bits};
use crate::socket::description::{Description, Kind};

/// Connections that have something, taken off the list at once.
const READY_MAX: usize = 64;
/// A pump is notified once of each change, at either side.
const CHILD_EDGES: EventFlags = EventFlags::IN
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);
/// The set has no descriptor: it serves as a list of ready members.
const NO_NUMBER: i32 = -1;
const PEER_EDGES: u32 = bits::IN | bits::OUT | bits::RDHUP | libc::EPOLLET as u32;

pub(crate) struct Steward {
    pub(crate) lender: &'static dyn Lender,
    post: &'static Post,
    rest: StewardWait,
    /// The pumps' connections; its events carry their keys.
    set: Arc<Set>,
    pub(crate) children: HashMap<u64, Child, BuildIdHasher>,
    pub(crate) pumps: HashMap<u64, Pump, BuildIdHasher>,
    /// Keys of the kernel's parts of datagram sockets, and their pumps'.
    kernel_parts: HashMap<u64, u64, BuildIdHasher>,
    /// Connections that children want and that could not go yet.
    pub(crate) wanted: Vec<Wanted>,
    /// Pumps that have something to do; a key may be there twice.
    pub(crate) ready: Vec<u64>,
    /// The kernel was checked in this round or the last one.
    has_looked: bool,
    /// The program has ended, and what it had open is closed.
    is_ending: bool,
    /// The steward had no work and has waited for some.
    has_lingered: bool,
    /// The buffer through which bytes are moved.
    pub(crate) room: Box<[u8]>,
}

impl std::fmt::Debug for Steward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steward").finish_non_exhaustive()
    }
}

impl Steward {
    /// The thread's life.
    pub(crate) fn begin(lender: &'static dyn Lender, post: &'static Post) {
        match Steward::new(lender, post) {
            Ok(steward) => steward.begin_here(),
            Err(_) => {
                while !post.retire() {
                    post.take_charges()
                        .into_iter()
                        .for_each(|it| it.refuse(lender));
                }
            }
        }
    }

    /// Runs until no process uses any of its sockets.
    fn begin_here(self) {
        self.post.open(self.rest.waiter(), self.rest.watched());
        self.run();
    }

    pub(crate) fn new(
        lender: &'static dyn Lender,
        post: &'static Post,
    ) -> rustix::io::Result<Steward> {
        let rest = StewardWait::new(lender)?;
        let set = Arc::new(Set::new(lender.next_id(), NO_NUMBER));
        set.begin_wait(rest.waiter());
        Ok(Steward {
            lender,
            post,
            rest,
            set,
            children: HashMap::default(),
            pumps: HashMap::default(),
            kernel_parts: HashMap::default(),
            wanted: Vec::new(),
            ready: Vec::new(),
            has_looked: false,
            is_ending: false,
            has_lingered: false,
            room: vec![0; ROOM].into(),
        })
    }

    fn run(mut self) {
        loop {
            self.begin_round();
            if self.post.is_ending.load(Ordering::SeqCst) {
                if !self.post.packs() && !std::mem::replace(&mut self.is_ending, true) {
                    self.lender.close_others();
                }
                // A child may have begun to use something a moment ago, or be new.
                self.take_charges();
                self.listen_to_all();
                self.leave_datagrams();
                if self.post.packs() {
                    return self.pack();
                }
            }
            if self.is_done() {
                self.rest.stop_leading(self.lender);
                if self.may_linger() {
                    self.rest
                        .look(self.lender, KernelCheck::Linger, None, |_, _| {});
                    continue;
                }
                match self.post.retire() {
                    true => break,
                    false => continue,
                }
            }
            self.has_lingered = false;
            self.look(true);
            self.run_ready();
        }
        self.rest.end(self.lender);
        self.post.await_resets();
    }

    /// Returns whether the steward waits for more work before it ends, which it does once.
    fn may_linger(&mut self) -> bool {
        let is_ending = self.post.is_ending.load(Ordering::SeqCst);
        !is_ending && !std::mem::replace(&mut self.has_lingered, true)
    }

    fn begin_round(&mut self) {
        // Data that the pumps have for peers leaves with this turn.
        if !self.pumps.is_empty() {
            self.turn();
        }
        self.rest.note_news();
        self.take_charges();
        self.note_leaving();
        if self.post.take_taken_back() {
            self.pumps.values().for_each(Pump::note_user);
            self.children.values().for_each(Child::note_user);
        }
        self.collect();
        self.settle_wanted();
    }

    /// Returns whether the steward is done: after the end of the process only connections are
    /// lent.
    fn is_done(&self) -> bool {
        match self.post.is_ending.load(Ordering::SeqCst) {
            true => !self.has_users(),
            false => self.pumps.is_empty() && self.children.is_empty(),
        }
    }

    fn turn(&self) {
        if let Some(attachment) = self.lender.living_attachment() {
            self.lender.turn(&attachment);
        }
    }

    fn key(&self) -> u64 {
        self.post.next_key()
    }

    fn take_charges(&mut self) {
        for charge in self.post.take_charges() {
            self.take_charge(charge);
        }
    }

    fn take_charge(&mut self, charge: Charge) {
        match charge {
            Charge::Pump(pump) => self.add(*pump),
            Charge::Child {
                control,
                shared,
                key,
            } => {
                let is_watched = key.is_some();
                let key = key.unwrap_or_else(|| self.key());
                let child = Child::new(control, key, shared);
                // Another one may have gone since this one was made.
                child.note_user();
                match is_watched {
                    true => _ = self.children.insert(key, child),
                    false => self.add_child(key, child),
                }
                self.note_unused();
            }
        }
    }

    /// A new child may use connections that others use already.
    fn note_unused(&self) {
        let pumps = self.pumps.values();
        let shared = pumps.filter(|pump| pump.socket().lent.has_unused());
        shared.for_each(Pump::note_user);
    }

    fn add_child(&mut self, key: u64, child: Child) {
        let watched = self.rest.watch(&child.control, key, EventFlags::IN);
        if child.holds_connections() {
            self.post.note_source(child.control.as_raw_fd(), None);
        }
        self.children.insert(key, child);
        if watched.is_err() {
            self.on_end(key);
        }
    }

    fn add(&mut self, pump: Pump) {
        let key = self.key();
        self.add_as(key, pump);
    }

    fn add_as(&mut self, key: u64, pump: Pump) {
        let target = Target::Socket(Arc::clone(pump.socket()));
        let watched = self.rest.watch(pump.child(), key, CHILD_EDGES);
        let Ok(item) = self.set.add(pump.number(), target.clone(), PEER_EDGES, key) else {
            return pump.end(self.lender);
        };
        target.watch(Set::watch_of(&self.set, item));
        if pump.socket().kind == Kind::Stream && !pump.reads_no_more() {
            let socket = Some(pump.socket().id);
            self.post.note_source(pump.child().as_raw_fd(), socket);
        }
        if pump.has_kernel_part() {
            let part = self.key();
            self.kernel_parts.insert(part, key);
            self.rest.watch_number(pump.number(), part, CHILD_EDGES);
        }
        self.pumps.insert(key, pump);
        self.watch_leaving(Some(key));
        self.ready.push(key);
        if watched.is_err() {
            self.end_pump(key);
        }
    }

    pub(crate) fn end_pump(&mut self, key: u64) {
        self.end_pump_as(key, Pump::end);
    }

    pub(crate) fn end_pump_as(&mut self, key: u64, end: fn(Pump, &dyn Lender)) {
        let Some(pump) = self.take_out(key) else {
            return;
        };
        end(pump, self.lender);
        if self.pumps.is_empty() {
            // Others may have the connection still.
            self.turn();
            self.rest.stop_leading(self.lender);
        }
    }

    fn take_out(&mut self, key: u64) -> Option<Pump> {
        let pump = self.pumps.remove(&key)?;
        self.rest.unwatch(pump.child());
        if pump.has_kernel_part() {
            self.rest.unwatch_number(pump.number());
            self.kernel_parts.retain(|_, of| *of != key);
        }
        let target = Target::Socket(Arc::clone(pump.socket()));
        if let Some((item, _)) = self.set.remove(pump.number(), &target) {
            target.unwatch(&|watch| watch.is_item(&self.set, item));
        }
        Some(pump)
    }

    /// Looks whether the program has closed its own numbers of a connection whose user is not
    /// heard, and is told of that otherwise.
    fn watch_leaving(&mut self, key: Option<u64>) {
        if let Some(key) = key
            && let Some(pump) = self.pumps.get_mut(&key)
            && pump.awaits_leaving()
        {
            self.post.await_leaving(true);
            pump.note_leaving(self.lender);
            self.ready.push(key);
        }
    }

    /// The program has closed numbers: what it has left to children is theirs.
    fn note_leaving(&mut self) {
        if !self.post.take_left() {
            return;
        }
        let mut awaits = false;
        for (key, pump) in &mut self.pumps {
            if pump.awaits_leaving() {
                pump.note_leaving(self.lender);
                self.ready.extend((!pump.awaits_leaving()).then_some(*key));
                awaits |= pump.awaits_leaving();
            }
        }
        self.post.await_leaving(awaits);
    }

    /// Collects the events of the connections.
    fn collect(&mut self) {
        let (pumps, ready) = (&mut self.pumps, &mut self.ready);
        self.set.collect(READY_MAX, |found| {
            if let Some(pump) = pumps.get_mut(&found.data) {
                pump.on_peer();
                ready.push(found.data);
            }
        });
    }

    /// Checks the children; every other time if there is work already.
    fn look(&mut self, may_wait: bool) {
        let manner = match (self.ready.is_empty() && may_wait, self.pumps.is_empty()) {
            (false, _) => KernelCheck::Glance,
            (true, false) => KernelCheck::Lead,
            (true, true) => KernelCheck::Sleep,
        };
        self.has_looked = manner != KernelCheck::Glance || !self.has_looked || !may_wait;
        if !self.has_looked {
            return;
        }
        let mut found = Vec::new();
        let limit_ns = self.wanted_look_ns();
        self.rest.look(self.lender, manner, limit_ns, |key, what| {
            found.push((key, what));
        });
        // In the order of the events, which is that in which the children have written.
        for (key, what) in found {
            self.on_event(key, what);
        }
    }

    fn on_event(&mut self, key: u64, what: EventFlags) {
        if let Some(pump) = self.pumps.get_mut(&key) {
            pump.on_child(what);
            self.ready.push(key);
        } else if let Some(of) = self.kernel_parts.get(&key) {
            if let Some(pump) = self.pumps.get_mut(of) {
                pump.on_peer();
            }
            self.ready.push(*of);
        } else {
            if !self.children.contains_key(&key) {
                // A child that speaks for the first time.
                self.take_charges();
            }
            self.listen(key);
        }
    }

    fn run_ready(&mut self) {
        for key in std::mem::take(&mut self.ready) {
            let Some(pump) = self.pumps.get_mut(&key) else {
                continue;
            };
            if pump.run(self.lender, &mut self.room) {
                self.ready.push(key);
            }
            if pump.reads_no_more() {
                self.post.forget_source(pump.child().as_raw_fd());
            }
            let joining = pump.take_joining();
            if let Some(awaits_room) = pump.news_of_room() {
                let what = match awaits_room {
                    true => CHILD_EDGES | EventFlags::OUT,
                    false => CHILD_EDGES,
                };
                self.rest.change_watch(pump.child(), key, what);
            }
            let ending = pump.ending();
            if pump.is_over() {
                self.end_pump(key);
            }
            if let Some(socket) = ending {
                self.end_behind_last(&socket);
            }
            for control in joining {
                self.add_joined(key, control);
            }
        }
    }

    /// Ends the sending direction that was shut down, once no pair has bytes to go before the end.
    fn end_behind_last(&self, socket: &Arc<Description>) {
        let its = |pump: &&Pump| Arc::ptr_eq(pump.socket(), socket);
        let has_last = self.pumps.values().filter(its).any(Pump::has_last);
        if let Some(stream) = stream_of(socket).filter(|_| !has_last) {
            stream.end_after_others();
        }
    }

    /// Somebody has come by an end of a pump's pair.
    fn add_joined(&mut self, pump: u64, control: OwnedFd) {
        let key = self.key();
        let child = Child {
            joined: Some(pump),
            ..Child::new(control, key, Vec::new())
        };
        self.add_child(key, child);
        self.listen(key);
    }

    /// Whether the child of `root` has no children of its own, which would have its pairs too.
    pub(super) fn is_only_child(&self, root: u64) -> bool {
        let of_root = self.children.values().filter(|child| child.root == root);
        of_root.count() == 1
    }

    /// Handles the end of the process: children that have its datagram sockets go on with them, and
    /// get the received datagrams.
    fn leave_datagrams(&mut self) {
        for child in self.children.values() {
            let pumps = self.pumps.values();
            let used = pumps
                .filter(|pump| pump.is_roots(child.root))
                .map(Pump::socket);
            used.chain(&child.held)
                .for_each(|socket| leave_all(child, socket));
        }
        let is_dgram = |pump: &Pump| pump.socket().kind == Kind::Dgram;
        let pumps = self.pumps.iter().filter(|(_, pump)| is_dgram(pump));
        let keys: Vec<u64> = pumps.map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.end_pump(key));
    }
}

impl Inline for Steward {
    fn run_once(&mut self) -> bool {
        self.begin_round();
        self.look(false);
        self.run_ready();
        !self.ready.is_empty()
    }

    fn run_here(self: Box<Self>) {
        self.begin_here();
    }

    fn has_users(&self) -> bool {
        !self.pumps.is_empty() || self.children.values().any(Child::holds_connections)
    }
}
