//! Waiting: drive the engine, look, spin for a bounded time, sleep in `ppoll`.
//!
//! With several waiting threads one is the leader: it sleeps on the driver's descriptors too and
//! hands out what comes. The others sleep on their own doorbell (and their kernel descriptors)
//! until a socket of theirs becomes ready or the leader leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use slipstack_mem::{Lock, now_ns};

use crate::description::{Description, Watch};
use crate::epoll::{Set, Target};
use crate::errno::Errno;
use crate::kernel::Interruptions;
use crate::link::Link;
use crate::outcome::Divert;
use crate::process::Process;
use crate::waiter::{Waiter, WaiterPool};

/// While a wait spins, kernel descriptors are looked at this often.
const KERNEL_LOOK_NS: u64 = 50_000;
/// The leader learns of new timers that other threads set within this time.
const NUDGE_NS: u64 = 4_000_000;
/// After a nudge the leader looks again by itself after this time.
const NUDGED_SLEEP_NS: u64 = 8_000_000;

/// A call that finds nothing and does not wait drives the engine if nobody has for this long.
const POLLING_TURN_NS: u64 = 20_000;

/// What a wait is for.
pub(crate) enum Subject<'a> {
    Socket(&'a Arc<Description>),
    Set(&'a Arc<Set>),
    Many(&'a [Target]),
}

/// How a wait is made.
pub(crate) struct Plan<'a> {
    pub(crate) subject: Subject<'a>,
    /// Kernel descriptors that end the sleep.
    pub(crate) kernel: &'a [libc::pollfd],
    /// `None`: for ever.
    pub(crate) deadline_ns: Option<u64>,
    pub(crate) mask: Option<&'a libc::sigset_t>,
    /// Handlers with SA_RESTART do not end it.
    pub(crate) may_restart: bool,
}

/// The threads that sleep.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    asleep: Lock<Vec<Arc<Waiter>>>,
    count: AtomicUsize,
    is_led: AtomicBool,
    /// When the sleeping leader will look by itself; 0 = no leader sleeps.
    leader_until_ns: AtomicU64,
    nudged_ns: AtomicU64,
    /// The last turn a call of the program's made.
    turned_ns: AtomicU64,
    leader: Lock<Option<Arc<Waiter>>>,
    pool: WaiterPool,
}

impl Sleepers {
    fn add(&self, waiter: &Arc<Waiter>) {
        self.asleep.lock().push(Arc::clone(waiter));
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    fn remove(&self, waiter: &Arc<Waiter>) {
        self.asleep
            .lock()
            .retain(|other| !Arc::ptr_eq(other, waiter));
        self.count.fetch_sub(1, Ordering::AcqRel);
    }

    fn try_lead(&self, waiter: &Arc<Waiter>) -> bool {
        if self.is_led.swap(true, Ordering::AcqRel) {
            return false;
        }
        *self.leader.lock() = Some(Arc::clone(waiter));
        true
    }

    fn stop_leading(&self) {
        self.leader_until_ns.store(0, Ordering::Release);
        *self.leader.lock() = None;
        self.is_led.store(false, Ordering::Release);
    }

    /// Something changed that every sleeper has to look at.
    pub(crate) fn wake_all(&self) {
        for waiter in self.asleep.lock().iter() {
            waiter.notify();
        }
    }

    /// A thread leaves: if nobody leads now, another sleeper may.
    fn pass_on(&self) {
        if self.count.load(Ordering::Acquire) == 0 || self.is_led.load(Ordering::Acquire) {
            return;
        }
        if let Some(waiter) = self.asleep.lock().first() {
            waiter.notify();
        }
    }

    /// Another thread than the leader has made the engine work: its next deadline may be sooner
    /// than the leader's sleep ends.
    pub(crate) fn nudge(&self) {
        let until = self.leader_until_ns.load(Ordering::Acquire);
        if until == 0 {
            return;
        }
        let now = now_ns();
        let nudged = self.nudged_ns.load(Ordering::Relaxed);
        if until > now + NUDGED_SLEEP_NS && now.wrapping_sub(nudged) > NUDGE_NS {
            self.nudged_ns.store(now, Ordering::Relaxed);
            if let Some(leader) = &*self.leader.lock() {
                leader.notify();
            }
        }
    }

    /// Descriptors of ours.
    pub(crate) fn numbers(&self) -> Vec<i32> {
        let mut all = self.pool.numbers();
        all.extend(self.asleep.lock().iter().map(|waiter| waiter.doorbell()));
        all
    }

    pub(crate) fn hold(&self) {
        self.pool.hold();
        self.asleep.hold();
        self.leader.hold();
    }

    pub(crate) fn release(&self) {
        self.leader.release();
        self.asleep.release();
        self.pool.release();
    }

    /// In a forked child: the sleepers were other threads of the parent.
    pub(crate) fn reset(&self) {
        self.asleep.lock().clear();
        self.count.store(0, Ordering::Relaxed);
        self.is_led.store(false, Ordering::Relaxed);
        self.leader_until_ns.store(0, Ordering::Relaxed);
        *self.leader.lock() = None;
        self.pool.clear();
    }
}

/// The outcome of one sleep.
enum Slept {
    Again,
    Rang,
}

impl Process {
    /// The engine, unless it has died: then its sockets are told, once, and it is forgotten.
    fn living_link(&self) -> Option<Arc<Link>> {
        let link = self.link()?;
        if !link.is_dead() {
            return Some(link);
        }
        self.mourn(&link);
        None
    }

