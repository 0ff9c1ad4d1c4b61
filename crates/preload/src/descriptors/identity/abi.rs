//! Interposed calls on a file's identity, with C's signatures.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::cmp::Ordering;
use core::ffi::{CStr, c_char, c_int, c_long, c_uint};
use std::os::fd::{FromRawFd, OwnedFd};

use libc::{size_t, ssize_t};

use super::{SOCKET, behind, number_at};
use crate::call::is_ours;
use crate::raw::{self, syscall6};
use crate::thread::InCall;
use crate::{abi, next, process};

/// Room for the path of a directory of descriptors.
const FOLDER_MAX: usize = 64;
/// Links that a path is followed through, and the bytes of one.
const LINKS_MAX: usize = 8;
const LINK_MAX: usize = 1024;
/// Room for the name of a socket in `/proc/self/fd`.
const NAME_MAX: usize = 32;

/// Returns the inode of a socket of ours.
fn inode_of(fd: c_int) -> Option<u64> {
    let process = process::current()?;
    let _in_call = InCall::enter();
    process.inode(fd)
}

/// Replaces the inode that libc has found for `fd`.
unsafe fn numbered(fd: Option<c_int>, status: *mut libc::stat) {
    // SAFETY: the program's structure, which libc has filled.
    if let (Some(inode), Some(status)) = (fd.and_then(inode_of), unsafe { status.as_mut() }) {
        status.st_ino = inode;
    }
}

pub unsafe fn fstat(fd: c_int, status: *mut libc::stat) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::fstat.get())(fd, status) };
    if result == 0 {
        // SAFETY: the program's structure.
        unsafe { numbered(Some(fd), status) };
    }
    result
}

pub unsafe fn fstat64(fd: c_int, status: *mut libc::stat) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::fstat64.get())(fd, status) };
    if result == 0 {
        // SAFETY: the program's structure.
        unsafe { numbered(Some(fd), status) };
    }
    result
}

/// `fstat` of programs that were linked with an older glibc.
pub unsafe fn fxstat(version: c_int, fd: c_int, status: *mut libc::stat) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::__fxstat.get())(version, fd, status) };
    if result == 0 {
        // SAFETY: the program's structure.
        unsafe { numbered(Some(fd), status) };
    }
    result
}

pub unsafe fn fxstat64(version: c_int, fd: c_int, status: *mut libc::stat) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::__fxstat64.get())(version, fd, status) };
    if result == 0 {
        // SAFETY: the program's structure.
        unsafe { numbered(Some(fd), status) };
    }
    result
}

/// Handles a path that libc has found to name a file.
unsafe fn named(at: c_int, path: *const c_char, result: c_int, status: *mut libc::stat) -> c_int {
    // SAFETY: the program's structure, which libc has filled.
    let is_socket = || unsafe { status.as_ref() }.is_some_and(|it| is_socket(it.st_mode));
    if result == 0 && process::current().is_some() && is_socket() {
        // SAFETY: the path that libc has read.
        let number = unsafe { number_behind(at, path) };
        // SAFETY: the program's structure.
        unsafe { numbered(number, status) };
    }
    result
}

fn is_socket(mode: u32) -> bool {
    mode & libc::S_IFMT == libc::S_IFSOCK
}

pub unsafe fn stat(path: *const c_char, status: *mut libc::stat) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::stat.get())(path, status) };
    // SAFETY: what libc has read and filled.
    unsafe { named(libc::AT_FDCWD, path, result, status) }
}

pub unsafe fn stat64(path: *const c_char, status: *mut libc::stat) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::stat64.get())(path, status) };
    // SAFETY: what libc has read and filled.
    unsafe { named(libc::AT_FDCWD, path, result, status) }
}

pub unsafe fn xstat(version: c_int, path: *const c_char, status: *mut libc::stat) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::__xstat.get())(version, path, status) };
    // SAFETY: what libc has read and filled.
    unsafe { named(libc::AT_FDCWD, path, result, status) }
}

