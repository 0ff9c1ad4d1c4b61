//! Threads that a program does not notice: they take none of its signals.

mod sys;

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread with every signal blocked, except the two that glibc keeps for itself (one of
/// them carries `setuid` to all threads).
///
/// # Errors
/// The kernel's refusal to start a thread.
pub fn spawn_quiet(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let before = sys::block_all();
    let started = Builder::new().name(name.to_string()).spawn(body);
    sys::restore(&before);
    started
}
