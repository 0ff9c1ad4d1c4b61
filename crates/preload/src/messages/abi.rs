//! Interposed message calls, with C's signatures; where the descriptor is not ours, descriptors of
//! ours may be in the message.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_uint};
use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use libc::{mmsghdr, msghdr, sockaddr_storage, socklen_t, ssize_t, timespec};
use slipstack_posix::{Errno, Process, Received};

use super::HEADER_LEN;
use super::rights::{self, Departure};
use crate::call::{Restart, answer, answer_uncancelled, is_ours, length, place_to_discard};
use crate::next;
use crate::raw::{errno, fail};
use crate::{abi, cancel, process};

/// Linux's cap on messages per call.
const MESSAGES_MAX: c_uint = 1024;

/// Returns a message's control messages, if there can be any.
///
/// # Safety
/// As for `msghdr` in C.
unsafe fn control<'a>(header: &msghdr) -> &'a [u8] {
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
    if !header.msg_name.is_null() && header.msg_namelen.cast_signed() < 0 {
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
unsafe fn fill(msg: *mut msghdr, received: Received, flags: c_int) -> Result<(), Errno> {
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

/// Bytes that a message has for control messages.
fn control_room(header: &msghdr) -> usize {
    if header.msg_control.is_null() {
        0
    } else {
        header.msg_controllen
    }
}

/// __copy_msghdr(): an address is cut to the longest there is.
unsafe fn destination<'a>(header: &msghdr) -> Result<Option<&'a [u8]>, Errno> {
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

pub unsafe fn recvmmsg(
    fd: c_int,
    msgs: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if !is_ours(fd) {
        // SAFETY: the program's own call.
        let result = unsafe { (next::recvmmsg.get())(fd, msgs, count, flags, timeout) };
        for index in 0..result.max(0) as usize {
            // SAFETY: inside the program's array.
            let slot = unsafe { msgs.add(index) };
            // SAFETY: a message that the kernel has filled.
            let header = unsafe { &(*slot).msg_hdr };
            // SAFETY: as above.
            rights::on_arrival(unsafe { control(header) });
        }
        return result;
    }
    // SAFETY: null or the program's structure.
    let limit = match unsafe { abi::timespec(timeout) } {
        Ok(limit) => limit,
        Err(errno) => return fail(errno),
    };
    let begun = Instant::now();
    let mut one = flags & !libc::MSG_WAITFORONE;
    let mut done = 0;
    while done < count.min(MESSAGES_MAX) {
        let slot = msgs.wrapping_add(done as usize);
        if abi::is_out_of_reach(slot) {
            let _ = fail(Errno::EFAULT);
            break;
        }
        // SAFETY: a message of the program's.
        let header = unsafe { &raw mut (*slot).msg_hdr };
        // SAFETY: the program's own call.
        let result = unsafe { recvmsg(fd, header, one) };
        let Ok(len) = u32::try_from(result) else {
            break;
        };
        // SAFETY: a message of the program's.
        unsafe { (*slot).msg_len = len };
        done += 1;
        if flags & libc::MSG_WAITFORONE != 0 {
            one |= libc::MSG_DONTWAIT;
        }
        if limit.is_some_and(|limit| begun.elapsed() >= limit) {
            break;
        }
    }
    if done > 1 {
        let note = |process: &Process| {
            process.note_received(fd, done as usize);
            Ok(0)
        };
        answer_uncancelled(Restart::Never, note, || 0);
    }
    // SAFETY: null or the program's structure.
    if let (Some(limit), Some(left)) = (limit, unsafe { timeout.as_mut() }) {
        let rest = limit.saturating_sub(begun.elapsed());
        *left = to_timespec(rest);
    }
    count_or_failure(done, count)
}

pub unsafe fn sendmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    // SAFETY: the program's array.
    if !is_ours(fd) && !unsafe { any_has_control(msgs, count) } {
        // SAFETY: the program's own call.
        return unsafe { (next::sendmmsg.get())(fd, msgs, count, flags) };
    }
    // Not after the burst has begun.
    cancel::point();
    let mut done = 0;
    let is_burst = count > 1;
    if is_burst {
        let begin = |process: &Process| {
            process.begin_burst();
            Ok(0)
        };
        answer_uncancelled(Restart::Never, begin, || 0);
    }
    while done < count.min(MESSAGES_MAX) {
        let slot = msgs.wrapping_add(done as usize);
        if abi::is_out_of_reach(slot) {
            let _ = fail(Errno::EFAULT);
            break;
        }
        // SAFETY: a message of the program's.
        let header = unsafe { &raw const (*slot).msg_hdr };
        // SAFETY: the program's own call.
        let result = unsafe { sendmsg(fd, header, flags) };
        let Ok(len) = u32::try_from(result) else {
            break;
        };
        // SAFETY: a message of the program's.
        unsafe { (*slot).msg_len = len };
        done += 1;
    }
    let reason = Errno(errno());
    if is_burst {
        let end = |process: &Process| {
            process.end_burst(fd, done as usize);
            Ok(0)
        };
        answer_uncancelled(Restart::Never, end, || 0);
    }
    if done == 0 && count != 0 {
        return fail(reason);
    }
    done.cast_signed()
}

unsafe fn any_has_control(msgs: *const mmsghdr, count: c_uint) -> bool {
    let is_place = !abi::is_out_of_reach(msgs);
    is_place
        && (0..count.min(MESSAGES_MAX) as usize).any(|index| {
            // SAFETY: inside the program's array.
            let slot = unsafe { msgs.add(index) };
            // SAFETY: a message of the program's.
            unsafe { (*slot).msg_hdr.msg_controllen >= HEADER_LEN }
        })
}

/// As many as were done; the error counts only when it hit the first.
fn count_or_failure(done: c_uint, count: c_uint) -> c_int {
    if done == 0 && count != 0 {
        return fail(Errno(errno()));
    }
    done.cast_signed()
}

fn to_timespec(time: Duration) -> timespec {
    timespec {
        tv_sec: time.as_secs().cast_signed(),
        tv_nsec: time.subsec_nanos().into(),
    }
}
