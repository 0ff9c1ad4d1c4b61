//! How other threads reach the steward, which lives as long as there is anything for it to do.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use slipstack_mem::Lock;
use slipstack_mem::thread::{Quiet, spawn_quiet};

use super::pump::Pump;
use super::steward::Steward;
use crate::description::Description;
use crate::process::Process;
use crate::ready::Waiter;

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

/// Who moves the bytes of a process that has ended.
pub(super) enum Until {
    /// The steward's thread.
    Thread(Quiet),
    /// This one: no other may be started.
    Here(Box<Steward>),
}

#[derive(Debug, Default)]
struct Inner {
    charges: Vec<Charge>,
    /// The steward's thread. `None`: there is nothing for it to do, or no thread may be started.
    thread: Option<Quiet>,
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
    /// Connections whose bytes the steward moves.
    pumps: AtomicUsize,
    /// The process ends when there are none.
    pub(super) is_ending: AtomicBool,
    /// The steward of a process that may start no thread.
    inline: Lock<Option<Box<Steward>>>,
    has_inline: AtomicBool,
}

impl Post {
    pub(super) fn hold(&self) {
        self.inline.hold();
        self.inner.hold();
    }

    pub(super) fn release(&self) {
        self.inner.release();
        self.inline.release();
    }

    /// In a forked child: the steward is the parent's, and so is what waits for it.
    pub(super) fn forget(&self) {
        std::mem::forget(std::mem::take(&mut *self.inner.lock()));
        self.awaits_leaving.store(false, Ordering::Relaxed);
        self.pumps.store(0, Ordering::Relaxed);
        std::mem::forget(self.inline.lock().take());
        self.has_inline.store(false, Ordering::Relaxed);
        self.is_ending.store(false, Ordering::Relaxed);
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
            inner.thread = None;
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

    pub(super) fn note_pump(&self) {
        self.pumps.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn note_pump_ended(&self) {
        self.pumps.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether bytes of connections are to be moved.
    pub(super) fn has_pumps(&self) -> bool {
        self.pumps.load(Ordering::Acquire) > 0
    }

    /// The process ends. `None`: nobody uses a connection of its, or its state is in somebody's hands for good.
    pub(super) fn begin_to_end(&self) -> Option<Until> {
        if !self.has_pumps() {
            return None;
        }
        let mut inner = self.inner.try_lock()?;
        self.is_ending.store(true, Ordering::SeqCst);
        if let Some(waiter) = &inner.waiter {
            waiter.notify();
        }
        let thread = inner.thread.take();
        drop(inner);
        match (thread, self.inline.try_lock()) {
            (Some(thread), _) => Some(Until::Thread(thread)),
            (None, Some(mut inline)) => Some(Until::Here(inline.take()?)),
            (None, None) => None,
        }
    }

    /// No thread may be started: makes a steward that runs when the program waits, if there is none.
    fn stand_in(&self, process: &'static Process) -> bool {
        let mut inline = self.inline.lock();
        if inline.is_none() {
            *inline = Steward::new(process).ok().map(Box::new);
        }
        self.has_inline.store(inline.is_some(), Ordering::Release);
        inline.is_some()
    }

    pub(crate) fn has_inline(&self) -> bool {
        self.has_inline.load(Ordering::Relaxed) && self.has_pumps()
    }

    /// What a steward without a thread has to do. Whether there is more.
    pub(super) fn run_inline(&self) -> bool {
        let steward = self.inline.try_lock();
        steward.is_some_and(|mut it| it.as_mut().is_some_and(|it| it.run_once()))
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
        if inner.thread.is_some() || self.lending.post.is_ending.load(Ordering::Relaxed) {
            if let Some(waiter) = &inner.waiter {
                waiter.notify();
            }
            return;
        }
        inner.thread = spawn_quiet("slipstack-lend", move || Steward::begin(self)).ok();
        if inner.thread.is_some() {
            return;
        }
        // The program's waits do a steward's work then.
        drop(inner);
        if !self.lending.post.stand_in(self) {
            self.refuse_charges(self.lending.post.take_charges());
        }
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
