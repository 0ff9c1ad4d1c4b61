//! The schedule of the looks at the kernel's descriptors of a poll.
//!
//! A poll knows nothing of the one before it. A thread that polls the same descriptors again and
//! again, as a server does, is recognised by them.

use std::hash::Hasher;

use slipstack_mem::Lock;

use crate::idhash::IdHasher;
use crate::ready::{Ask, KernelLooks, Look};

/// Polls that are remembered. Others that share their places are asked each time.
const PLACES: usize = 16;

#[derive(Debug, Default)]
struct Place {
    key: u64,
    looks: KernelLooks,
}

/// The looks of all threads.
#[derive(Debug, Default)]
pub(crate) struct PollLooks([Lock<Place>; PLACES]);

/// The looks at the kernel's descriptors of one poll.
#[derive(Clone, Copy)]
pub(crate) struct LooksAt<'a> {
    place: &'a Lock<Place>,
    key: u64,
}

impl PollLooks {
    /// Over a fork.
    pub(crate) fn hold(&self) {
        self.0.iter().for_each(Lock::hold);
    }

    pub(crate) fn release(&self) {
        for place in &self.0 {
            place.release();
        }
    }

    pub(crate) fn at(&self, thread: usize, kernel: &[libc::pollfd]) -> LooksAt<'_> {
        let mut hasher = IdHasher::default();
        hasher.write_u64(thread as u64);
        for fd in kernel {
            hasher.write_i32(fd.fd);
            hasher.write_i32(fd.events.into());
        }
        let key = hasher.finish();
        let at = (key >> 32) as usize % PLACES;
        let place = &self.0[at];
        LooksAt { place, key }
    }
}

impl LooksAt<'_> {
    /// Returns whether the kernel is to be asked. `has_ours`: something of ours is ready.
    pub(crate) fn are_due(&self, look: Look, has_ours: bool) -> bool {
        let mut place = self.place.lock();
        if place.key != self.key {
            *place = Place {
                key: self.key,
                looks: KernelLooks::default(),
            };
        }
        let looks = &mut place.looks;
        match look.kernel {
            Ask::Nothing => {
                looks.on_sleep(look.now_ns);
                false
            }
            Ask::Later | Ask::Soon if has_ours => looks.is_wanted(look.now_ns),
            Ask::Later => false,
            Ask::Soon => !looks.is_quiet(),
            Ask::Due => {
                looks.begin(look.now_ns);
                true
            }
        }
    }

    /// The kernel has been asked.
    pub(crate) fn end(&self, has_found: bool) {
        let mut place = self.place.lock();
        if place.key == self.key {
            place.looks.end(has_found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fds(numbers: &[i32]) -> Vec<libc::pollfd> {
        let fd = |fd: &i32| libc::pollfd {
            fd: *fd,
            events: libc::POLLIN,
            revents: 0,
        };
        numbers.iter().map(fd).collect()
    }

    fn later(now_ns: u64) -> Look {
        let kernel = Ask::Later;
        Look { kernel, now_ns }
    }

    #[test]
    fn quiet_descriptors_that_are_polled_again_and_again_are_asked_rarely() {
        let all = PollLooks::default();
        let looks = || all.at(1, &fds(&[3, 4]));
        for _ in 0..100 {
            if looks().are_due(later(1_000_000), true) {
                looks().end(false);
            }
        }
        assert!(!looks().are_due(later(1_000_000), true));
        assert!(looks().are_due(later(9_000_000), true));
        assert!(!looks().are_due(later(20_000_000), false));
        let kernel = Ask::Due;
        let now_ns = 9_000_000;
        assert!(looks().are_due(Look { kernel, now_ns }, false));
    }

    #[test]
    fn other_descriptors_and_other_threads_are_asked_at_once() {
        let all = PollLooks::default();
        for _ in 0..100 {
            let looks = all.at(1, &fds(&[3, 4]));
            if looks.are_due(later(1_000_000), true) {
                looks.end(false);
            }
        }
        assert!(all.at(1, &fds(&[3, 5])).are_due(later(1_000_000), true));
        assert!(all.at(2, &fds(&[3, 4])).are_due(later(1_000_000), true));
    }
}
