//! The queue by which other threads reach the steward, which lives as long as it has work.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use slipstack_mem::thread::Quiet;
use slipstack_mem::{Guard, Lock, PrivateFd};

use crate::lending::child::Packed;
use crate::lending::lender::Lender;
use crate::lending::pump::Pump;
use crate::lending::sources::Sources;
use crate::lending::steward_wait::FIRST_KEY;
use crate::ready::Waiter;
use crate::socket::description::{Description, Kind};

/// Interval and number of checks whether a steward's thread has begun.
const BEGIN_LOOK: Duration = Duration::from_micros(100);
const BEGIN_LOOKS: u32 = 20_000;
/// Number of attempts, as far apart, to get the queue at the end of the process.
const REACH_LOOKS: u32 = 1000;
/// Number of attempts, as far apart, to find that no end is being reset any more.
const RESET_LOOKS: u32 = 2000;

/// A thing for the steward to look after. The socket that it names counts as lent already.
#[derive(Debug)]
pub(crate) enum Charge {
    /// `shared` for the child at the other end of `control`.
    Child {
        control: OwnedFd,
        shared: Vec<Arc<Description>>,
        /// The key under which the steward watches `control` already.
        key: Option<u64>,
    },
    /// One connection for the holder of the other end of its pair.
    Pump(Box<Pump>),
}

/// A steward without a thread of its own.
pub(crate) trait Inline: Send {
    /// One round, which does not wait. Returns true if there is more to do.
    fn run_once(&mut self) -> bool;

    /// Runs until no process uses any of its sockets.
    fn run_here(self: Box<Self>);

    /// Whether others use a socket, or may use a connection.
    fn has_users(&self) -> bool;
}

impl std::fmt::Debug for dyn Inline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inline").finish_non_exhaustive()
    }
}

/// The end until which the bytes of a process that has ended are moved.
pub(crate) enum Until {
    /// The steward's thread.
    Thread(Quiet),
    /// The calling thread runs the steward, because no other may be started.
    Here(Box<dyn Inline>),
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) charges: Vec<Charge>,
    /// The steward's thread. `None`: there is nothing for it to do, or no thread may be started.
    pub(crate) thread: Option<Quiet>,
    /// The steward's, once it has one.
    pub(crate) waiter: Option<Arc<Waiter>>,
    /// The descriptors that wake the steward (epoll), once it sleeps on them.
    watched: Option<Arc<PrivateFd>>,
    pub(crate) sources: Sources,
}

#[derive(Debug, Default)]
pub(crate) struct Post {
    pub(crate) inner: Lock<Inner>,
    /// Keys that the steward's descriptors have had.
    keys: AtomicU64,
    /// Set if a pump waits for the program to close its numbers.
    awaits_leaving: AtomicBool,
    /// The program has closed a number of something that is lent.
    has_left: AtomicBool,
    /// Set if one of several processes that may use a connection is gone.
    has_taken_back: AtomicBool,
    /// Number of connections whose bytes the steward moves.
    pumps: AtomicUsize,
    /// Number of users' ends that are being reset.
    pub(crate) resets: AtomicUsize,
    /// Messages of a child are being handled.
    is_listening: AtomicBool,
    /// The process ends when there are none.
    pub(crate) is_ending: AtomicBool,
    /// The process has ended, and somebody else is to go on with what its steward has.
    packs: AtomicBool,
    packed: Lock<Option<Packed>>,
    /// The steward of a process that may start no thread.
    inline: Lock<Option<Box<dyn Inline>>>,
    /// Taken while there is an end of a pair or a control socket that is not in the list of those
    /// which a forked child closes: it would keep it open for as long as it runs, and who has the
    /// other end would not learn of this process's end. Nothing is waited for meanwhile. Not needed
    /// for those that are made under `Lending::bringing`, which a fork takes first.
    pub(crate) unlisted: Lock<()>,
    has_inline: AtomicBool,
}

