//! Stores that mark, in a trace of all memory accesses, the beginning and the end of an engine's
//! turn.

use std::sync::atomic::{AtomicU8, Ordering};

/// Largest number of engines.
pub const ENGINES_MAX: usize = 127;

/// A byte for each engine, and the last for the end of a turn.
static MARKS: [AtomicU8; ENGINES_MAX + 1] = [const { AtomicU8::new(0) }; ENGINES_MAX + 1];

/// Returns the address of the marks, for readers of the trace.
pub fn address() -> usize {
    MARKS.as_ptr().addr()
}

/// Marks the beginning of a turn of this engine.
pub fn begin(engine: usize) {
    MARKS[engine % ENGINES_MAX].store(1, Ordering::SeqCst);
}

/// Marks its end.
pub fn end() {
    MARKS[ENGINES_MAX].store(1, Ordering::SeqCst);
}
