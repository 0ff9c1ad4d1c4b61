//! Further engines of one process: one for each thread that waits on sockets of its own.
//!
//! The rule: the first engine belongs to the first thread that waits on sockets. Another thread
//! that waits on an epoll set of its own, with sockets in it that can be served elsewhere, gets an
//! engine with a slot of its own, and so does one that waits for one connection again and again
//! ([`super::sole_waits`]). The settings and the keeper's slots limit the number of engines;
//! further threads share them, each the one with the fewest sets, until there is one for them. A
//! set keeps its engine, whichever thread waits on it; sockets on which a thread listens and
//! connects are on the engine of that thread. A set may have members on other engines: the threads
//! that drive those notify it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use slipstack_mem::Lock;

use crate::attachment::Attachment;
use crate::epoll::{FIRST, Set};

/// A connection from which bytes are taken as often was worth a move.
const LONG_READS: u32 = 16;
/// Short connections that a long one makes up for, and how many are remembered; with half of those
/// moves do not pay.
const LONG_IS_WORTH: u32 = 8;
const SHORT_MAX: u32 = 64;

/// Threads whose engine is remembered; beyond that number all are forgotten.
const THREADS_MAX: usize = 4096;
/// Pause after an engine was refused.
const ASK_AGAIN_NS: u64 = 1_000_000_000;

#[derive(Debug)]
struct Engine {
    number: u32,
    attachment: Arc<Attachment>,
    /// Sets that have it as their home, and connections of threads that wait only for them.
    users: u32,
}

#[derive(Debug, Default)]
struct All {
    engines: Vec<Engine>,
    threads: HashMap<usize, u32>,
    last_number: u32,
    refused_ns: u64,
    /// Connections on the first engine for each of which one thread waits.
    on_first: u32,
    /// Number of engines, from the beginning of the list, that such threads share with the first
    /// while there are more of them than engines ([`super::crowd`]).
    shared: usize,
}

impl All {
    fn of_thread(&self, thread: usize) -> Option<&Engine> {
        let number = *self.threads.get(&thread)?;
        self.engines.iter().find(|engine| engine.number == number)
    }

    fn remember(&mut self, thread: usize, number: u32) {
        let engine = self.engines.iter().find(|it| it.number == number);
        if engine.is_some_and(|it| it.users == 0) {
            // The engine's thread has left it.
            self.threads.retain(|_, theirs| *theirs != number);
        }
        if self.threads.len() >= THREADS_MAX {
            self.threads.clear();
        }
        self.threads.insert(thread, number);
    }

    fn shared(&self) -> &[Engine] {
        &self.engines[..self.shared.min(self.engines.len())]
    }

    /// The number of users of that engine; `None` if it has been given up.
    fn users_at(&mut self, attachment: &Arc<Attachment>) -> Option<&mut u32> {
        let mut engines = self.engines.iter_mut();
        match engines.find(|it| Arc::ptr_eq(&it.attachment, attachment)) {
            Some(engine) => Some(&mut engine.users),
            None => (attachment.station.number == 0).then_some(&mut self.on_first),
        }
    }

    fn users(&self) -> usize {
        let users = self.engines.iter().map(|engine| engine.users);
        (self.on_first + users.sum::<u32>()) as usize
    }

    /// The position of that engine, if nothing of the program is on it and nothing refers to it.
    fn find_unused(&self, it: &Weak<Attachment>) -> Option<usize> {
        let is_unused = |engine: &Engine| {
            std::ptr::eq(Arc::as_ptr(&engine.attachment), it.as_ptr())
                && engine.users == 0
                && Arc::strong_count(&engine.attachment) == 1
                && engine.attachment.driver.has_nothing_left()
        };
        self.engines.iter().position(is_unused)
    }

    fn emptiest(&self) -> Option<(u32, u32)> {
        let least = self.engines.iter().min_by_key(|engine| engine.users)?;
        Some((least.number, least.users))
    }
}

/// The engines beside the first.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    pub(crate) is_any: Arc<AtomicBool>,
    all: Lock<All>,
    /// The thread that the first engine is for; 0 = none has waited yet.
    first_thread: AtomicUsize,
    /// Connections that have ended after few reads, less a credit for long ones.
    short: AtomicU32,
    /// More threads wait for one connection each than there are engines.
    is_crowded: AtomicBool,
}

impl Homes {
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    pub(crate) fn attachments(&self) -> Vec<Arc<Attachment>> {
        if !self.is_any() {
            return Vec::new();
        }
        let all = self.all.lock();
        let attachments = all
            .engines
            .iter()
            .map(|engine| Arc::clone(&engine.attachment));
        attachments.collect()
    }

    /// As [`Homes::attachments`]; none if a thread that was interrupted holds them.
    pub(crate) fn try_attachments(&self) -> Vec<Arc<Attachment>> {
        let all = self.all.try_lock();
        let all = all.as_ref().map_or(&[][..], |all| &all.engines);
        all.iter()
            .map(|engine| Arc::clone(&engine.attachment))
            .collect()
    }

