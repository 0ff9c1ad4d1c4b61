//! Alternation between the two parts of a socket: fair, but a datagram that was peeked at is the
//! next to be read, and a kernel's part that has long had nothing is asked more rarely.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use slipstack_mem::Lock;

use crate::kernel::Kernel;
use crate::ready::KernelLooks;

const LOOKED_ON_STACK: u8 = 1;
const LOOKED_IN_KERNEL: u8 = 2;

#[derive(Debug, Default)]
pub(crate) struct Turns {
    turn: AtomicU32,
    /// The part with a datagram that the program has peeked at; 0 = none.
    looked: AtomicU8,
    looks: Lock<KernelLooks>,
}

impl Turns {
    /// Returns whether the kernel's part is asked first this time.
    fn is_kernels(&self, now_ns: impl FnOnce() -> u64) -> bool {
        match self.looked.load(Ordering::Relaxed) {
            LOOKED_ON_STACK => false,
            LOOKED_IN_KERNEL => true,
            _ => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                turn % 2 == 1 && self.looks.lock().is_wanted(now_ns())
            }
        }
    }

    /// Whether it is the kernel's part's turn, and that has a datagram.
    pub(crate) fn are_kernels(&self, clock: &dyn Kernel, has_one: impl FnOnce() -> bool) -> bool {
        if !self.is_kernels(|| clock.now_ns()) {
            return false;
        }
        let has_one = has_one();
        self.note_asked(has_one);
        has_one
    }

    /// The kernel's part was asked in its turn.
    fn note_asked(&self, has_found: bool) {
        self.looks.lock().end(has_found);
    }

    /// Records that a datagram was read, or peeked at, on one of the two sides.
    pub(crate) fn note_read(&self, is_peek: bool, is_kernels: bool) {
        let looked = match (is_peek, is_kernels) {
            (false, _) => 0,
            (true, false) => LOOKED_ON_STACK,
            (true, true) => LOOKED_IN_KERNEL,
        };
        if self.looked.load(Ordering::Relaxed) != looked {
            self.looked.store(looked, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_looked_in_kernel(&self) -> bool {
        self.looked.load(Ordering::Relaxed) == LOOKED_IN_KERNEL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peeked_datagram_is_next_and_otherwise_stack_and_kernel_alternate() {
        let turns = Turns::default();
        assert_eq!(
            [turns.is_kernels(|| 1), turns.is_kernels(|| 1)],
            [false, true]
        );
        turns.note_read(true, true);
        assert_eq!(
            [turns.is_kernels(|| 1), turns.is_kernels(|| 1)],
            [true, true]
        );
        turns.note_read(true, false);
        assert_eq!(
            [turns.is_kernels(|| 1), turns.is_kernels(|| 1)],
            [false, false]
        );
        turns.note_read(false, false);
        assert_ne!(turns.is_kernels(|| 1), turns.is_kernels(|| 1));
    }

    #[test]
    fn a_quiet_kernels_part_is_asked_rarely() {
        let turns = Turns::default();
        let asked = |now_ns: u64| turns.is_kernels(|| now_ns);
        for _ in 0..100 {
            if asked(1_000_000) {
                turns.note_asked(false);
            }
        }
        assert!((0..10).all(|_| !asked(1_000_000)));
        assert!((0..2).any(|_| asked(2_000_000)));
        turns.note_asked(true);
        assert_ne!(asked(2_000_000), asked(2_000_000));
    }
}
