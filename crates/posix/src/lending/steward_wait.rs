//! The steward's waiting: one kernel epoll set has its descriptors, and those that wake the engine.
//!
//! While it moves bytes it keeps the lead: if it passed the lead on after each event, it would wake
//! another thread of the program for every message.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use slipstack_channel::WaitOn;
use slipstack_mem::{Descriptor, PrivateFd, raised};

use crate::attachment::Attachment;
use crate::lending::lender::Lender;
use crate::ready::{BLIND_SLEEP_NS, NUDGED_SLEEP_NS, Waiter};

/// First key of the descriptors that the steward watches; smaller keys are the engine's two
/// descriptors and the doorbell.
pub(crate) const FIRST_KEY: u64 = 3;
const DOORBELL: u64 = 2;

/// Events taken at once.
const EVENTS_MAX: usize = 64;
/// Sleeps of at least this length may end a millisecond late, which is epoll's resolution.
const COARSE_NS: u64 = 8_000_000;

/// Time for which a steward without work waits for more before it ends: starting another one takes
/// longer than the fork of a small program.
const LINGER_NS: u64 = 20_000_000;

/// Way of checking the kernel's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelCheck {
    Glance,
    /// Sleeps until there is an event, or one was reported since [`StewardWait::note_news`].
    Sleep,
    /// Sleeps likewise, for [`LINGER_NS`] at most.
    Linger,
    /// Sleeps likewise, and drives the engine.
    Lead,
}

pub(crate) struct StewardWait {
    epoll: Arc<PrivateFd>,
    waiter: Arc<Waiter>,
    /// The engine whose descriptors are members, with these descriptors.
    engine: Option<(Arc<Attachment>, [RawFd; 2])>,
    has_claimed: bool,
    is_leading: bool,
}

/// A sleep that drives an engine.
struct LeadingSleep {
    attachment: Arc<Attachment>,
    wait_on: WaitOn,
    /// Time of the next attempt while a socket waits for memory.
    starved_ns: Option<u64>,
}

impl StewardWait {
    /// # Errors
    /// The process has no more descriptors.
    pub(crate) fn new(lender: &dyn Lender) -> rustix::io::Result<StewardWait> {
        let epoll = Arc::new(raised(epoll::create(epoll::CreateFlags::CLOEXEC)?));
        let waiter = lender.sleepers().pool.take();
        lender.note(epoll.as_raw_fd());
        lender.note(waiter.doorbell());
        let rest = StewardWait {
            epoll,
            waiter,
            engine: None,
            has_claimed: false,
            is_leading: false,
        };
        rest.watch_number(rest.waiter.doorbell(), DOORBELL, EventFlags::IN);
        Ok(rest)
    }

    pub(crate) fn waiter(&self) -> &Arc<Waiter> {
        &self.waiter
    }

    /// The kernel's set of the descriptors that wake the steward.
    pub(crate) fn watched(&self) -> &Arc<PrivateFd> {
        &self.epoll
    }

    pub(crate) fn end(mut self, lender: &dyn Lender) {
        self.stop_leading(lender);
        self.unwatch_number(self.waiter.doorbell());
        lender.forget(self.epoll.as_raw_fd());
        lender.forget(self.waiter.doorbell());
        lender.sleepers().pool.give(self.waiter);
    }

    pub(crate) fn watch(&self, fd: &OwnedFd, key: u64, what: EventFlags) -> rustix::io::Result<()> {
        epoll::add(&*self.epoll, fd, EventData::new_u64(key), what)
    }

    pub(crate) fn change_watch(&self, fd: &OwnedFd, key: u64, what: EventFlags) {
        let _ = epoll::modify(&*self.epoll, fd, EventData::new_u64(key), what);
    }

    /// Removes a descriptor before it is closed: a child that was forked a moment ago may still
    /// have a copy, which would keep it a member.
    pub(crate) fn unwatch(&self, fd: &OwnedFd) {
        let _ = epoll::delete(&*self.epoll, fd);
    }

    pub(crate) fn watch_number(&self, number: RawFd, key: u64, what: EventFlags) {
        if let Some(number) = Descriptor::new(number) {
            let key = EventData::new_u64(key);
            let _ = epoll::add(&*self.epoll, number.as_fd(), key, what);
        }
    }

    pub(crate) fn unwatch_number(&self, number: RawFd) {
        if let Some(number) = Descriptor::new(number) {
            let _ = epoll::delete(&*self.epoll, number.as_fd());
        }
    }

    /// All events reported so far are about to be handled.
    pub(crate) fn note_news(&self) {
        self.waiter.wake_up(false);
    }

    pub(crate) fn stop_leading(&mut self, lender: &dyn Lender) {
        self.leave_engine();
        self.is_leading = false;
        if std::mem::take(&mut self.has_claimed) {
            lender.sleepers().give_up_claim(&self.waiter);
        }
    }

