//! The interposed `pthread_create`.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_void};

use libc::{pthread_attr_t, pthread_t};

use super::{come_back, leave};
use crate::next;

pub unsafe fn create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    run: *const c_void,
    with: *mut c_void,
) -> c_int {
    leave();
    // SAFETY: the program's own call.
    let result = unsafe { (next::pthread_create.get())(thread, attributes, run, with) };
    come_back();
    result
}
