//! The lock itself: one futex word and the protected value.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem;
use core::ops::{Deref, DerefMut};

use crate::futex::{futex_wait, futex_wake};
use crate::sync::{AtomicBool, AtomicU32, Ordering, SPINS, spin_loop};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Locked, and a thread may be asleep on the word.
const AWAITED: u32 = 2;

/// A value that one thread at a time may touch.
#[derive(Debug, Default)]
pub struct Lock<T> {
    word: AtomicU32,
    /// Set while the lock is taken by [`Lock::hold`] and not by a guard.
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, and `word` admits one guard at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub fn new(value: T) -> Self {
        Lock {
            word: AtomicU32::new(FREE),
            held: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self
            .word
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            self.lock_contended();
        }
        Guard::new(self)
    }

    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.word
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Guard::new(self))
    }

    /// Takes the lock and keeps it taken until [`Lock::release`].
    pub fn hold(&self) {
        mem::forget(self.lock());
        self.held.store(true, Ordering::Relaxed);
    }

    /// Ends a [`Lock::hold`]; false (and no effect) if there was none.
    pub fn release(&self) -> bool {
        let was_held = self.held.swap(false, Ordering::Relaxed);
        if was_held {
            self.unlock();
        }
        was_held
    }

    /// Frees the lock in a forked child, where a thread that had it does not exist. That thread may
    /// only have been reading: writers must be kept out by another lock, which is held over the
    /// fork. Writes nothing if the lock is free.
    pub fn free_in_child(&self) {
        if self.word.load(Ordering::Relaxed) != FREE {
            self.held.store(false, Ordering::Relaxed);
            self.word.store(FREE, Ordering::Relaxed);
        }
    }

    #[cold]
    fn lock_contended(&self) {
        for _ in 0..SPINS {
            if self.word.load(Ordering::Relaxed) == FREE
                && self
                    .word
                    .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
            spin_loop();
        }
        while self.word.swap(AWAITED, Ordering::Acquire) != FREE {
            futex_wait(&self.word, AWAITED, None);
        }
    }

    #[inline]
    fn unlock(&self) {
        if self.word.swap(FREE, Ordering::Release) == AWAITED {
            futex_wake(&self.word, 1);
        }
    }
}

/// The right to touch the value, until it is dropped.
#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// A guard stays on its thread.
    on_thread: PhantomData<*const T>,
}

impl<'a, T> Guard<'a, T> {
    #[inline]
    fn new(lock: &'a Lock<T>) -> Self {
        Guard {
            lock,
            on_thread: PhantomData,
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while `word` is locked, and only one does.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the guard itself is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock();
    }
}
