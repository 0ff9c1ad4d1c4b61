//! Privileges that the kernel keeps for each thread: those of our threads follow the program's
//! first thread.
//!
//! To a single-threaded program, `capset`, `prctl(PR_SET_KEEPCAPS)` and raw calls such as
//! `setresuid` act on the whole process. If a thread of ours kept its old privileges, glibc's next
//! `setuid`, which it applies to every thread, would end the process: it aborts where one thread
//! may not do what another one has done. And no thread of a process should keep privileges that its
//! program has given up. The program's own threads are its own concern, as on the kernel.

pub mod abi;
mod raw;

/// Whether a `prctl` changes the rights of its thread only.
fn is_of_thread(operation: i32) -> bool {
    matches!(
        operation,
        libc::PR_SET_KEEPCAPS
            | libc::PR_SET_SECUREBITS
            | libc::PR_CAPBSET_DROP
            | libc::PR_CAP_AMBIENT
            | libc::PR_SET_NO_NEW_PRIVS
    )
}

/// Whether a raw call changes the credentials of its thread only, which libc's function of that
/// name does for all.
pub fn is_change_of_user(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setgroups
    )
}

fn is_first_thread() -> bool {
    crate::raw::thread_id() == std::process::id() as usize
}
