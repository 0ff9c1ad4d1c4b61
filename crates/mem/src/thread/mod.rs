//! Threads that a program does not notice: they take none of its signals, and run at once and
//! shortly when they wake.

mod own;
mod sys;

pub use own::own;

use std::io;
use std::panic::resume_unwind;
use std::thread::{self, Builder, JoinHandle};

/// Room for making an engine, which takes some 80 KiB.
const ROOM: usize = 512 << 10;

/// Starts a thread with every signal blocked, except the two that glibc keeps for itself (one of
/// them carries `setuid` to all threads). It asks for a short time slice: woken while a thread of the
/// program computes, it runs now and not when that one's slice ends.
///
/// # Errors
/// The kernel's refusal to start a thread.
pub fn spawn_quiet(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let body = move || {
        let _listed = own::Listed::begin();
        sys::shorten_slice();
        body()
    };
    let before = sys::block_all();
    let started = Builder::new().name(name.to_string()).spawn(body);
    sys::restore(&before);
    started
}

/// Runs `body` on a thread of its own that has room enough for it and takes no signals, and waits for
/// it: threads of programs may have 64 KiB of stack. Where no thread can be had it runs here. Who waits is not
/// cancelled before it returns: what the other thread uses lies on this one's stack.
pub fn with_room<R: Send>(body: impl Fn() -> R + Sync) -> R {
    let cancelling = sys::disable_cancelling();
    let before = sys::block_all();
    let done = thread::scope(|scope| {
        let started = Builder::new().stack_size(ROOM).spawn_scoped(scope, &body);
        sys::restore(&before);
        started.ok().map(|thread| thread.join())
    });
    sys::set_cancelling(cancelling);
    match done {
        Some(Ok(result)) => result,
        Some(Err(panic)) => resume_unwind(panic),
        None => body(),
    }
}
