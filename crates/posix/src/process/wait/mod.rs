//! Waiting: drive the engine, check, spin for a bounded time, sleep in `ppoll`.
//!
//! With several waiting threads one is the leader: it sleeps on the driver's descriptors too and
//! hands out events. The others sleep on their own doorbell (and their kernel descriptors) until a
//! socket of theirs becomes ready or the leader leaves.

mod leaving;
mod sleeping;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use slipstack_mem::Descriptor;

use crate::attachment::Attachment;
use crate::errno::Errno;
use crate::kernel::Interruptions;
use crate::kernel::Kernel;
use crate::outcome::Divert;
use crate::process::Process;
use crate::process::subject::Subject;
use crate::ready::Station;
use crate::ready::{Ask, Look, NUDGED_SLEEP_NS, Waiter};
use crate::socket::description::Description;
use sleeping::{Rest, SleepEnd, Slept};

/// Interval at which kernel descriptors are checked while a wait spins.
const KERNEL_LOOK_NS: u64 = 50_000;
/// A call that finds nothing and does not wait drives the engine if no thread has for this long.
const POLLING_TURN_NS: u64 = 20_000;
/// Longest sleep of a thread that could lead while another thread hands events out, because that
/// one may not wait next.
const PUMPED_SLEEP_NS: u64 = 50_000;

/// Kind of a wait.
pub(crate) struct Plan<'a> {
    pub(crate) subject: Subject<'a>,
    /// Kernel descriptors that end the sleep.
    pub(crate) kernel: &'a [libc::pollfd],
    /// `None`: for ever.
    pub(crate) deadline_ns: Option<u64>,
    pub(crate) mask: Option<&'a libc::sigset_t>,
    /// Handlers with SA_RESTART do not end it.
    pub(crate) may_restart: bool,
    /// A stop of the process (SIGSTOP, SIGCONT) ends it, even without a handler (signal(7)).
    pub(crate) ends_when_stopped: bool,
    /// The call may wait again: it ends the socket itself if the last number is closed meanwhile
    /// ([`Process::end_if_closed`]).
    pub(crate) is_part: bool,
}

impl<'a> Plan<'a> {
    /// Wait of a blocking call on one socket: for SO_RCVTIMEO or SO_SNDTIMEO at most, and then it
    /// is never restarted after a signal (signal(7)).
    pub(crate) fn of_call(
        clock: &dyn Kernel,
        socket: &'a Arc<Description>,
        timeout_ns: &AtomicU64,
        kernel: &'a [libc::pollfd],
    ) -> Self {
        let timeout = timeout_ns.load(Ordering::Relaxed);
        Plan {
            subject: Subject::Socket(socket),
            kernel,
            deadline_ns: (timeout != 0).then(|| clock.now_ns().saturating_add(timeout)),
            mask: None,
            may_restart: timeout == 0,
            ends_when_stopped: timeout != 0,
            is_part: false,
        }
    }

    /// As [`Plan::of_call`], for a call that waits until all of its bytes are through.
    pub(crate) fn of_parts(self) -> Self {
        Plan {
            is_part: true,
            ..self
        }
    }

    /// Returns whether a handler is due that ends this call. Events that are there already are
    /// reported first, as on the kernel; the handler runs when the call has returned them.
    fn is_interrupted(&self, kernel: &dyn Kernel, before: Interruptions) -> bool {
        let now = kernel.signal_point(self.mask);
        match self.may_restart {
            true => now.without_restart != before.without_restart,
            false => now.handlers != before.handlers,
        }
    }

    /// Checks for the last time in a call whose time is over, or that is interrupted. `None`: it
    /// goes on.
    fn last_look<T>(
        &self,
        kernel: &dyn Kernel,
        before: Interruptions,
        now_ns: u64,
        check: &mut impl FnMut(Look) -> Result<Option<T>, Divert>,
    ) -> Result<Option<Option<T>>, Divert> {
        let is_interrupted = self.is_interrupted(kernel, before);
        if !is_interrupted && self.deadline_ns.is_none_or(|deadline| deadline > now_ns) {
            return Ok(None);
        }
        let due = Ask::Due;
        match check(Look {
            kernel: due,
            now_ns,
        })? {
            None if is_interrupted => Err(Errno::EINTR.into()),
            found => Ok(Some(found)),
        }
    }
}

