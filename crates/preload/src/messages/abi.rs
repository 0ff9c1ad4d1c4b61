//! Interposed message calls, with C's signatures; where the descriptor is not ours, descriptors of
//! ours may be in the message.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};

use libc::{msghdr, sockaddr_storage, socklen_t, ssize_t};
use slipstack_posix::{Errno, Received};

use super::HEADER_LEN;
use super::rights::{self, Departure};
use crate::call::{Restart, answer, is_ours, length, place_to_discard};
use crate::next;
use crate::raw::fail;
use crate::{abi, process};

/// Returns a message's control messages, if there can be any.
///
/// # Safety
/// As for `msghdr` in C.
pub(super) unsafe fn control<'a>(header: &msghdr) -> &'a [u8] {
    if header.msg_controllen < HEADER_LEN {
        return &[];
    }
    // SAFETY: the program's bytes.
    unsafe { abi::bytes(header.msg_control, header.msg_controllen) }.unwrap_or(&[])
}

/// A message from a socket of the kernel's.
unsafe fn recvmsg_from_kernel(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let result = unsafe { (next::recvmsg.get())(fd, msg, flags) };
    // SAFETY: null or the program's message.
    if let Some(header) = unsafe { msg.as_ref() }.filter(|_| result >= 0) {
        // SAFETY: the kernel has filled it.
        rights::on_arrival(unsafe { control(header) });
    }
    result
}

/// A message to a socket of the kernel's: connections of ours in it are lent.
unsafe fn sendmsg_to_kernel(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: null or the program's message.
    let header = unsafe { abi::object(msg) }.ok();
    let departure = process::current()
        .zip(header)
        .and_then(|(process, header)| {
            // SAFETY: the program's message.
            Some((
                process,
                header,
                Departure::prepare(process, unsafe { control(header) })?,
            ))
        });
    let Some((process, header, mut departure)) = departure else {
        // SAFETY: the program's own call.
        return unsafe { (next::sendmsg.get())(fd, msg, flags) };
    };
    let mut changed = *header;
    changed.msg_control = departure.control.as_mut_ptr().cast();
    // SAFETY: the program's own call, with control messages of the same length.
    let result = unsafe { (next::sendmsg.get())(fd, &raw const changed, flags) };
    departure.end(process, result >= 0);
    result
}

pub unsafe fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    if !is_ours(fd) {
        // SAFETY: the program's own call.
        return unsafe { recvmsg_from_kernel(fd, msg, flags) };
    }
    // SAFETY: the program's message.
    let header = match unsafe { abi::object_mut(msg) } {
        Ok(header) => header,
        Err(errno) => return fail(errno) as ssize_t,
    };
    if has_bad_name(header) {
        return fail(Errno::EINVAL) as ssize_t;
    }
    // SAFETY: the program's place for control messages.
    let control = match unsafe { abi::bytes_mut(header.msg_control, control_room(header)) } {
        Ok(control) => control,
        Err(errno) => return fail(errno) as ssize_t,
    };
    let mut received = None;
    let mut receive = |bufs: &mut [IoSliceMut<'_>]| {
        answer(
            Restart::Receiving(fd),
            |process| {
                let got = process.recvmsg(fd, bufs, control, flags)?;
                received = Some(got);
                Ok(length(got.len))
            },
            // SAFETY: the program's own call.
            || unsafe { (next::recvmsg.get())(fd, msg, flags) },
        )
    };
    let (vecs, count) = (header.msg_iov, header.msg_iovlen);
    // SAFETY: the program's buffers.
    let mut result = unsafe { abi::with_slices_mut(vecs, count, Errno::EMSGSIZE, &mut receive) };
    if result == Err(Errno::EFAULT) {
        // SAFETY: the program's array.
        let len = unsafe { abi::total_len(vecs, count) };
        if let Some(mut place) = place_to_discard(fd, len, flags) {
            result = Ok(receive(&mut [IoSliceMut::new(&mut place)]));
        }
    }
    match (result, received) {
        (Err(errno), _) => fail(errno) as ssize_t,
        (Ok(result), None) => result,
        // SAFETY: the program's message.
        (Ok(result), Some(received)) => match unsafe { fill(msg, received, flags) } {
            Ok(()) => result,
            Err(errno) => fail(errno) as ssize_t,
        },
    }
}

/// Writes the fields of a received message other than its bytes.
pub(super) unsafe fn fill(msg: *mut msghdr, received: Received, flags: c_int) -> Result<(), Errno> {
    // SAFETY: the program's message, checked by the caller.
    let header = unsafe { &mut *msg };
    let name: *mut libc::sockaddr = header.msg_name.cast();
    if !name.is_null() {
        // SAFETY: the program's place for the address.
        unsafe { abi::give_sender(received.from, name, &raw mut header.msg_namelen) }?;
    }
    header.msg_flags = received.flags | flags & libc::MSG_CMSG_CLOEXEC;
    header.msg_controllen = received.control_len;
    Ok(())
}

/// Whether a message's place for an address has an impossible length.
pub(super) fn has_bad_name(header: &msghdr) -> bool {
    !header.msg_name.is_null() && header.msg_namelen.cast_signed() < 0
}

/// Bytes that a message has for control messages.
pub(super) fn control_room(header: &msghdr) -> usize {
    if header.msg_control.is_null() {
        0
    } else {
        header.msg_controllen
    }
}

/// __copy_msghdr(): an address is cut to the longest there is.
pub(super) unsafe fn destination<'a>(header: &msghdr) -> Result<Option<&'a [u8]>, Errno> {
    const LONGEST: socklen_t = size_of::<sockaddr_storage>() as socklen_t;
    if header.msg_name.is_null() || header.msg_namelen == 0 {
        return Ok(None);
    }
    if header.msg_namelen.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    let len = header.msg_namelen.min(LONGEST);
    // SAFETY: the program's address.
    unsafe { abi::address(header.msg_name.cast(), len) }.map(Some)
}

pub unsafe fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    if !is_ours(fd) {
        // SAFETY: the program's own call.
        return unsafe { sendmsg_to_kernel(fd, msg, flags) };
    }
    // SAFETY: the program's message.
    let header = match unsafe { abi::object(msg) } {
        Ok(header) => header,
        Err(errno) => return fail(errno) as ssize_t,
    };
    // SAFETY: the program's message.
    let to = match unsafe { destination(header) } {
        Ok(to) => to,
        Err(errno) => return fail(errno) as ssize_t,
    };
    // SAFETY: the program's control messages.
    let control = match unsafe { abi::bytes(header.msg_control, header.msg_controllen) } {
        Ok(control) => control,
        Err(errno) => return fail(errno) as ssize_t,
    };
    let send = |bufs: &[IoSlice<'_>]| {
        answer(
            Restart::Sending(fd),
            |process| process.sendmsg(fd, bufs, to, control, flags).map(length),
            // SAFETY: the program's own call.
            || unsafe { (next::sendmsg.get())(fd, msg, flags) },
        )
    };
    let (vecs, count) = (header.msg_iov, header.msg_iovlen);
    // SAFETY: the program's buffers.
    let result = unsafe { abi::with_slices(vecs, count, Errno::EMSGSIZE, send) };
    result.unwrap_or_else(|errno| fail(errno) as ssize_t)
}
