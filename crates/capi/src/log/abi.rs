//! `ff_log…`, declared as in F-Stack's headers.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{self, null_mut};
use std::ffi::CString;
use std::sync::atomic::Ordering;

use libc::FILE;
use slipstack_posix::Errno;

use super::{FILE as OPENED, STREAM, is_wanted};
use crate::call::fail;
use crate::life;

const PREFIX_LEN: usize = 256;

/// `./f-stack-`, with room for another.
const fn prefix() -> [c_char; PREFIX_LEN] {
    let (text, mut place, mut at) = (c"./f-stack-".to_bytes(), [0; PREFIX_LEN], 0);
    while at < text.len() {
        place[at] = text[at].cast_signed();
        at += 1;
    }
    place
}

/// The program may write to it before it opens the log.
#[unsafe(no_mangle)]
pub static mut FF_LOG_FILENAME_PREFIX: [c_char; PREFIX_LEN] = prefix();

unsafe extern "C" {
    static stderr: *mut FILE;
    /// A `va_list` is passed by its address on the machines that this is built for.
    fn vfprintf(stream: *mut FILE, format: *const c_char, list: *mut c_void) -> c_int;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_log_open_set() -> c_int {
    let place = &raw const FF_LOG_FILENAME_PREFIX;
    // SAFETY: the program keeps it a string; nothing writes to it meanwhile.
    let prefix = unsafe { CStr::from_ptr(place.cast()) };
    let name = format!("{}{}.log", prefix.to_string_lossy(), life::process_number());
    let Ok(name) = CString::new(name) else {
        return fail(Errno::EINVAL) as c_int;
    };
    // SAFETY: two C strings.
    let file = unsafe { libc::fopen(name.as_ptr(), c"a".as_ptr()) };
    if file.is_null() {
        return -1;
    }
    close(OPENED.swap(file, Ordering::AcqRel));
    STREAM.store(file, Ordering::Release);
    super::set_levels_of_stack();
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn ff_log_close() {
    let file = OPENED.swap(null_mut(), Ordering::AcqRel);
    let back = (Ordering::AcqRel, Ordering::Relaxed);
    // The program may have given it another stream meanwhile.
    let _ = STREAM.compare_exchange(file, null_mut(), back.0, back.1);
    close(file);
}

fn close(file: *mut FILE) {
    if !file.is_null() {
        // SAFETY: opened by us, and named nowhere any more.
        unsafe { libc::fclose(file) };
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn ff_log_reset_stream(stream: *mut c_void) -> c_int {
    STREAM.store(stream.cast(), Ordering::Release);
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn ff_log_set_global_level(level: u32) {
    super::set_global(level);
}

#[unsafe(no_mangle)]
pub extern "C" fn ff_log_set_level(kind: u32, level: u32) -> c_int {
    match super::set(kind, level) {
        true => 0,
        false => fail(Errno::EINVAL) as c_int,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_vlog(
    level: u32,
    kind: u32,
    format: *const c_char,
    list: *mut c_void,
) -> c_int {
    if format.is_null() {
        return fail(Errno::EINVAL) as c_int;
    }
    if !is_wanted(level, kind) {
        return 0;
    }
    let mut stream = STREAM.load(Ordering::Acquire);
    if ptr::eq(stream, null_mut()) {
        // SAFETY: libc's variable.
        stream = unsafe { stderr };
    }
    // SAFETY: the program's format and its arguments.
    let written = unsafe { vfprintf(stream, format, list) };
    // SAFETY: an open stream.
    unsafe { libc::fflush(stream) };
    written
}