/// A wait, and where it is made.
struct WaitContext<'a> {
    plan: &'a Plan<'a>,
    station: &'a Station,
    /// The engine, if it is not the first.
    elsewhere: Option<&'a Arc<Attachment>>,
    thread: usize,
    /// The stack has nothing for the thread, and another thread drives.
    is_bystander: bool,
    begun_ns: u64,
    /// The end of the last sleep.
    woke_ns: Cell<u64>,
}

/// Part of a thread that is about to sleep at an engine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A thread that may drive.
    Driver,
    /// A thread for which the stack has nothing. It drives until another one sleeps that could.
    Substitute,
    /// A thread for which the stack has nothing, beside one that drives.
    Bystander,
}

impl WaitContext<'_> {
    /// Takes the lead, if it is to be had.
    fn enter_lead(&self) -> Role {
        let sleepers = &self.station.sleepers;
        let is_bystander = sleepers.is_bystander(self.plan.subject.is_of_stack());
        match sleepers.lead.enter(self.thread, || is_bystander) {
            false => Role::Bystander,
            true if is_bystander => Role::Substitute,
            true => Role::Driver,
        }
    }

    fn sleep_once(
        &self,
        waiter: &Arc<Waiter>,
        attachment: Option<&Attachment>,
        role: Role,
        kernel: &dyn Kernel,
        now: u64,
        limit: (Option<u64>, Rest),
    ) -> Slept {
        let sleepers = &self.station.sleepers;
        let is_substitute = role == Role::Substitute;
        match attachment {
            None => {}
            // It may have led until now.
            Some(_) if role == Role::Bystander => sleepers.pass_on(),
            Some(attachment) if sleepers.try_lead(self.thread, waiter, is_substitute) => {
                return self.sleep_leading(waiter, attachment, kernel, now, limit);
            }
            Some(_) if sleepers.yield_lead(self.thread, waiter) => {}
            Some(_) => return Slept::NOT_AT_ALL,
        }
        self.plan.sleep_in_ppoll(kernel, waiter, None, limit)
    }

    fn sleep_leading(
        &self,
        waiter: &Waiter,
        attachment: &Attachment,
        kernel: &dyn Kernel,
        now: u64,
        (left, rest): (Option<u64>, Rest),
    ) -> Slept {
        attachment.note_driver(self.thread);
        attachment.release_idle();
        let gather_ns = self.station.spin.gather_ns();
        let Some(wait_on) = attachment.driver.prepare_wait(now, gather_ns) else {
            self.station.sleepers.stop_leading(waiter);
            return match attachment.is_pumped() {
                // Another thread hands out the events, and rings if some of them are for this one.
                true => self.plan.sleep_in_ppoll(
                    kernel,
                    waiter,
                    None,
                    (least(left, Some(PUMPED_SLEEP_NS)), rest),
                ),
                false => Slept::NOT_AT_ALL,
            };
        };
        let mut left = least(left, wait_on.timeout_ns);
        if self.station.sleepers.was_nudged(now) {
            left = least(left, Some(NUDGED_SLEEP_NS));
        }
        let until = left.map_or(u64::MAX, |left| now.saturating_add(left));
        self.station.sleepers.set_leader_until(until);
        let slept = self
            .plan
            .sleep_in_ppoll(kernel, waiter, Some(&wait_on), (left, rest));
        if self.station.sleepers.stop_leading(waiter) {
            let woke_ns = slept.woke_ns.unwrap_or(now);
            attachment.driver.finish_wait(slept.driver, woke_ns);
        }
        slept
    }
}

/// A kernel socket under a number, as something that ends a sleep.
pub(crate) fn polled(number: Option<Descriptor>, events: i16) -> Option<libc::pollfd> {
    number.map(|number| libc::pollfd {
        fd: number.number(),
        events,
        revents: 0,
    })
}

