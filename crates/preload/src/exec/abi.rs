//! Interposed calls that start programs, with C's signatures.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use std::ffi::CString;

use libc::{FILE, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use super::fitness::{Fitness, judge};
use super::rights::{self, AsRoot};
use super::spawn::{ChildConnections, ShellConnections};
use super::sys::Actions;
use super::{Additions, completed, inherit_variables, search};
use crate::cores;
use crate::next;
use crate::process;
use crate::raw::fail;
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

/// The way in which a new program starts.
enum Start {
    /// The program is replaced by one that has the library or not.
    Replace(Fitness),
    /// The program continues; the new one gets this text about its descriptors.
    Beside(Option<String>),
}

/// Runs `start` with the environment a new program is to have.
unsafe fn with_environment<T>(theirs: Strings, how: Start, start: impl FnOnce(Strings) -> T) -> T {
    if process::environment().is_empty() {
        return start(theirs);
    }
    let replaces_us = matches!(how, Start::Replace(_));
    let becomes_root = matches!(how, Start::Replace(Fitness::ServedAsRoot));
    if replaces_us {
        process::before_exec();
    }
    // SAFETY: the program's array.
    let (additions, list) = unsafe { complete(theirs, how) };
    cores::leave();
    let as_root = becomes_root.then(AsRoot::begin);
    // The guard is closed here: the new program must not find signals blocked.
    let result = start(if additions.is_some() {
        list.as_ptr()
    } else {
        theirs
    });
    drop(as_root);
    cores::come_back();
    if replaces_us && let Some(process) = process::current() {
        let _in_call = InCall::enter();
        process.exec_failed();
    }
    let _in_call = InCall::enter();
    drop((additions, list));
    result
}

unsafe fn complete(theirs: Strings, how: Start) -> (Option<Additions>, Vec<*const c_char>) {
    let _in_call = InCall::enter();
    let becomes_root = matches!(how, Start::Replace(Fitness::ServedAsRoot));
    let inherit = match how {
        Start::Replace(fitness) => {
            let hears = fitness != Fitness::Kernels;
            process::current().and_then(|process| process.before_exec(hears))
        }
        Start::Beside(described) => described,
    };
    let mut only_its = inherit_variables(inherit);
    only_its.extend(becomes_root.then(rights::variable));
    // SAFETY: the program's array.
    let entries = unsafe { entries(theirs) };
    let texts: Vec<&[u8]> = entries.iter().map(|entry| entry.to_bytes()).collect();
    let additions = completed(process::environment(), &texts, only_its);
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

/// Returns the file that `search` finds for `name`. A file that does not exist is left to the
/// kernel's error.
unsafe fn found(
    name: *const c_char,
    search: impl FnOnce(&CStr) -> Option<CString>,
) -> Option<CString> {
    let _in_call = InCall::enter();
    if name.is_null() || process::environment().is_empty() {
        return None;
    }
    // SAFETY: a C string.
    search(unsafe { CStr::from_ptr(name) })
}

/// `execvp`'s search, along this program's own PATH.
fn along_path(file: &CStr) -> Option<CString> {
    // SAFETY: the program's array.
    let own = unsafe { entries(own_environment()) };
    let mut values = own
        .iter()
        .filter_map(|it| it.to_bytes().strip_prefix(b"PATH="));
    search::find(file, values.next())
}

/// Replaces this program by the one in `file`; `None` fails without us.
unsafe fn replaced(
    file: Option<CString>,
    envp: Strings,
    start: impl FnOnce(Strings) -> c_int,
) -> c_int {
    let Some(file) = file else {
        return start(envp);
    };
    match judge(&file, true) {
        // SAFETY: the program's array.
        Ok(fitness) => unsafe { with_environment(envp, Start::Replace(fitness), start) },
        Err(error) => fail(error),
    }
}

pub unsafe fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the program's own call.
    let start = |envp| unsafe { (next::execve.get())(path, argv, envp) };
    // SAFETY: the program's string.
    let file = unsafe { found(path, search::at) };
    // SAFETY: the program's array.
    unsafe { replaced(file, envp, start) }
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
    // SAFETY: the program's string.
    let file = unsafe { found(file, along_path) };
    // SAFETY: the program's array.
    unsafe { replaced(file, envp, start) }
}

pub unsafe fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the program's own call.
    let start = |envp| unsafe { (next::fexecve.get())(fd, argv, envp) };
    let file = CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    // SAFETY: the program's array.
    unsafe { replaced(search::at(&file), envp, start) }
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
    let in_folder = |path: &CStr| search::in_folder(at, path);
    // SAFETY: the program's string.
    let file = unsafe { found(path, in_folder) };
    // SAFETY: the program's array.
    unsafe { replaced(file, envp, start) }
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

/// Starts a program beside this one, with the file actions for our connections.
unsafe fn spawned(
    file: Option<CString>,
    actions: *const posix_spawn_file_actions_t,
    envp: Strings,
    start: impl FnOnce(*const posix_spawn_file_actions_t, Strings) -> c_int,
) -> c_int {
    let judged = file.as_deref().map(|file| judge(file, false));
    let fitness = match judged.unwrap_or(Ok(Fitness::Served)) {
        Ok(fitness) => fitness,
        Err(error) => return error.0,
    };
    let prepared = process::current().and_then(|process| {
        let _in_call = InCall::enter();
        // SAFETY: the program's actions.
        let mut changed = unsafe { Actions::read(actions) };
        let connections = ChildConnections::prepare(process, &mut changed, fitness);
        connections
            .described()
            .map(|described| (process, changed, connections, described))
    });
    let Some((process, mut changed, connections, described)) = prepared else {
        // SAFETY: the program's array.
        return unsafe { with_environment(envp, Start::Beside(None), |envp| start(actions, envp)) };
    };
    let changed = if connections.is_empty() {
        actions
    } else {
        changed.as_ptr()
    };
    let described = Start::Beside(Some(described));
    // SAFETY: the program's array.
    let result = unsafe { with_environment(envp, described, |envp| start(changed, envp)) };
    let _in_call = InCall::enter();
    connections.end(process, result == 0);
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
    // SAFETY: the program's string.
    let file = unsafe { found(path, search::at) };
    // SAFETY: the program's actions and its array.
    unsafe { spawned(file, actions, envp, start) }
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
    // SAFETY: the program's string.
    let found = unsafe { found(file, along_path) };
    // SAFETY: the program's actions and its array.
    unsafe { spawned(found, actions, envp, start) }
}

/// Calls that start a shell with the program's own environment get the completed one put in its
/// place meanwhile, and the shell the program's connections.
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
    let connections = process::current().and_then(|process| {
        let _in_call = InCall::enter();
        ShellConnections::lend(process)
    });
    let described = connections.as_ref().map(ShellConnections::described);
    // SAFETY: the program's array.
    let result = unsafe { with_environment(own, Start::Beside(described), swap) };
    let _in_call = InCall::enter();
    drop(connections);
    result
}

pub unsafe fn system(command: *const c_char) -> c_int {
    // SAFETY: the program's own call.
    with_own_environment(|| unsafe { (next::system.get())(command) })
}

pub unsafe fn popen(command: *const c_char, kind: *const c_char) -> *mut FILE {
    // SAFETY: the program's own call.
    with_own_environment(|| unsafe { (next::popen.get())(command, kind) })
}
