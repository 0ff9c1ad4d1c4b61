//! Interposed calls that transfer bytes, with C's signatures; the descriptor is ours.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_uint, c_void};
use std::io::{IoSlice, IoSliceMut};

use libc::{iovec, off64_t, size_t, sockaddr, socklen_t, ssize_t};
use slipstack_posix::{AddrBytes, Errno, Splice};

use crate::abi;
use crate::call::{Restart, answer, answer_uncancelled, is_ours, length, place_to_discard};
use crate::next;
use crate::process;
use crate::raw::fail;

/// Receives into one buffer; the sender goes to `from`.
unsafe fn read_buffer(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    from: &mut Option<AddrBytes>,
    libc: impl FnMut() -> isize,
) -> ssize_t {
    let mut discarded;
    // SAFETY: the program's buffer.
    let buf = match unsafe { abi::bytes_mut(buf, len) } {
        Ok(buf) => buf,
        Err(errno) => match place_to_discard(fd, len, flags) {
            Some(place) => {
                discarded = place;
                &mut discarded[..]
            }
            None => return fail(errno) as ssize_t,
        },
    };
    answer(
        Restart::Receiving(fd),
        |process| {
            let received = process.recvmsg(fd, &mut [IoSliceMut::new(buf)], &mut [], flags)?;
            *from = received.from;
            Ok(length(received.len))
        },
        libc,
    )
}

unsafe fn write_buffer(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    to: Option<&[u8]>,
    libc: impl FnMut() -> isize,
) -> ssize_t {
    // SAFETY: the program's buffer.
    let buf = match unsafe { abi::bytes(buf, len) } {
        Ok(buf) => buf,
        Err(errno) => return fail(errno) as ssize_t,
    };
    answer(
        Restart::Sending(fd),
        |process| {
            process
                .sendmsg(fd, &[IoSlice::new(buf)], to, &[], flags)
                .map(length)
        },
        libc,
    )
}

/// sock_read_iter(), vfs_writev(): an empty `read` or `writev` does not reach the socket.
#[cold]
fn is_socket(fd: c_int) -> bool {
    process::current().is_some_and(|process| process.is_socket(fd))
}

pub unsafe fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    if len == 0 && is_socket(fd) {
        return 0;
    }
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::read.get())(fd, buf, len) };
    // SAFETY: the program's buffer.
    unsafe { read_buffer(fd, buf, len, 0, &mut None, libc) }
}

pub unsafe fn read_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    if len > room {
        // SAFETY: the program's own call; libc ends the program.
        return unsafe { (next::__read_chk.get())(fd, buf, len, room) };
    }
    // SAFETY: the program's own call.
    unsafe { read(fd, buf, len) }
}

pub unsafe fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::write.get())(fd, buf, len) };
    // SAFETY: the program's buffer.
    unsafe { write_buffer(fd, buf, len, 0, None, libc) }
}

unsafe fn recv_vector(
    fd: c_int,
    vecs: *const iovec,
    count: c_int,
    flags: c_int,
    libc: impl FnMut() -> isize,
) -> ssize_t {
    let Ok(count) = usize::try_from(count) else {
        return fail(Errno::EINVAL) as ssize_t;
    };
    let receive = |bufs: &mut [IoSliceMut<'_>]| {
        if bufs.iter().all(|buf| buf.is_empty()) && is_socket(fd) {
            return 0;
        }
        answer(
            Restart::Receiving(fd),
            |process| {
                process
                    .recvmsg(fd, bufs, &mut [], flags)
                    .map(|r| length(r.len))
            },
            libc,
        )
    };
    // SAFETY: the program's buffers.
    let result = unsafe { abi::with_slices_mut(vecs, count, Errno::EINVAL, receive) };
    result.unwrap_or_else(|errno| fail(errno) as ssize_t)
}

unsafe fn send_vector(
    fd: c_int,
    vecs: *const iovec,
    count: c_int,
    flags: c_int,
    libc: impl FnMut() -> isize,
) -> ssize_t {
    let Ok(count) = usize::try_from(count) else {
        return fail(Errno::EINVAL) as ssize_t;
    };
    let send = |bufs: &[IoSlice<'_>]| {
        if bufs.iter().all(|buf| buf.is_empty()) && is_socket(fd) {
            return 0;
        }
        answer(
            Restart::Sending(fd),
            |process| process.sendmsg(fd, bufs, None, &[], flags).map(length),
            libc,
        )
    };
    // SAFETY: the program's buffers.
    let result = unsafe { abi::with_slices(vecs, count, Errno::EINVAL, send) };
    result.unwrap_or_else(|errno| fail(errno) as ssize_t)
}

pub unsafe fn readv(fd: c_int, vecs: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::readv.get())(fd, vecs, count) };
    // SAFETY: the program's buffers.
    unsafe { recv_vector(fd, vecs, count, 0, libc) }
}

pub unsafe fn writev(fd: c_int, vecs: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::writev.get())(fd, vecs, count) };
    // SAFETY: the program's buffers.
    unsafe { send_vector(fd, vecs, count, 0, libc) }
}

