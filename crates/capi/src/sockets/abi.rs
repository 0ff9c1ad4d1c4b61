//! Functions that make, name and connect sockets, declared as in F-Stack's headers.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_void};
use std::net::Ipv4Addr;

use libc::{sockaddr, socklen_t};
use slipstack_abi::abi;
use slipstack_abi::raw::system;
use slipstack_posix::{AddrBytes, Errno, Process};

use super::{options, routes};
use crate::call::{answer, answer_work, fail, without_stack};
use crate::dispatcher::abi::source_for;
use crate::{life, network};

/// FreeBSD's AF_INET6.
const AF_INET6_FREEBSD: c_int = 28;

/// An address of the program's; FreeBSD's number of a family is as good as Linux's.
unsafe fn address(at: *const sockaddr, len: socklen_t) -> Result<Address, Errno> {
    // SAFETY: the program's address.
    let bytes = unsafe { abi::address(at, len) }?;
    Ok(Address::new(bytes))
}

/// A copy of an address.
pub struct Address {
    bytes: [u8; size_of::<libc::sockaddr_storage>()],
    len: usize,
}

impl Address {
    pub fn new(given: &[u8]) -> Self {
        let mut bytes = [0; size_of::<libc::sockaddr_storage>()];
        let len = given.len().min(bytes.len());
        bytes[..len].copy_from_slice(&given[..len]);
        if len >= 2 && bytes[..2] == (AF_INET6_FREEBSD as u16).to_ne_bytes() {
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        }
        Address { bytes, len }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if life::process().is_none() {
        return without_stack() as c_int;
    }
    let domain = match domain {
        AF_INET6_FREEBSD => libc::AF_INET6,
        domain => domain,
    };
    let plain = kind & !(Process::SOCK_KERNEL | Process::SOCK_STACK);
    let is_kernels = kind & (Process::SOCK_KERNEL | Process::SOCK_STACK) == Process::SOCK_KERNEL;
    let args = [domain, plain, protocol, 0, 0, 0].map(|word| word as usize);
    // SAFETY: takes no pointer.
    let kernel = || unsafe { system(libc::SYS_socket, args) };
    if is_kernels || !matches!(domain, libc::AF_INET | libc::AF_INET6) {
        return kernel() as c_int;
    }
    let kind = plain | Process::SOCK_STACK;
    answer(
        |process| {
            let fd = process.socket(domain, kind, protocol)?;
            if domain == libc::AF_INET6 {
                // FreeBSD's default: programs bind a port once for each family.
                let on = 1i32.to_ne_bytes();
                process.setsockopt(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &on)?;
            }
            Ok(fd as isize)
        },
        kernel,
    ) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    pair: *mut c_int,
) -> c_int {
    let args = [domain, kind, protocol].map(|word| word as usize);
    let args = [args[0], args[1], args[2], pair as usize, 0, 0];
    // SAFETY: the program's own call.
    unsafe { system(libc::SYS_socketpair, args) as c_int }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    let args = [fd as usize, addr as usize, len as usize, 0, 0, 0];
    // SAFETY: the program's address.
    match unsafe { address(addr, len) } {
        Ok(address) => answer(
            |process| process.bind(fd, address.as_bytes()).map(|()| 0),
            // SAFETY: the program's own call.
            || unsafe { system(libc::SYS_bind, args) },
        ) as c_int,
        Err(errno) => fail(errno) as c_int,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    let args = [fd as usize, addr as usize, len as usize, 0, 0, 0];
    // SAFETY: the program's address.
    match unsafe { address(addr, len) } {
        Ok(address) => answer(
            |process| {
                choose_source(process, fd, &address);
                process.connect(fd, address.as_bytes()).map(|()| 0)
            },
            // SAFETY: the program's own call.
            || unsafe { system(libc::SYS_connect, args) },
        ) as c_int,
        Err(errno) => fail(errno) as c_int,
    }
}

/// A socket without an address gets the one that the program's function names. Only the port is the
/// stack's choice.
fn choose_source(process: &Process, fd: c_int, remote: &Address) {
    if process.is_alone(fd)
        && let Some(source) = source_for(remote.as_bytes())
    {
        // A socket that is bound already keeps its address.
        let _ = process.bind(fd, &source);
    }
}

/// The IPv4 address of a `struct sockaddr_in` of the program's; `None` for a null pointer.
unsafe fn ipv4_address(at: *const sockaddr) -> Result<Option<Ipv4Addr>, Errno> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: the program's address, which is one of IPv4.
    let bytes = unsafe { abi::address(at, size_of::<libc::sockaddr_in>() as socklen_t) }?;
    let family = u16::from_ne_bytes([bytes[0], bytes[1]]);
    // A netmask's family is often left at 0.
    match i32::from(family) {
        libc::AF_INET | 0 => Ok(Some(Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]))),
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_route_ctl(
    operation: c_int,
    flag: c_int,
    destination: *const sockaddr,
    gateway: *const sockaddr,
    mask: *const sockaddr,
) -> c_int {
    let change = || {
        let given = routes::Given {
            // SAFETY: null or the program's address.
            to: unsafe { ipv4_address(destination) }?,
            // SAFETY: as above.
            gateway: unsafe { ipv4_address(gateway) }?,
            // SAFETY: as above.
            mask: unsafe { ipv4_address(mask) }?,
        };
        network::change(vec![routes::change_of(operation, flag, given)?])
    };
    match change() {
        Ok(()) => 0,
        Err(errno) => fail(errno) as c_int,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_listen(fd: c_int, backlog: c_int) -> c_int {
    answer(
        |process| process.listen(fd, backlog).map(|()| 0),
        // SAFETY: takes no pointer.
        || unsafe {
            system(
                libc::SYS_listen,
                [fd as usize, backlog as usize, 0, 0, 0, 0],
            )
        },
    ) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_shutdown(fd: c_int, how: c_int) -> c_int {
    answer(
        |process| process.shutdown(fd, how).map(|()| 0),
        // SAFETY: takes no pointer.
        || unsafe { system(libc::SYS_shutdown, [fd as usize, how as usize, 0, 0, 0, 0]) },
    ) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // As on FreeBSD, the connection is non-blocking if its listener is.
    let inherited = life::process().map_or(0, |process| {
        let flags = process.fcntl(fd, libc::F_GETFL, 0).unwrap_or(0);
        flags & libc::SOCK_NONBLOCK
    });
    // SAFETY: the program's own call.
    unsafe { ff_accept4(fd, addr, len, inherited) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_accept4(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    let mut peer = None;
    let args = [
        fd as usize,
        addr as usize,
        len as usize,
        flags as usize,
        0,
        0,
    ];
    let result = answer_work(
        |process| {
            let accepted = process.accept4(fd, flags)?;
            peer = Some(accepted.peer);
            Ok(accepted.fd as isize)
        },
        // SAFETY: the program's own call.
        || unsafe { system(libc::SYS_accept4, args) },
    ) as c_int;
    let Some(peer) = peer else {
        return result;
    };
    // SAFETY: the program's place for the address.
    match unsafe { abi::give_address(peer.as_bytes(), addr, len) } {
        Ok(()) => result,
        Err(errno) => {
            // A connection whose address cannot be told is closed, as on Linux.
            if let Some(process) = life::process() {
                let _ = process.close(result);
            }
            fail(errno) as c_int
        }
    }
}

/// Gives the program an address that came with `result`.
unsafe fn named(
    result: isize,
    address: Option<AddrBytes>,
    at: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let Some(address) = address else {
        return result as c_int;
    };
    // SAFETY: the program's place for the address.
    match unsafe { abi::give_name(address.as_bytes(), at, len) } {
        Ok(()) => result as c_int,
        Err(errno) => fail(errno) as c_int,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_getsockname(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let mut name = None;
    let args = [fd as usize, addr as usize, len as usize, 0, 0, 0];
    let result = answer(
        |process| {
            name = Some(process.getsockname(fd)?);
            Ok(0)
        },
        // SAFETY: the program's own call.
        || unsafe { system(libc::SYS_getsockname, args) },
    );
    // SAFETY: the program's place for the address.
    unsafe { named(result, name, addr, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_getpeername(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let mut name = None;
    let args = [fd as usize, addr as usize, len as usize, 0, 0, 0];
    let result = answer(
        |process| {
            name = Some(process.getpeername(fd)?);
            Ok(0)
        },
        // SAFETY: the program's own call.
        || unsafe { system(libc::SYS_getpeername, args) },
    );
    // SAFETY: the program's place for the address.
    unsafe { named(result, name, addr, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: null or a length word of the program's.
    let Some(room) = (unsafe { len.as_ref() }).copied() else {
        return fail(Errno::EFAULT) as c_int;
    };
    if room.cast_signed() < 0 {
        return fail(Errno::EINVAL) as c_int;
    }
    // SAFETY: the program's place for the value.
    let place = match unsafe { abi::bytes_mut(value, room as usize) } {
        Ok(place) => place,
        Err(errno) => return fail(errno) as c_int,
    };
    let mut written = None;
    let args = [fd, level, name].map(|word| word as usize);
    let args = [args[0], args[1], args[2], value as usize, len as usize, 0];
    let result = answer(
        |process| {
            written = Some(options::get(process, fd, (level, name), place)?);
            Ok(0)
        },
        // SAFETY: the program's own call.
        || unsafe { system(libc::SYS_getsockopt, args) },
    ) as c_int;
    if let Some(written) = written {
        // SAFETY: the program's length word, not null.
        unsafe { *len = written as socklen_t };
        // SO_GET_FILTER without room asks for the length.
        let asks_len = (level, name) == (libc::SOL_SOCKET, libc::SO_GET_FILTER) && room == 0;
        if written > room as usize && !asks_len {
            return fail(Errno::EINVAL) as c_int;
        }
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    if len.cast_signed() < 0 {
        return fail(Errno::EINVAL) as c_int;
    }
    let args = [fd, level, name].map(|word| word as usize);
    let args = [args[0], args[1], args[2], value as usize, len as usize, 0];
    // SAFETY: the program's value.
    match unsafe { abi::bytes(value, len as usize) } {
        Ok(bytes) => answer(
            |process| options::set(process, fd, (level, name), bytes).map(|()| 0),
            // SAFETY: the program's own call.
            || unsafe { system(libc::SYS_setsockopt, args) },
        ) as c_int,
        Err(errno) => fail(errno) as c_int,
    }
}
