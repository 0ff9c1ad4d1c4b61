//! Naps: short sleeps on a timer that let frames gather.
//!
//! Waking a thread costs both processors several times the cost of a frame. A thread that does not
//! spin is woken for the first frame of each burst and then handles the others one by one as they
//! arrive. So a thread whose sleeps have been short several times in a row sleeps on a timer first
//! instead of on the device, and handles the frames that arrived in the meantime together. Naps end
//! when they bring less than they cost: a connection on which one request waits for one answer is
//! served without them. Nor is there a nap after a turn that received many frames.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::OnceLock;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use slipstack_mem::{Lock, PrivateFd};

use super::length::Length;

/// A sleep that the device ends within this time was a short one.
const SHORT_NS: u64 = 200_000;
/// Short sleeps in a row before naps are tried: at first, and at most.
const TRY_AFTER: u32 = 16;
const TRY_AFTER_MAX: u32 = 8192;
/// Naps that may fail, more than succeed.
const CREDIT: u32 = 8;
/// Frames that make a nap worth while.
const WORTH: usize = 2;
/// Frames of one turn after which there is no nap.
const PLENTY: usize = 8;

/// Whether naps pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Short sleeps in a row.
    Awake {
        short: u32,
    },
    Napping {
        credit: u32,
    },
}

/// Decision to nap.
#[derive(Debug)]
struct Moderation {
    mode: Mode,
    /// Short sleeps that it takes now: more after each attempt that failed.
    try_after: u32,
    /// The last nap had no frames: the next sleep waits for the first frame.
    is_quiet: bool,
    /// The last turn had [`PLENTY`] frames.
    is_busy: bool,
}

impl Moderation {
    const NEW: Moderation = Moderation {
        mode: Mode::Awake { short: 0 },
        try_after: TRY_AFTER,
        is_quiet: false,
        is_busy: false,
    };

    fn may_nap(&self) -> bool {
        matches!(self.mode, Mode::Napping { .. }) && !self.is_quiet && !self.is_busy
    }

    /// A sleep on the device is over.
    fn on_sleep(&mut self, slept_ns: u64) {
        self.is_quiet = false;
        let Mode::Awake { short } = self.mode else {
            return;
        };
        self.mode = match short + 1 {
            _ if slept_ns > SHORT_NS => Mode::Awake { short: 0 },
            short if short < self.try_after => Mode::Awake { short },
            _ => Mode::Napping { credit: CREDIT },
        };
    }

    /// Records the end of a nap and its number of frames.
    fn on_nap(&mut self, frames: usize) {
        self.is_quiet = frames == 0;
        let Mode::Napping { credit } = self.mode else {
            return;
        };
        if frames >= WORTH {
            self.mode = Mode::Napping {
                credit: CREDIT.min(credit + 1),
            };
            self.try_after = TRY_AFTER;
            return;
        }
        self.mode = match credit {
            0 => {
                self.try_after = (self.try_after * 2).min(TRY_AFTER_MAX);
                Mode::Awake { short: 0 }
            }
            credit => Mode::Napping { credit: credit - 1 },
        };
    }
}

/// The kind of the current or last sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    OnDevice {
        since_ns: u64,
    },
    Nap,
    /// A nap that is over; its frames are still to be taken.
    Napped,
    Over,
}

/// The naps of one engine's driver.
#[derive(Debug)]
pub(super) struct Naps {
    state: Lock<State>,
    /// Made for the first nap; `None` if it could not be.
    timer: OnceLock<Option<PrivateFd>>,
}

#[derive(Debug)]
struct State {
    moderation: Moderation,
    length: Length,
    sleep: Sleep,
}

impl Naps {
    pub(super) fn new() -> Naps {
        Naps {
            state: Lock::new(State {
                moderation: Moderation::NEW,
                length: Length::NEW,
                sleep: Sleep::Over,
            }),
            timer: OnceLock::new(),
        }
    }

    /// Returns whether a sleep that begins now would be a nap.
    pub(super) fn may_nap(&self) -> bool {
        let state = self.state.lock();
        state.moderation.may_nap() && !state.length.is_none()
    }

    /// Begins a sleep. Returns the timer to wait for in the device's place, if it is a nap.
    /// `max_ns`: the longest nap; 0 = none.
    pub(super) fn begin(&self, now_ns: u64, max_ns: u64) -> Option<RawFd> {
        let mut state = self.state.lock();
        state.sleep = Sleep::OnDevice { since_ns: now_ns };
        if max_ns == 0 || !state.moderation.may_nap() {
            return None;
        }
        let length_ns = state.length.next_ns(now_ns, max_ns);
        if length_ns == 0 {
            return None;
        }
        let timer = self.timer.get_or_init(make_timer).as_ref()?;
        if !arm(timer, length_ns) {
            return None;
        }
        state.sleep = Sleep::Nap;
        Some(timer.as_raw_fd())
    }