    /// A call finds nothing and will not wait: a program that only asks must be served too.
    pub(crate) fn turn_if_idle(&self, link: &Link) {
        let now = now_ns();
        let last = self.sleepers.turned_ns.load(Ordering::Relaxed);
        if now.wrapping_sub(last) >= POLLING_TURN_NS {
            self.turn(link);
        }
    }

    /// Lets the engine work once and hands out what came.
    pub(crate) fn turn(&self, link: &Link) {
        self.sleepers.turned_ns.store(now_ns(), Ordering::Relaxed);
        link.turn();
        self.sleepers.nudge();
    }

    /// Waits until `check` gives something; `None` when the deadline passes. `check` is told
    /// whether kernel descriptors are due for a look.
    pub(crate) fn wait<T>(
        &self,
        plan: &Plan<'_>,
        mut check: impl FnMut(bool) -> Result<Option<T>, Divert>,
    ) -> Result<Option<T>, Divert> {
        let link = self.living_link();
        self.leave_batch();
        if let Some(link) = &link {
            self.turn(link);
        }
        if let Some(value) = check(true)? {
            return Ok(Some(value));
        }
        let begun = now_ns();
        if plan.deadline_ns.is_some_and(|deadline| deadline <= begun) {
            return Ok(None);
        }
        let before = self.kernel.interruptions();
        let spun = self.spin(plan, link.as_deref(), begun, before, &mut check)?;
        match spun {
            Spun::Found(value) => {
                self.spin.on_hit();
                Ok(Some(value))
            }
            Spun::TimedOut => Ok(None),
            Spun::InVain => {
                let asleep_since = now_ns();
                let outcome = self.sleep(plan, before, &mut check);
                self.spin.on_sleep(now_ns().wrapping_sub(asleep_since));
                outcome
            }
        }
    }

    fn spin<T>(
        &self,
        plan: &Plan<'_>,
        link: Option<&Link>,
        begun: u64,
        before: Interruptions,
        check: &mut impl FnMut(bool) -> Result<Option<T>, Divert>,
    ) -> Result<Spun<T>, Divert> {
        // Without an engine nothing changes while we spin.
        let Some(link) = link else {
            return Ok(Spun::InVain);
        };
        let until = begun + self.spin.budget_ns();
        let mut looked = begun;
        loop {
            let now = now_ns();
            if plan.deadline_ns.is_some_and(|deadline| deadline <= now) {
                return Ok(Spun::TimedOut);
            }
            if now >= until {
                return Ok(Spun::InVain);
            }
            self.check_signals(plan, before)?;
            self.turn(link);
            let is_due = now - looked >= KERNEL_LOOK_NS;
            if is_due {
                looked = now;
            }
            if let Some(value) = check(is_due)? {
                return Ok(Spun::Found(value));
            }
            std::hint::spin_loop();
        }
    }

    /// Runs handlers that were put off; EINTR if one ran that ends this call.
    fn check_signals(&self, plan: &Plan<'_>, before: Interruptions) -> Result<(), Divert> {
        let now = self.kernel.signal_point(plan.mask);
        let is_over = if plan.may_restart {
            now.without_restart != before.without_restart
        } else {
            now.handlers != before.handlers
        };
        if is_over {
            return Err(Errno::EINTR.into());
        }
        Ok(())
    }

    fn sleep<T>(
        &self,
        plan: &Plan<'_>,
        before: Interruptions,
        check: &mut impl FnMut(bool) -> Result<Option<T>, Divert>,
    ) -> Result<Option<T>, Divert> {
        let waiter = self.sleepers.pool.take().map_err(Divert::from)?;
        let used = match &plan.subject {
            Subject::Socket(socket) => Some(*socket),
            Subject::Set(_) | Subject::Many(_) => None,
        };
        if let Some(socket) = used {
            socket.users.fetch_add(1, Ordering::AcqRel);
        }
        subscribe(&plan.subject, &waiter);
        self.sleepers.add(&waiter);
        let outcome = self.sleep_as(&waiter, plan, before, check);
        self.sleepers.remove(&waiter);
        unsubscribe(&plan.subject, &waiter);
        self.sleepers.pass_on();
        self.sleepers.pool.give(waiter);
        if let Some(socket) = used
            && socket.users.fetch_sub(1, Ordering::AcqRel) == 1
            && socket.cold.lock().numbers.is_empty()
            && socket.decided().is_some()
        {
            self.end(socket);
        }
        outcome
    }

