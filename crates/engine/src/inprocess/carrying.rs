//! Moves of a connection to another engine of the process, with both engines locked.

use slipstack_channel::SockId;
use slipstack_mem::{Guard, Lock, now_ns};
use slipstack_stack::Instant;

use super::Shared;
use crate::engine::Engine;

impl Shared {
    /// Returns false if the connection stays here.
    pub(super) fn carry_to(&self, sock: SockId, to: &Shared, as_sock: SockId) -> bool {
        let (mut here, mut there) = lock_both(&self.engine, &to.engine);
        if self.is_over() || to.is_over() {
            return false;
        }
        let now = Instant(now_ns());
        let Some(carried) = here.carry_out(now, sock) else {
            drop((here, there));
            [self, to].into_iter().for_each(Shared::settle);
            return false;
        };
        let taken = there.carry_in(now, as_sock, carried);
        let ends = match taken {
            Ok(ends) => Some(ends),
            Err(carried) => {
                let _ = here.carry_in(now, sock, carried);
                None
            }
        };
        let are_stale = [self.is_stale(&mut here), to.is_stale(&mut there)];
        drop(here);
        if let Some(ends) = ends {
            there.steer_carried(ends);
        }
        drop(there);
        for (shared, is_stale) in [self, to].into_iter().zip(are_stale) {
            if is_stale {
                shared.bell.ring();
            }
            shared.settle();
        }
        ends.is_some()
    }
}

impl Shared {
    pub(super) fn carry_off(&self, sock: SockId, upto: u64) -> Option<Vec<u8>> {
        self.with(|engine, now| engine.carry_off(now, sock, upto))?
    }

    pub(super) fn carry_on(&self, sock: SockId, connection: &[u8]) -> bool {
        let taken = self.with(|engine, now| {
            if let Some(ends) = engine.carry_on(now, sock, connection)? {
                engine.steer_carried(ends);
            }
            Some(())
        });
        taken.flatten().is_some()
    }

    pub(super) fn on_carried(&self, connection: &[u8], slot: u16) {
        self.with(|engine, _| engine.on_carried(connection, slot));
    }

    /// `None`: its connections are others' already.
    fn with<T>(&self, work: impl FnOnce(&mut Engine, Instant) -> T) -> Option<T> {
        let mut engine = self.engine.lock();
        if self.is_over() {
            return None;
        }
        let done = work(&mut engine, Instant(now_ns()));
        let is_stale = self.is_stale(&mut engine);
        drop(engine);
        if is_stale {
            self.bell.ring();
        }
        self.settle();
        Some(done)
    }
}

/// Locks two engines, each of which another thread may own for a turn. All callers lock them in the
/// order of their addresses, so that there is no deadlock.
fn lock_both<'a>(
    here: &'a Lock<Engine>,
    there: &'a Lock<Engine>,
) -> (Guard<'a, Engine>, Guard<'a, Engine>) {
    if std::ptr::from_ref(here) < std::ptr::from_ref(there) {
        let here = here.lock();
        (here, there.lock())
    } else {
        let there = there.lock();
        (here.lock(), there)
    }
}
