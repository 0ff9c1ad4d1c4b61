//! `ff_zc_recv` and related functions, declared as in F-Stack's headers.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_char, c_int, c_void};
use core::ptr::without_provenance_mut;

use libc::{iovec, size_t, ssize_t};
use slipstack_abi::abi;
use slipstack_posix::Errno;

use crate::call::{answer_work, fail, length};
use crate::zero_copy::abi::Buffer;
use crate::zero_copy::with_chains;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_zc_recv(fd: c_int, buffer: *mut Buffer, most: size_t) -> ssize_t {
    // SAFETY: null or the program's structure.
    let Some(buffer) = (unsafe { buffer.as_mut() }) else {
        return fail(Errno::EINVAL);
    };
    if most > c_int::MAX as size_t {
        return fail(Errno::EINVAL);
    }
    *buffer = Buffer::NONE;
    answer_work(
        |process| {
            let Some(kept) = process.keep(fd, most)? else {
                return Ok(0);
            };
            let len: usize = kept.pieces().iter().map(|piece| piece.iov_len).sum();
            let at = with_chains(|chains| chains.receive(kept)).flatten();
            let head = without_provenance_mut(at.ok_or(Errno(libc::ENOBUFS))?);
            *buffer = Buffer {
                head,
                place: head,
                off: 0,
                len: c_int::try_from(len).unwrap_or(c_int::MAX),
            };
            Ok(length(len))
        },
        || fail(Errno::EBADF),
    )
}

/// Returns the next piece of a buffer, of at most `most` bytes; an empty one at the end.
fn next(buffer: &mut Buffer, most: usize) -> Result<iovec, Errno> {
    let at = buffer.head.addr();
    let pieces = with_chains(|chains| chains.received(at)).flatten();
    let mut off = usize::try_from(buffer.off).map_err(|_| Errno::EINVAL)?;
    for piece in pieces.ok_or(Errno::EINVAL)? {
        if off < piece.iov_len {
            let len = (piece.iov_len - off).min(most);
            buffer.off += c_int::try_from(len).unwrap_or(0);
            let iov_base = piece.iov_base.wrapping_byte_add(off);
            let iov_len = len;
            return Ok(iovec { iov_base, iov_len });
        }
        off -= piece.iov_len;
    }
    let iov_base = core::ptr::null_mut();
    let iov_len = 0;
    Ok(iovec { iov_base, iov_len })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_zc_mbuf_segment(
    buffer: *mut Buffer,
    data: *mut *mut c_void,
    len: *mut c_int,
) -> c_int {
    // SAFETY: null or the program's structure.
    let buffer = unsafe { buffer.as_mut() };
    // SAFETY: null or the program's place.
    let data = unsafe { data.as_mut() };
    // SAFETY: null or the program's place.
    let len = unsafe { len.as_mut() };
    let (Some(buffer), Some(data), Some(len)) = (buffer, data, len) else {
        return fail(Errno::EINVAL) as c_int;
    };
    match next(buffer, usize::MAX) {
        Ok(found) => {
            *data = found.iov_base;
            *len = c_int::try_from(found.iov_len).unwrap_or(c_int::MAX);
            *len
        }
        Err(errno) => fail(errno) as c_int,
    }
}

/// Copies received bytes out. As it is declared the place is constant, and still is the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_zc_mbuf_read(
    buffer: *mut Buffer,
    out: *const c_char,
    len: c_int,
) -> c_int {
    // SAFETY: null or the program's structure.
    let Some(buffer) = (unsafe { buffer.as_mut() }) else {
        return fail(Errno::EINVAL) as c_int;
    };
    let Ok(room) = usize::try_from(len) else {
        return fail(Errno::EINVAL) as c_int;
    };
    // SAFETY: the program's buffer.
    let out = match unsafe { abi::bytes_mut(out.cast_mut().cast(), room) } {
        Ok(out) => out,
        Err(errno) => return fail(errno) as c_int,
    };
    let mut done = 0;
    while done < room {
        match next(buffer, room - done) {
            Ok(piece) if piece.iov_len == 0 => break,
            Ok(piece) => {
                let part = &mut out[done..done + piece.iov_len];
                // SAFETY: bytes that this process keeps, and the program's buffer.
                unsafe {
                    core::ptr::copy(piece.iov_base.cast(), part.as_mut_ptr(), part.len());
                }
                done += piece.iov_len;
            }
            Err(errno) => return fail(errno) as c_int,
        }
    }
    c_int::try_from(done).unwrap_or(c_int::MAX)
}

/// Gives received bytes back, or a buffer that will not be sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_zc_recv_free(buffer: *mut Buffer) {
    // SAFETY: null or the program's structure.
    if let Some(buffer) = unsafe { buffer.as_mut() } {
        let at = buffer.head.addr();
        with_chains(|chains| chains.free(at));
        *buffer = Buffer::NONE;
    }
}
