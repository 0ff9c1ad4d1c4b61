//! Interposed socket calls, with C's signatures.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_void};

use libc::{sockaddr, socklen_t};
use slipstack_posix::{AddrBytes, Errno, Outcome, Process};

use crate::abi;
use crate::call::{Restart, answer, answer_uncancelled};
use crate::descriptors::{closing, created};
use crate::namespace;
use crate::next;
use crate::process;
use crate::raw::fail;
use crate::thread::InCall;

/// Missing in libc (linux/sockios.h).
const SIOCATMARK: libc::c_ulong = 0x8905;

pub unsafe fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let (plain, wants_kernel) = Process::split_kind(kind);
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::socket.get())(domain, plain, protocol) };
    let is_internet = matches!(domain, libc::AF_INET | libc::AF_INET6);
    let is_alone = kind & Process::SOCK_STACK != 0;
    // A program that requests only the stack has it in any namespace.
    let is_here = || is_alone || !namespace::is_elsewhere();
    if !is_internet || !is_here() || process::activate().is_none() {
        let fd = libc();
        created(fd);
        let is_routes = domain == libc::AF_NETLINK && protocol == libc::NETLINK_ROUTE;
        if is_routes && fd >= 0 && !namespace::is_elsewhere() {
            watch_routes(fd);
        }
        return fd;
    }
    answer_uncancelled(
        Restart::Never,
        |process| {
            let fd = process.socket(domain, kind, protocol)?;
            if namespace::are_apart() && !is_alone {
                process.settle_kernel_part(fd);
            }
            Ok(fd as isize)
        },
        || {
            let fd = libc();
            created(fd);
            if wants_kernel && fd >= 0 {
                note_kernel_socket(fd, plain);
            }
            fd as isize
        },
    ) as c_int
}

#[cold]
fn note_kernel_socket(fd: c_int, kind: c_int) {
    if let Some(process) = process::activate() {
        let _in_call = InCall::enter();
        process.note_kernel_socket(fd, kind);
    }
}

/// A call of a kernel socket that may find its port taken by the kernel's part of a socket on the
/// stack.
fn or_with_port_freed(fd: c_int, addr: Option<&[u8]>, libc: impl Fn() -> c_int) -> c_int {
    let result = libc();
    if result != -1 || crate::raw::errno() != libc::EADDRINUSE {
        return result;
    }
    let Some(process) = process::activate() else {
        return result;
    };
    let has_freed = {
        let _in_call = InCall::enter();
        process.free_kernel_port(fd, addr)
    };
    match has_freed {
        true => libc(),
        false => fail(Errno::EADDRINUSE),
    }
}

/// Adds the stack's addresses to the kernel's for a program that requests them.
#[cold]
fn watch_routes(fd: c_int) {
    if let Some(process) = process::activate() {
        let _in_call = InCall::enter();
        process.watch_routes(fd);
    }
}

pub unsafe fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { (next::socketpair.get())(domain, kind, protocol, pair) };
    if result == 0 {
        // SAFETY: libc has just filled both.
        for fd in unsafe { *pair.cast::<[c_int; 2]>() } {
            created(fd);
        }
    }
    result
}

/// A call with nothing but a result.
fn plain(mut ask: impl FnMut(&Process) -> Outcome<()>, mut libc: impl FnMut() -> c_int) -> c_int {
    answer_uncancelled(
        Restart::Never,
        |process| ask(process).map(|()| 0),
        || libc() as isize,
    ) as c_int
}

pub unsafe fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the program's address.
    match unsafe { abi::address(addr, len) } {
        Ok(address) => plain(
            |process| process.bind(fd, address),
            || {
                // SAFETY: the program's own call.
                or_with_port_freed(fd, Some(address), || unsafe {
                    (next::bind.get())(fd, addr, len)
                })
            },
        ),
        Err(errno) => fail(errno),
    }
}

pub unsafe fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the program's address.
    match unsafe { abi::address(addr, len) } {
        Ok(address) => answer(
            Restart::Sending(fd),
            |process| process.connect(fd, address).map(|()| 0),
            // SAFETY: the program's own call.
            || unsafe { (next::connect.get())(fd, addr, len) as isize },
        ) as c_int,
        Err(errno) => fail(errno),
    }
}

pub unsafe fn listen(fd: c_int, backlog: c_int) -> c_int {
    plain(
        |process| process.listen(fd, backlog),
        || {
            // SAFETY: the program's own call.
            or_with_port_freed(fd, None, || unsafe { (next::listen.get())(fd, backlog) })
        },
    )
}