    /// Ends a sleep; `has_come`: whether its event had happened.
    pub(super) fn end(&self, has_come: bool, now_ns: u64) {
        let mut state = self.state.lock();
        state.sleep = match state.sleep {
            Sleep::OnDevice { since_ns } => {
                if has_come {
                    let slept_ns = now_ns.saturating_sub(since_ns);
                    state.moderation.on_sleep(slept_ns);
                }
                Sleep::Over
            }
            Sleep::Nap if has_come => Sleep::Napped,
            _ => Sleep::Over,
        };
    }

    /// A turn has taken so many frames.
    #[inline]
    pub(super) fn on_turn(&self, frames: usize) {
        let mut state = self.state.lock();
        state.moderation.is_busy = frames >= PLENTY;
        state.length.on_frames(frames);
        if state.sleep == Sleep::Napped {
            state.sleep = Sleep::Over;
            state.moderation.on_nap(frames);
        }
    }
}

fn make_timer() -> Option<PrivateFd> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    timerfd_create(TimerfdClockId::Monotonic, flags)
        .ok()
        .map(PrivateFd::of_engine)
}

/// Sets the timer again, which makes it unreadable until then.
fn arm(timer: &PrivateFd, ns: u64) -> bool {
    let timing = Itimerspec {
        it_interval: Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: Timespec {
            tv_sec: 0,
            tv_nsec: ns.min(999_999_999).cast_signed(),
        },
    };
    timerfd_settime(timer.as_fd(), TimerfdTimerFlags::empty(), &timing).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn napping() -> Moderation {
        let mut it = Moderation::NEW;
        for _ in 0..TRY_AFTER {
            assert!(!it.may_nap());
            it.on_sleep(SHORT_NS);
        }
        assert!(it.may_nap());
        it
    }

    #[test]
    fn short_sleeps_lead_to_naps_and_a_long_one_begins_again() {
        let mut it = Moderation::NEW;
        for _ in 0..1000 {
            for _ in 0..TRY_AFTER - 1 {
                it.on_sleep(SHORT_NS);
            }
            it.on_sleep(SHORT_NS + 1);
            assert!(!it.may_nap());
        }
        napping();
    }

    #[test]
    fn naps_that_gather_bursts_continue() {
        let mut it = napping();
        for _ in 0..1000 {
            it.on_nap(WORTH);
            it.on_nap(5);
            it.on_nap(1);
            assert!(it.may_nap());
        }
    }

    #[test]
    fn after_an_empty_nap_the_first_frame_is_waited_for() {
        let mut it = napping();
        it.on_nap(0);
        assert!(!it.may_nap());
        it.on_sleep(10 * SHORT_NS);
        assert!(it.may_nap());
    }

    #[test]
    fn naps_that_bring_single_frames_are_tried_ever_more_rarely() {
        let mut it = Moderation::NEW;
        let (mut naps, mut sleeps) = (0, 0);
        for _ in 0..100_000 {
            if it.may_nap() {
                naps += 1;
                it.on_nap(1);
            } else {
                sleeps += 1;
                it.on_sleep(1);
            }
        }
        assert!(naps < sleeps / 200, "{naps} naps, {sleeps} sleeps");
    }

    #[test]
    fn a_busy_engine_does_not_nap() {
        let naps = Naps::new();
        naps.state.lock().moderation = napping();
        naps.on_turn(PLENTY);
        assert!(!naps.may_nap());
        naps.on_turn(PLENTY - 1);
        assert!(naps.may_nap());
    }

    #[test]
    fn a_nap_ends_by_its_timer() {
        let naps = Naps::new();
        naps.state.lock().moderation = napping();
        let fd = naps.begin(0, 25_000).unwrap();
        let timer = slipstack_mem::Descriptor::new(fd).unwrap();
        let flags = rustix::event::PollFlags::IN;
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(
            timer.as_fd(),
            flags,
        )];
        assert_eq!(rustix::event::poll(&mut fds, None).unwrap(), 1);
        naps.end(true, 0);
        naps.on_turn(3);
        assert_eq!(naps.state.lock().sleep, Sleep::Over);
    }
}
