//! Functions that transfer bytes, declared as in F-Stack's headers.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_void};
use std::io::{IoSlice, IoSliceMut};

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use slipstack_abi::abi;
use slipstack_abi::raw::system;
use slipstack_posix::{AddrBytes, Errno, Received};

use crate::call::{answer_work, fail, length};
use crate::life;
use crate::sockets::abi::Address;
use crate::zero_copy;

/// A read or a write of nothing is none of the socket's business, as on Linux.
fn is_socket(fd: c_int) -> bool {
    life::process().is_some_and(|process| process.is_socket(fd))
}

/// Whether one of the program's places is a buffer of `ff_zc_mbuf_get`, which only `ff_write` and
/// `ff_zc_send` take: there are no bytes at its address.
#[inline(always)]
fn has_head(mut places: impl Iterator<Item = *const u8>) -> bool {
    places.any(|place| zero_copy::is_head(place.addr()))
}

unsafe fn read_buffer(
    (fd, flags): (c_int, c_int),
    buf: *mut c_void,
    len: size_t,
    from: &mut Option<AddrBytes>,
    kernel: impl FnMut() -> isize,
) -> ssize_t {
    if zero_copy::is_head(buf.addr()) {
        return fail(Errno::EFAULT);
    }
    // SAFETY: the program's buffer.
    let buf = match unsafe { abi::bytes_mut(buf, len) } {
        Ok(buf) => buf,
        Err(errno) => return fail(errno),
    };
    answer_work(
        |process| {
            let received = process.recvmsg(fd, &mut [IoSliceMut::new(buf)], &mut [], flags)?;
            *from = received.from;
            Ok(length(received.len))
        },
        kernel,
    )
}

