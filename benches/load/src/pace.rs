//! The time at which the next request is due.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// The grain of an open-loop schedule: requests due within one tick leave together.
const TICK: Duration = Duration::from_micros(100);

/// An open-loop schedule with a timer descriptor that becomes readable every tick.
pub struct Pace {
    timer: OwnedFd,
    start: Instant,
    interval: Duration,
    issued: u32,
}

impl Pace {
    pub fn new(rate: u32, start: Instant) -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        let interval = Duration::from_secs(1) / rate.max(1);
        let tick = interval.max(TICK);
        let spec = Timespec {
            tv_sec: tick.as_secs().cast_signed(),
            tv_nsec: tick.subsec_nanos().into(),
        };
        let timing = Itimerspec {
            it_interval: spec,
            it_value: spec,
        };
        timerfd_settime(timer.as_fd(), TimerfdTimerFlags::empty(), &timing)?;
        Ok(Pace {
            timer,
            start,
            interval,
            issued: 0,
        })
    }

    pub fn raw_fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }

    /// Takes the expiration count so that the descriptor can fire again.
    pub fn rearm(&self) {
        let mut count = [0_u8; 8];
        let _ = rustix::io::read(&self.timer, &mut count);
    }

    /// The due time of the next request, once it has come.
    pub fn take_due(&mut self, now: Instant) -> Option<Instant> {
        let due = self.start + self.interval * self.issued;
        if due > now {
            return None;
        }
        self.issued += 1;
        Some(due)
    }
}
