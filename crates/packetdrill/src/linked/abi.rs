//! The exported symbol.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi;
use crate::raw::{bytes_mut, fail, get_on_kernel, session};
use crate::session::Session;

/// The session of this process; null while there is none.
static SESSION: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());

/// Begins a session, which gets the calls from here on.
pub fn begin(session: *mut Session) {
    SESSION.store(session, Ordering::Release);
}

/// Ends the session, which gets no more calls.
pub fn end(session: *mut Session) {
    let null = std::ptr::null_mut();
    let _ = SESSION.compare_exchange(session, null, Ordering::AcqRel, Ordering::Relaxed);
}

/// # Safety
/// As getsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut u32,
) -> c_int {
    let userdata: *mut c_void = SESSION.load(Ordering::Acquire).cast();
    // SAFETY: the session lives until packetdrill frees it, which it does after its last call.
    let found = unsafe { session(userdata) };
    if found.is_some_and(|session| session.world().process().is_socket(fd)) {
        // SAFETY: the caller's memory is as getsockopt(2) has it.
        return unsafe { abi::getsockopt(userdata, fd, level, name, value.cast(), len) };
    }
    if value.is_null() || len.is_null() {
        return fail(libc::EFAULT) as c_int;
    }
    // SAFETY: `len` points to the room at `value`.
    let room = unsafe { len.read() } as usize;
    // SAFETY: `value` has that room.
    match get_on_kernel(fd, level, name, unsafe { bytes_mut(value.cast(), room) }) {
        Ok(written) => {
            // SAFETY: as when it was read.
            unsafe { len.write(written as u32) };
            0
        }
        Err(errno) => fail(errno.0) as c_int,
    }
}
