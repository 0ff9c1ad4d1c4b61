//! Threads that a program does not notice: they take none of its signals, and run at once and for a
//! short time when they wake. They are not the standard library's, which call malloc as they begin:
//! that reserves 64 MiB of addresses for each, which RLIMIT_AS counts and each forked child
//! inherits.

mod beginning;
mod own;
mod sys;

pub use beginning::{await_begun, await_settled};
pub use own::{own, thread_id};

use std::ffi::CString;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

/// Room for making an engine, which takes some 80 KiB.
const ROOM: usize = 512 << 10;

/// Stack size of the other threads.
const STACK: usize = 2 << 20;

/// A thread that goes on when this is dropped.
#[derive(Debug)]
pub struct Quiet(Option<sys::Thread<'static>>);

impl Quiet {
    /// Waits for its end.
    pub fn join(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            thread.detach();
        }
    }
}

static AT_BEGIN: OnceLock<fn()> = OnceLock::new();

/// Has every thread that [`spawn_quiet`] starts from now on call `begin` first.
pub fn at_begin(begin: fn()) {
    _ = AT_BEGIN.set(begin);
}

/// Starts a thread with every signal blocked, except the two that glibc keeps for itself (one of
/// them carries `setuid` to all threads). It requests a short time slice: if it is woken while a
/// thread of the program computes, it runs at once and not at the end of that thread's slice.
///
/// # Errors
/// The kernel's refusal to start a thread.
pub fn spawn_quiet(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Quiet> {
    let name = CString::new(name)?;
    let body = move || {
        let _listed = own::Listed::begin();
        beginning::note_begun();
        sys::call_it(&name);
        sys::shorten_slice();
        if let Some(begin) = AT_BEGIN.get() {
            begin();
        }
        beginning::note_settled();
        body();
    };
    let body = Box::new(body);
    let before = sys::block_all();
    let started = sys::Thread::start(STACK, body);
    sys::restore(&before);
    Ok(Quiet(Some(started?)))
}

/// Has every later start of a thread in this process refused: for a copy of a process in which
/// another thread, or the interrupted one, may have held a lock of libc that a start takes.
pub fn start_no_more() {
    sys::start_no_more();
}

/// Runs `body` on a thread of its own that has room enough for it and takes no signals, and waits
/// for it: threads of programs may have 64 KiB of stack. Where no thread can be had it runs here.
/// The waiting thread is not cancelled before that returns, which uses data on its stack.
pub fn with_room<R: Send>(body: impl Fn() -> R + Sync) -> R {
    let cancelling = sys::disable_cancelling();
    let before = sys::block_all();
    let mut done = None;
    let work = || {
        beginning::note_begun();
        beginning::note_settled();
        done = Some(catch_unwind(AssertUnwindSafe(&body)));
    };
    let started = sys::Thread::start(ROOM, Box::new(work));
    sys::restore(&before);
    // Waits for its end.
    drop(started);
    sys::set_cancelling(cancelling);
    match done {
        Some(Ok(result)) => result,
        Some(Err(panic)) => resume_unwind(panic),
        None => body(),
    }
}