pub unsafe fn xstat64(version: c_int, path: *const c_char, status: *mut libc::stat) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::__xstat64.get())(version, path, status) };
    // SAFETY: what libc has read and filled.
    unsafe { named(libc::AT_FDCWD, path, result, status) }
}

pub unsafe fn fstatat(
    at: c_int,
    path: *const c_char,
    status: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::fstatat.get())(at, path, status, flags) };
    // SAFETY: what libc has read and filled.
    unsafe { named(at, path, result, status) }
}

pub unsafe fn fstatat64(
    at: c_int,
    path: *const c_char,
    status: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::fstatat64.get())(at, path, status, flags) };
    // SAFETY: what libc has read and filled.
    unsafe { named(at, path, result, status) }
}

pub unsafe fn fxstatat(
    version: c_int,
    at: c_int,
    path: *const c_char,
    status: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::__fxstatat.get())(version, at, path, status, flags) };
    // SAFETY: what libc has read and filled.
    unsafe { named(at, path, result, status) }
}

pub unsafe fn fxstatat64(
    version: c_int,
    at: c_int,
    path: *const c_char,
    status: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::__fxstatat64.get())(version, at, path, status, flags) };
    // SAFETY: what libc has read and filled.
    unsafe { named(at, path, result, status) }
}

pub unsafe fn statx(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    status: *mut libc::statx,
) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::statx.get())(at, path, flags, mask, status) };
    if result != 0 || process::current().is_none() {
        return result;
    }
    // SAFETY: the program's structure, which libc has filled.
    if let Some(status) = unsafe { status.as_mut() }
        && is_socket(status.stx_mode.into())
        // SAFETY: the path that libc has read.
        && let Some(inode) = unsafe { number_behind(at, path) }.and_then(inode_of)
    {
        status.stx_ino = inode;
    }
    result
}

pub unsafe fn readlink(path: *const c_char, buf: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: the program's own call.
    let result = unsafe { (next::readlink.get())(path, buf, len) };
    // SAFETY: what libc has read and filled.
    unsafe { renamed(libc::AT_FDCWD, path, (buf, len), result) }
}

pub unsafe fn readlink_chk(
    path: *const c_char,
    buf: *mut c_char,
    len: size_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the program's own call.
    let result = unsafe { (next::__readlink_chk.get())(path, buf, len, room) };
    // SAFETY: what libc has read and filled.
    unsafe { renamed(libc::AT_FDCWD, path, (buf, len), result) }
}

pub unsafe fn readlinkat(at: c_int, path: *const c_char, buf: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: the program's own call.
    let result = unsafe { (next::readlinkat.get())(at, path, buf, len) };
    // SAFETY: what libc has read and filled.
    unsafe { renamed(at, path, (buf, len), result) }
}

pub unsafe fn readlinkat_chk(
    at: c_int,
    path: *const c_char,
    buf: *mut c_char,
    len: size_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the program's own call.
    let result = unsafe { (next::__readlinkat_chk.get())(at, path, buf, len, room) };
    // SAFETY: what libc has read and filled.
    unsafe { renamed(at, path, (buf, len), result) }
}

/// Handles a link that libc has read: that of a socket of ours has the inode of `fstat`.
unsafe fn renamed(
    at: c_int,
    path: *const c_char,
    (buf, len): (*mut c_char, size_t),
    result: ssize_t,
) -> ssize_t {
    let Some(read) = usize::try_from(result)
        .ok()
        .filter(|it| *it >= SOCKET.len())
    else {
        return result;
    };
    if process::current().is_none() {
        return result;
    }
    // SAFETY: libc has filled so many bytes of the program's `len`.
    let buf = unsafe { core::slice::from_raw_parts_mut(buf.cast::<u8>(), len) };
    if !buf[..read].starts_with(SOCKET) {
        return result;
    }
    // SAFETY: the path that libc has read.
    let Some(inode) = unsafe { number_of(at, path) }.and_then(inode_of) else {
        return result;
    };
    let mut name = [0; NAME_MAX];
    let mut room = &mut name[..];
    let _ = std::io::Write::write_fmt(&mut room, format_args!("socket:[{inode}]"));
    let len = (NAME_MAX - room.len()).min(buf.len());
    buf[..len].copy_from_slice(&name[..len]);
    len.cast_signed()
}

