//! The stand-in for a program that is away: ACKs leave within 8 ms (20 ms at first if the program
//! has always been prompt), and retransmissions and keep-alives go on while the program computes or
//! sleeps.
//!
//! The thread is in one of three modes and is never woken per request:
//!
//! - **timed**: checks whether there was a turn in the last 4 ms, as often as [`Pace`] says;
//! - **away**: the program's last turn is too old; the thread sleeps on the device and runs the
//!   turns itself, until the program is seen driving again;
//! - **parked**: the program stays in one and the same wait (and so drives).
//!
//! The ticker also watches the control connection, so that the loss of the keeper costs nothing to
//! notice.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipstack_channel::Closed;
use slipstack_mem::thread::{Quiet, spawn_quiet, thread_id};
use slipstack_mem::{Descriptor, Doorbell, now_ns};

use super::Shared;
use super::pace::{Pace, TICK_NS};

/// Time of the next attempt after another thread had the engine.
const RETRY_NS: u64 = 1_000_000;

/// Time without a turn of the program's after which an engine may be without use.
const UNUSED_NS: u64 = 1_000_000_000;
/// The longest pause between looks whether it is: one that is used but not driven is asked less
/// and less often.
const LOOK_NS_MAX: u64 = 64_000_000_000;

/// Whether the ticker sleeps until it is called.
#[derive(Debug, Default)]
struct Parking(AtomicBool);

impl Parking {
    /// Announces the parked mode, then returns whether it may be entered: a program that leaves its
    /// wait before the check sees the ticker parked, and one that left it sooner is not waiting any
    /// more.
    fn park(&self, is_waiting: impl FnOnce() -> bool) -> bool {
        self.0.store(true, Ordering::SeqCst);
        let may_park = is_waiting();
        if !may_park {
            self.0.store(false, Ordering::SeqCst);
        }
        may_park
    }

    /// Returns whether the ticker has to be called.
    fn unpark(&self) -> bool {
        self.0.load(Ordering::SeqCst) && self.0.swap(false, Ordering::SeqCst)
    }

    fn is_parked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

pub(super) struct Ticker {
    handle: Quiet,
    /// The kernel's id of the thread.
    thread: Arc<AtomicU32>,
    bell: Doorbell,
    parking: Arc<Parking>,
}

impl Ticker {
    pub(super) fn start(shared: Arc<Shared>) -> std::io::Result<Ticker> {
        let bell = Doorbell::new()?;
        let parking = Arc::new(Parking::default());
        let thread = Arc::new(AtomicU32::new(0));
        let mut watch = Watch {
            shared,
            bell: bell.clone(),
            parking: Arc::clone(&parking),
            looks: Cell::default(),
            pace: Pace::NEW,
            closed: Cell::default(),
        };
        let own = Arc::clone(&thread);
        let handle = spawn_quiet("slipstack-tick", move || {
            own.store(thread_id(), Ordering::Relaxed);
            watch.run();
            let closed = watch.closed.take();
            drop(watch);
            if let Some(closed) = closed {
                closed();
            }
        })?;
        Ok(Ticker {
            handle,
            thread,
            bell,
            parking,
        })
    }

    /// The program has left a wait. Costs one load unless the ticker is parked.
    pub(super) fn unpark(&self) {
        if self.parking.unpark() {
            self.bell.ring();
        }
    }

