//! Decides which engine an epoll set belongs to, before a wait on it, on the waiting thread.
//!
//! A thread that has to share an engine, because no slot was free or the limit of engines was
//! reached, is a lodger: its next waits try again for an engine of its own, less often after each
//! failure. Its listeners with SO_REUSEPORT on which no other thread waits move to its engine, even
//! if they already listen on another one.

use std::sync::Arc;

use crate::epoll::{FIRST, Set};
use crate::process::engines::Engines;
use crate::process::engines::listeners::move_listener;
use crate::ready::Watcher;
use crate::socket::description::{Decided, Description};

impl Engines {
    /// Decides the home of `set` before a wait on it. `attaches` gives the process its first
    /// engine, if one is available.
    #[inline]
    pub(crate) fn settle_home(&self, set: &Arc<Set>, attaches: impl FnOnce() -> bool) {
        if set.home.is_open() && set.is_look_due() && !set.is_kernel_only() {
            self.settle_open(set, attaches);
        }
    }

    #[cold]
    fn settle_open(&self, set: &Arc<Set>, attaches: impl FnOnce() -> bool) {
        let thread = self.kernel.thread();
        if !set.home.is_unsettled() {
            return self.settle_again_temporary(set, thread);
        }
        if self.homes.is_first(thread) {
            return self.homes.settle(set, FIRST);
        }
        if !self.is_worth_an_engine(set) {
            return;
        }
        match self.homes.number_of(thread) {
            Some(number) => self.homes.settle(set, number),
            None => self.settle_on_another(set, thread, attaches),
        }
        self.move_listeners(set);
    }

    /// Whether a set has members that its thread's own engine would serve.
    fn is_worth_an_engine(&self, set: &Arc<Set>) -> bool {
        let own = self.own();
        let is_own = |socket: &Arc<Description>| {
            let attachment = socket.attachment();
            own.is_some()
                && attachment
                    .zip(own.as_ref())
                    .is_some_and(|(it, own)| Arc::ptr_eq(&it, own))
        };
        let moves_pay = self.moves_pay();
        let is_worth = |socket: &Arc<Description>| match socket.decided() {
            Some(Decided::Stream(stream)) if moves_pay && stream.may_move() => true,
            _ => may_be_elsewhere(socket, set) || is_own(socket),
        };
        set.sockets().iter().any(is_worth)
    }

    /// Finds an engine for a thread without one: an unused one, a new one, or a shared one.
    fn settle_on_another(&self, set: &Set, thread: usize, attaches: impl FnOnce() -> bool) {
        if !attaches() {
            return self.homes.settle_temporarily(set, FIRST);
        }
        let _turn = self.attaching.lock();
        match self.find_engine() {
            Some(number) => {
                self.homes.remember(thread, number);
                self.homes.settle(set, number);
            }
            None => match self.homes.emptiest() {
                Some((number, _)) => {
                    self.homes.remember(thread, number);
                    self.homes.settle_temporarily(set, number);
                }
                None => self.homes.settle_temporarily(set, FIRST),
            },
        }
    }

    /// A thread that shares an engine waits again. A set on which other threads sleep stays: they
    /// would be left behind at its engine.
    fn settle_again_temporary(&self, set: &Arc<Set>, thread: usize) {
        if set.has_sleepers() {
            return;
        }
        {
            let _turn = self.attaching.lock();
            let at = set.home.number();
            let own = self.homes.number_of(thread).filter(|own| *own != at);
            if own.is_none() && self.homes.users_of(at) == Some(1) {
                // The others have left it.
                return set.home.settle(at);
            }
            let Some(number) = own.or_else(|| self.find_engine()) else {
                return;
            };
            self.homes.remember(thread, number);
            self.homes.settle_again(set, number);
        }
        self.move_listeners(set);
        for socket in set.sockets() {
            self.note_member(set, &socket);
        }
    }

    /// Moves listeners of a set's thread that are real on another engine to the engine of the set.
    fn move_listeners(&self, set: &Arc<Set>) {
        let Some(home) = self.home_of(set) else {
            return;
        };
        for socket in set.sockets() {
            if let Some(Decided::Listener(listener)) = socket.decided()
                && !listener.is_intent()
                && may_be_elsewhere(&socket, set)
            {
                move_listener(&socket, listener, &home);
            }
        }
    }
}

/// Whether it has its share of an address on another engine, or on none yet.
fn may_be_elsewhere(socket: &Arc<Description>, set: &Arc<Set>) -> bool {
    let may_go = match socket.decided() {
        Some(Decided::Listener(listener)) => listener.is_intent() || is_alone_in(socket, set),
        Some(Decided::Dgram(dgram)) => dgram.is_intent(),
        _ => false,
    };
    may_go && socket.shares_port()
}

/// Returns whether only threads that wait on the set wait for the socket.
fn is_alone_in(socket: &Description, set: &Arc<Set>) -> bool {
    let watches = socket.watches();
    let is_this = |it: (Arc<Set>, u64)| Arc::ptr_eq(&it.0, set);
    watches
        .iter()
        .all(|watch| Set::of(watch).is_some_and(is_this))
}
