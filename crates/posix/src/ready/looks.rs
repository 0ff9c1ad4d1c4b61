//! The schedule of checks for what the kernel has: the members of a set, the descriptors of a poll,
//! the kernel's part of a socket.
//!
//! Each look is a system call, half of all that a program makes which has one socket of the
//! kernel's beside ours. A sleep asks for them anyway; beside that they are looked at so that
//! neither side starves the other, and more rarely where they have long had nothing.

/// Interval of checks for the kernel's members while the stack's have events.
const LOOK_NS: u64 = 50_000;
/// Interval of looks once [`QUIET`] of them in a row have found nothing.
const QUIET_LOOK_NS: u64 = 250_000;
const QUIET: u32 = 16;

/// The looks at one thing.
#[derive(Debug, Default)]
pub(crate) struct KernelLooks {
    /// The time of the last check.
    last_ns: u64,
    /// Number of looks in a row that have found nothing.
    vain: u32,
    /// The stack's events come first when there is room for one.
    pub(crate) is_stacks_turn: bool,
}

impl KernelLooks {
    /// Notes that a sleep found no event of the kernel's members.
    pub(crate) fn on_sleep(&mut self, now_ns: u64) {
        self.last_ns = now_ns;
    }

    /// Our side has events: whether the kernel's members are to be looked at first. They are, then.
    pub(crate) fn is_late(&mut self, now_ns: u64) -> bool {
        let every_ns = match self.is_quiet() {
            true => QUIET_LOOK_NS,
            false => LOOK_NS,
        };
        let is_late = now_ns.wrapping_sub(self.last_ns) >= every_ns;
        if is_late {
            self.last_ns = now_ns;
            self.is_stacks_turn = !self.is_stacks_turn;
        }
        is_late
    }

    /// Our side has something: whether to look all the same. As long as the kernel's side has not
    /// been quiet it is looked at each time.
    pub(crate) fn is_wanted(&mut self, now_ns: u64) -> bool {
        if !self.is_quiet() {
            self.last_ns = now_ns;
        }
        !self.is_quiet() || self.is_late(now_ns)
    }

    /// Whether they are to be looked at if `now_ns` is at least [`LOOK_NS`] behind the last time.
    pub(crate) fn is_over(&mut self, now_ns: u64) -> bool {
        let is_over = now_ns.wrapping_sub(self.last_ns) >= LOOK_NS;
        if is_over {
            self.last_ns = now_ns;
        }
        is_over
    }

    /// Records a check of the kernel's members.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.last_ns = now_ns;
    }

    /// A look has found something or nothing.
    pub(crate) fn end(&mut self, has_found: bool) {
        self.vain = match has_found {
            true => 0,
            false => self.vain.saturating_add(1),
        };
    }

    /// Returns whether the kernel's members have had no event for long.
    pub(crate) fn is_quiet(&self) -> bool {
        self.vain >= QUIET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_kernel_members_are_polled_more_rarely_until_one_has_an_event() {
        let mut looks = KernelLooks::default();
        let mut now = 10 * QUIET_LOOK_NS;
        for _ in 0..QUIET {
            assert!(!looks.is_quiet() && looks.is_late(now));
            assert!(!looks.is_late(now + LOOK_NS - 1));
            looks.end(false);
            now += LOOK_NS;
        }
        assert!(looks.is_quiet() && !looks.is_late(now));
        now += QUIET_LOOK_NS;
        assert!(looks.is_late(now));
        looks.end(true);
        assert!(!looks.is_quiet() && looks.is_late(now + LOOK_NS));
    }

    #[test]
    fn only_what_has_been_quiet_is_looked_at_rarely() {
        let mut looks = KernelLooks::default();
        let now = 10 * QUIET_LOOK_NS;
        for _ in 0..QUIET {
            assert!(looks.is_wanted(now));
            looks.end(false);
        }
        assert!(!looks.is_wanted(now + QUIET_LOOK_NS - 1));
        assert!(looks.is_wanted(now + QUIET_LOOK_NS));
        looks.end(true);
        assert!(looks.is_wanted(now + QUIET_LOOK_NS));
    }

    #[test]
    fn a_sleep_counts_as_a_poll_of_the_kernel_members() {
        let mut looks = KernelLooks::default();
        looks.on_sleep(LOOK_NS);
        assert!(!looks.is_late(2 * LOOK_NS - 1));
        assert!(looks.is_late(2 * LOOK_NS));
    }

    #[test]
    fn stack_and_kernel_alternate_if_one_event_fits() {
        let mut looks = KernelLooks::default();
        assert!(looks.is_late(LOOK_NS) && looks.is_stacks_turn);
        assert!(looks.is_late(2 * LOOK_NS) && !looks.is_stacks_turn);
    }
}
