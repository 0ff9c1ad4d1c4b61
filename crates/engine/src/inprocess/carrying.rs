//! A connection goes to another engine of the process: both are owned while it does.

use slipstack_channel::{SockId, Stays};
use slipstack_mem::{Guard, Lock, now_ns};
use slipstack_stack::Instant;

use super::{LOOKS, Shared};
use crate::engine::Engine;

impl Shared {
    pub(super) fn carry_to(&self, sock: SockId, to: &Shared, as_sock: SockId) -> Result<(), Stays> {
        // Neither is waited for: another thread may want the two the other way round.
        let (Some(mut here), Some(mut there)) =
            (try_for_long(&self.engine), try_for_long(&to.engine))
        else {
            return Err(Stays::ForNow);
        };
        if self.is_over() || to.is_over() {
            return Err(Stays::ForGood);
        }
        let now = Instant(now_ns());
        let carried = here.carry_out(now, sock).ok_or(Stays::ForGood)?;
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
        ends.map(drop).ok_or(Stays::ForGood)
    }
}

impl Shared {
    pub(super) fn carry_off(&self, sock: SockId) -> Option<Vec<u8>> {
        self.with(|engine, now| engine.carry_off(now, sock))?
    }

    pub(super) fn carry_on(&self, sock: SockId, connection: &[u8]) -> bool {
        let taken = self.with(|engine, now| {
            let ends = engine.carry_on(now, sock, connection)?;
            engine.steer_carried(ends);
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

/// An engine that another thread owns is let go of within some microseconds.
fn try_for_long(engine: &Lock<Engine>) -> Option<Guard<'_, Engine>> {
    for _ in 0..LOOKS {
        if let Some(engine) = engine.try_lock() {
            return Some(engine);
        }
        std::hint::spin_loop();
    }
    None
}
