//! stdio on a socket of ours.
//!
//! libc's streams read and write with calls of its own that nobody can stand in for. So
//! `fdopen` of such a descriptor makes a stream of libc's custom kind, whose read, write
//! and close are the hooked ones. `fileno` has to know them, as libc says -1.

pub mod abi;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::thread::InCall;

/// Address of each stream that [`abi::fdopen`] made, and its descriptor.
static STREAMS: Mutex<BTreeMap<usize, i32>> = Mutex::new(BTreeMap::new());
/// How many there are: mostly none, and then nobody looks further.
static STREAMS_LEN: AtomicUsize = AtomicUsize::new(0);

fn add(stream: usize, fd: i32) {
    let _in_call = InCall::enter();
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    streams.insert(stream, fd);
    STREAMS_LEN.store(streams.len(), Relaxed);
}

fn find(stream: usize) -> Option<i32> {
    if STREAMS_LEN.load(Relaxed) == 0 {
        return None;
    }
    let _in_call = InCall::enter();
    let streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    streams.get(&stream).copied()
}

fn remove(stream: usize) -> Option<i32> {
    if STREAMS_LEN.load(Relaxed) == 0 {
        return None;
    }
    let _in_call = InCall::enter();
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let fd = streams.remove(&stream);
    STREAMS_LEN.store(streams.len(), Relaxed);
    fd
}
