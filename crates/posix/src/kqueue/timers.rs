//! EVFILT_TIMER.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use slipstack_mem::raised;

use crate::errno::Errno;
use crate::kqueue::at::KqueueRef;
use crate::kqueue::note::Note;
use crate::kqueue::others::ALARM;
use crate::kqueue::queue::{Clock, Inner};
use crate::kqueue::{
    EV_CLEAR, EV_ONESHOT, EVFILT_TIMER, Kevent, NOTE_ABSTIME, NOTE_MSECONDS, NOTE_NSECONDS,
    NOTE_SECONDS, NOTE_USECONDS,
};

const NS_PER_S: u64 = 1_000_000_000;

/// A time of a change in nanoseconds; without a unit they are milliseconds.
fn length_ns(change: &Kevent) -> Result<u64, Errno> {
    const UNITS: u32 = NOTE_SECONDS | NOTE_MSECONDS | NOTE_USECONDS | NOTE_NSECONDS;
    let ns = match change.fflags & UNITS {
        NOTE_SECONDS => NS_PER_S,
        0 | NOTE_MSECONDS => 1_000_000,
        NOTE_USECONDS => 1000,
        NOTE_NSECONDS => 1,
        _ => return Err(Errno::EINVAL),
    };
    if change.fflags & !(UNITS | NOTE_ABSTIME) != 0 {
        return Err(Errno::EINVAL);
    }
    let count = u64::try_from(change.data).map_err(|_| Errno::EINVAL)?;
    Ok(count.saturating_mul(ns))
}

impl KqueueRef<'_> {
    /// Sets a timer, again if it runs already.
    pub(super) fn set_timer(self, inner: &mut Inner, change: &Kevent) -> Result<(), Errno> {
        let length = length_ns(change)?;
        let now = self.host.kernel().now_ns();
        let is_absolute = change.fflags & NOTE_ABSTIME != 0;
        let due_ns = match is_absolute {
            true => {
                let today = SystemTime::now().duration_since(UNIX_EPOCH);
                let today = today.map_or(0, |today| today.as_nanos() as u64);
                now.saturating_add(length.saturating_sub(today))
            }
            false => now.saturating_add(length.max(1)),
        };
        let is_once = is_absolute || change.flags & EV_ONESHOT != 0;
        let period_ns = if is_once { 0 } else { length.max(1) };
        if inner.alarm.is_none() {
            self.make_alarm(inner)?;
        }
        let mut note = Note::new(change);
        // filt_timerattach()
        note.flags |= EV_CLEAR;
        if is_absolute {
            note.flags |= EV_ONESHOT;
        }
        inner.forget((EVFILT_TIMER, change.ident));
        inner.others.insert((EVFILT_TIMER, change.ident), note);
        inner
            .clocks
            .insert(change.ident, Clock { due_ns, period_ns });
        inner.due.insert((due_ns, change.ident));
        self.rearm(inner);
        Ok(())
    }

    fn make_alarm(self, inner: &mut Inner) -> Result<(), Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let alarm = raised(timerfd_create(TimerfdClockId::Monotonic, flags)?);
        self.watch_inside(alarm.as_fd(), ALARM)?;
        inner.alarm = Some(alarm);
        Ok(())
    }

    /// The alarm rings when the first timer is due.
    pub(super) fn rearm(self, inner: &mut Inner) {
        let next = inner.due.first().map_or(u64::MAX, |(due, _)| *due);
        self.queue.next_due_ns.store(next, Ordering::Release);
        if next == inner.alarm_ns {
            return;
        }
        inner.alarm_ns = next;
        let Some(alarm) = &inner.alarm else {
            return;
        };
        let left = match next {
            u64::MAX => 0,
            next => next.saturating_sub(self.host.kernel().now_ns()).max(1),
        };
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let value = Timespec {
            tv_sec: (left / NS_PER_S).cast_signed(),
            tv_nsec: (left % NS_PER_S).cast_signed(),
        };
        let time = Itimerspec {
            it_interval: zero,
            it_value: value,
        };
        let _ = timerfd_settime(alarm, TimerfdTimerFlags::empty(), &time);
    }

    /// Counts expired timers.
    pub(super) fn run_timers(self, inner: &mut Inner) {
        let now = self.host.kernel().now_ns();
        if self.queue.next_due_ns.load(Ordering::Acquire) > now {
            return;
        }
        while let Some((due, ident)) = inner.due.first().copied().filter(|(due, _)| *due <= now) {
            inner.due.remove(&(due, ident));
            let Some(clock) = inner.clocks.get_mut(&ident) else {
                continue;
            };
            let times = match clock.period_ns {
                0 => 1,
                period => 1 + (now - due) / period,
            };
            if clock.period_ns != 0 {
                clock.due_ns = due.saturating_add(times.saturating_mul(clock.period_ns));
                inner.due.insert((clock.due_ns, ident));
            }
            if let Some(note) = inner.others.get_mut(&(EVFILT_TIMER, ident)) {
                note.count = note.count.saturating_add(times.cast_signed());
            }
            inner.activate((EVFILT_TIMER, ident));
        }
        self.rearm(inner);
    }
}
