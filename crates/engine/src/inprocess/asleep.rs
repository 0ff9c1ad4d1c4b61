//! Counts the threads of the program that sleep on the engine, and decides which one clears the
//! doorbell that wakes them.
//!
//! A thread counts itself before it looks for work, and clears the doorbell while it is still
//! counted. A thread that clears a ring which another sleeper has not seen finds that sleeper in
//! the count and rings again; a thread that counts itself later also looks later, and finds the
//! work that the ring announced.

use std::sync::atomic::{AtomicU32, Ordering};

use slipstack_mem::Doorbell;

/// A bell that wakes sleepers.
pub(super) trait Bell {
    fn ring(&self);
    fn clear(&self);
}

impl Bell for Doorbell {
    fn ring(&self) {
        Doorbell::ring(self);
    }

    fn clear(&self) {
        Doorbell::clear(self);
    }
}

#[derive(Debug, Default)]
pub(super) struct Asleep(AtomicU32);

impl Asleep {
    pub(super) fn is_any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    /// Before the look that decides whether the thread sleeps.
    pub(super) fn enter(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// The look has found something.
    pub(super) fn turn_back(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    /// Leaves after the sleep; `has_rung`: the doorbell was seen.
    pub(super) fn leave(&self, has_rung: bool, bell: &impl Bell) {
        if has_rung {
            bell.clear();
        }
        if self.0.fetch_sub(1, Ordering::SeqCst) > 1 && has_rung {
            bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;

    /// Steps of two other threads while one leaves.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// The one falls asleep.
        Enter,
        Look,
        /// The other brings something.
        Post,
        Ring,
    }

    use Step::{Enter, Look, Post, Ring};

    /// In every order that each of them can do it in.
    const ORDERS: [[Step; 4]; 6] = [
        [Enter, Look, Post, Ring],
        [Enter, Post, Look, Ring],
        [Enter, Post, Ring, Look],
        [Post, Enter, Look, Ring],
        [Post, Enter, Ring, Look],
        [Post, Ring, Enter, Look],
    ];

    /// A bell at each touch of which, before and after, some of the steps are made.
    struct Interrupted<'a> {
        asleep: &'a Asleep,
        steps: RefCell<VecDeque<Step>>,
        /// Number at each of these moments.
        counts: RefCell<VecDeque<usize>>,
        is_rung: Cell<bool>,
        is_posted: Cell<bool>,
        found: Cell<bool>,
    }

    impl Interrupted<'_> {
        fn advance(&self, count: usize) {
            for _ in 0..count {
                match self.steps.borrow_mut().pop_front() {
                    None => return,
                    Some(Enter) => self.asleep.enter(),
                    Some(Look) => self.found.set(self.is_posted.get()),
                    Some(Post) => self.is_posted.set(true),
                    Some(Ring) => self.is_rung.set(true),
                }
            }
        }

        fn pause(&self) {
            let count = self.counts.borrow_mut().pop_front();
            self.advance(count.unwrap_or(0));
        }
    }

    impl Bell for Interrupted<'_> {
        fn ring(&self) {
            self.pause();
            self.is_rung.set(true);
            self.pause();
        }

        fn clear(&self) {
            self.pause();
            self.is_rung.set(false);
            self.pause();
        }
    }

    #[test]
    fn a_leaving_thread_clears_no_ring_meant_for_a_sleeper() {
        for order in ORDERS {
            for code in 0..5usize.pow(5) {
                let counts: VecDeque<usize> = (0..5).map(|at| code / 5usize.pow(at) % 5).collect();
                let asleep = Asleep::default();
                asleep.enter();
                let bell = Interrupted {
                    asleep: &asleep,
                    steps: RefCell::new(order.into()),
                    counts: RefCell::new(counts.clone()),
                    is_rung: Cell::new(true),
                    is_posted: Cell::new(false),
                    found: Cell::new(false),
                };
                bell.pause();
                asleep.leave(true, &bell);
                bell.advance(order.len());
                assert!(
                    bell.found.get() || bell.is_rung.get(),
                    "{order:?} {counts:?}"
                );
            }
        }
    }
}
