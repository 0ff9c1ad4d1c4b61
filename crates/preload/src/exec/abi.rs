//! The hooked calls that start programs. Each is as in C.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{CStr, c_char, c_int};
use core::ptr;

use libc::{FILE, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use super::spawn::Outfit;
use super::sys::Actions;
use super::{Additions, completed, inherit_variable, search};
use crate::life;
use crate::raw;
use crate::symbols::next;
use crate::thread::{self, InCall};

type Strings = *const *const c_char;

unsafe extern "C" {
    static mut environ: Strings;
}

/// The program's own environment, as it is now.
fn own_environment() -> Strings {
    // SAFETY: reads one pointer of libc's.
    unsafe { environ }
}

/// The entries of an array that ends with null.
unsafe fn entries<'a>(array: Strings) -> Vec<&'a CStr> {
    let mut all = Vec::new();
    if array.is_null() {
        return all;
    }
    for index in 0.. {
        // SAFETY: inside the array: its end has not been seen.
        let at = unsafe { array.add(index) };
        // SAFETY: as above.
        let entry = unsafe { *at };
        if entry.is_null() {
            break;
        }
        // SAFETY: an entry is a C string.
        all.push(unsafe { CStr::from_ptr(entry) });
    }
    all
}

/// Whether a new program has rights that its caller has not (AT_SECURE, __is_setuid()): squid starts its workers so.
fn is_to_be_secure() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    geteuid() != getuid() || getegid() != getgid()
}

/// What becomes of this program.
enum Start {
    /// It is replaced by the new one.
    Replace,
    /// It goes on; the new one is told this about descriptors.
    Beside(Option<String>),
}

/// Runs `start` with the environment a new program is to have.
unsafe fn with_environment<T>(theirs: Strings, how: Start, start: impl FnOnce(Strings) -> T) -> T {
    let ours = life::environment();
    if ours.is_empty() {
        return start(theirs);
    }
    if is_to_be_secure() {
        raw::write_stderr(
            b"slipstack: what is started here has another effective user than its caller: the system loads no library \
              into it, and its sockets are the kernel's\n",
        );
    }
    let replaces_us = matches!(how, Start::Replace);
    // SAFETY: the program's array.
    let (additions, list) = unsafe { complete(theirs, how) };
    // The guard is closed here: the new program must not find signals blocked.
    let result = start(if additions.is_some() {
        list.as_ptr()
    } else {
        theirs
    });
    if replaces_us && let Some(process) = life::process() {
        let _in_call = InCall::enter();
        process.exec_failed();
    }
    let _in_call = InCall::enter();
    drop((additions, list));
    result
}

unsafe fn complete(theirs: Strings, how: Start) -> (Option<Additions>, Vec<*const c_char>) {
    let _in_call = InCall::enter();
    let inherit = match how {
        Start::Replace => life::process().and_then(|process| process.before_exec()),
        Start::Beside(told) => told,
    };
    // SAFETY: the program's array.
    let entries = unsafe { entries(theirs) };
    let texts: Vec<&[u8]> = entries.iter().map(|entry| entry.to_bytes()).collect();
    let additions = completed(life::environment(), &texts, inherit_variable(inherit));
    let mut list = Vec::new();
    if let Some(additions) = &additions {
        for (index, entry) in entries.iter().enumerate() {
            if !additions.dropped.contains(&index) {
                list.push(entry.as_ptr());
            }
        }
        list.extend(additions.added.iter().map(|added| added.as_ptr()));
        list.push(ptr::null());
    }
    (additions, list)
}

/// Whether `is_there` finds a program that `name` stands for. What is not there fails without us.
unsafe fn finds(name: *const c_char, is_there: impl FnOnce(&CStr) -> bool) -> bool {
    let _in_call = InCall::enter();
    // SAFETY: a C string.
    !name.is_null() && is_there(unsafe { CStr::from_ptr(name) })
}

pub unsafe fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the program's own call.
    let start = |envp| unsafe { (next::execve.get())(path, argv, envp) };
    // SAFETY: the program's string.
    if !unsafe { finds(path, search::may_start) } {
        return start(envp);
    }
    // SAFETY: the program's array.
    unsafe { with_environment(envp, Start::Replace, start) }
}

pub unsafe fn execv(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the program's own call.
    unsafe { execve(path, argv, own_environment()) }
}

pub unsafe fn execvp(file: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the program's own call.
    unsafe { execvpe(file, argv, own_environment()) }
}

pub unsafe fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the program's own call.
    let start = |envp| unsafe { (next::execvpe.get())(file, argv, envp) };
    let is_there = |file: &CStr| {
        // SAFETY: the program's array.
        let own = unsafe { entries(own_environment()) };
        let mut values = own
            .iter()
            .filter_map(|it| it.to_bytes().strip_prefix(b"PATH="));
        search::may_find(file, values.next())
    };
    // SAFETY: the program's string.
    if !unsafe { finds(file, is_there) } {
        return start(envp);
    }
    // SAFETY: the program's array.
    unsafe { with_environment(envp, Start::Replace, start) }
}

