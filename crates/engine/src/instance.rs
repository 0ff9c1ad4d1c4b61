//! The instance placement: a loop in a process of its own drives the engine for any number of
//! programs.
//!
//! With work to do it runs turns; idle, it spins for a bounded time and then sleeps on the device,
//! the doorbell that clients and other engines ring, and the control connections.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::thread::sched_getcpu;
use slipstack_channel::Spin;
use slipstack_mem::{Descriptor, Doorbell, now_ns};
use slipstack_stack::Instant;

use crate::engine::Engine;

/// Longest adaptive spin: the cost of a blocking wake-up across cores.
const SPIN_MAX_NS: u64 = 65_000;
/// Interval at which a busy loop checks the control connections.
const RECEPTION_EVERY_NS: u64 = 1_000_000;

const DEVICE: u64 = 0;
const BELL: u64 = 1;
const RECEPTION: u64 = 2;

/// The side of an instance that admits and dismisses programs.
pub trait Reception {
    /// Readable when [`Reception::serve`] has something to do.
    fn as_fd(&self) -> BorrowedFd<'_>;

    /// Attaches and detaches clients and answers questions. `Break` ends the loop.
    fn serve(&mut self, engine: &mut Engine, now: Instant) -> ControlFlow<()>;

    /// Time at which it is to be called without being readable.
    fn next_deadline(&self) -> Option<Instant>;
}

/// Runs until the reception ends it.
///
/// # Errors
/// The kernel refuses the descriptors or the wait.
pub fn run(
    engine: &mut Engine,
    bell: &Doorbell,
    spin: Spin,
    reception: &mut dyn Reception,
) -> io::Result<()> {
    let mut waiter = Waiter::new(engine, bell, reception.as_fd())?;
    let mut pace = Pace::new(spin, now_ns());
    let mut looked_at = 0;
    loop {
        let now = now_ns();
        if engine.turn(Instant(now)).progress {
            pace.on_work(now);
        }
        if now.saturating_sub(looked_at) >= RECEPTION_EVERY_NS {
            looked_at = now;
            let is_due = reception.next_deadline().is_some_and(|at| at.0 <= now);
            if (is_due || waiter.is_reception_ready(reception.as_fd()))
                && reception.serve(engine, Instant(now)).is_break()
            {
                return Ok(());
            }
        }
        if !pace.may_sleep(now, || engine.meets_programs(sched_getcpu())) {
            std::hint::spin_loop();
            continue;
        }
        if waiter.renewals != engine.device_renewals() {
            // The former device's descriptors may live on in other processes.
            waiter = Waiter::new(engine, bell, reception.as_fd())?;
        }
        let woken = waiter.sleep(engine, reception.next_deadline())?;
        let now = now_ns();
        match woken {
            Woken::Awake => {}
            Woken::ByReception => looked_at = 0,
            // A sleep sees the control connections as well as a look does.
            Woken::Otherwise => looked_at = now,
        }
        pace.on_wake(now);
    }
}

/// The end of a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// A sleep that did not begin, because there was work.
    Awake,
    /// The reception is ready, or its deadline is over.
    ByReception,
    Otherwise,
}

struct Waiter {
    epoll: std::os::fd::OwnedFd,
    /// The device, while it can wake us.
    device: Option<Descriptor>,
    /// Number of the engine's changes of device when this was made.
    renewals: u32,
}

impl Waiter {
    fn new(engine: &Engine, bell: &Doorbell, reception: BorrowedFd<'_>) -> io::Result<Waiter> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let add =
            |fd: BorrowedFd<'_>, data, what| epoll::add(&epoll, fd, EventData::new_u64(data), what);
        let device = Descriptor::new(engine.poll_fd());
        if let Some(device) = &device {
            add(device.as_fd(), DEVICE, EventFlags::IN)?;
        }
        // Each ring is an event of its own, so that the bell never needs to be cleared.
        add(bell.as_fd(), BELL, EventFlags::IN | EventFlags::ET)?;
        add(reception, RECEPTION, EventFlags::IN)?;
        let renewals = engine.device_renewals();
        Ok(Waiter {
            epoll,
            device,
            renewals,
        })
    }

