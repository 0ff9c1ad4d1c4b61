//! More threads that wait for one connection each than there are engines.
//!
//! A thread that shares an engine is woken by another one, and waits for a processor twice: its
//! peer would have half as many answers as that of a thread with an engine of its own, and less
//! with more threads. So all of them share, as soon as one finds no engine: the first engine, and
//! of the others as many as leave a processor each ([`Attach::engines_shared`]). The connections on
//! other engines move there after their next waits. Once there are engines for all again, threads
//! of new connections get one.
//!
//! [`Attach::engines_shared`]: slipstack_channel::Attach::engines_shared

use std::sync::Arc;

use slipstack_channel::Placement;

use crate::process::engines::Engines;
use crate::socket::Stream;
use crate::socket::description::Description;

impl Engines {
    /// A thread that waits for one connection finds no engine: all such threads share those that
    /// there are. Returns the one for this thread; `None`: the first. Channels to an instance are
    /// not shared: the instance wakes each thread itself.
    pub(super) fn share_engines(&self) -> Option<u32> {
        let first = self.first()?;
        if first.driver.placement() != Placement::InProcess {
            return None;
        }
        if !self.homes.is_crowded() && self.homes.is_any() {
            let shared = self.attach.engines_shared().saturating_sub(1);
            self.homes.begin_to_share(shared);
        }
        self.homes.emptiest_shared()
    }

    /// A wait for a connection alone that has moved once has ended, while engines are shared.
    #[cold]
    pub(super) fn on_waited_in_crowd(&self, socket: &Arc<Description>, stream: &Stream) {
        if !stream.may_return() || !stream.is_counted() || stream.queued() > 0 {
            return;
        }
        if self.homes.is_shared(stream.attachment()) {
            return stream.stay();
        }
        let thread = self.kernel.thread();
        let shared = self.homes.emptiest_shared();
        let found = shared.and_then(|number| self.homes.with_number(number));
        let Some(home) = found.or_else(|| self.first()) else {
            return;
        };
        self.homes.enter(&home);
        if self.move_user(socket, stream, &home) {
            match shared {
                Some(number) => self.homes.remember(thread, number),
                None => self.homes.forget_thread(thread),
            }
        }
    }
}
