//! The threads that sleep in a call, the objects they watch, and which of them leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use slipstack_mem::{Descriptor, Lock};

use crate::ready::lead::Lead;
use crate::ready::waiter::{Rings, Waiter, WaiterPool};
use crate::ready::watch::Awaited;

/// The leader learns of new timers that other threads set within this time.
const NUDGE_NS: u64 = 4_000_000;
/// Longest sleep of a leader after a nudge.
pub(crate) const NUDGED_SLEEP_NS: u64 = 8_000_000;

/// The subscription of a sleeping thread.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    One(Arc<dyn Awaited>),
    Many(Arc<[Arc<dyn Awaited>]>),
    /// Whatever comes by the wire.
    Wire,
}

impl Kept {
    /// Returns false if the stack has nothing for the thread.
    fn is_of_stack(&self) -> bool {
        match self {
            Kept::One(one) => one.is_of_stack(),
            Kept::Many(many) => !many.is_empty(),
            Kept::Wire => true,
        }
    }

    /// Forgets, in a forked child, that a thread of the parent's waits.
    fn forget(&self) {
        match self {
            Kept::One(one) => one.forget_wait(),
            Kept::Many(many) => many.iter().for_each(|one| one.forget_poll()),
            Kept::Wire => {}
        }
    }

    fn subscribe(&self, waiter: &Arc<Waiter>) {
        match self {
            Kept::One(one) => one.begin_wait(waiter),
            Kept::Many(many) => {
                for one in &**many {
                    one.begin_poll(waiter);
                }
            }
            Kept::Wire => {}
        }
    }
}

/// One sleeping thread.
#[derive(Debug)]
pub(crate) struct Sleeper {
    thread: usize,
    waiter: Arc<Waiter>,
    kept: Kept,
}

impl Sleeper {
    /// Ends the subscription. `on_last` gets the objects that have lost their last thread by that
    /// ([`Awaited::end_wait`]).
    pub(crate) fn unsubscribe(self, on_last: &mut dyn FnMut(Arc<dyn Awaited>)) {
        match self.kept {
            Kept::One(one) => {
                if one.end_wait(&self.waiter) {
                    on_last(one);
                }
            }
            Kept::Many(many) => {
                for one in &*many {
                    if one.end_poll(&self.waiter) {
                        on_last(Arc::clone(one));
                    }
                }
            }
            Kept::Wire => {}
        }
    }
}

/// The sleeping thread that drives the engine.
#[derive(Debug)]
struct Leader {
    thread: usize,
    waiter: Arc<Waiter>,
    /// The stack has nothing for it: it leads as long as no other thread sleeps that could.
    is_bystander: bool,
    /// The thread that is to lead when this one has stopped.
    successor: Option<(usize, Arc<Waiter>)>,
}

/// All sleeping threads of a station.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    asleep: Lock<Vec<Sleeper>>,
    count: AtomicUsize,
    is_led: AtomicBool,
    /// The time at which the sleeping leader wakes by itself; 0 = no leader sleeps.
    leader_until_ns: AtomicU64,
    nudged_ns: AtomicU64,
    /// The last turn a call of the program's made.
    pub(crate) turned_ns: AtomicU64,
    leader: Lock<Option<Leader>>,
    /// The thread that is to lead, for good: no other one begins to.
    claimant: Lock<Option<Arc<Waiter>>>,
    is_claimed: AtomicBool,
    /// Nothing drives the engine while the thread that does is away.
    is_alone: AtomicBool,
    pub(crate) pool: WaiterPool,
    /// The lead of the thread that drives, asleep or awake.
    pub(crate) lead: Lead,
}

impl Sleepers {
    /// Subscribes a thread that is about to sleep to the subjects of `kept`. Returns false if it is
    /// already subscribed.
    pub(crate) fn enter(
        &self,
        thread: usize,
        waiter: &Arc<Waiter>,
        kept: impl FnOnce() -> Kept,
    ) -> bool {
        let mut asleep = self.asleep.lock();
        if asleep.iter().any(|it| Arc::ptr_eq(&it.waiter, waiter)) {
            return false;
        }
        let kept = kept();
        let subscribed = kept.clone();
        asleep.push(Sleeper {
            thread,
            waiter: Arc::clone(waiter),
            kept,
        });
        drop(asleep);
        self.count.fetch_add(1, Ordering::SeqCst);
        subscribed.subscribe(waiter);
        true
    }

