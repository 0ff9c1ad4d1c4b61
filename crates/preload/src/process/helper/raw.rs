//! A fork that the program does not notice: without fork handlers, SIGCHLD and `wait`.

use core::ffi::c_int;

use crate::raw::{libc_result, syscall6};

/// Forks a child that the program does not notice: it is init's, and causes neither a signal nor a
/// result of `wait`.
pub fn fork_away() -> libc::pid_t {
    // SAFETY: without flags and a stack of its own the child goes on from here on a copy.
    let fork = || libc_result(unsafe { syscall6(libc::SYS_clone, [0; 6]) }) as libc::pid_t;
    let middle = fork();
    if middle == 0 {
        let child = fork();
        if child != 0 {
            // SAFETY: ends this process, which is a copy and has done its part.
            unsafe {
                syscall6(
                    libc::SYS_exit_group,
                    [usize::from(child < 0), 0, 0, 0, 0, 0],
                )
            };
        }
        return child;
    }
    let mut status: c_int = 0;
    let args = [
        middle as usize,
        &raw mut status as usize,
        libc::__WALL as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes the status.
    match middle > 0 && unsafe { syscall6(libc::SYS_wait4, args) } == middle as isize {
        true if status == 0 => middle,
        _ => -1,
    }
}

/// Gives such a child a session of its own, which no terminal's signals reach, and a name.
pub fn become_helper() {
    // SAFETY: takes nothing.
    unsafe { syscall6(libc::SYS_setsid, [0; 6]) };
    let name = c"slipstack-lend".as_ptr() as usize;
    // SAFETY: the kernel copies the string.
    unsafe {
        syscall6(
            libc::SYS_prctl,
            [libc::PR_SET_NAME as usize, name, 0, 0, 0, 0],
        )
    };
}
