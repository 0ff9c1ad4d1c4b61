//! One sleep in `ppoll`.

use std::time::Duration;

use slipstack_channel::WaitOn;

use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::process::wait::{Plan, least};
use crate::ready::{Ask, BLIND_SLEEP_NS, Waiter};

/// A sleep that has lasted so long is continued in one that a stop of the process ends. That one
/// costs a page fault when it ends, and is therefore nothing for a thread that has work to do.
const BUSY_NS: u64 = 20_000_000;

/// Kinds of the sleeps of one wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// A stop does not end the wait.
    Deaf,
    /// A stop ends the wait once it has slept for [`BUSY_NS`].
    Short,
    /// A stop ends the next sleep.
    Long,
}

impl Rest {
    pub(super) fn new(plan: &Plan<'_>) -> Rest {
        match plan.ends_when_stopped {
            true => Rest::Short,
            false => Rest::Deaf,
        }
    }

    /// Returns how long the next sleep may last, of `left_ns`.
    pub(super) fn limit(self, left_ns: Option<u64>) -> Option<u64> {
        match self {
            Rest::Short => least(left_ns, Some(BUSY_NS)),
            Rest::Deaf | Rest::Long => left_ns,
        }
    }

    pub(super) fn on_slept(&mut self, end: SleepEnd, slept_ns: u64) {
        *self = match (*self, end) {
            (Rest::Deaf, _) => Rest::Deaf,
            (_, SleepEnd::Time | SleepEnd::Event) if slept_ns >= BUSY_NS => Rest::Long,
            (before, SleepEnd::Time) => before,
            (_, SleepEnd::Event | SleepEnd::Stop) => Rest::Short,
        };
    }
}

/// The reason why a sleep is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SleepEnd {
    Event,
    Time,
    /// The process was stopped and continued, or has handled a signal.
    Stop,
}

/// The outcome of one sleep.
pub(super) struct Slept {
    /// The waiter's own doorbell ended it, or may have been rung.
    pub(super) rang: bool,
    /// Which of the driver's descriptors had something.
    pub(super) driver: [bool; 2],
    pub(super) kernel: Ask,
    /// The clock at its end; `None`: there was no sleep.
    pub(super) woke_ns: Option<u64>,
    pub(super) end: SleepEnd,
}

impl Slept {
    pub(super) const NOT_AT_ALL: Slept = Slept {
        rang: false,
        driver: [false; 2],
        // A thread that never sleeps has to poll the kernel's descriptors itself.
        kernel: Ask::Due,
        woke_ns: None,
        end: SleepEnd::Event,
    };
}

impl Plan<'_> {
    /// Sleeps until the waiter is rung, or one of the descriptors of the plan or the driver has
    /// something, for `left_ns` at most.
    pub(super) fn sleep_in_ppoll(
        &self,
        kernel: &dyn Kernel,
        waiter: &Waiter,
        wait_on: Option<&WaitOn>,
        (left_ns, rest): (Option<u64>, Rest),
    ) -> Slept {
        const ON_STACK: usize = 16;
        let readable = |fd: i32| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let driver = wait_on.map_or(&[][..], |wait_on| &wait_on.fds);
        let mine = std::iter::once(waiter.doorbell()).chain(driver.iter().copied());
        let all = mine.map(readable).chain(self.kernel.iter().copied());
        let count = 1 + driver.len() + self.kernel.len();
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
        let left_ns = match waiter.has_doorbell() {
            true => left_ns,
            false => least(left_ns, Some(BLIND_SLEEP_NS)),
        };
        let timeout = left_ns.map(Duration::from_nanos);
        let outcome = match rest {
            Rest::Long => kernel.ppoll_until_stopped(fds, timeout, self.mask),
            Rest::Deaf | Rest::Short => kernel.ppoll(fds, timeout, self.mask),
        };
        let woke_ns = Some(kernel.now_ns());
        let kernel = &fds[1 + driver.len()..];
        Slept {
            // A handler that ended the sleep has rung as well, unheard.
            rang: fds[0].revents != 0 || outcome.is_err(),
            driver: [1, 2].map(|at| at <= driver.len() && fds[at].revents != 0),
            kernel: match outcome {
                Ok(_) if kernel.iter().all(|fd| fd.revents == 0) => Ask::Nothing,
                _ => Ask::Due,
            },
            woke_ns,
            end: match outcome {
                Ok(0) => SleepEnd::Time,
                Err(Errno::EINTR) if rest == Rest::Long => SleepEnd::Stop,
                Ok(_) | Err(_) => SleepEnd::Event,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_the_sleeps_of_a_thread_that_events_wake_now_and_then() {
        let long = BUSY_NS + 1;
        for (slept, is_long) in [
            (&[(SleepEnd::Time, long)][..], true),
            (&[(SleepEnd::Time, long), (SleepEnd::Event, long)], true),
            (&[(SleepEnd::Time, long), (SleepEnd::Time, 1)], true),
            (&[(SleepEnd::Time, 1)], false),
            (&[(SleepEnd::Event, 1)], false),
            (&[(SleepEnd::Time, long), (SleepEnd::Event, 1)], false),
        ] {
            let mut rest = Rest::Short;
            for &(end, slept_ns) in slept {
                rest.on_slept(end, slept_ns);
            }
            assert_eq!(rest == Rest::Long, is_long, "{slept:?}");
        }
    }
}
