//! A thread that sleeps until another thread of its process has work for it.

use std::sync::OnceLock;

use crate::sync::{AtomicBool, Ordering, Thread, current, fence, park};

/// One such thread, as those that wake it know it. Waking it costs a load while it is awake.
#[derive(Debug, Default)]
pub struct Sleeper {
    thread: OnceLock<Thread>,
    is_asleep: AtomicBool,
}

impl Sleeper {
    /// Wakes the thread if it sleeps. To be called after its work was published.
    #[inline]
    pub fn wake(&self) {
        // Either this sees that the thread is about to sleep, or the thread sees its work.
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) {
            self.unpark();
        }
    }

    #[cold]
    fn unpark(&self) {
        if self.is_asleep.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Has the calling thread sleep until it is woken, unless there is work. Returns whether it
    /// slept; it may wake for no reason. One thread alone may call this.
    pub fn sleep(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.thread.get_or_init(current);
        self.is_asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let sleeps = !has_work();
        if sleeps {
            park();
        }
        self.is_asleep.store(false, Ordering::SeqCst);
        sleeps
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn a_published_item_always_wakes_the_sleeper() {
        let shared = Arc::new((Sleeper::default(), AtomicU32::new(0)));
        let other = Arc::clone(&shared);
        let sleeper = std::thread::spawn(move || {
            let mut seen = 0;
            while seen < 10_000 {
                let before = seen;
                other.0.sleep(|| other.1.load(Ordering::Acquire) != before);
                seen = other.1.load(Ordering::Acquire);
            }
        });
        for _ in 0..10_000 {
            shared.1.fetch_add(1, Ordering::Release);
            shared.0.wake();
            if shared.1.load(Ordering::Relaxed) % 64 == 0 {
                std::thread::yield_now();
            }
        }
        sleeper.join().unwrap();
    }
}
