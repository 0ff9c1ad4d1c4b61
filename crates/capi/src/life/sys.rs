//! Requests to the loader and libc.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The file that this code was loaded from: the library, or a program it is linked into.
pub fn own_file() -> Option<PathBuf> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    let own = own_file as fn() -> Option<PathBuf>;
    // SAFETY: an address of ours and a structure of ours.
    let is_found = unsafe { libc::dladdr(own as *const _, info.as_mut_ptr()) } != 0;
    // SAFETY: all-zero bytes are a valid value of plain pointers.
    let info = unsafe { info.assume_init() };
    if !is_found || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's string, which lives as long as the file is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    std::fs::canonicalize(OsStr::from_bytes(name.to_bytes())).ok()
}

/// Programs that this one starts do not inherit it.
pub fn set_cloexec(fd: i32) {
    // SAFETY: takes no pointer; the descriptor is ours.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
}

/// Hears of forks and of the process's end.
pub fn register() {
    let (prepare, parent, child) = (super::fork_prepare, super::fork_parent, super::fork_child);
    // SAFETY: the functions stay loaded as long as the library.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    // SAFETY: as above.
    unsafe { libc::atexit(super::end) };
}