/// The `MSG_` flags of `preadv2`'s and `pwritev2`'s, which a socket takes at offset -1.
fn vector_flags(offset: off64_t, flags: c_int) -> Result<c_int, Errno> {
    const RWF_NOWAIT: c_int = 8;
    // RWF_HIPRI, RWF_DSYNC and RWF_SYNC mean nothing to a socket.
    const IDLE: c_int = 1 | 2 | 4;
    if offset != -1 {
        return Err(Errno::ESPIPE);
    }
    if flags & !(RWF_NOWAIT | IDLE) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(if flags & RWF_NOWAIT != 0 {
        libc::MSG_DONTWAIT
    } else {
        0
    })
}

pub unsafe fn preadv2(
    fd: c_int,
    vecs: *const iovec,
    count: c_int,
    offset: off64_t,
    flags: c_int,
) -> ssize_t {
    match vector_flags(offset, flags) {
        Ok(bits) => {
            // SAFETY: the program's own call.
            let libc = || unsafe { (next::preadv2.get())(fd, vecs, count, offset, flags) };
            // SAFETY: the program's buffers.
            unsafe { recv_vector(fd, vecs, count, bits, libc) }
        }
        Err(errno) => fail(errno) as ssize_t,
    }
}

pub unsafe fn pwritev2(
    fd: c_int,
    vecs: *const iovec,
    count: c_int,
    offset: off64_t,
    flags: c_int,
) -> ssize_t {
    match vector_flags(offset, flags) {
        Ok(bits) => {
            // SAFETY: the program's own call.
            let libc = || unsafe { (next::pwritev2.get())(fd, vecs, count, offset, flags) };
            // SAFETY: the program's buffers.
            unsafe { send_vector(fd, vecs, count, bits, libc) }
        }
        Err(errno) => fail(errno) as ssize_t,
    }
}

pub unsafe fn sendfile(out: c_int, file: c_int, offset: *mut off64_t, count: size_t) -> ssize_t {
    if !offset.is_null() && abi::is_out_of_reach(offset) {
        return fail(Errno::EFAULT) as ssize_t;
    }
    // SAFETY: null or a word of the program's.
    let mut place = unsafe { offset.as_mut() };
    answer_uncancelled(
        Restart::Sending(out),
        |process| {
            process
                .sendfile(out, file, place.as_deref_mut(), count)
                .map(length)
        },
        // SAFETY: the program's own call.
        || unsafe { (next::sendfile.get())(out, file, offset, count) },
    )
}

pub unsafe fn splice(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::splice.get())(from, from_offset, to, to_offset, len, flags) };
    let (ours, of_ours, of_pipe) = match (is_ours(from), is_ours(to)) {
        (false, false) => return libc(),
        (true, _) => (from, from_offset, to_offset),
        (false, true) => (to, to_offset, from_offset),
    };
    if !of_pipe.is_null() {
        return fail(Errno::ESPIPE) as ssize_t;
    }
    if !of_ours.is_null() {
        return fail(Errno::EINVAL) as ssize_t;
    }
    let asked = Splice {
        from,
        to,
        len,
        flags,
    };
    answer(
        Restart::Sending(ours),
        |process| process.splice(asked).map(length),
        libc,
    )
}

pub unsafe fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::recv.get())(fd, buf, len, flags) };
    // SAFETY: the program's buffer.
    unsafe { read_buffer(fd, buf, len, flags, &mut None, libc) }
}

pub unsafe fn recv_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    if len > room {
        // SAFETY: the program's own call; libc ends the program.
        return unsafe { (next::__recv_chk.get())(fd, buf, len, room, flags) };
    }
    // SAFETY: the program's own call.
    unsafe { recv(fd, buf, len, flags) }
}

pub unsafe fn recvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    let mut from = None;
    let mut is_answered = true;
    let libc = || {
        is_answered = false;
        // SAFETY: the program's own call.
        unsafe { (next::recvfrom.get())(fd, buf, len, flags, addr, addr_len) }
    };
    // SAFETY: the program's buffer.
    let result = unsafe { read_buffer(fd, buf, len, flags, &mut from, libc) };
    if result < 0 || !is_answered {
        return result;
    }
    // SAFETY: the program's place for the address.
    match unsafe { abi::give_sender(from, addr, addr_len) } {
        Ok(()) => result,
        Err(errno) => fail(errno) as ssize_t,
    }
}

pub unsafe fn recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    if len > room {
        // SAFETY: the program's own call; libc ends the program.
        return unsafe { (next::__recvfrom_chk.get())(fd, buf, len, room, flags, addr, addr_len) };
    }
    // SAFETY: the program's own call.
    unsafe { recvfrom(fd, buf, len, flags, addr, addr_len) }
}

pub unsafe fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::send.get())(fd, buf, len, flags) };
    // SAFETY: the program's buffer.
    unsafe { write_buffer(fd, buf, len, flags, None, libc) }
}

pub unsafe fn sendto(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    // SAFETY: the program's own call.
    let libc = || unsafe { (next::sendto.get())(fd, buf, len, flags, addr, addr_len) };
    let to = if addr.is_null() {
        None
    } else {
        // SAFETY: the program's address.
        match unsafe { abi::address(addr, addr_len) } {
            Ok(to) => Some(to),
            Err(errno) => return fail(errno) as ssize_t,
        }
    };
    // SAFETY: the program's buffer.
    unsafe { write_buffer(fd, buf, len, flags, to, libc) }
}
