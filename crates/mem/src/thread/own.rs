//! The kernel ids of the threads that we have started in this process.

use std::sync::atomic::{AtomicU64, Ordering};

/// Most threads that are listed; a process has three or four.
const THREADS: usize = 64;

/// Process and thread; 0: unused. A child inherits its parent's entries by a fork, but none of its
/// threads.
static IDS: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];

const THREAD_BITS: u32 = 32;

fn id_of(process: u32, thread: u32) -> u64 {
    u64::from(process) << THREAD_BITS | u64::from(thread)
}

fn is_of(id: u64, process: u32) -> bool {
    id >> THREAD_BITS == u64::from(process)
}

/// The kernel's id of the calling thread.
#[must_use]
pub fn thread_id() -> u32 {
    let id = rustix::thread::gettid().as_raw_nonzero();
    id.get().cast_unsigned()
}

/// The calling thread is listed as long as this lives.
pub(super) struct Listed(Option<&'static AtomicU64>);

impl Listed {
    pub(super) fn begin() -> Listed {
        let process = std::process::id();
        let new = id_of(process, thread_id());
        let takes = |place: &&AtomicU64| {
            let id = place.load(Ordering::Relaxed);
            let (made, else_read) = (Ordering::Release, Ordering::Relaxed);
            !is_of(id, process) && place.compare_exchange(id, new, made, else_read).is_ok()
        };
        Listed(IDS.iter().find(takes))
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Ordering::Release);
        }
    }
}

/// The threads' ids.
pub fn own() -> impl Iterator<Item = u32> {
    let process = std::process::id();
    let ids = IDS.iter().map(|place| place.load(Ordering::Acquire));
    let of_this = ids.filter(move |&id| is_of(id, process));
    of_this.map(|id| id as u32)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::thread::{Quiet, await_begun, spawn_quiet};

    #[test]
    fn a_thread_is_listed_while_it_runs() {
        let (tell, hear) = channel();
        let (end, ended) = channel::<()>();
        let thread = spawn_quiet("listed", move || {
            let id = rustix::thread::gettid().as_raw_nonzero().get();
            tell.send(id.cast_unsigned()).unwrap();
            let _ = ended.recv();
        });
        let id = hear.recv().unwrap();
        assert_eq!(own().filter(|&it| it == id).count(), 1);
        drop(end);
        thread.unwrap().join();
        assert_eq!(own().filter(|&it| it == id).count(), 0);
    }

    #[test]
    fn every_thread_that_has_begun_is_listed() {
        const COUNT: usize = 8;
        for _ in 0..50 {
            let before: Vec<u32> = own().collect();
            let (end, ended) = channel::<()>();
            let ended = Arc::new(Mutex::new(ended));
            let threads: Vec<_> = (0..COUNT)
                .map(|_| {
                    let ended = Arc::clone(&ended);
                    spawn_quiet("begun", move || _ = ended.lock().unwrap().recv()).unwrap()
                })
                .collect();
            await_begun();
            let new = own().filter(|it| !before.contains(it)).count();
            drop(end);
            threads.into_iter().for_each(Quiet::join);
            assert!(new >= COUNT, "{new} are listed");
        }
    }

    #[test]
    fn state_left_by_a_parent_has_no_owner() {
        assert!(is_of(id_of(7, 9), 7));
        assert!(!is_of(id_of(7, 9), 8));
        assert!(!is_of(0, std::process::id()));
    }
}