    fn is_reception_ready(&self, reception: BorrowedFd<'_>) -> bool {
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(
            reception,
            rustix::event::PollFlags::IN,
        )];
        matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(1))
    }

    /// Sleeps until something comes or the next deadline, the reception's too.
    fn sleep(&mut self, engine: &mut Engine, reception: Option<Instant>) -> io::Result<Woken> {
        if engine.poll_fd() < 0
            && let Some(device) = self.device.take()
        {
            // The device has been deleted.
            epoll::delete(&self.epoll, device.as_fd())?;
        }
        engine.set_sleeping(true);
        if engine.has_work() {
            engine.set_sleeping(false);
            return Ok(Woken::Awake);
        }
        engine.pause(Instant(now_ns()));
        let deadlines = [engine.next_deadline(), reception];
        let timeout = deadlines.into_iter().flatten().min().map(|at| {
            let ns = at.0.saturating_sub(now_ns());
            rustix::event::Timespec {
                tv_sec: (ns / 1_000_000_000).cast_signed(),
                tv_nsec: (ns % 1_000_000_000).cast_signed(),
            }
        });
        let mut events = Vec::with_capacity(4);
        let waited = epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            timeout.as_ref(),
        );
        engine.set_sleeping(false);
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = events.iter().any(|event| event.data.u64() == RECEPTION);
        let is_due = || reception.is_some_and(|at| at.0 <= now_ns());
        Ok(match is_ready || is_due() {
            true => Woken::ByReception,
            false => Woken::Otherwise,
        })
    }
}

/// Time at which to stop spinning.
struct Pace {
    spin: Spin,
    worked_at: u64,
    /// Moving average of the pauses between pieces of work.
    gap_ns: u64,
    /// Found in this pause: a program has to run on our processor, so spinning keeps it from it.
    is_in_the_way: Option<bool>,
}

impl Pace {
    fn new(spin: Spin, now: u64) -> Pace {
        Pace {
            spin,
            worked_at: now,
            gap_ns: SPIN_MAX_NS,
            is_in_the_way: None,
        }
    }

    fn on_work(&mut self, now: u64) {
        self.is_in_the_way = None;
        let gap = now.saturating_sub(self.worked_at).min(16 * SPIN_MAX_NS);
        self.gap_ns = self.gap_ns - self.gap_ns / 8 + gap / 8;
        self.worked_at = now;
    }

    fn on_wake(&mut self, now: u64) {
        // A sleep ends a pause, so the check is repeated afterwards.
        self.is_in_the_way = None;
        let gap = now.saturating_sub(self.worked_at).min(16 * SPIN_MAX_NS);
        self.gap_ns = self.gap_ns - self.gap_ns / 8 + gap / 8;
        self.worked_at = now;
    }

    /// `look`: whether a program shares our processor; called once in a pause.
    fn may_sleep(&mut self, now: u64, look: impl FnOnce() -> bool) -> bool {
        let idle = now.saturating_sub(self.worked_at);
        match self.spin {
            Spin::FixedUs(us) => idle >= u64::from(us) * 1_000,
            Spin::Adaptive if *self.is_in_the_way.get_or_insert_with(look) => true,
            Spin::Adaptive if self.gap_ns > 2 * SPIN_MAX_NS => idle >= SPIN_MAX_NS / 16,
            Spin::Adaptive => idle >= SPIN_MAX_NS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adaptive_loop_spins_longer_only_while_work_arrives_soon() {
        let mut pace = Pace::new(Spin::Adaptive, 0);
        assert!(!pace.may_sleep(SPIN_MAX_NS - 1, || false));
        let mut now = 0;
        for _ in 0..64 {
            now += 10 * SPIN_MAX_NS;
            pace.on_work(now);
        }
        assert!(pace.may_sleep(now + SPIN_MAX_NS / 16, || false));
        for _ in 0..64 {
            now += 1000;
            pace.on_work(now);
        }
        assert!(!pace.may_sleep(now + SPIN_MAX_NS / 2, || false));
    }

    #[test]
    fn a_fixed_spin_of_zero_sleeps_at_once() {
        assert!(Pace::new(Spin::FixedUs(0), 5).may_sleep(5, || false));
    }

    #[test]
    fn an_instance_on_its_programs_processor_does_not_spin() {
        let mut pace = Pace::new(Spin::Adaptive, 0);
        assert!(pace.may_sleep(1, || true));
        assert!(pace.may_sleep(2, || false), "asked once");
        pace.on_work(3);
        assert!(!pace.may_sleep(4, || false));
        let mut fixed = Pace::new(Spin::FixedUs(1), 0);
        assert!(!fixed.may_sleep(1, || true), "what is asked for is done");
    }
}