pub unsafe fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the program's own call.
    let start = |envp| unsafe { (next::fexecve.get())(fd, argv, envp) };
    // SAFETY: the program's array.
    unsafe { with_environment(envp, Start::Replace, start) }
}

pub unsafe fn execveat(
    at: c_int,
    path: *const c_char,
    argv: Strings,
    envp: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    let start = |envp| unsafe { (next::execveat.get())(at, path, argv, envp, flags) };
    // SAFETY: the program's array.
    unsafe { with_environment(envp, Start::Replace, start) }
}

/// `argv`: the argument list, as an array. Called from assembly.
pub unsafe extern "C" fn execl(path: *const c_char, argv: Strings) -> c_int {
    if thread::current().is_in_call() {
        // SAFETY: the caller's own call.
        return unsafe { (next::execv.get())(path, argv) };
    }
    // SAFETY: the program's own call.
    unsafe { execv(path, argv) }
}

/// As [`execl`], with a search along PATH.
pub unsafe extern "C" fn execlp(file: *const c_char, argv: Strings) -> c_int {
    if thread::current().is_in_call() {
        // SAFETY: the caller's own call.
        return unsafe { (next::execvp.get())(file, argv) };
    }
    // SAFETY: the program's own call.
    unsafe { execvp(file, argv) }
}

/// As [`execl`]; the environment stands after the null that ends the arguments.
pub unsafe extern "C" fn execle(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the program's array.
    let count = unsafe { entries(argv) }.len();
    // SAFETY: one past the null that ends the arguments.
    let at = unsafe { argv.add(count + 1) };
    // SAFETY: there the program has put the environment.
    let envp = unsafe { *at }.cast();
    // SAFETY: the program's own call.
    unsafe { execve(path, argv, envp) }
}

/// Starts a program beside this one, with what `actions` say of our connections.
unsafe fn spawned(
    actions: *const posix_spawn_file_actions_t,
    envp: Strings,
    start: impl FnOnce(*const posix_spawn_file_actions_t, Strings) -> c_int,
) -> c_int {
    let outfitted = life::process().and_then(|process| {
        let _in_call = InCall::enter();
        // SAFETY: the program's actions.
        let mut changed = unsafe { Actions::read(actions) };
        let outfit = Outfit::prepare(process, &mut changed);
        let told: Vec<String> = outfit.told.iter().map(|fd| format!("c{fd}")).collect();
        (!told.is_empty()).then(|| (process, changed, outfit, told.join(",")))
    });
    let Some((process, mut changed, outfit, told)) = outfitted else {
        // SAFETY: the program's array.
        return unsafe { with_environment(envp, Start::Beside(None), |envp| start(actions, envp)) };
    };
    let changed = if outfit.is_empty() {
        actions
    } else {
        changed.as_ptr()
    };
    let told = Start::Beside(Some(told));
    // SAFETY: the program's array.
    let result = unsafe { with_environment(envp, told, |envp| start(changed, envp)) };
    let _in_call = InCall::enter();
    outfit.end(process, result == 0);
    result
}

pub unsafe fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    argv: Strings,
    envp: Strings,
) -> c_int {
    let spawn = next::posix_spawn.get();
    // SAFETY: the program's own call.
    let start = |actions, envp| unsafe { spawn(pid, path, actions, attributes, argv, envp) };
    // SAFETY: the program's actions and its array.
    unsafe { spawned(actions, envp, start) }
}

pub unsafe fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const posix_spawn_file_actions_t,
    attributes: *const posix_spawnattr_t,
    argv: Strings,
    envp: Strings,
) -> c_int {
    let spawn = next::posix_spawnp.get();
    // SAFETY: the program's own call.
    let start = |actions, envp| unsafe { spawn(pid, file, actions, attributes, argv, envp) };
    // SAFETY: the program's actions and its array.
    unsafe { spawned(actions, envp, start) }
}

/// Calls that take the program's own environment get the completed one put in its place
/// while they start the shell.
fn with_own_environment<T>(start: impl FnOnce() -> T) -> T {
    let own = own_environment();
    let swap = |envp: Strings| {
        if envp == own {
            return start();
        }
        // SAFETY: replaces one pointer of libc's; it is put back below.
        unsafe { environ = envp };
        let result = start();
        // Another thread may have put its own there.
        if own_environment() == envp {
            // SAFETY: as above.
            unsafe { environ = own };
        }
        result
    };
    // SAFETY: the program's array.
    unsafe { with_environment(own, Start::Beside(None), swap) }
}

pub unsafe fn system(command: *const c_char) -> c_int {
    // SAFETY: the program's own call.
    with_own_environment(|| unsafe { (next::system.get())(command) })
}

pub unsafe fn popen(command: *const c_char, kind: *const c_char) -> *mut FILE {
    // SAFETY: the program's own call.
    with_own_environment(|| unsafe { (next::popen.get())(command, kind) })
}