    pub(crate) fn remove(&self, waiter: &Arc<Waiter>) -> Option<Sleeper> {
        let mut asleep = self.asleep.lock();
        let at = asleep
            .iter()
            .position(|it| Arc::ptr_eq(&it.waiter, waiter))?;
        self.count.fetch_sub(1, Ordering::AcqRel);
        Some(asleep.remove(at))
    }

    pub(crate) fn try_lead(&self, thread: usize, waiter: &Arc<Waiter>, is_bystander: bool) -> bool {
        if self.is_claimed.load(Ordering::Acquire) && !self.is_claimant(waiter) {
            return false;
        }
        if self.is_led.swap(true, Ordering::AcqRel) {
            return false;
        }
        let waiter = Arc::clone(waiter);
        *self.leader.lock() = Some(Leader {
            thread,
            waiter,
            is_bystander,
            successor: None,
        });
        true
    }

    /// Gives the lead to the thread that drives, for a thread that falls asleep and may not lead. A
    /// bystander that drives is asked to stop instead, and the thread is woken when it has.
    /// Returns false if no thread drives.
    pub(crate) fn yield_lead(&self, thread: usize, waiter: &Arc<Waiter>) -> bool {
        let mut leader = self.leader.lock();
        if let Some(leader) = &mut *leader {
            if leader.is_bystander {
                // The one before may have left its sleep since.
                let successor = (thread, Arc::clone(waiter));
                let is_asked = leader.successor.replace(successor).is_some();
                self.lead.take(thread);
                if !is_asked {
                    leader.waiter.notify();
                }
            } else {
                // Before it can stop and leave.
                self.lead.give(thread, leader.thread);
            }
            return true;
        }
        drop(leader);
        let is_claimed = self.is_claimed.load(Ordering::Acquire);
        if is_claimed {
            // A claimant is about to lead.
            self.lead.give(thread, 0);
        }
        is_claimed
    }

    /// The thread has left its sleep without a word. Returns true if it led.
    pub(crate) fn stop_leading_of(&self, thread: usize) -> bool {
        self.stop_leading_if(|leader| leader.thread == thread)
    }

    /// The waiter of a sleep of `thread`, if it has one.
    pub(crate) fn waiter_of(&self, thread: usize) -> Option<Arc<Waiter>> {
        let asleep = self.asleep.lock();
        let mine = asleep.iter().find(|sleeper| sleeper.thread == thread);
        mine.map(|sleeper| Arc::clone(&sleeper.waiter))
    }

    /// False if this waiter does not lead (any more).
    pub(crate) fn stop_leading(&self, waiter: &Waiter) -> bool {
        self.stop_leading_if(|leader| std::ptr::eq(&*leader.waiter, waiter))
    }

    fn stop_leading_if(&self, is_it: impl FnOnce(&Leader) -> bool) -> bool {
        let mut leader = self.leader.lock();
        if !leader.as_ref().is_some_and(is_it) {
            return false;
        }
        let successor = leader.take().and_then(|leader| leader.successor);
        self.leader_until_ns.store(0, Ordering::Release);
        self.is_led.store(false, Ordering::Release);
        drop(leader);
        if let Some((_, waiter)) = successor {
            waiter.notify();
        }
        if self.is_claimed.load(Ordering::Acquire)
            && let Some(claimant) = &*self.claimant.lock()
        {
            claimant.notify();
        }
        true
    }

    fn is_claimant(&self, waiter: &Arc<Waiter>) -> bool {
        let claimant = self.claimant.lock();
        claimant.as_ref().is_some_and(|it| Arc::ptr_eq(it, waiter))
    }

    /// As [`Sleepers::try_lead`], for a thread that leads even while it is awake, until
    /// [`Sleepers::give_up_claim`]. The present leader is asked to stop, and the claimant is woken
    /// when it has.
    pub(crate) fn claim_lead(&self, thread: usize, waiter: &Arc<Waiter>) -> bool {
        if !self.is_claimed.load(Ordering::Acquire) {
            *self.claimant.lock() = Some(Arc::clone(waiter));
            self.is_claimed.store(true, Ordering::Release);
        }
        if self.try_lead(thread, waiter, false) {
            return true;
        }
        if let Some(leader) = &*self.leader.lock() {
            leader.waiter.notify();
        }
        false
    }