    /// Forgets an engine that is gone. Returns whether it was one of these.
    pub(crate) fn forget(&self, gone: &Arc<Attachment>) -> bool {
        let mut all = self.all.lock();
        let before = all.engines.len();
        all.engines.retain(|it| !Arc::ptr_eq(&it.attachment, gone));
        let was_one = before != all.engines.len();
        if was_one {
            all.refused_ns = 0;
        }
        was_one
    }

    pub(crate) fn of_thread(&self, thread: usize) -> Option<Arc<Attachment>> {
        let all = self.all.lock();
        let found = all.of_thread(thread);
        found
            .map(|engine| Arc::clone(&engine.attachment))
            .filter(|attachment| !attachment.is_dead())
    }

    /// A connection ends after so many reads.
    pub(crate) fn note_life(&self, reads: u32) {
        let short = self.short.load(Ordering::Relaxed);
        let short = match reads >= LONG_READS {
            true => short.saturating_sub(LONG_IS_WORTH),
            false => (short + 1).min(SHORT_MAX),
        };
        self.short.store(short, Ordering::Relaxed);
    }

    /// Whether connections last long enough to be moved.
    pub(crate) fn moves_pay(&self) -> bool {
        self.short.load(Ordering::Relaxed) < SHORT_MAX / 2
    }

    /// Records a set whose connections are not worth an engine.
    pub(crate) fn give_up(&self, set: &Set, thread: usize) {
        self.leave(set);
        set.home.forget();
        self.all.lock().threads.remove(&thread);
    }

    /// A thread waits: whether the first engine is for it.
    pub(crate) fn is_first(&self, thread: usize) -> bool {
        let known = self.first_thread.load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        known == thread
            || known == 0
                && self
                    .first_thread
                    .compare_exchange(0, thread, order, order)
                    .is_ok()
    }

    /// As [`Homes::is_first`], of a thread that does not wait.
    pub(crate) fn is_of_first(&self, thread: usize) -> bool {
        self.first_thread.load(Ordering::Relaxed) == thread
    }

    /// The number of the engine of a thread that has one.
    pub(crate) fn number_of(&self, thread: usize) -> Option<u32> {
        let all = self.all.lock();
        all.of_thread(thread).map(|engine| engine.number)
    }

    /// The engine with the fewest users, and how many it has.
    pub(crate) fn emptiest(&self) -> Option<(u32, u32)> {
        self.all.lock().emptiest()
    }

    /// An engine that no thread uses.
    pub(crate) fn find_unused(&self) -> Option<(u32, Arc<Attachment>)> {
        let all = self.all.lock();
        let unused = all.engines.iter().find(|engine| engine.users == 0)?;
        Some((unused.number, Arc::clone(&unused.attachment)))
    }

    /// Returns whether [`Homes::take_unused`] would take the engine out.
    pub(crate) fn is_unused(&self, it: &Weak<Attachment>) -> bool {
        !self.is_crowded() && self.all.lock().find_unused(it).is_some()
    }

    /// Takes an engine out that nothing of the program is on and that nothing refers to.
    pub(crate) fn take_unused(&self, it: &Weak<Attachment>) -> Option<Arc<Attachment>> {
        let mut all = self.all.lock();
        let at = all.find_unused(it).filter(|_| !self.is_crowded())?;
        let engine = all.engines.remove(at);
        all.threads.retain(|_, number| *number != engine.number);
        all.refused_ns = 0;
        Some(engine.attachment)
    }

    /// The engine beside the first with this number.
    pub(crate) fn with_number(&self, number: u32) -> Option<Arc<Attachment>> {
        let all = self.all.lock();
        let engine = all.engines.iter().find(|it| it.number == number)?;
        Some(Arc::clone(&engine.attachment))
    }

    pub(crate) fn remember(&self, thread: usize, number: u32) {
        self.all.lock().remember(thread, number);
    }

    /// Returns whether one more of `engines_max` engines, the first included, may be requested. The
    /// limit is asked for rarely once it is reached: it may take system calls.
    pub(crate) fn may_ask(&self, now_ns: u64, engines_max: impl FnOnce() -> usize) -> bool {
        let mut all = self.all.lock();
        if all.refused_ns != 0 && now_ns < all.refused_ns + ASK_AGAIN_NS {
            return false;
        }
        let may_ask = all.engines.len() + 1 < engines_max();
        if !may_ask {
            all.refused_ns = now_ns;
        }
        may_ask
    }

    /// Number of engines so far, the first among them.
    pub(crate) fn engines_so_far(&self) -> usize {
        self.all.lock().last_number.max(FIRST) as usize
    }

    pub(crate) fn note_refusal(&self, now_ns: u64) {
        self.all.lock().refused_ns = now_ns;
    }

    /// Takes an engine in and numbers it.
    pub(crate) fn add(&self, attachment: Arc<Attachment>) -> u32 {
        let mut all = self.all.lock();
        all.last_number = all.last_number.max(FIRST) + 1;
        let number = all.last_number;
        all.engines.push(Engine {
            number,
            attachment,
            users: 0,
        });
        self.is_any.store(true, Ordering::Release);
        number
    }