/// Returns the number of this process that a path names, which libc has read as a C string, or the
/// kernel has taken as an empty one if it is null.
unsafe fn number_of(at: c_int, path: *const c_char) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let path = match path.is_null() {
        true => &[],
        // SAFETY: the caller's promise.
        false => unsafe { CStr::from_ptr(path) }.to_bytes(),
    };
    if path.is_empty() {
        return Some(at);
    }
    let mut room = [0; FOLDER_MAX];
    number_at(|| folder_of(at, &mut room), path, is_own)
}

/// As [`number_of`], also through links that the path ends in, such as `/dev/stdin`.
unsafe fn number_behind(at: c_int, path: *const c_char) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let direct = unsafe { number_of(at, path) };
    if direct.is_some() || path.is_null() {
        return direct;
    }
    let _in_call = InCall::enter();
    // SAFETY: the caller's promise.
    let mut name = unsafe { CStr::from_ptr(path) }.to_bytes().to_vec();
    for _ in 0..LINKS_MAX {
        name.push(0);
        let mut target = [0; LINK_MAX];
        let (from, to) = (name.as_ptr(), target.as_mut_ptr());
        let (from, to) = (from.expose_provenance(), to.expose_provenance());
        let args = [at as usize, from, to, LINK_MAX, 0, 0];
        // SAFETY: a C string and a buffer of ours.
        let len = usize::try_from(unsafe { syscall6(libc::SYS_readlinkat, args) }).ok()?;
        name.pop();
        name = behind(&name, &target[..len]);
        let mut room = [0; FOLDER_MAX];
        let found = number_at(|| folder_of(at, &mut room), &name, is_own);
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Returns the path of the directory `at`, which is short if it is one of descriptors.
fn folder_of(at: c_int, room: &mut [u8; FOLDER_MAX]) -> &[u8] {
    let mut link = [0; FOLDER_MAX];
    let mut rest = &mut link[..FOLDER_MAX - 1];
    let _ = match at {
        libc::AT_FDCWD => std::io::Write::write_all(&mut rest, b"/proc/self/cwd"),
        at => std::io::Write::write_fmt(&mut rest, format_args!("/proc/self/fd/{at}")),
    };
    let (from, to) = (link.as_ptr().expose_provenance(), room.as_mut_ptr());
    let here = libc::AT_FDCWD as usize;
    let args = [here, from, to.expose_provenance(), FOLDER_MAX, 0, 0];
    // SAFETY: a C string and a buffer of ours.
    let len = unsafe { syscall6(libc::SYS_readlinkat, args) };
    &room[..usize::try_from(len).unwrap_or(0)]
}

/// Whether a thread is one of this process.
fn is_own(thread: u32) -> bool {
    let own = std::process::id();
    let args = [own as usize, thread as usize, 0, 0, 0, 0];
    // SAFETY: signal 0 is sent to nobody.
    thread == own || unsafe { syscall6(libc::SYS_tgkill, args) } == 0
}

const KCMP_FILE: usize = 0;
const KCMP_EPOLL_TFD: usize = 7;

/// `struct kcmp_epoll_slot`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Slot {
    set: u32,
    number: u32,
    offset: u32,
}