unsafe fn write_buffer(
    (fd, flags): (c_int, c_int),
    buf: *const c_void,
    len: size_t,
    to: Option<&[u8]>,
    kernel: impl FnMut() -> isize,
) -> ssize_t {
    // SAFETY: the program's buffer.
    let buf = match unsafe { abi::bytes(buf, len) } {
        Ok(buf) => buf,
        Err(errno) => return fail(errno),
    };
    answer_work(
        |process| {
            process
                .sendmsg(fd, &[IoSlice::new(buf)], to, &[], flags)
                .map(length)
        },
        kernel,
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    if len == 0 && is_socket(fd) {
        return 0;
    }
    let args = [fd as usize, buf as usize, len, 0, 0, 0];
    // SAFETY: the program's own call.
    let kernel = || unsafe { system(libc::SYS_read, args) };
    // SAFETY: the program's buffer.
    unsafe { read_buffer((fd, 0), buf, len, &mut None, kernel) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    if len > c_int::MAX as usize {
        return fail(Errno::EINVAL);
    }
    if zero_copy::is_head(buf.addr()) {
        return zero_copy::abi::write_chain(fd, buf.addr(), len);
    }
    if len == 0 && is_socket(fd) {
        return 0;
    }
    let args = [fd as usize, buf as usize, len, 0, 0, 0];
    // SAFETY: the program's own call.
    let kernel = || unsafe { system(libc::SYS_write, args) };
    // SAFETY: the program's buffer.
    unsafe { write_buffer((fd, 0), buf, len, None, kernel) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_readv(fd: c_int, vecs: *const iovec, count: c_int) -> ssize_t {
    let Ok(len) = usize::try_from(count) else {
        return fail(Errno::EINVAL);
    };
    let args = [fd as usize, vecs as usize, len, 0, 0, 0];
    let receive = |bufs: &mut [IoSliceMut<'_>]| {
        if has_head(bufs.iter().map(|buf| buf.as_ptr())) {
            return fail(Errno::EFAULT);
        }
        if bufs.iter().all(|buf| buf.is_empty()) && is_socket(fd) {
            return 0;
        }
        answer_work(
            |process| {
                process
                    .recvmsg(fd, bufs, &mut [], 0)
                    .map(|got| length(got.len))
            },
            // SAFETY: the program's own call.
            || unsafe { system(libc::SYS_readv, args) },
        )
    };
    // SAFETY: the program's buffers.
    let result = unsafe { abi::with_slices_mut(vecs, len, Errno::EINVAL, receive) };
    result.unwrap_or_else(fail)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_writev(fd: c_int, vecs: *const iovec, count: c_int) -> ssize_t {
    let Ok(len) = usize::try_from(count) else {
        return fail(Errno::EINVAL);
    };
    let args = [fd as usize, vecs as usize, len, 0, 0, 0];
    let send = |bufs: &[IoSlice<'_>]| {
        if has_head(bufs.iter().map(|buf| buf.as_ptr())) {
            return fail(Errno::EFAULT);
        }
        if bufs.iter().all(|buf| buf.is_empty()) && is_socket(fd) {
            return 0;
        }
        answer_work(
            |process| process.sendmsg(fd, bufs, None, &[], 0).map(length),
            // SAFETY: the program's own call.
            || unsafe { system(libc::SYS_writev, args) },
        )
    };
    // SAFETY: the program's buffers.
    let result = unsafe { abi::with_slices(vecs, len, Errno::EINVAL, send) };
    result.unwrap_or_else(fail)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_recv(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let nowhere = core::ptr::null_mut();
    // SAFETY: the program's buffer.
    unsafe { ff_recvfrom(fd, buf, len, flags, nowhere, core::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_recvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    let mut from = None;
    let mut is_answered = true;
    let (buf_at, addr_at, len_at) = (buf as usize, addr as usize, addr_len as usize);
    let args = [fd as usize, buf_at, len, flags as usize, addr_at, len_at];
    let kernel = || {
        is_answered = false;
        // SAFETY: the program's own call.
        unsafe { system(libc::SYS_recvfrom, args) }
    };
    // SAFETY: the program's buffer.
    let result = unsafe { read_buffer((fd, flags), buf, len, &mut from, kernel) };
    if result < 0 || !is_answered {
        return result;
    }
    // SAFETY: the program's place for the address.
    match unsafe { abi::give_sender(from, addr, addr_len) } {
        Ok(()) => result,
        Err(errno) => fail(errno),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_send(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's buffer.
    unsafe { ff_sendto(fd, buf, len, flags, core::ptr::null(), 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_sendto(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    let (buf_at, addr_at, len_at) = (buf as usize, addr as usize, addr_len as usize);
    let args = [fd as usize, buf_at, len, flags as usize, addr_at, len_at];
    // SAFETY: the program's own call.
    let kernel = || unsafe { system(libc::SYS_sendto, args) };
    if zero_copy::is_head(buf.addr()) {
        return fail(Errno::EFAULT);
    }
    let mut to = None;
    if !addr.is_null() {
        // SAFETY: the program's address.
        match unsafe { abi::address(addr, addr_len) } {
            Ok(bytes) => to = Some(Address::new(bytes)),
            Err(errno) => return fail(errno),
        }
    }
    let to = to.as_ref().map(Address::as_bytes);
    // SAFETY: the program's buffer.
    unsafe { write_buffer((fd, flags), buf, len, to, kernel) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: null or the program's message.
    let Some(header) = (unsafe { msg.as_mut() }) else {
        return fail(Errno::EFAULT);
    };
    if !header.msg_name.is_null() && header.msg_namelen.cast_signed() < 0 {
        return fail(Errno::EINVAL);
    }
    let room = match header.msg_control.is_null() {
        true => 0,
        false => header.msg_controllen,
    };
    // SAFETY: the program's place for control messages.
    let control = match unsafe { abi::bytes_mut(header.msg_control, room) } {
        Ok(control) => control,
        Err(errno) => return fail(errno),
    };
    let args = [fd as usize, msg as usize, flags as usize, 0, 0, 0];
    let mut received = None;
    let receive = |bufs: &mut [IoSliceMut<'_>]| {
        if has_head(bufs.iter().map(|buf| buf.as_ptr())) {
            return fail(Errno::EFAULT);
        }
        answer_work(
            |process| {
                let got = super::recvmsg(process, fd, bufs, control, flags)?;
                received = Some(got);
                Ok(length(got.len))
            },
            // SAFETY: the program's own call.
            || unsafe { system(libc::SYS_recvmsg, args) },
        )
    };
    let (vecs, count) = (header.msg_iov, header.msg_iovlen);
    // SAFETY: the program's buffers.
    let result = unsafe { abi::with_slices_mut(vecs, count, Errno::EMSGSIZE, receive) };
    match (result, received) {
        (Err(errno), _) => fail(errno),
        (Ok(result), None) => result,
        // SAFETY: the program's message.
        (Ok(result), Some(received)) => match unsafe { fill(header, received) } {
            Ok(()) => result,
            Err(errno) => fail(errno),
        },
    }
}

/// Writes the fields of a received message other than its bytes.
unsafe fn fill(header: &mut msghdr, received: Received) -> Result<(), Errno> {
    let name: *mut sockaddr = header.msg_name.cast();
    if !name.is_null() {
        // SAFETY: the program's place for the address.
        unsafe { abi::give_sender(received.from, name, &raw mut header.msg_namelen) }?;
    }
    header.msg_flags = received.flags;
    header.msg_controllen = received.control_len;
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: null or the program's message.
    let Some(header) = (unsafe { msg.as_ref() }) else {
        return fail(Errno::EFAULT);
    };
    let mut to = None;
    if !header.msg_name.is_null() && header.msg_namelen != 0 {
        // SAFETY: the program's address.
        match unsafe { abi::address(header.msg_name.cast(), header.msg_namelen) } {
            Ok(bytes) => to = Some(Address::new(bytes)),
            Err(errno) => return fail(errno),
        }
    }
    let to = to.as_ref().map(Address::as_bytes);
    // SAFETY: the program's control messages.
    let control = match unsafe { abi::bytes(header.msg_control, header.msg_controllen) } {
        Ok(control) => control,
        Err(errno) => return fail(errno),
    };
    let args = [fd as usize, msg as usize, flags as usize, 0, 0, 0];
    let send = |bufs: &[IoSlice<'_>]| {
        if has_head(bufs.iter().map(|buf| buf.as_ptr())) {
            return fail(Errno::EFAULT);
        }
        answer_work(
            |process| super::sendmsg(process, fd, bufs, (to, control), flags).map(length),
            // SAFETY: the program's own call.
            || unsafe { system(libc::SYS_sendmsg, args) },
        )
    };
    let (vecs, count) = (header.msg_iov, header.msg_iovlen);
    // SAFETY: the program's buffers.
    let result = unsafe { abi::with_slices(vecs, count, Errno::EMSGSIZE, send) };
    result.unwrap_or_else(fail)
}