    /// Calls `found` with the key and the events of each ready descriptor. A sleep ends after
    /// `limit_ns` at the latest.
    pub(crate) fn look(
        &mut self,
        lender: &dyn Lender,
        manner: KernelCheck,
        limit_ns: Option<u64>,
        mut found: impl FnMut(u64, EventFlags),
    ) {
        let sleeps = manner != KernelCheck::Glance && self.waiter.fall_asleep();
        let led = match manner {
            KernelCheck::Lead if sleeps => self.lead(lender),
            _ => Ok(None),
        };
        let left = match (&led, sleeps) {
            (Ok(Some(led)), true) => self.led_sleep(lender, led),
            (Ok(None), true) if manner == KernelCheck::Linger => Some(LINGER_NS),
            (Ok(None), true) if self.waiter.has_doorbell() => None,
            (Ok(None), true) => Some(BLIND_SLEEP_NS),
            (_, false) | (Err(Missed), _) => Some(0),
        };
        let left = left.into_iter().chain(limit_ns).min();
        let (mut has_come, mut has_rung) = ([false; 2], false);
        let mut events = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        for event in self.wait(&mut events, left) {
            match (event.data.u64(), event.flags) {
                (DOORBELL, _) => has_rung = true,
                (key @ 0..DOORBELL, _) => has_come[key as usize] = true,
                (key, flags) => found(key, flags),
            }
        }
        // Awake at once, so that events of the steward's own turn need not ring.
        if sleeps || has_rung {
            self.waiter.wake_up(has_rung);
        }
        if let Ok(Some(led)) = led {
            lender.sleepers().set_leader_until(0);
            let driver = &led.attachment.driver;
            driver.finish_wait(has_come, lender.now_ns());
        }
    }

    fn wait<'a>(
        &self,
        events: &'a mut [MaybeUninit<Event>],
        left_ns: Option<u64>,
    ) -> &'a mut [Event] {
        let mut timeout = left_ns.and_then(|ns| Timespec::try_from(Duration::from_nanos(ns)).ok());
        if left_ns.is_some_and(|ns| (1..COARSE_NS).contains(&ns)) {
            let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
            if rustix::event::poll(&mut fds, timeout.as_ref()) == Ok(0) {
                return &mut [];
            }
            timeout = Some(Timespec::default());
        }
        epoll::wait(&self.epoll, events, timeout.as_ref()).map_or(&mut [], |(events, _)| events)
    }

    /// Arms the engine's wake-ups. `None`: there is no engine, or another thread still leads.
    fn lead(&mut self, lender: &dyn Lender) -> Result<Option<LeadingSleep>, Missed> {
        let Some(attachment) = lender.living_attachment() else {
            self.leave_engine();
            return Ok(None);
        };
        if !self.is_leading {
            let thread = lender.thread();
            self.has_claimed = true;
            self.is_leading = lender.sleepers().claim_lead(thread, &self.waiter);
        }
        if !self.is_leading {
            return Ok(None);
        }
        attachment.note_driver(lender.thread());
        attachment.release_idle();
        let starved_ns = attachment.relieve();
        let wait_on = attachment.driver.prepare_wait(lender.now_ns(), 0);
        let wait_on = wait_on.ok_or(Missed)?;
        self.join_engine(&attachment, wait_on.fds);
        Ok(Some(LeadingSleep {
            attachment,
            wait_on,
            starved_ns,
        }))
    }

    fn led_sleep(&self, lender: &dyn Lender, led: &LeadingSleep) -> Option<u64> {
        let now = lender.now_ns();
        let nudged = lender.sleepers().was_nudged(now).then_some(NUDGED_SLEEP_NS);
        let limits = [led.wait_on.timeout_ns, led.starved_ns, nudged];
        let left = limits.into_iter().flatten().min();
        let until = left.map_or(u64::MAX, |left| now.saturating_add(left));
        lender.sleepers().set_leader_until(until);
        left
    }

    fn join_engine(&mut self, attachment: &Arc<Attachment>, fds: [RawFd; 2]) {
        let is_it = |(known, of): &(Arc<Attachment>, [RawFd; 2])| {
            Arc::ptr_eq(known, attachment) && *of == fds
        };
        if self.engine.as_ref().is_some_and(is_it) {
            return;
        }
        self.leave_engine();
        for (key, number) in (0..).zip(fds) {
            self.watch_number(number, key, EventFlags::IN);
        }
        self.engine = Some((Arc::clone(attachment), fds));
    }

    fn leave_engine(&mut self) {
        if let Some((_, fds)) = self.engine.take() {
            for number in fds {
                self.unwatch_number(number);
            }
        }
    }
}

/// Something has come before the sleep.
#[derive(Debug)]
struct Missed;
