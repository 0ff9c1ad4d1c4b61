//! How other threads reach the steward, which lives as long as there is anything for it to do.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slipstack_mem::Lock;
use slipstack_mem::thread::spawn_quiet;

use super::pump::Pump;
use super::steward::Steward;
use crate::description::Description;
use crate::process::Process;
use crate::waiter::Waiter;

/// What the steward is to look after. What it names counts as lent already.
#[derive(Debug)]
pub(super) enum Charge {
    /// `shared` for the child at the other end of `control`.
    Child {
        control: OwnedFd,
        shared: Vec<Arc<Description>>,
    },
    /// One connection for whoever has the other end of its pair.
    Pump(Pump),
}

#[derive(Debug, Default)]
struct Inner {
    charges: Vec<Charge>,
    is_running: bool,
    /// The steward's, once it has one.
    waiter: Option<Arc<Waiter>>,
}

#[derive(Debug, Default)]
pub(crate) struct Post {
    inner: Lock<Inner>,
    /// Some pump waits for the program to close its numbers.
    awaits_leaving: AtomicBool,
    /// The program has closed a number of something that is lent.
    has_left: AtomicBool,
}

impl Post {
    pub(super) fn hold(&self) {
        self.inner.hold();
    }

    pub(super) fn release(&self) {
        self.inner.release();
    }

    /// In a forked child: the steward is the parent's, and so is what waits for it.
    pub(super) fn forget(&self) {
        std::mem::forget(std::mem::take(&mut *self.inner.lock()));
        self.awaits_leaving.store(false, Ordering::Relaxed);
    }

    pub(super) fn set_waiter(&self, waiter: &Arc<Waiter>) {
        self.inner.lock().waiter = Some(Arc::clone(waiter));
    }

    pub(super) fn take_charges(&self) -> Vec<Charge> {
        std::mem::take(&mut self.inner.lock().charges)
    }

    /// The steward has nothing to do. `false`: something has come meanwhile.
    pub(super) fn retire(&self) -> bool {
        let mut inner = self.inner.lock();
        let may_retire = inner.charges.is_empty();
        if may_retire {
            inner.is_running = false;
            inner.waiter = None;
        }
        may_retire
    }

    /// The steward looks at the numbers after this: one that is closed later is told.
    pub(super) fn await_leaving(&self, awaits: bool) {
        self.awaits_leaving.store(awaits, Ordering::SeqCst);
    }

    pub(super) fn take_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed) && self.has_left.swap(false, Ordering::SeqCst)
    }

    /// A number of a lent connection has been closed.
    pub(crate) fn on_number_closed(&self) {
        if !self.awaits_leaving.load(Ordering::SeqCst) {
            return;
        }
        self.has_left.store(true, Ordering::SeqCst);
        if let Some(waiter) = &self.inner.lock().waiter {
            waiter.notify();
        }
    }
}

impl Process {
    /// Hands something over to the steward.
    pub(super) fn charge(&'static self, charge: Charge) {
        self.lending.note(charge.number());
        let mut inner = self.lending.post.inner.lock();
        inner.charges.push(charge);
        if inner.is_running {
            if let Some(waiter) = &inner.waiter {
                waiter.notify();
            }
            return;
        }
        if spawn_quiet("slipstack-lend", move || Steward::begin(self)).is_ok() {
            inner.is_running = true;
            return;
        }
        let refused = std::mem::take(&mut inner.charges);
        drop(inner);
        self.refuse_charges(refused);
    }

    /// There is nobody to look after them. A child gets ENOTCONN, the other end of a pair its end.
    pub(super) fn refuse_charges(&self, charges: Vec<Charge>) {
        for charge in charges {
            match charge {
                Charge::Child { control, shared } => {
                    self.lending.forget(control.as_raw_fd());
                    for socket in shared {
                        self.take_back(&socket);
                    }
                }
                Charge::Pump(pump) => pump.end(self),
            }
        }
    }
}

impl Charge {
    /// Its descriptor, which a child has nothing to do with.
    fn number(&self) -> i32 {
        match self {
            Charge::Child { control, .. } => control.as_raw_fd(),
            Charge::Pump(pump) => pump.child().as_raw_fd(),
        }
    }
}