    pub(crate) fn give_up_claim(&self, waiter: &Waiter) {
        self.is_claimed.store(false, Ordering::Release);
        *self.claimant.lock() = None;
        self.stop_leading(waiter);
        self.lead.vacate();
        self.pass_on();
    }

    /// Tells whether a stand-in drives the engine while no thread does. Without one every sleeping
    /// thread may lead.
    pub(crate) fn set_stand_in(&self, has_stand_in: bool) {
        self.is_alone.store(!has_stand_in, Ordering::Relaxed);
    }

    /// Returns whether a thread is a bystander: the stack has nothing for it, and another one need
    /// not be replaced while it is away.
    pub(crate) fn is_bystander(&self, is_of_stack: bool) -> bool {
        !is_of_stack && !self.is_alone.load(Ordering::Relaxed)
    }

    pub(crate) fn set_leader_until(&self, until_ns: u64) {
        self.leader_until_ns.store(until_ns, Ordering::Release);
    }

    /// Wakes every sleeper to check for a change.
    pub(crate) fn wake_all(&self) {
        for sleeper in self.asleep.lock().iter() {
            sleeper.waiter.notify();
        }
        if let Some(claimant) = &*self.claimant.lock() {
            claimant.notify();
        }
    }

    /// Returns whether no thread sleeps, except the calling one.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Wakes a sleeper because, for the engine's stand-in, the leader has been away for too long.
    pub(crate) fn replace_leader(&self) {
        self.lead.vacate();
        self.pass_on();
    }

    /// Lets another sleeper lead when a thread leaves, if none leads now. A bystander is not woken
    /// while the thread that left may come back.
    pub(crate) fn pass_on(&self) {
        if self.is_empty() || self.is_led.load(Ordering::Acquire) || !self.lead.is_vacant() {
            return;
        }
        let mut rings = Rings::default();
        let asleep = self.asleep.lock();
        let mut sleepers = asleep.iter();
        let may_come_back = self.lead.is_held();
        let first = sleepers.find(|it| !self.is_bystander(it.kept.is_of_stack()));
        if let Some(sleeper) = first.or_else(|| asleep.first().filter(|_| !may_come_back)) {
            rings.notify(&sleeper.waiter);
        }
    }

    /// Shortens the leader's sleep after another thread has given the engine work: its next
    /// deadline may be sooner than the leader's sleep ends.
    pub(crate) fn nudge(&self, now_ns: impl FnOnce() -> u64) {
        let until = self.leader_until_ns.load(Ordering::Acquire);
        if until == 0 {
            return;
        }
        let now = now_ns();
        let nudged = self.nudged_ns.load(Ordering::Relaxed);
        if until > now + NUDGED_SLEEP_NS && now.wrapping_sub(nudged) > NUDGE_NS {
            self.nudged_ns.store(now, Ordering::Relaxed);
            let mut rings = Rings::default();
            if let Some(leader) = &*self.leader.lock() {
                rings.notify(&leader.waiter);
            }
        }
    }

    /// Whether the engine's next deadline may still move without the leader's knowledge.
    pub(crate) fn was_nudged(&self, now_ns: u64) -> bool {
        let nudged = self.nudged_ns.load(Ordering::Relaxed);
        nudged != 0 && now_ns.wrapping_sub(nudged) < NUDGED_SLEEP_NS
    }

    pub(crate) fn hold(&self) {
        self.pool.hold();
        self.asleep.hold();
        self.leader.hold();
        self.claimant.hold();
    }

    pub(crate) fn release(&self) {
        self.claimant.release();
        self.leader.release();
        self.asleep.release();
        self.pool.release();
    }

