//! A mutual exclusion lock that survives a fork.
//!
//! Before a fork the forking thread [`hold`](Lock::hold)s every lock that the child will need;
//! afterwards parent and child each [`release`](Lock::release) them. A lock that another thread
//! held at the fork stays locked in the child for ever, so the child uses
//! [`try_lock`](Lock::try_lock), or frees it if that thread cannot have changed the value.

mod sys;

pub use sys::{Guard, Lock};

#[cfg(test)]
mod tests {
    use super::Lock;
    use std::sync::Arc;

    #[test]
    fn threads_exclude_each_other() {
        let lock = Arc::new(Lock::new(0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let lock = Arc::clone(&lock);
                std::thread::spawn(move || {
                    for _ in 0..10_000 {
                        *lock.lock() += 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*lock.lock(), 40_000);
    }

    #[test]
    fn a_held_lock_is_taken_until_it_is_released() {
        let lock = Lock::new(1);
        lock.hold();
        assert!(lock.try_lock().is_none());
        assert!(lock.release());
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_child_frees_a_lock_that_a_thread_of_its_parent_had() {
        let lock = Lock::new(1);
        std::mem::forget(lock.lock());
        lock.free_in_child();
        assert_eq!(lock.try_lock().map(|value| *value), Some(1));
        lock.free_in_child();
        lock.hold();
        lock.free_in_child();
        assert!(!lock.release() && lock.try_lock().is_some());
    }

    #[test]
    fn releasing_a_free_lock_does_nothing() {
        let lock = Lock::new(1);
        let guard = lock.lock();
        assert!(!lock.release());
        assert!(lock.try_lock().is_none());
        drop(guard);
    }
}