impl Process {
    /// Drives the engine for a call that finds nothing and does not wait: a program that only polls
    /// must be served too.
    pub(crate) fn turn_if_idle(&self, attachment: &Attachment) {
        let now = self.kernel.now_ns();
        let last = attachment
            .station
            .sleepers
            .turned_ns
            .load(Ordering::Relaxed);
        if now.wrapping_sub(last) >= POLLING_TURN_NS {
            attachment.turn(now);
            if attachment.is_dead() {
                self.living_attachment();
            }
        }
    }

    /// Waits until `check` returns a result; `None` when the deadline passes. `check` gets the way
    /// to treat kernel descriptors.
    pub(crate) fn wait<T>(
        &self,
        plan: &Plan<'_>,
        mut check: impl FnMut(Look) -> Result<Option<T>, Divert>,
    ) -> Result<Option<T>, Divert> {
        if self.lending.post.has_inline() {
            return self.wait_and_lend(plan, &mut check);
        }
        loop {
            let found = match self.next_due_ns() {
                Some(due_ns) => self.wait_and_take(plan, due_ns, &mut check)?,
                None => self.wait_here(plan, &mut check)?,
            };
            let is_over = |deadline: u64| deadline <= self.kernel.now_ns();
            // Otherwise the engine at which it was made has died.
            if found.is_some() {
                self.engines.on_waited(plan.subject);
            }
            if found.is_some() || plan.deadline_ns.is_some_and(is_over) {
                return Ok(found);
            }
        }
    }

    #[inline]
    pub(crate) fn wait_here<T>(
        &self,
        plan: &Plan<'_>,
        mut check: impl FnMut(Look) -> Result<Option<T>, Divert>,
    ) -> Result<Option<T>, Divert> {
        let attachment = self.attachment_for(plan.subject);
        let station = attachment
            .as_ref()
            .map_or(&self.engines.station, |attachment| &attachment.station);
        let thread = self.kernel.thread();
        self.undo_abandoned(station, attachment.as_deref(), thread);
        let begun_ns = self.kernel.now_ns();
        // Held answers may wait for those to what has been received already.
        if station.answers.may_wait(thread, begun_ns) {
            let (kernel, now_ns) = (Ask::Later, begun_ns);
            if let Some(found) = check(Look { kernel, now_ns })? {
                return Ok(Some(found));
            }
        }
        station.answers.take(thread);
        station.batch.end(thread);
        let mut at = WaitContext {
            plan,
            station,
            elsewhere: attachment
                .as_ref()
                .filter(|_| !Arc::ptr_eq(station, &self.engines.station)),
            thread,
            is_bystander: false,
            begun_ns,
            woke_ns: Cell::new(0),
        };
        if plan
            .deadline_ns
            .is_some_and(|deadline| deadline <= begun_ns)
        {
            if let Some(attachment) = &attachment {
                attachment.note_first_driver(thread);
            }
            return Self::only_look(attachment.as_deref(), begun_ns, &mut check);
        }
        let sleepers = &station.sleepers;
        if attachment.is_some() {
            at.is_bystander = at.enter_lead() == Role::Bystander;
        }
        let outcome = self.wait_from(&at, attachment.as_ref(), &mut check);
        // A thread that begins to sleep after this finds the lead free.
        if sleepers.lead.leave(thread) && !sleepers.is_empty() {
            sleepers.pass_on();
        }
        outcome
    }

    /// Returns the engine of a wait that may have begun before there was one. `None`: the engine of
    /// the wait has died, and there is another one.
    fn attachment_at(&self, at: &WaitContext<'_>) -> Option<Option<Arc<Attachment>>> {
        match at.elsewhere {
            Some(attachment) if attachment.is_dead() => None,
            Some(attachment) => Some(Some(Arc::clone(attachment))),
            None => Some(self.living_attachment()),
        }
    }

    /// Handles a call whose time is over before it begins.
    fn only_look<T>(
        attachment: Option<&Attachment>,
        now_ns: u64,
        check: &mut impl FnMut(Look) -> Result<Option<T>, Divert>,
    ) -> Result<Option<T>, Divert> {
        if let Some(attachment) = attachment {
            attachment.turn(now_ns);
        }
        let kernel = Ask::Due;
        let found = check(Look { kernel, now_ns })?;
        if let (None, Some(attachment)) = (&found, attachment) {
            attachment.relieve();
        }
        Ok(found)
    }

