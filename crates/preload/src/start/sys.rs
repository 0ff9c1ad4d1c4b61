//! Hooks that the loader, libc's fork and libc's exit call.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;

use crate::process::{self, end_in_order};
use crate::{next, stdio};

/// Run by the loader before the program's `main`.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

/// Run by `exit` (and after `main` returns), before the destructors of other libraries.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end_of_exit;

extern "C" fn end_of_exit() {
    stdio::standard::abi::flush();
    end_in_order();
}

unsafe extern "C" {
    fn __cxa_at_quick_exit(run: extern "C" fn(*mut c_void), library: *const c_void) -> c_int;
}

#[cfg_attr(
    test,
    expect(dead_code, reason = "the test program has no loader hook")
)]
unsafe extern "C" fn begin(
    _count: c_int,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    next::resolve_all();
    // SAFETY: the loader's environment: an array of C strings that ends with null.
    super::start(unsafe { kept_variables(environment) });
}

/// Variables of F-Stack's adapter, which name an instance.
pub const ADAPTER: [&[u8]; 3] = [
    b"FF_PROC_ID=",
    b"FF_NB_FSTACK_INSTANCE=",
    b"FF_INITIAL_LCORE_ID=",
];

/// Whether this library was loaded under the name of F-Stack's adapter.
pub fn is_adapter() -> bool {
    let mut found = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let own: extern "C" fn() = end_of_exit;
    // SAFETY: an address inside this library, and room for the answer.
    if unsafe { libc::dladdr(own as *const c_void, found.as_mut_ptr()) } == 0 {
        return false;
    }
    // SAFETY: filled, and zeros before that.
    let found = unsafe { found.assume_init() };
    if found.dli_fname.is_null() {
        return false;
    }
    // SAFETY: the loader's name of this library, which stays.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    name.to_bytes().ends_with(b"libff_syscall.so")
}

/// Copies of `LD_PRELOAD`, the `SLIPSTACK_` variables and those of F-Stack's adapter.
///
/// # Safety
/// `environment` is an array of C strings that ends with null.
unsafe fn kept_variables(environment: *const *const c_char) -> Vec<CString> {
    let mut kept = Vec::new();
    let mut at = environment;
    loop {
        // SAFETY: `at` is inside the array: its end has not been seen.
        let variable = unsafe { *at };
        if variable.is_null() {
            return kept;
        }
        // SAFETY: an entry of the environment is a C string.
        let text = unsafe { CStr::from_ptr(variable) };
        let bytes = text.to_bytes();
        let is_adapters = ADAPTER.iter().any(|name| bytes.starts_with(name));
        if bytes.starts_with(b"LD_PRELOAD=") || bytes.starts_with(b"SLIPSTACK_") || is_adapters {
            kept.push(text.to_owned());
        }
        // SAFETY: the entry was not the last.
        at = unsafe { at.add(1) };
    }
}

/// Removes a variable from the program's environment.
pub fn unset(name: &str) {
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: before `main`, when no other thread reads the environment; libc copies no name.
    unsafe { libc::unsetenv(name.as_ptr()) };
}

/// Whether the program runs with more rights than its caller: then we stay out.
pub fn is_secure() -> bool {
    // SAFETY: reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Registers for forks and for `quick_exit`. Early, so that our part of a fork comes
/// after the program's own preparations and before its own clean-up in the child.
pub fn register() {
    extern "C" fn end(_: *mut c_void) {
        end_in_order();
    }
    let (prepare, parent, child) = (
        process::fork_prepare as _,
        process::fork_parent as _,
        process::fork_child as _,
    );
    // SAFETY: the three functions stay loaded for the life of the process.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    // SAFETY: as above.
    unsafe { __cxa_at_quick_exit(end, core::ptr::null()) };
}
