//! The requests themselves, as the kernel takes them.

use core::ffi::{c_int, c_ulong, c_void};

use slipstack_posix::OwnAddress;

use super::super::own_addresses_at;
use super::{LIST, Request, is_about_address};
use crate::call::is_ours;
use crate::namespace::is_elsewhere;
use crate::thread::InCall;
use crate::{next, process, raw};

/// struct ifconf.
#[repr(C)]
struct List {
    len: c_int,
    at: *mut Request,
}

/// Answers a request about interfaces that was made on `fd`.
///
/// # Safety
/// As `ioctl`.
pub unsafe fn ask(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if !is_ours(fd) && is_elsewhere() {
        // SAFETY: the program's own request.
        return unsafe { (next::ioctl.get())(fd, request, argument) };
    }
    if request == LIST {
        // SAFETY: the program's own request.
        return unsafe { list(fd, argument) };
    }
    if !is_about_address(request) {
        // SAFETY: the program's own request.
        let result = unsafe { ask_kernel(fd, request, argument) };
        // SAFETY: null or the program's structure.
        let about = unsafe { argument.cast::<Request>().as_mut() };
        let is_answered = result != 0
            && raw::errno() == libc::ENODEV
            && about.is_some_and(|about| about.answer_by_stack(request));
        return if is_answered { 0 } else { result };
    }
    let own = own_addresses_at(fd);
    // SAFETY: null or the program's structure.
    let about = unsafe { argument.cast::<Request>().as_mut() };
    let mut own = own.iter().filter(|own| own.ip.is_ipv4());
    let Some(about) = about else {
        // SAFETY: the program's own request.
        return unsafe { ask_kernel(fd, request, argument) };
    };
    let given = about.given();
    let is_meant = |own: &&OwnAddress| about.is_about(own) && given == Some(own.ip);
    if let Some(own) = own.clone().find(is_meant) {
        about.answer(request, own);
        return 0;
    }
    // SAFETY: the program's own request.
    let result = unsafe { ask_kernel(fd, request, argument) };
    if result != 0
        && raw::errno() == libc::EADDRNOTAVAIL
        && let Some(own) = own.find(|own| about.is_about(own))
    {
        about.answer(request, own);
        return 0;
    }
    result
}

/// SIOCGIFCONF: as many as there is room for, or without a place the bytes that all need.
unsafe fn list(fd: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: null or the program's structure.
    let room = unsafe { argument.cast::<List>().as_ref() }.map_or(0, |list| list.len);
    // SAFETY: the program's own request.
    let result = unsafe { ask_kernel(fd, LIST, argument) };
    // SAFETY: as above.
    let Some(list) = unsafe { argument.cast::<List>().as_mut() }.filter(|_| result == 0) else {
        return result;
    };
    const ONE: usize = size_of::<Request>();
    let own = own_addresses_at(fd);
    for own in own.iter().filter(|own| own.ip.is_ipv4()) {
        let (filled, room) = (list.len.max(0) as usize, room.max(0) as usize);
        if !list.at.is_null() {
            if filled + ONE > room {
                break;
            }
            // SAFETY: the program has room for one more behind those that are there.
            let place = unsafe { list.at.byte_add(filled) };
            // SAFETY: as above; it need not be aligned.
            unsafe { place.write_unaligned(Request::new(own)) };
        }
        list.len += ONE as c_int;
    }
    0
}

/// The kernel's part of a socket answers; behind the number of one that has none is a file of
/// another kind, for which a new socket does.
unsafe fn ask_kernel(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the program's own request.
    let result = unsafe { (next::ioctl.get())(fd, request, argument) };
    if result == 0 || raw::errno() != libc::ENOTTY || !is_socket(fd) {
        return result;
    }
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: makes a descriptor.
    let spare = unsafe { (next::socket.get())(libc::AF_INET, kind, 0) };
    if spare < 0 {
        return -1;
    }
    // SAFETY: the program's own request on a descriptor of the kind it expects.
    let result = unsafe { (next::ioctl.get())(spare, request, argument) };
    let errno = raw::errno();
    // SAFETY: our own descriptor.
    unsafe { (next::close.get())(spare) };
    raw::set_errno(errno);
    result
}

/// Whether `fd` is a socket of ours.
fn is_socket(fd: c_int) -> bool {
    process::current().is_some_and(|process| {
        let _in_call = InCall::enter();
        process.is_socket(fd)
    })
}
