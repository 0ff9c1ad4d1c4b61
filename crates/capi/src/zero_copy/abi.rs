//! `ff_zc_mbuf_…`, and our own functions for access to bytes in place.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_char, c_int, c_void};
use core::ptr::without_provenance_mut;

use libc::{iovec, size_t, ssize_t};
use slipstack_abi::abi;
use slipstack_abi::raw::{self, system};
use slipstack_posix::{Divert, Errno, Outcome, Process};

use super::chain::Memory;
use super::{memory, sys, with_chains};
use crate::call::{answer, answer_work, fail, length};

/// `struct ff_zc_mbuf`.
#[repr(C)]
pub struct Buffer {
    pub(super) head: *mut c_void,
    pub(super) place: *mut c_void,
    pub(super) off: c_int,
    pub(super) len: c_int,
}

impl Buffer {
    pub(super) const NONE: Buffer = Buffer {
        head: core::ptr::null_mut(),
        place: core::ptr::null_mut(),
        off: 0,
        len: 0,
    };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_zc_mbuf_get(buffer: *mut Buffer, len: c_int) -> c_int {
    // SAFETY: null or the program's structure.
    let Some(buffer) = (unsafe { buffer.as_mut() }) else {
        return fail(Errno::EINVAL) as c_int;
    };
    let Ok(room) = usize::try_from(len) else {
        return fail(Errno::EINVAL) as c_int;
    };
    let Some(at) = memory::make(room) else {
        return fail(Errno(libc::ENOBUFS)) as c_int;
    };
    *buffer = Buffer {
        head: without_provenance_mut(at),
        place: without_provenance_mut(at),
        off: 0,
        len,
    };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_zc_mbuf_write(
    buffer: *mut Buffer,
    data: *const c_char,
    len: c_int,
) -> c_int {
    // SAFETY: null or the program's structure.
    let Some(buffer) = (unsafe { buffer.as_mut() }) else {
        return fail(Errno::EINVAL) as c_int;
    };
    let Ok(count) = usize::try_from(len) else {
        return fail(Errno::EINVAL) as c_int;
    };
    // SAFETY: the program's bytes.
    let bytes = match unsafe { abi::bytes(data.cast(), count) } {
        Ok(bytes) => bytes,
        Err(errno) => return fail(errno) as c_int,
    };
    let at = buffer.head.addr();
    if with_chains(|chains| chains.fill(at, bytes)) != Some(true) {
        return fail(Errno::EINVAL) as c_int;
    }
    buffer.off = buffer.off.saturating_add(len);
    len
}

/// Address at which the program itself puts the next bytes of a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipstack_zc_room(buffer: *mut Buffer, place: *mut iovec) -> ssize_t {
    // SAFETY: null or the program's structure.
    let at = unsafe { buffer.as_ref() }.map(|buffer| buffer.head.addr());
    let room = at.and_then(|at| with_chains(|chains| chains.room(at)).flatten());
    match room {
        Some(room) if !place.is_null() => {
            // SAFETY: the program's place for one.
            unsafe { place.write_unaligned(room) };
            length(room.iov_len)
        }
        _ => fail(Errno::EINVAL),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipstack_zc_filled(buffer: *mut Buffer, len: size_t) -> c_int {
    // SAFETY: null or the program's structure.
    let Some(buffer) = (unsafe { buffer.as_mut() }) else {
        return fail(Errno::EINVAL) as c_int;
    };
    let at = buffer.head.addr();
    match with_chains(|chains| chains.filled(at, len)) {
        Some(true) => {
            let count = c_int::try_from(len).unwrap_or(c_int::MAX);
            buffer.off = buffer.off.saturating_add(count);
            0
        }
        _ => fail(Errno::EINVAL) as c_int,
    }
}

/// Gives a buffer back that will not be sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipstack_zc_free(buffer: *mut Buffer) -> c_int {
    // SAFETY: null or the program's structure.
    let head = unsafe { buffer.as_ref() }.map(|buffer| buffer.head.addr());
    match head.and_then(|at| with_chains(|chains| chains.free(at))) {
        Some(true) => 0,
        _ => fail(Errno::EINVAL) as c_int,
    }
}

/// `ff_write` of a buffer: takes it over. One that finds too little room stays the program's, and
/// the next call goes on where this one ended.
pub fn write_chain(fd: c_int, at: usize, len: usize) -> ssize_t {
    send_chain(fd, at, len, false)
}

/// As [`write_chain`], of a buffer that is gone afterwards, whatever the result.
#[unsafe(no_mangle)]
pub extern "C" fn ff_zc_send(fd: c_int, head: *const c_void, len: size_t) -> ssize_t {
    send_chain(fd, head.addr(), len, true)
}

fn send_chain(fd: c_int, at: usize, len: usize, is_last: bool) -> ssize_t {
    let Some(sending) = with_chains(|chains| chains.lend(at, len)).flatten() else {
        return fail(Errno::EINVAL);
    };
    let bufs = sys::slices(&sending);
    let args = [fd as usize, bufs.as_ptr() as usize, bufs.len(), 0, 0, 0];
    let result = answer_work(
        |process| match &sending.memory {
            Memory::Own(_) => process.sendmsg(fd, &bufs, None, &[], 0).map(length),
            Memory::Carved(_) => process.send_carved(fd, &bufs).map(length),
        },
        // SAFETY: slices are laid out as `iovec`, and there are at most 128 of them.
        || unsafe { system(libc::SYS_writev, args) },
    );
    drop(bufs);
    let errno = raw::errno();
    let count = usize::try_from(result).unwrap_or(0);
    let is_all = is_last || result >= 0 && count >= sending.rest.len();
    with_chains(|chains| chains.settle(at, sending, count, is_all));
    if result < 0 {
        // Settling the chain may have freed its memory, and freeing may change errno.
        raw::set_errno(errno);
    }
    result
}

/// Puts two pieces where the program wants them.
unsafe fn give_pieces(
    pieces: *mut iovec,
    ask: impl FnMut(&Process) -> Outcome<[iovec; 2]>,
) -> ssize_t {
    if pieces.is_null() {
        return fail(Errno::EFAULT);
    }
    let mut ask = ask;
    answer(
        |process| {
            let found = ask(process)?;
            // SAFETY: the program's place for two.
            unsafe { pieces.cast::<[iovec; 2]>().write_unaligned(found) };
            Ok(length(found[0].iov_len + found[1].iov_len))
        },
        || fail(Errno::EBADF),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipstack_send_room(
    fd: c_int,
    len: size_t,
    pieces: *mut iovec,
) -> ssize_t {
    // SAFETY: the program's place.
    unsafe {
        give_pieces(pieces, |process| {
            let found = process.reserve(fd, len)?;
            match found[0].iov_len {
                0 if len > 0 => Err(Divert::Errno(Errno::EAGAIN)),
                _ => Ok(found),
            }
        })
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn slipstack_send_done(fd: c_int, len: size_t) -> c_int {
    answer_work(
        |process| process.commit(fd, len).map(|()| 0),
        || fail(Errno::EBADF),
    ) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipstack_recv_look(fd: c_int, pieces: *mut iovec) -> ssize_t {
    // SAFETY: the program's place.
    unsafe { give_pieces(pieces, |process| process.look_in_place(fd)) }
}

/// `struct slipstack_segment`.
#[repr(C)]
pub struct Segment {
    pieces: [iovec; 2],
    at: u64,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipstack_recv_take(
    fd: c_int,
    most: size_t,
    segment: *mut Segment,
) -> ssize_t {
    if segment.is_null() {
        return fail(Errno::EFAULT);
    }
    answer_work(
        |process| {
            let (at, pieces) = process.keep_in_place(fd, most)?;
            // SAFETY: the program's place for one.
            unsafe { segment.write_unaligned(Segment { pieces, at }) };
            Ok(length(pieces[0].iov_len + pieces[1].iov_len))
        },
        || fail(Errno::EBADF),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipstack_recv_give(fd: c_int, segment: *const Segment) -> c_int {
    // SAFETY: null or the program's segment.
    let Some(segment) = (unsafe { segment.as_ref() }) else {
        return fail(Errno::EFAULT) as c_int;
    };
    answer_work(
        |process| process.give_back_in_place(fd, segment.at).map(|()| 0),
        || fail(Errno::EBADF),
    ) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipstack_recv_done(
    fd: c_int,
    pieces: *const iovec,
    len: size_t,
) -> c_int {
    // SAFETY: null or the program's pieces.
    let Some(first) = (unsafe { pieces.as_ref() }) else {
        return fail(Errno::EFAULT) as c_int;
    };
    let at = first.iov_base.addr();
    answer_work(
        |process| process.consume_in_place(fd, at, len).map(|()| 0),
        || fail(Errno::EBADF),
    ) as c_int
}