impl Post {
    /// Comes before the locks of sockets, which a steward without a thread takes as it works.
    pub(crate) fn hold_steward(&self) {
        self.inline.hold();
        self.unlisted.hold();
    }

    pub(crate) fn hold(&self) {
        self.inner.hold();
    }

    pub(crate) fn release(&self) {
        self.inner.release();
        self.unlisted.release();
        self.inline.release();
    }

    /// Forgets the steward in a forked child: it is the parent's, with its queue.
    pub(crate) fn forget(&self) {
        std::mem::forget(std::mem::take(&mut *self.inner.lock()));
        self.awaits_leaving.store(false, Ordering::Relaxed);
        self.pumps.store(0, Ordering::Relaxed);
        self.resets.store(0, Ordering::Relaxed);
        self.is_listening.store(false, Ordering::Relaxed);
        std::mem::forget(self.inline.lock().take());
        self.has_inline.store(false, Ordering::Relaxed);
        self.is_ending.store(false, Ordering::Relaxed);
    }

    /// The steward can be woken from now on.
    pub(crate) fn open(&self, waiter: &Arc<Waiter>, watched: &Arc<PrivateFd>) {
        let mut inner = self.inner.lock();
        inner.waiter = Some(Arc::clone(waiter));
        inner.watched = Some(Arc::clone(watched));
    }

    /// Returns a key that none of the steward's descriptors has.
    pub(crate) fn next_key(&self) -> u64 {
        FIRST_KEY + self.keys.fetch_add(1, Ordering::Relaxed)
    }

    /// Another steward has used `key`.
    pub(crate) fn skip_key(&self, key: u64) {
        let used = key.saturating_sub(FIRST_KEY) + 1;
        self.keys.fetch_max(used, Ordering::Relaxed);
    }

    /// Hands `charge` to the steward's thread, and wakes it unless it watches the child, which
    /// wakes it when it speaks or ends. A child that may use connections which other processes use
    /// already wakes it at once: their loans are to be written again.
    pub(crate) fn hand_over(&self, inner: &mut Inner, mut charge: Charge) {
        let is_ending = self.is_ending.load(Ordering::SeqCst);
        let is_watched = !is_ending && self.watch(inner, &mut charge);
        let wakes_at_once = !is_watched || charge.has_sockets_in_use();
        inner.charges.push(charge);
        if let Some(waiter) = inner.waiter.as_ref().filter(|_| wakes_at_once) {
            waiter.notify();
        }
    }

    /// Adds a child's control socket to those that wake the steward.
    fn watch(&self, inner: &Inner, charge: &mut Charge) -> bool {
        let (Some(watched), Charge::Child { control, key, .. }) = (&inner.watched, charge) else {
            return false;
        };
        let new = self.next_key();
        let data = EventData::new_u64(new);
        let is_added = epoll::add(watched, control, data, EventFlags::IN).is_ok();
        *key = is_added.then_some(new);
        is_added
    }

    pub(crate) fn take_charges(&self) -> Vec<Charge> {
        std::mem::take(&mut self.inner.lock().charges)
    }

    /// The steward has nothing to do. `false`: something has come meanwhile.
    pub(crate) fn retire(&self) -> bool {
        let mut inner = self.inner.lock();
        let may_retire = inner.charges.is_empty();
        if may_retire {
            inner.thread = None;
            inner.waiter = None;
            inner.watched = None;
        }
        may_retire
    }

    /// The steward examines the numbers after this: it is notified of later closes.
    pub(crate) fn await_leaving(&self, awaits: bool) {
        self.awaits_leaving.store(awaits, Ordering::SeqCst);
    }

