//! Threads for work that blocks or computes: a managed pool that any number of engines share.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use slipstack_mem::Doorbell;

use crate::connections::ConnectionId;
use crate::panics::guarded;

type Job = Box<dyn FnOnce() + Send>;

/// The pool's queue is full, or there is no pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// Threads that take jobs from one bounded queue in order.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    has_jobs: Condvar,
    queue_max: usize,
    panics: AtomicU64,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_ending: bool,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("threads", &self.threads.len())
            .field("queue_max", &self.shared.queue_max)
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Starts `threads` threads; at most `queue_max` jobs wait for them.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn new(threads: usize, queue_max: usize) -> io::Result<Pool> {
        let mut pool = Pool {
            shared: Arc::new(Shared {
                queue: Mutex::default(),
                has_jobs: Condvar::new(),
                queue_max,
                panics: AtomicU64::new(0),
            }),
            threads: Vec::new(),
        };
        for number in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || shared.work())?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// A pool without threads: each job runs as it is submitted, for worlds in virtual time.
    pub fn inline() -> Pool {
        Pool {
            shared: Arc::new(Shared {
                queue: Mutex::default(),
                has_jobs: Condvar::new(),
                queue_max: 0,
                panics: AtomicU64::new(0),
            }),
            threads: Vec::new(),
        }
    }

    /// Jobs that panicked.
    pub fn panics(&self) -> u64 {
        self.shared.panics.load(Ordering::Relaxed)
    }

    /// Jobs that wait for a thread.
    pub fn waiting(&self) -> usize {
        lock(&self.shared.queue).jobs.len()
    }

    pub(crate) fn submit(&self, job: Job) -> Result<(), Busy> {
        if self.threads.is_empty() {
            self.shared.run(job);
            return Ok(());
        }
        let mut queue = lock(&self.shared.queue);
        if queue.jobs.len() >= self.shared.queue_max {
            return Err(Busy);
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.has_jobs.notify_one();
        Ok(())
    }
}

impl Drop for Pool {
    /// Waits for running jobs; queued ones are not started.
    fn drop(&mut self) {
        lock(&self.shared.queue).is_ending = true;
        self.shared.has_jobs.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if queue.is_ending {
                return;
            }
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                self.run(job);
                queue = lock(&self.queue);
            } else {
                queue = self
                    .has_jobs
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn run(&self, job: Job) {
        if guarded(job).is_none() {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Results on their way to one engine; `None` of a job that panicked.
pub(crate) struct Results<R> {
    list: Mutex<VecDeque<(ConnectionId, Option<R>)>>,
    is_any: AtomicBool,
    bell: Option<Doorbell>,
}

impl<R> Results<R> {
    pub(crate) fn new(bell: Option<Doorbell>) -> Results<R> {
        Results {
            list: Mutex::default(),
            is_any: AtomicBool::new(false),
            bell,
        }
    }

    fn push(&self, id: ConnectionId, result: Option<R>) {
        lock(&self.list).push_back((id, result));
        self.is_any.store(true, Ordering::SeqCst);
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::SeqCst)
    }

    pub(crate) fn take(&self) -> VecDeque<(ConnectionId, Option<R>)> {
        self.is_any.store(false, Ordering::SeqCst);
        std::mem::take(&mut *lock(&self.list))
    }
}

/// A guard that delivers a result for a job, even if it panicked.
pub(crate) struct Promise<R> {
    results: Arc<Results<R>>,
    id: ConnectionId,
    result: Option<R>,
}

impl<R> Promise<R> {
    pub(crate) fn new(results: Arc<Results<R>>, id: ConnectionId) -> Promise<R> {
        Promise {
            results,
            id,
            result: None,
        }
    }

    pub(crate) fn keep(mut self, result: R) {
        self.result = Some(result);
    }
}

impl<R> Drop for Promise<R> {
    fn drop(&mut self) {
        self.results.push(self.id, self.result.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn jobs_run_on_threads_and_a_full_queue_is_reported() {
        let pool = Pool::new(1, 1).unwrap();
        let (go, wait) = channel::<()>();
        let (began, has_begun) = channel();
        let (done, is_done) = channel();
        pool.submit(Box::new(move || {
            began.send(()).unwrap();
            wait.recv().unwrap();
        }))
        .unwrap();
        has_begun.recv().unwrap();
        pool.submit(Box::new(move || done.send(7).unwrap()))
            .unwrap();
        assert_eq!(pool.submit(Box::new(|| ())), Err(Busy));
        go.send(()).unwrap();
        assert_eq!(is_done.recv(), Ok(7));
    }

    #[test]
    fn a_panicking_job_is_counted_and_its_thread_continues() {
        let pool = Pool::new(1, 4).unwrap();
        let (done, is_done) = channel();
        pool.submit(Box::new(|| panic!("on purpose"))).unwrap();
        pool.submit(Box::new(move || done.send(()).unwrap()))
            .unwrap();
        is_done.recv().unwrap();
        assert_eq!(pool.panics(), 1);
    }
}