    fn wait_from<T>(
        &self,
        at: &WaitContext<'_>,
        attachment: Option<&Arc<Attachment>>,
        check: &mut impl FnMut(Look) -> Result<Option<T>, Divert>,
    ) -> Result<Option<T>, Divert> {
        let would_nap = |attachment: &Arc<Attachment>| {
            at.station.spin.gather_ns() > 0 && attachment.driver.would_nap()
        };
        let naps = attachment.is_some_and(would_nap);
        match attachment {
            Some(attachment) if naps => attachment.commands(),
            Some(attachment) => attachment.turn(at.begun_ns),
            None => {}
        }
        let budget_ns = self.spin_budget_ns(at);
        // For a thread that sleeps at once, the sleep itself polls the kernel's descriptors.
        let kernel = if budget_ns == 0 {
            Ask::Later
        } else {
            Ask::Soon
        };
        let now_ns = at.begun_ns;
        if let Some(value) = check(Look { kernel, now_ns })? {
            return Ok(Some(value));
        }
        let before = self.kernel.interruptions();
        // The preparations for the sleep see the events that the next turn would bring.
        let is_turned = attachment.is_some();
        let spun = match budget_ns {
            0 => Spun::InVain(now_ns),
            _ => self.spin(at, attachment.map(|it| &**it), budget_ns, before, check)?,
        };
        match spun {
            Spun::Found(value) => {
                at.station.spin.on_hit();
                Ok(Some(value))
            }
            Spun::TimedOut => Ok(None),
            Spun::InVain(since_ns) => {
                let outcome = self.sleep(at, before, is_turned, since_ns, check);
                let slept_ns = at.woke_ns.get().saturating_sub(since_ns);
                // Not a turn before it, nor the time without a processor.
                let spun_ns = since_ns.saturating_sub(at.begun_ns).min(budget_ns);
                at.station.spin.on_sleep(spun_ns, slept_ns);
                outcome
            }
        }
    }

    /// Returns how long a wait may spin. Not at all while other engines of the program have work
    /// for the processors, unless the time was set by an option.
    #[inline]
    fn spin_budget_ns(&self, at: &WaitContext<'_>) -> u64 {
        let Station { spin, number, .. } = at.station;
        if at.is_bystander {
            return 0;
        }
        let is_crowded =
            || self.engines.homes.is_any() && self.spinners.is_crowded(*number, at.begun_ns);
        match spin.budget_ns() {
            0 => 0,
            _ if !spin.is_fixed() && is_crowded() => 0,
            budget_ns => budget_ns,
        }
    }

    fn spin<T>(
        &self,
        at: &WaitContext<'_>,
        attachment: Option<&Attachment>,
        budget_ns: u64,
        before: Interruptions,
        check: &mut impl FnMut(Look) -> Result<Option<T>, Divert>,
    ) -> Result<Spun<T>, Divert> {
        let begun = at.begun_ns;
        // Without an engine nothing changes while we spin.
        let Some(attachment) = attachment else {
            return Ok(Spun::InVain(begun));
        };
        let until = match at.station.spin.is_fixed() || attachment.driver.may_spin() {
            true => begun + budget_ns,
            false => return Ok(Spun::InVain(begun)),
        };
        let place = self.spinners.enter(begun, until);
        if place.is_none() && !at.station.spin.is_fixed() {
            return Ok(Spun::InVain(begun));
        }
        let mut looked = begun;
        loop {
            let now = self.kernel.now_ns();
            if at.plan.deadline_ns.is_some_and(|deadline| deadline <= now) {
                return Ok(Spun::TimedOut);
            }
            if now >= until {
                return Ok(Spun::InVain(now));
            }
            let is_interrupted = at.plan.is_interrupted(&*self.kernel, before);
            attachment.turn(now);
            let kernel = if is_interrupted || now - looked >= KERNEL_LOOK_NS {
                looked = now;
                Ask::Due
            } else {
                Ask::Later
            };
            let found = check(Look {
                kernel,
                now_ns: now,
            })?;
            if let Some(value) = found {
                return Ok(Spun::Found(value));
            }
            if is_interrupted {
                return Err(Errno::EINTR.into());
            }
            std::hint::spin_loop();
        }
    }