    /// Counts a connection for which only one thread waits, on the engine where it is.
    pub(crate) fn enter(&self, attachment: &Arc<Attachment>) {
        if let Some(users) = self.all.lock().users_at(attachment) {
            *users += 1;
        }
    }

    /// Counts the end, or the move, of a connection that [`Homes::enter`] has counted.
    pub(crate) fn exit(&self, attachment: &Arc<Attachment>) {
        let mut all = self.all.lock();
        let Some(users) = all.users_at(attachment) else {
            return;
        };
        *users = users.saturating_sub(1);
        if self.is_crowded() && all.users() <= all.engines.len() {
            self.is_crowded.store(false, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// Has threads that wait for one connection each share `shared` engines beside the first. No
    /// effect without engines that some of them have for themselves.
    pub(crate) fn begin_to_share(&self, shared: usize) {
        let mut all = self.all.lock();
        all.shared = shared;
        self.is_crowded
            .store(!all.engines.is_empty(), Ordering::Relaxed);
    }

    /// Whether such threads share that engine, which is not the first.
    pub(crate) fn is_shared(&self, attachment: &Arc<Attachment>) -> bool {
        let all = self.all.lock();
        let mut shared = all.shared().iter();
        shared.any(|it| Arc::ptr_eq(&it.attachment, attachment))
    }

    /// The shared engine with the fewest users; `None`: the first has no more.
    pub(crate) fn emptiest_shared(&self) -> Option<u32> {
        let all = self.all.lock();
        let least = all.shared().iter().min_by_key(|engine| engine.users)?;
        (self.is_crowded() && least.users < all.on_first).then_some(least.number)
    }

    /// The thread has no engine of its own any more.
    pub(crate) fn forget_thread(&self, thread: usize) {
        self.all.lock().threads.remove(&thread);
    }

    /// Number of users of an engine beside the first.
    pub(crate) fn users_of(&self, number: u32) -> Option<u32> {
        let all = self.all.lock();
        let engine = all.engines.iter().find(|it| it.number == number)?;
        Some(engine.users)
    }

    /// A set is closed.
    pub(crate) fn leave(&self, set: &Set) {
        leave(&mut self.all.lock(), set);
    }

    /// Settles where a set is at home, unless another thread has done that meanwhile, or the engine
    /// has been given back.
    pub(crate) fn settle(&self, set: &Set, number: u32) {
        let mut all = self.all.lock();
        if set.home.is_unsettled() && enter(&mut all, set, number) {
            set.home.settle(number);
        }
    }

    /// As [`Homes::settle`], temporarily.
    pub(crate) fn settle_temporarily(&self, set: &Set, number: u32) {
        let mut all = self.all.lock();
        if set.home.is_unsettled() && enter(&mut all, set, number) {
            set.home.settle_temporarily(number);
        }
    }

    /// Settles a set elsewhere than where it is at home.
    pub(crate) fn settle_again(&self, set: &Set, number: u32) {
        let mut all = self.all.lock();
        leave(&mut all, set);
        match enter(&mut all, set, number) {
            true => set.home.settle(number),
            false => set.home.forget(),
        }
    }

    pub(crate) fn hold(&self) {
        self.all.hold();
    }

    pub(crate) fn release(&self) {
        self.all.release();
    }

    /// Forgets all engines in a forked child: they are the parent's, and their destructors do not
    /// run.
    pub(crate) fn reset(&self) {
        std::mem::forget(std::mem::take(&mut *self.all.lock()));
        self.is_any.store(false, Ordering::Release);
        self.first_thread.store(0, Ordering::Relaxed);
        self.is_crowded.store(false, Ordering::Relaxed);
    }
}

/// Counts a set at an engine. Returns whether there is such an engine.
fn enter(all: &mut All, set: &Set, number: u32) -> bool {
    if number == FIRST {
        return true;
    }
    let engine = all.engines.iter_mut().find(|it| it.number == number);
    let Some(engine) = engine else {
        return false;
    };
    engine.users += 1;
    set.set_engine(Some(Arc::clone(&engine.attachment)));
    true
}

fn leave(all: &mut All, set: &Set) {
    let number = set.home.number();
    if number > FIRST {
        set.set_engine(None);
        if let Some(engine) = all.engines.iter_mut().find(|it| it.number == number) {
            engine.users = engine.users.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_reached_is_asked_for_once_a_second() {
        let homes = Homes::default();
        let mut asked = 0;
        let mut may_ask = |now_ns, engines_max| {
            homes.may_ask(now_ns, || {
                asked += 1;
                engines_max
            })
        };
        assert!(may_ask(1, 2));
        assert!((2..100).all(|now_ns| !may_ask(now_ns, 1)));
        assert!(!may_ask(1 + ASK_AGAIN_NS, 2), "it is not asked for yet");
        assert!(may_ask(2 + ASK_AGAIN_NS, 2));
        assert_eq!(asked, 3);
    }
}