    fn sleep_as<T>(
        &self,
        waiter: &Arc<Waiter>,
        plan: &Plan<'_>,
        before: Interruptions,
        check: &mut impl FnMut(bool) -> Result<Option<T>, Divert>,
    ) -> Result<Option<T>, Divert> {
        loop {
            // Another thread may have attached, or the engine died, since the last look.
            let link = self.living_link();
            if let Some(link) = &link {
                self.turn(link);
            }
            if let Some(value) = check(true)? {
                return Ok(Some(value));
            }
            self.check_signals(plan, before)?;
            let now = now_ns();
            if plan.deadline_ns.is_some_and(|deadline| deadline <= now) {
                return Ok(None);
            }
            if !waiter.fall_asleep() {
                waiter.wake_up(false);
                continue;
            }
            let left = plan.deadline_ns.map(|deadline| deadline - now);
            let slept = match link.filter(|_| self.sleepers.try_lead(waiter)) {
                Some(link) => {
                    let slept = self.sleep_leading(waiter, &link, plan, now, left);
                    self.sleepers.stop_leading();
                    slept
                }
                None => self.sleep_in_ppoll(waiter, plan, &[], left),
            };
            waiter.wake_up(matches!(slept, Slept::Rang));
        }
    }

    fn sleep_leading(
        &self,
        waiter: &Waiter,
        link: &Link,
        plan: &Plan<'_>,
        now: u64,
        left: Option<u64>,
    ) -> Slept {
        link.release_idle();
        let Some(wait_on) = link.prepare_wait() else {
            return Slept::Again;
        };
        let mut left = least(left, wait_on.timeout_ns);
        let nudged = self.sleepers.nudged_ns.load(Ordering::Relaxed);
        if nudged != 0 && now.wrapping_sub(nudged) < NUDGED_SLEEP_NS {
            left = least(left, Some(NUDGED_SLEEP_NS));
        }
        let until = left.map_or(u64::MAX, |left| now.saturating_add(left));
        self.sleepers
            .leader_until_ns
            .store(until, Ordering::Release);
        let slept = self.sleep_in_ppoll(waiter, plan, &wait_on.fds, left);
        link.finish_wait();
        slept
    }

    fn sleep_in_ppoll(
        &self,
        waiter: &Waiter,
        plan: &Plan<'_>,
        driver: &[i32],
        left_ns: Option<u64>,
    ) -> Slept {
        const ON_STACK: usize = 16;
        let readable = |fd: i32| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mine = std::iter::once(waiter.doorbell()).chain(driver.iter().copied());
        let all = mine.map(readable).chain(plan.kernel.iter().copied());
        let count = 1 + driver.len() + plan.kernel.len();
        let mut few = [readable(-1); ON_STACK];
        let mut many = Vec::new();
        let fds = if count <= ON_STACK {
            for (place, fd) in few.iter_mut().zip(all) {
                *place = fd;
            }
            &mut few[..count]
        } else {
            many.extend(all);
            &mut many[..]
        };
        let timeout = left_ns.map(Duration::from_nanos);
        let _ = self.kernel.ppoll(fds, timeout, plan.mask);
        if fds[0].revents != 0 {
            Slept::Rang
        } else {
            Slept::Again
        }
    }
}

enum Spun<T> {
    Found(T),
    TimedOut,
    InVain,
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn subscribe(subject: &Subject<'_>, waiter: &Arc<Waiter>) {
    match subject {
        Subject::Socket(socket) => socket.watch(Watch::Thread(Arc::clone(waiter))),
        Subject::Set(set) => set.add_waiter(waiter),
        Subject::Many(targets) => {
            for target in *targets {
                target.watch(Watch::Thread(Arc::clone(waiter)));
            }
        }
    }
}

fn unsubscribe(subject: &Subject<'_>, waiter: &Arc<Waiter>) {
    match subject {
        Subject::Socket(socket) => socket.unwatch_thread(waiter),
        Subject::Set(set) => set.remove_waiter(waiter),
        Subject::Many(targets) => {
            for target in *targets {
                target.unwatch(
                    |watch| matches!(watch, Watch::Thread(other) if Arc::ptr_eq(other, waiter)),
                );
            }
        }
    }
}
