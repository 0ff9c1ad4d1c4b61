//! stdio on a socket of ours.
//!
//! libc's streams read and write with internal calls that cannot be interposed. So `fdopen` of such
//! a descriptor makes a stream of libc's custom kind (fopencookie), whose read, write and close are
//! the interposed ones. `fileno` has to know these streams, because libc returns -1 for them.

pub mod abi;
pub mod raw;
pub(crate) mod standard;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicI32, AtomicUsize};

/// Streams on sockets at a time; `fdopen` fails beyond (EMFILE).
const STREAMS_MAX: usize = 1024;

/// One stream that [`abi::fdopen`] made.
struct Stream {
    /// Address of the stream; 0: the place is free, 1: it is being filled.
    at: AtomicUsize,
    fd: AtomicI32,
}

/// No lock: a fork or a signal handler may come at any time.
static STREAMS: [Stream; STREAMS_MAX] = [const {
    Stream {
        at: AtomicUsize::new(0),
        fd: AtomicI32::new(-1),
    }
}; STREAMS_MAX];
/// Number of places ever used: usually none, and then no search is made.
static STREAMS_LEN: AtomicUsize = AtomicUsize::new(0);

fn used() -> &'static [Stream] {
    &STREAMS[..STREAMS_LEN.load(Acquire).min(STREAMS_MAX)]
}

/// Takes a place; `None` when there is none.
fn reserve(fd: i32) -> Option<&'static Stream> {
    let free =
        |(_, stream): &(usize, &Stream)| stream.at.compare_exchange(0, 1, Acquire, Relaxed).is_ok();
    let (index, stream) = STREAMS.iter().enumerate().find(free)?;
    stream.fd.store(fd, Relaxed);
    STREAMS_LEN.fetch_max(index + 1, Release);
    Some(stream)
}

fn find(stream: usize) -> Option<i32> {
    let entry = used()
        .iter()
        .find(|entry| entry.at.load(Acquire) == stream)?;
    Some(entry.fd.load(Relaxed))
}

/// Whether it was one of ours.
fn remove(stream: usize) -> bool {
    let taken = |entry: &&Stream| {
        entry
            .at
            .compare_exchange(stream, 0, Acquire, Relaxed)
            .is_ok()
    };
    used().iter().any(|entry| taken(&entry))
}