    pub(crate) fn take_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed) && self.has_left.swap(false, Ordering::SeqCst)
    }

    /// Has the steward look whether a loan has only one user now.
    pub(crate) fn note_taken_back(&self) {
        self.has_taken_back.store(true, Ordering::SeqCst);
        if let Some(waiter) = &self.inner.lock().waiter {
            waiter.notify();
        }
    }

    pub(crate) fn take_taken_back(&self) -> bool {
        self.has_taken_back.load(Ordering::Relaxed)
            && self.has_taken_back.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn note_source(&self, number: RawFd, of: Option<u64>) {
        self.inner.lock().sources.note(number, of);
    }

    pub(crate) fn forget_source(&self, number: RawFd) {
        self.inner.lock().sources.forget(number);
    }

    pub(crate) fn note_listening(&self, is_listening: bool) {
        self.is_listening.store(is_listening, Ordering::SeqCst);
    }

    /// Whether other processes have written something to the connection that is not in its ring.
    pub(crate) fn has_unmoved(&self, socket: &Description) -> bool {
        // Bytes that the steward takes from a source during this look are in its hands after it.
        let inner = self.inner.lock();
        inner.sources.have_any_for(socket.id)
            || self.is_listening.load(Ordering::SeqCst)
            || socket.lent.is_moving()
    }

    /// Whether other processes have said something that the steward has not taken note of.
    pub(crate) fn has_unread_messages(&self) -> bool {
        let inner = self.inner.lock();
        inner.sources.have_messages() || self.is_listening.load(Ordering::SeqCst)
    }

    /// Whether there are such bytes in a pair or in the steward's hands.
    pub(crate) fn has_unmoved_bytes(&self, socket: &Description) -> bool {
        let inner = self.inner.lock();
        inner.sources.have_bytes_for(socket.id) || socket.lent.is_moving()
    }

    /// Waits until users' ends have been reset, before the process ends.
    pub(crate) fn await_resets(&self) {
        for _ in 0..RESET_LOOKS {
            if self.resets.load(Ordering::SeqCst) == 0 {
                return;
            }
            std::thread::sleep(BEGIN_LOOK);
        }
    }

    pub(crate) fn note_pump(&self) {
        self.pumps.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn note_pump_ended(&self) {
        self.pumps.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether bytes of connections are to be moved.
    pub(crate) fn has_pumps(&self) -> bool {
        self.pumps.load(Ordering::Acquire) > 0
    }

    /// Handles the end of the process. Returns `None` if there is no steward, or its state cannot
    /// be taken.
    pub(crate) fn begin_to_end(&self) -> Option<Until> {
        let mut inner = self.reach()?;
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

    /// Ends the steward's thread and returns what it had. `None`: there is none.
    pub(crate) fn pack(&self) -> Option<Packed> {
        let thread = self.reach()?.thread.take()?;
        self.packs.store(true, Ordering::SeqCst);
        self.is_ending.store(true, Ordering::SeqCst);
        if let Some(inner) = self.reach()
            && let Some(waiter) = &inner.waiter
        {
            waiter.notify();
        }
        thread.join();
        self.packs.store(false, Ordering::SeqCst);
        self.packed.lock().take()
    }

    pub(crate) fn packs(&self) -> bool {
        self.packs.load(Ordering::SeqCst)
    }

    pub(crate) fn keep(&self, packed: Packed) {
        let mut inner = self.inner.lock();
        inner.waiter = None;
        inner.watched = None;
        // The next steward watches other descriptors.
        for charge in &mut inner.charges {
            if let Charge::Child { key, .. } = charge {
                *key = None;
            }
        }
        drop(inner);
        *self.packed.lock() = Some(packed);
    }

    /// Waits until a steward's thread that has just been started has its descriptors, which can be
    /// distinguished from the program's only then.
    pub(crate) fn await_steward(&self) {
        for _ in 0..BEGIN_LOOKS {
            let is_ready = self
                .reach()
                .is_none_or(|inner| inner.thread.is_none() || inner.waiter.is_some());
            if is_ready {
                return;
            }
            std::thread::sleep(BEGIN_LOOK);
        }
    }

    /// Returns whether there is a steward; one that cannot be reached now has nothing to do.
    pub(crate) fn has_steward(&self) -> bool {
        let inner = self.reach();
        inner.is_some_and(|inner| inner.thread.is_some())
    }

    /// Takes the queue. `None`: the thread that a signal has interrupted has it, and so keeps it.
    fn reach(&self) -> Option<Guard<'_, Inner>> {
        let mut looks = 0..REACH_LOOKS;
        looks.find_map(|look| {
            if look > 0 {
                std::thread::sleep(BEGIN_LOOK);
            }
            self.inner.try_lock()
        })
    }

    /// Whether there is no steward, because it has nothing to do.
    pub(crate) fn is_retired(&self) -> bool {
        self.inner.lock().thread.is_none() && !self.has_inline.load(Ordering::Acquire)
    }

    /// Has `make` make a steward that runs while the program waits, if there is none: no thread may
    /// be started.
    pub(crate) fn stand_in(&self, make: impl FnOnce() -> Option<Box<dyn Inline>>) -> bool {
        let mut inline = self.inline.lock();
        if inline.is_none() {
            *inline = make();
        }
        self.has_inline.store(inline.is_some(), Ordering::Release);
        inline.is_some()
    }

    pub(crate) fn has_inline(&self) -> bool {
        self.has_inline.load(Ordering::Relaxed) && self.has_pumps()
    }

    /// Whether there is a steward without a thread whose sockets others may use.
    pub(crate) fn has_inline_users(&self) -> bool {
        let steward = self.inline.try_lock();
        steward.is_some_and(|it| it.as_ref().is_some_and(|it| it.has_users()))
    }

    /// Does the work of a steward without a thread. Returns whether there is more.
    pub(crate) fn run_inline(&self) -> bool {
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

impl Charge {
    /// `shared` for the child at the other end of `control`, which nobody watches yet.
    pub(crate) fn child(control: OwnedFd, shared: Vec<Arc<Description>>) -> Charge {
        let key = None;
        Charge::Child {
            control,
            shared,
            key,
        }
    }

    /// Refuses work because no steward can take it. A child gets ENOTCONN, the other end of a pair
    /// its end.
    pub(crate) fn refuse(self, lender: &dyn Lender) {
        match self {
            Charge::Child {
                control, shared, ..
            } => {
                lender.close_noted(control);
                for socket in shared {
                    lender.take_back_unused(&socket);
                }
            }
            Charge::Pump(pump) => pump.end(lender),
        }
    }

    /// Whether it is a child that may use sockets which other processes use already.
    fn has_sockets_in_use(&self) -> bool {
        match self {
            Charge::Child { shared, .. } => shared.iter().any(|it| it.lent.users() > 0),
            Charge::Pump(_) => false,
        }
    }

    /// Notes where it brings bytes of other processes from, if it is about connections.
    pub(crate) fn note_source(&self, sources: &mut Sources) {
        let is_stream = |socket: &Arc<Description>| socket.kind == Kind::Stream;
        match self {
            Charge::Child { shared, .. } if shared.iter().any(is_stream) => {
                sources.note(self.number(), None);
            }
            Charge::Pump(pump) if is_stream(pump.socket()) => {
                sources.note(self.number(), Some(pump.socket().id));
            }
            Charge::Child { .. } | Charge::Pump(_) => {}
        }
    }

    /// Returns the steward's descriptor, which a child must not use.
    pub(crate) fn number(&self) -> i32 {
        match self {
            Charge::Child { control, .. } => control.as_raw_fd(),
            Charge::Pump(pump) => pump.child().as_raw_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use slipstack_mem::thread::spawn_quiet;

    use super::*;

    #[test]
    fn a_steward_is_found_while_it_has_its_queue() {
        let post = Arc::new(Post::default());
        post.inner.lock().thread = spawn_quiet("steward", || {}).ok();
        let (taken, is_taken) = channel();
        let steward = Arc::clone(&post);
        let holder = std::thread::spawn(move || {
            let inner = steward.inner.lock();
            taken.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(5));
            drop(inner);
        });
        is_taken.recv().unwrap();
        assert!(post.has_steward());
        holder.join().unwrap();
    }
}
