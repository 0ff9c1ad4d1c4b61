//! libc's variables `stdin`, `stdout` and `stderr`, and data buffered in their streams.

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering::Acquire;

use libc::{FILE, size_t};

use crate::call::is_ours;
use crate::next;
use crate::raw;
use crate::stdio::{abi, find, used};

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;

    fn __fpending(file: *mut FILE) -> size_t;
    fn __fpurge(file: *mut FILE);
    fn __flbf(file: *mut FILE) -> c_int;
    fn __fbufsize(file: *mut FILE) -> size_t;
    fn fwide(file: *mut FILE, mode: c_int) -> c_int;
}

/// libc's variable for a number, and how its stream is opened.
fn variable(number: c_int) -> Option<(*mut *mut FILE, &'static CStr)> {
    match number {
        0 => Some((&raw mut stdin, c"r")),
        1 => Some((&raw mut stdout, c"w")),
        2 => Some((&raw mut stderr, c"w")),
        _ => None,
    }
}

/// The program has put something under this number.
#[inline]
pub fn on_placed(number: c_int) {
    if (0..3).contains(&number) && is_ours(number) {
        let errno = raw::errno();
        replace(number);
        raw::set_errno(errno);
    }
}

/// Lets the stream of this number be one of ours, unless it is or the program has chosen another.
#[cold]
fn replace(number: c_int) {
    let Some((at, mode)) = variable(number) else {
        return;
    };
    // SAFETY: a variable of libc's.
    let before = unsafe { *at };
    if before.is_null() || find(before as usize).is_some() {
        return;
    }
    // SAFETY: the program's stream.
    if unsafe { (next::fileno.get())(before) } != number {
        return;
    }
    // SAFETY: the number is ours, the mode a C string.
    let stream = unsafe { abi::fdopen(number, mode.as_ptr()) };
    if stream.is_null() {
        return;
    }
    let (buffering, len) = buffering_of(before, number);
    let buffer = if len > libc::BUFSIZ as size_t {
        // SAFETY: takes no pointer. The stream keeps it, as libc's do.
        unsafe { libc::malloc(len) }
    } else {
        ptr::null_mut()
    };
    // SAFETY: a stream that has not been used, and null or a buffer of this length.
    unsafe { libc::setvbuf(stream, buffer.cast(), buffering, len) };
    move_output(before, stream);
    // SAFETY: a variable of libc's.
    unsafe { *at = stream };
}

/// Returns a stream's buffering mode and the length of its buffer: buffered data must not be
/// written before the program does it, as in a child that is about to exec.
fn buffering_of(file: *mut FILE, number: c_int) -> (c_int, size_t) {
    // SAFETY: the program's stream.
    let len = unsafe { __fbufsize(file) };
    // libc gives an unbuffered stream one byte, and standard error none before it is used.
    if len == 1 || (len == 0 && number == 2) {
        return (libc::_IONBF, len);
    }
    // SAFETY: the program's stream.
    match unsafe { __flbf(file) } {
        0 => (libc::_IOFBF, len),
        _ => (libc::_IOLBF, len),
    }
}

/// Moves printed output that waits to the stream that gets the number, as on the kernel.
fn move_output(from: *mut FILE, to: *mut FILE) {
    // SAFETY: the program's stream.
    let len = unsafe { __fpending(from) };
    // SAFETY: as above. Buffered data of a wide stream is counted in wide characters.
    if len == 0 || unsafe { fwide(from, 0) } > 0 {
        return;
    }
    // SAFETY: the fifth word of a stream (`_IO_write_base`), a layout that libc's inlined `putc`
    // fixes in programs.
    let base = unsafe { from.cast::<*const c_void>().add(4) };
    // SAFETY: as above.
    let waiting = unsafe { *base };
    // SAFETY: libc reports that many buffered bytes there.
    unsafe { libc::fwrite(waiting, 1, len, to) };
    // SAFETY: the program's stream.
    unsafe { __fpurge(from) };
}

unsafe extern "C" {
    fn fflush_unlocked(file: *mut FILE) -> c_int;
    fn ftrylockfile(file: *mut FILE) -> c_int;
    fn funlockfile(file: *mut FILE);
}

/// `exit`: libc writes out its streams after the libraries have ended; ours have to be first.
pub fn flush() {
    for entry in used() {
        let at = entry.at.load(Acquire);
        if at > 1 {
            write_out(at as *mut FILE);
        }
    }
}

/// Writes out a stream's buffer. A stream that is locked by a thread is left, as by libc.
fn write_out(file: *mut FILE) {
    // SAFETY: a stream that is open.
    if unsafe { ftrylockfile(file) } != 0 {
        return;
    }
    // SAFETY: as above.
    if unsafe { __fpending(file) } != 0 {
        // SAFETY: as above, and its lock is held.
        unsafe { fflush_unlocked(file) };
    }
    // SAFETY: as above.
    unsafe { funlockfile(file) };
}
