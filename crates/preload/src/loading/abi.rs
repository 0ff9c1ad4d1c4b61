//! Interposition of `dlopen`.

use core::ffi::{c_int, c_void};

use crate::next;
use crate::process;

/// libc's function and the flags for it, in two registers.
#[repr(C)]
pub struct Way {
    function: *const c_void,
    flags: usize,
}

/// Called from assembly.
pub extern "C" fn way(flags: c_int) -> Way {
    let flags = if process::environment().is_empty() {
        flags
    } else {
        flags & !libc::RTLD_DEEPBIND
    };
    Way {
        function: next::dlopen.get() as *const c_void,
        flags: flags as usize,
    }
}