/// `kcmp`, which libc has no function for. `None`: the kernel answers.
pub unsafe fn kcmp(args: [usize; 6]) -> Option<c_long> {
    let [first, second, kind, a, b, _] = args;
    let owns = [first, second].map(|process| is_own(process as u32));
    let (a, order) = (a as c_int, |args| {
        // SAFETY: the program's own call, or with a structure of ours.
        order_of(raw::libc_result(unsafe { syscall6(libc::SYS_kcmp, args) }))
    });
    let compared = match (kind, owns) {
        (KCMP_FILE, [true, true]) if is_ours(a) && is_ours(b as c_int) => {
            let kernel = order(args)?;
            let _in_call = InCall::enter();
            process::current()?.compare_files(a, b as c_int, kernel)
        }
        (KCMP_FILE, [true, false]) if is_ours(a) => compare(a, (second, b), order(args)?),
        (KCMP_FILE, [false, true]) if is_ours(b as c_int) => {
            compare(b as c_int, (first, a as usize), order(args)?.reverse()).reverse()
        }
        (KCMP_EPOLL_TFD, [true, true]) => {
            // SAFETY: null or a structure of the program's.
            let slot = unsafe { abi::object(b as *const Slot) }.ok()?;
            // SAFETY: the program's own call.
            return unsafe { compare_with_member(args, *slot) };
        }
        _ => return None,
    };
    Some(number_of_order(compared))
}

/// Returns the order that a result of `kcmp` means: 1 is less, 2 is greater.
fn order_of(result: isize) -> Option<Ordering> {
    match result {
        0 => Some(Ordering::Equal),
        1 => Some(Ordering::Less),
        2 => Some(Ordering::Greater),
        _ => None,
    }
}

fn number_of_order(order: Ordering) -> c_long {
    match order {
        Ordering::Equal => 0,
        Ordering::Less => 1,
        Ordering::Greater => 2,
    }
}

/// Compares a number of ours with that of another process.
fn compare(own: c_int, (other, number): (usize, usize), kernel: Ordering) -> Ordering {
    let Some(process) = process::current() else {
        return kernel;
    };
    let _in_call = InCall::enter();
    let copy = copy_of(other, number);
    process.compare_with_another(own, (number as c_int, copy), kernel)
}

/// Returns a descriptor of the file that another process has under `number`; `None`: it may not be
/// had.
fn copy_of(process: usize, number: usize) -> Option<OwnedFd> {
    // SAFETY: a number is the only argument that is not 0.
    let handle = unsafe { syscall6(libc::SYS_pidfd_open, [process, 0, 0, 0, 0, 0]) };
    let handle = usize::try_from(handle).ok()?;
    let args = [handle, number, 0, 0, 0, 0];
    // SAFETY: numbers alone.
    let copy = unsafe { syscall6(libc::SYS_pidfd_getfd, args) };
    // SAFETY: the handle is ours.
    unsafe { syscall6(libc::SYS_close, [handle, 0, 0, 0, 0, 0]) };
    let copy = c_int::try_from(copy).ok().filter(|copy| *copy >= 0)?;
    // SAFETY: it has just been made for us.
    Some(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// KCMP_EPOLL_TFD within this process.
unsafe fn compare_with_member(args: [usize; 6], slot: Slot) -> Option<c_long> {
    let Slot { set, number, .. } = slot;
    let (fd, set, number) = (args[3] as c_int, set as c_int, number as c_int);
    let is_open = |fd: c_int| {
        // SAFETY: numbers alone.
        unsafe {
            syscall6(
                libc::SYS_fcntl,
                [fd as usize, libc::F_GETFD as usize, 0, 0, 0, 0],
            ) >= 0
        }
    };
    if !is_ours(set) || !is_open(fd) || !is_open(set) {
        return None;
    }
    let asked = {
        let process = process::current()?;
        let _in_call = InCall::enter();
        process.compare_with_member(fd, (set, number, slot.offset))
    };
    match asked {
        Ok(order) => Some(number_of_order(order)),
        Err(offset) => {
            let slot = Slot { offset, ..slot };
            let mut args = args;
            args[4] = (&raw const slot).expose_provenance();
            // SAFETY: the program's own call, with a structure of ours.
            Some(raw::libc_result(unsafe { syscall6(libc::SYS_kcmp, args) }) as c_long)
        }
    }
}