pub unsafe fn shutdown(fd: c_int, how: c_int) -> c_int {
    plain(
        |process| process.shutdown(fd, how),
        // SAFETY: the program's own call.
        || unsafe { (next::shutdown.get())(fd, how) },
    )
}

pub unsafe fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the program's own call.
    unsafe { accept4(fd, addr, len, 0) }
}

pub unsafe fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    let mut peer = None;
    let result = answer(
        Restart::Receiving(fd),
        |process| {
            let accepted = process.accept4(fd, flags)?;
            peer = Some(accepted.peer);
            Ok(accepted.fd as isize)
        },
        || {
            // SAFETY: the program's own call.
            let fd = unsafe { (next::accept4.get())(fd, addr, len, flags) };
            created(fd);
            fd as isize
        },
    ) as c_int;
    let Some(peer) = peer else {
        return result;
    };
    // SAFETY: the program's place for the address.
    match unsafe { abi::give_address(peer.as_bytes(), addr, len) } {
        Ok(()) => result,
        Err(errno) => {
            // do_accept(): a connection whose address cannot be returned is closed. SAFETY: a
            // number that the program has not been given.
            unsafe { closing::abi::close(result) };
            fail(errno)
        }
    }
}

/// Writes the address that came with `result` for the program.
unsafe fn named(
    result: c_int,
    address: Option<AddrBytes>,
    at: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let Some(address) = address else {
        return result;
    };
    // SAFETY: the program's place for the address.
    match unsafe { abi::give_name(address.as_bytes(), at, len) } {
        Ok(()) => result,
        Err(errno) => fail(errno),
    }
}

pub unsafe fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let mut name = None;
    let result = answer_uncancelled(
        Restart::Never,
        |process| {
            name = Some(process.getsockname(fd)?);
            Ok(0)
        },
        // SAFETY: the program's own call.
        || unsafe { (next::getsockname.get())(fd, addr, len) as isize },
    ) as c_int;
    // SAFETY: the program's place for the address.
    unsafe { named(result, name, addr, len) }
}

pub unsafe fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let mut name = None;
    let result = answer_uncancelled(
        Restart::Never,
        |process| {
            name = Some(process.getpeername(fd)?);
            Ok(0)
        },
        // SAFETY: the program's own call.
        || unsafe { (next::getpeername.get())(fd, addr, len) as isize },
    ) as c_int;
    // SAFETY: the program's place for the address.
    unsafe { named(result, name, addr, len) }
}

pub unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: a length word of the program's.
    let room = match unsafe { abi::object(len) } {
        Ok(room) => *room,
        Err(errno) => return fail(errno),
    };
    if room.cast_signed() < 0 {
        return fail(Errno::EINVAL);
    }
    // SAFETY: the program's place for the value.
    let place = match unsafe { abi::bytes_mut(value, room as usize) } {
        Ok(place) => place,
        Err(errno) => return fail(errno),
    };
    let mut written = None;
    let result = answer_uncancelled(
        Restart::Never,
        |process| {
            written = Some(process.getsockopt(fd, level, name, place)?);
            Ok(0)
        },
        // SAFETY: the program's own call.
        || unsafe { (next::getsockopt.get())(fd, level, name, value, len) as isize },
    ) as c_int;
    if let Some(written) = written {
        // SAFETY: the program's length word, not null.
        unsafe { *len = written as socklen_t };
        // SO_GET_FILTER without room asks for the length.
        let asks_len = (level, name) == (libc::SOL_SOCKET, libc::SO_GET_FILTER) && room == 0;
        if written > room as usize && !asks_len {
            return fail(Errno::EINVAL);
        }
    }
    result
}

pub unsafe fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    if len.cast_signed() < 0 {
        return fail(Errno::EINVAL);
    }
    // SAFETY: the program's value.
    match unsafe { abi::bytes(value, len as usize) } {
        Ok(bytes) => plain(
            |process| process.setsockopt(fd, level, name, bytes),
            // SAFETY: the program's own call.
            || unsafe { (next::setsockopt.get())(fd, level, name, value, len) },
        ),
        Err(errno) => fail(errno),
    }
}

pub unsafe fn sockatmark(fd: c_int) -> c_int {
    let mut answer: c_int = 0;
    // SAFETY: an int of ours.
    let result =
        unsafe { crate::descriptors::abi::ioctl(fd, SIOCATMARK, (&raw mut answer).cast()) };
    if result < 0 { result } else { answer }
}