    /// Waits for its end, unless this is the ticker itself, which has given the engine back.
    pub(super) fn end(self) {
        self.bell.ring();
        if self.thread.load(Ordering::Relaxed) != thread_id() {
            self.handle.join();
        }
    }
}

/// Looks whether an engine that no thread drives is used at all.
#[derive(Clone, Copy, Debug, Default)]
struct Looks {
    /// Time of the next; 0 = there has been none.
    next_ns: u64,
    pause_ns: u64,
}

impl Looks {
    /// The looks at this time, and whether one is due.
    fn at(self, now_ns: u64) -> (Looks, bool) {
        if self.next_ns != 0 && now_ns < self.next_ns {
            return (self, false);
        }
        let pause_ns = (2 * self.pause_ns).clamp(UNUSED_NS, LOOK_NS_MAX);
        let looks = Looks {
            next_ns: now_ns + pause_ns,
            pause_ns,
        };
        (looks, self.next_ns != 0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Timed { pause_ns: u64 },
    Away,
    Parked,
}

struct Watch {
    shared: Arc<Shared>,
    bell: Doorbell,
    parking: Arc<Parking>,
    looks: Cell<Looks>,
    pace: Pace,
    /// Called once the engine is closed, if it was given back.
    closed: Cell<Option<Closed>>,
}

impl Watch {
    fn run(&mut self) {
        let mut mode = self.timed();
        while !self.shared.is_over.load(Ordering::Acquire) {
            mode = match mode {
                Mode::Timed { pause_ns } => {
                    self.sleep(Some(pause_ns), None);
                    self.look()
                }
                Mode::Away => self.stand_in(),
                Mode::Parked => {
                    self.sleep(None, None);
                    match self.parking.is_parked() {
                        true => Mode::Parked,
                        false => self.timed(),
                    }
                }
            };
        }
    }

    /// The next look, as if the program had just made a turn.
    fn timed(&self) -> Mode {
        Mode::Timed {
            pause_ns: self.pace.pause_ns(0),
        }
    }

    fn look(&mut self) -> Mode {
        if !self.shared.sleepers.is_any() {
            let mode = self.mode_of_age();
            if mode != Mode::Away {
                self.pace.on_prompt();
            }
            return mode;
        }
        let driven_at = self.shared.driven_at.load(Ordering::Relaxed);
        let is_long = self.pace.on_waiting(driven_at);
        match is_long && self.parking.park(|| self.shared.sleepers.is_any()) {
            true => Mode::Parked,
            false => self.timed(),
        }
    }

    /// Chooses the mode by the age of the program's last turn.
    fn mode_of_age(&self) -> Mode {
        let driven_at = self.shared.driven_at.load(Ordering::Relaxed);
        let age_ns = now_ns().saturating_sub(driven_at);
        match age_ns < TICK_NS {
            true => Mode::Timed {
                pause_ns: self.pace.pause_ns(age_ns),
            },
            false => Mode::Away,
        }
    }

    /// One turn in the program's place, then sleep until there is more to do.
    fn stand_in(&mut self) -> Mode {
        if self.shared.sleepers.is_any() {
            self.looks.take();
            return self.timed();
        }
        if let timed @ Mode::Timed { .. } = self.mode_of_age() {
            self.looks.take();
            return timed;
        }
        let Some(mut engine) = self.shared.engine.try_lock() else {
            return Mode::Timed { pause_ns: RETRY_NS };
        };
        let turn = engine.stand_in(slipstack_stack::Instant(now_ns()));
        // A program that holds something sees the sleep, or is seen to hold it.
        self.shared.ticker_until.store(u64::MAX, Ordering::Release);
        fence(Ordering::SeqCst);
        let is_busy = turn.progress || engine.announce_sleep() || engine.has_work();
        let deadline = engine.next_deadline();
        let has_news = engine.has_unread_events();
        let device = engine.poll_fd();
        // Published before the lock is released: a later turn of the program sees it.
        let until = deadline.map_or(u64::MAX, |at| at.0);
        let until = if is_busy { 0 } else { until };
        self.shared.ticker_until.store(until, Ordering::Release);
        drop(engine);
        if turn.progress {
            self.pace.on_due();
        }
        if has_news {
            match &self.shared.on_unseen_events.get() {
                // The program came and fell asleep while this thread had the engine.
                _ if self.shared.sleepers.is_any() => self.shared.bell.ring(),
                // Threads of it may sleep all the same, and wait for one that is away.
                Some(on_unseen_events) => on_unseen_events(),
                None => {}
            }
        }
        self.shared.settle();
        if is_busy {
            return Mode::Away;
        }
        let look_ns = self.look_for_use();
        if self.shared.is_over() {
            return Mode::Away;
        }
        let now = now_ns();
        let until_ns = deadline.map_or(look_ns, |at| at.0.min(look_ns));
        let timeout_ns = (until_ns != u64::MAX).then(|| until_ns.saturating_sub(now));
        self.sleep(timeout_ns, Some(device));
        self.shared.ticker_until.store(0, Ordering::Release);
        Mode::Away
    }

    /// Tells the program, now and then, that none of its threads drives the engine, which it may
    /// end while the keeper is there to take it. Returns the time of the next such look.
    fn look_for_use(&self) -> u64 {
        let Some(on_unused) = self.shared.on_unused.get() else {
            return u64::MAX;
        };
        let now_ns = now_ns();
        let (looks, is_due) = self.looks.get().at(now_ns);
        self.looks.set(looks);
        let driven_at = self.shared.driven_at.load(Ordering::Relaxed);
        let is_idle = now_ns.saturating_sub(driven_at) >= UNUSED_NS;
        if is_due && is_idle && !self.shared.is_alone.load(Ordering::Relaxed) {
            self.closed.set(on_unused());
        }
        looks.next_ns
    }

    /// Sleeps on the control connection and the ticker's bell, and while the program is away also
    /// on the device and the engine's bell.
    fn sleep(&self, timeout_ns: Option<u64>, device: Option<RawFd>) {
        let control = self.shared.supervisor.control();
        self.shared.note_keeper(control.is_none());
        let with_device = device.is_some();
        let device = device.and_then(Descriptor::new);
        let mut fds = vec![PollFd::new(&self.bell, PollFlags::IN)];
        if let Some(control) = &control {
            fds.push(PollFd::new(&**control, PollFlags::IN));
        }
        if with_device {
            fds.push(PollFd::new(&self.shared.bell, PollFlags::IN));
            if let Some(device) = &device {
                fds.push(PollFd::from_borrowed_fd(device.as_fd(), PollFlags::IN));
            }
        }
        let timeout = timeout_ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000).cast_signed(),
            tv_nsec: (ns % 1_000_000_000).cast_signed(),
        });
        if !matches!(poll(&mut fds, timeout.as_ref()), Ok(ready) if ready > 0) {
            return;
        }
        let is_rung = |at: usize| !fds[at].revents().is_empty();
        let (own_bell, on_control) = (is_rung(0), control.is_some() && is_rung(1));
        let engine_bell = with_device && is_rung(1 + usize::from(control.is_some()));
        drop(fds);
        if own_bell {
            self.bell.clear();
        }
        if engine_bell {
            self.shared.clear_bell();
        }
        if on_control {
            self.shared.supervisor.on_control();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::asleep::Asleep;
    use super::*;

    #[test]
    fn an_engine_that_is_used_but_not_driven_is_looked_at_less_and_less_often() {
        let (mut looks, mut dues) = (Looks::default(), Vec::new());
        for second in 1..=300 {
            let is_due;
            (looks, is_due) = looks.at(second * UNUSED_NS);
            dues.extend(is_due.then_some(second));
        }
        assert_eq!(dues, [2, 4, 8, 16, 32, 64, 128, 192, 256]);
    }

    #[test]
    fn a_program_that_blocks_while_the_ticker_parks_is_noticed_or_wakes_it() {
        for leaves_before_the_look in [true, false] {
            let (asleep, parking) = (Asleep::default(), Parking::default());
            asleep.enter();
            let mut has_called = false;
            let mut leave = || {
                asleep.turn_back();
                has_called = parking.unpark();
            };
            let has_parked = parking.park(|| {
                if leaves_before_the_look {
                    leave();
                    return asleep.is_any();
                }
                let is_any = asleep.is_any();
                leave();
                is_any
            });
            assert!(!has_parked || has_called);
        }
    }
}
