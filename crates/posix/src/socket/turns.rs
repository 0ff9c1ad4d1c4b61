//! Alternation between the two parts of a socket: fair, but a datagram that was peeked at is the
//! next to be read.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

const LOOKED_ON_STACK: u8 = 1;
const LOOKED_IN_KERNEL: u8 = 2;

#[derive(Debug, Default)]
pub(crate) struct Turns {
    turn: AtomicU32,
    /// The part with a datagram that the program has peeked at; 0 = none.
    looked: AtomicU8,
}

impl Turns {
    /// Returns whether the kernel's part is asked first this time.
    pub(crate) fn is_kernels(&self) -> bool {
        match self.looked.load(Ordering::Relaxed) {
            LOOKED_ON_STACK => false,
            LOOKED_IN_KERNEL => true,
            _ => self.turn.fetch_add(1, Ordering::Relaxed) % 2 == 1,
        }
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
        assert_eq!([turns.is_kernels(), turns.is_kernels()], [false, true]);
        turns.note_read(true, true);
        assert_eq!([turns.is_kernels(), turns.is_kernels()], [true, true]);
        turns.note_read(true, false);
        assert_eq!([turns.is_kernels(), turns.is_kernels()], [false, false]);
        turns.note_read(false, false);
        assert_ne!(turns.is_kernels(), turns.is_kernels());
    }
}
