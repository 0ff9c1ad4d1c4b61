//! Threads that a program does not notice: they take none of its signals, and run at once and
//! shortly when they wake.

mod sys;

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread with every signal blocked, except the two that glibc keeps for itself (one of
/// them carries `setuid` to all threads). It asks for a short time slice: woken while a thread of the
/// program computes, it runs now and not when that one's slice ends.
///
/// # Errors
/// The kernel's refusal to start a thread.
pub fn spawn_quiet(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let body = move || {
        sys::shorten_slice();
        body()
    };
    let before = sys::block_all();
    let started = Builder::new().name(name.to_string()).spawn(body);
    sys::restore(&before);
    started
}
