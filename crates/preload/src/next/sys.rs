//! Symbol look-up.

use core::ffi::{CStr, c_int, c_void};

use slipstack_posix::Errno;

use crate::raw;

/// Stands for a function that this libc does not have.
unsafe extern "C" fn missing() -> c_int {
    raw::fail(Errno::ENOSYS)
}

/// The address of `name` in the libraries after ours.
pub fn find(name: &CStr) -> *mut c_void {
    // SAFETY: `name` is a C string; RTLD_NEXT looks after the calling library.
    let at = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if at.is_null() {
        return missing as *mut c_void;
    }
    at
}

/// `at` as the function type `F`.
#[inline(always)]
pub fn as_function<F: Copy>(at: *mut c_void) -> F {
    const {
        assert!(size_of::<F>() == size_of::<*mut c_void>());
    }
    // SAFETY: `F` is a C function pointer type of the same size, the one declared for the
    // symbol this address was found under; the address is not null.
    unsafe { core::mem::transmute_copy(&at) }
}