    /// Resets the list in a forked child, because the sleepers were other threads of the parent.
    /// The sockets they watched are the parent's too, so their locks are not touched.
    /// `thread` is the child's, which may have forked in a handler and sleep on.
    pub(crate) fn reset(&self, thread: usize) {
        let asleep = std::mem::take(&mut *self.asleep.lock());
        for sleeper in asleep.iter().filter(|it| it.thread != thread) {
            sleeper.kept.forget();
            if let Some(doorbell) = Descriptor::new(sleeper.waiter.doorbell()) {
                doorbell.leave_to_parent();
            }
        }
        std::mem::forget(asleep);
        self.count.store(0, Ordering::Relaxed);
        self.is_led.store(false, Ordering::Relaxed);
        self.lead.vacate();
        self.leader_until_ns.store(0, Ordering::Relaxed);
        *self.leader.lock() = None;
        self.is_claimed.store(false, Ordering::Relaxed);
        std::mem::forget(self.claimant.lock().take());
        self.pool.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_lead_is_handed_over_by_its_holder_and_stays() {
        let sleepers = Sleepers::default();
        let [leader, claimant, other] = [(); 3].map(|()| sleepers.pool.take());
        assert!(sleepers.try_lead(1, &leader, false));
        assert!(leader.fall_asleep() && claimant.fall_asleep());
        assert!(!sleepers.claim_lead(2, &claimant), "another leads");
        assert!(!leader.notify(), "it has been asked to stop");
        assert!(sleepers.stop_leading(&leader));
        assert!(!claimant.notify(), "it has been told");
        assert!(!sleepers.try_lead(3, &other, false), "it is claimed");
        assert!(sleepers.claim_lead(2, &claimant));
        assert!(!sleepers.try_lead(3, &other, false));
        sleepers.give_up_claim(&claimant);
        assert!(sleepers.try_lead(3, &other, false));
    }

    fn sleep_of(sleepers: &Sleepers, thread: usize, kept: Kept) -> Arc<Waiter> {
        let waiter = sleepers.pool.take();
        assert!(sleepers.enter(thread, &waiter, || kept));
        assert!(waiter.fall_asleep());
        waiter
    }

    /// A thread sleeps on descriptors of the kernel.
    fn bystander(sleepers: &Sleepers, thread: usize) -> Arc<Waiter> {
        sleep_of(sleepers, thread, Kept::Many(Arc::new([])))
    }

    #[test]
    fn a_bystander_sleeps_on_while_the_thread_that_drove_is_away() {
        let sleepers = Sleepers::default();
        assert!(sleepers.lead.enter(1, || false));
        let waiter = bystander(&sleepers, 2);
        assert!(sleepers.lead.leave(1));
        sleepers.pass_on();
        assert!(!sleepers.lead.enter(2, || true));
        assert!(waiter.notify(), "it has not been woken");
        waiter.wake_up(true);
        assert!(waiter.fall_asleep());
        let other = sleep_of(&sleepers, 3, Kept::Wire);
        sleepers.pass_on();
        assert!(!other.notify(), "it has been woken to lead");
        assert!(waiter.notify(), "it has not been woken");
    }

    #[test]
    fn a_bystander_is_woken_for_a_thread_that_is_away_for_too_long() {
        let sleepers = Sleepers::default();
        assert!(sleepers.lead.enter(1, || false));
        let waiter = bystander(&sleepers, 2);
        assert!(sleepers.lead.leave(1));
        sleepers.replace_leader();
        assert!(!waiter.notify(), "it has been woken");
        assert!(sleepers.lead.enter(2, || true));
    }

    #[test]
    fn a_bystander_that_leads_stops_for_a_thread_that_waits_for_a_socket() {
        let sleepers = Sleepers::default();
        assert!(
            sleepers.lead.enter(1, || true),
            "no other thread has waited"
        );
        let waiter = bystander(&sleepers, 1);
        assert!(sleepers.try_lead(1, &waiter, true));
        let other = sleep_of(&sleepers, 2, Kept::Wire);
        assert!(sleepers.lead.enter(2, || false));
        assert!(!sleepers.try_lead(2, &other, false));
        assert!(sleepers.yield_lead(2, &other), "it may sleep");
        assert!(!waiter.notify(), "the bystander has been asked to stop");
        assert!(sleepers.stop_leading(&waiter));
        assert!(!sleepers.lead.enter(1, || true));
        assert!(!other.notify(), "it has been woken to lead");
        assert!(sleepers.try_lead(2, &other, false));
    }
}
