//! Programs that root starts with different real and effective users, as squid starts its workers.
//!
//! The kernel marks them (AT_SECURE), and the loader then loads no library. Where one of the two
//! users is root, which may become the other one at any time, the program is started with root as
//! both, and the library puts the caller's back before the program's `main`: the users are then
//! those that the kernel would have given it.

use std::ffi::CString;

use rustix::process::{Uid, geteuid, getuid};
use rustix::thread::set_thread_res_uid;

use crate::raw::write_stderr;

/// Variable with the real and the effective user that the library sets in a new program.
pub const USERS: &str = "SLIPSTACK_USERS";

/// The variable for a program that is started with root as both users.
pub fn variable() -> CString {
    let (real, effective) = (getuid().as_raw(), geteuid().as_raw());
    CString::new(format!("{USERS}={real},{effective}")).unwrap_or_default()
}

/// The calling thread's time with root as both users, which ends if the program could not be
/// started.
pub struct AsRoot {
    real: Uid,
    effective: Uid,
}

impl AsRoot {
    pub fn begin() -> AsRoot {
        let (real, effective) = (getuid(), geteuid());
        // If it fails, the program starts on the kernel's sockets.
        let _ = set_thread_res_uid(Uid::ROOT, Uid::ROOT, None);
        AsRoot { real, effective }
    }
}

impl Drop for AsRoot {
    fn drop(&mut self) {
        let _ = set_thread_res_uid(self.real, self.effective, None);
    }
}

/// Puts the users back before the program's `main`; `users`: the variable's value.
pub fn come_back(users: &str) {
    let user = |text: &str| text.parse().ok().filter(|user| *user != u32::MAX);
    let users = users.split_once(',');
    let users = users.and_then(|(real, effective)| Some((user(real)?, user(effective)?)));
    let Some((real, effective)) = users else {
        return;
    };
    let (real, effective) = (Uid::from_raw(real), Uid::from_raw(effective));
    if getuid().is_root()
        && geteuid().is_root()
        && set_thread_res_uid(real, effective, effective).is_err()
    {
        write_stderr(b"slipstack: the program's users cannot be put back\n");
        std::process::abort();
    }
}