    fn sleep<T>(
        &self,
        at: &WaitContext<'_>,
        before: Interruptions,
        is_turned: bool,
        now_ns: u64,
        check: &mut impl FnMut(Look) -> Result<Option<T>, Divert>,
    ) -> Result<Option<T>, Divert> {
        let waiter = at.station.sleepers.pool.take();
        let outcome = self.sleep_as(&waiter, at, before, is_turned, now_ns, check);
        if let Some(sleeper) = at.station.sleepers.remove(&waiter) {
            match at.plan.is_part {
                true => sleeper.unsubscribe(&mut |_| {}),
                false => self.leave(sleeper),
            }
        }
        at.station.sleepers.pass_on();
        at.station.sleepers.pool.give(waiter);
        outcome
    }

    fn sleep_as<T>(
        &self,
        waiter: &Arc<Waiter>,
        at: &WaitContext<'_>,
        before: Interruptions,
        mut is_turned: bool,
        mut now: u64,
        check: &mut impl FnMut(Look) -> Result<Option<T>, Divert>,
    ) -> Result<Option<T>, Divert> {
        let mut kernel = Ask::Later;
        let mut rest = Rest::new(at.plan);
        loop {
            // A handler that waited itself has undone the wait it interrupted.
            if at
                .station
                .sleepers
                .enter(at.thread, waiter, || at.plan.subject.kept())
            {
                self.come_back_to(at.plan.subject);
            }
            // Another thread may have attached, or the engine died, since the last look.
            self.seek(at.plan.subject);
            let Some(attachment) = self.attachment_at(at) else {
                return Ok(None);
            };
            let is_due = !std::mem::take(&mut is_turned);
            let mut role = Role::Bystander;
            if let Some(attachment) = &attachment {
                role = at.enter_lead();
                if is_due {
                    attachment.turn(now);
                }
            }
            let now_ns = now;
            if let Some(value) = check(Look { kernel, now_ns })? {
                return Ok(Some(value));
            }
            if at.plan.deadline_ns.is_some() {
                // A turn may have taken a while.
                now = self.kernel.now_ns();
            }
            if let Some(last) = at.plan.last_look(&*self.kernel, before, now, check)? {
                return Ok(last);
            }
            let starved = attachment.as_deref().and_then(Attachment::relieve);
            if !waiter.fall_asleep() {
                waiter.wake_up(false);
                (kernel, now) = (Ask::Due, self.kernel.now_ns());
                continue;
            }
            let left = at.plan.deadline_ns.map(|deadline| deadline - now);
            let left = least(left, starved);
            let left = least(left, self.engines.absence.sleep_ns());
            let limit = (rest.limit(left), rest);
            let attachment = attachment.as_deref();
            let slept = at.sleep_once(waiter, attachment, role, &*self.kernel, now, limit);
            waiter.wake_up(slept.rang);
            kernel = slept.kernel;
            let slept_at = now;
            now = slept.woke_ns.unwrap_or_else(|| self.kernel.now_ns());
            at.woke_ns.set(now);
            if slept.end == SleepEnd::Stop && self.kernel.interruptions() == before {
                let found = check(Look::due(now))?;
                return found.map(Some).ok_or(Divert::Stopped);
            }
            rest.on_slept(slept.end, now.saturating_sub(slept_at));
        }
    }
}

enum Spun<T> {
    Found(T),
    TimedOut,
    /// The time when it gave up.
    InVain(u64),
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Returns when a call with this timeout gives up.
pub(crate) fn deadline_of(kernel: &dyn Kernel, timeout: Option<Duration>) -> Option<u64> {
    let timeout = u64::try_from(timeout?.as_nanos()).unwrap_or(u64::MAX);
    Some(kernel.now_ns().saturating_add(timeout))
}
