//! Functions that are libc's under another name, declared as in F-Stack's headers.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_char, c_int, c_long, c_void};
use core::mem::MaybeUninit;

use libc::{pthread_attr_t, pthread_t, size_t, timespec, timeval};
use slipstack_abi::raw;
use slipstack_posix::Errno;

use crate::call::{fail, without_stack};
use crate::life;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;

const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_US: c_long = 1000;

/// FreeBSD's MAP_ANON; to Linux's `mmap` the bit is MAP_EXECUTABLE, which it does not look at.
const MAP_ANON: c_int = 0x1000;
/// FreeBSD's MAP_NOCORE, to Linux MAP_STACK; nothing changes by either.
const MAP_NOCORE: c_int = 0x0002_0000;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Option<Start>,
    argument: *mut c_void,
) -> c_int {
    match start {
        // SAFETY: the program's own call.
        Some(start) => unsafe { libc::pthread_create(thread, attributes, start, argument) },
        None => libc::EINVAL,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_pthread_join(thread: pthread_t, result: *mut *mut c_void) -> c_int {
    // SAFETY: the program's own call.
    unsafe { libc::pthread_join(thread, result) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_gettimeofday(time: *mut timeval, zone: *mut c_void) -> c_int {
    // Not by libc's function, which a program may replace by one that calls this one.
    let now = clock(libc::CLOCK_REALTIME);
    // SAFETY: null or a structure of the program's.
    if let (Some(place), Some(now)) = (unsafe { time.as_mut() }, now) {
        place.tv_sec = now.tv_sec;
        place.tv_usec = now.tv_nsec / NS_PER_US;
    }
    // SAFETY: null or a structure of the program's, of two words that are 0 on Linux.
    if let Some(zone) = unsafe { zone.cast::<[c_int; 2]>().as_mut() } {
        *zone = [0, 0];
    }
    0
}

fn clock(id: c_int) -> Option<timespec> {
    let mut time = MaybeUninit::<timespec>::zeroed();
    // SAFETY: a structure of ours.
    let result = unsafe { libc::clock_gettime(id, time.as_mut_ptr()) };
    // SAFETY: all-zero bytes are a time too.
    (result == 0).then(|| unsafe { time.assume_init() })
}

/// Linux's clock of F-Stack's number, which is FreeBSD's.
fn host_clock(id: c_int) -> c_int {
    match id {
        libc::CLOCK_REALTIME => libc::CLOCK_REALTIME,
        _ => libc::CLOCK_MONOTONIC,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_clock_gettime(id: c_int, seconds: *mut i64, nanoseconds: *mut c_long) {
    let Some(time) = clock(host_clock(id)) else {
        return;
    };
    // SAFETY: null or words of the program's.
    if let Some(seconds) = unsafe { seconds.as_mut() } {
        *seconds = time.tv_sec;
    }
    // SAFETY: as above.
    if let Some(nanoseconds) = unsafe { nanoseconds.as_mut() } {
        *nanoseconds = time.tv_nsec;
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn ff_clock_gettime_ns(id: c_int) -> u64 {
    clock(host_clock(id)).map_or(0, |time| {
        time.tv_sec.cast_unsigned() * NS_PER_S + time.tv_nsec.cast_unsigned()
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn ff_get_tsc_ns() -> u64 {
    ff_clock_gettime_ns(libc::CLOCK_MONOTONIC)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_get_current_time(seconds: *mut i64, nanoseconds: *mut c_long) {
    // SAFETY: as the program's call.
    unsafe { ff_clock_gettime(libc::CLOCK_REALTIME, seconds, nanoseconds) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_malloc(size: size_t) -> *mut c_void {
    // SAFETY: takes no pointer.
    unsafe { libc::malloc(size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_calloc(count: size_t, size: size_t) -> *mut c_void {
    // SAFETY: takes no pointer.
    unsafe { libc::calloc(count, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_realloc(at: *mut c_void, size: size_t) -> *mut c_void {
    // SAFETY: the program's own call.
    unsafe { libc::realloc(at, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_free(at: *mut c_void) {
    // SAFETY: the program's own call.
    unsafe { libc::free(at) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_mmap(
    at: *mut c_void,
    len: u64,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: u64,
) -> *mut c_void {
    let is_anonymous = flags & MAP_ANON != 0;
    let anonymous = if is_anonymous { libc::MAP_ANONYMOUS } else { 0 };
    let flags = (flags & !(MAP_ANON | MAP_NOCORE)) | anonymous;
    // SAFETY: the program's own call.
    unsafe { libc::mmap(at, len as size_t, access, flags, fd, offset.cast_signed()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_munmap(at: *mut c_void, len: u64) -> c_int {
    // SAFETY: the program's own call.
    unsafe { libc::munmap(at, len as size_t) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_arc4random() -> u32 {
    let mut bytes = [0; 4];
    // SAFETY: four bytes of ours.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u32::from_ne_bytes(bytes)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_setenv(name: *const c_char, value: *const c_char) -> c_int {
    if name.is_null() || value.is_null() {
        return fail(Errno::EINVAL) as c_int;
    }
    // SAFETY: the program's own call.
    unsafe { libc::setenv(name, value, 1) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_getenv(name: *const c_char) -> *mut c_char {
    if name.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: the program's own call.
    unsafe { libc::getenv(name) }
}

/// Sets `errno` to the counterpart of FreeBSD's number.
#[unsafe(no_mangle)]
pub extern "C" fn ff_os_errno(error: c_int) {
    raw::set_errno(Errno::of_freebsd(error).0);
}

/// Ports are given out so that answers come home, and flows that arrive here are this process's.
#[unsafe(no_mangle)]
pub extern "C" fn ff_rss_check(
    _device: *mut c_void,
    _source: u32,
    _destination: u32,
    _source_port: u16,
    _destination_port: u16,
) -> c_int {
    1
}

/// Tells which of the processes of one configuration this is, and how many there are; each has one
/// queue. There is no table by which a card spreads flows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_rss_self_queue_info(
    process: *mut u16,
    queue: *mut u16,
    queues: *mut u16,
    table_size: *mut u16,
) -> c_int {
    if life::process().is_none() {
        return without_stack() as c_int;
    }
    let number = life::process_number() as u16;
    for (place, value) in [
        (process, number),
        (queue, number),
        (queues, life::queues()),
        (table_size, 0),
    ] {
        // SAFETY: null or a word of the program's.
        if let Some(place) = unsafe { place.as_mut() } {
            *place = value;
        }
    }
    0
}
