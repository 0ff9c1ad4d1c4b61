//! The interposed calls for several messages, with C's signatures.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_uint};
use std::time::{Duration, Instant};

use libc::{mmsghdr, msghdr, timespec};
use slipstack_posix::{Errno, Give, Process, Take};

use crate::call::{Restart, answer_uncancelled, is_ours};
use crate::messages::abi::{
    control, control_room, destination, fill, has_bad_name, recvmsg, sendmsg,
};
use crate::messages::{HEADER_LEN, rights};
use crate::raw::{errno, fail};
use crate::{abi, cancel, next};

/// Linux's cap on messages per call.
const MESSAGES_MAX: c_uint = 1024;

/// The program's array, of which the first `done` messages are done.
struct Messages {
    at: *mut mmsghdr,
    count: c_uint,
    done: c_uint,
    flags: c_int,
    /// The time at which a recvmmsg() returns what it has.
    end: Option<Instant>,
}

impl Messages {
    fn new(at: *mut mmsghdr, count: c_uint, flags: c_int) -> Messages {
        Messages {
            at,
            count: count.min(MESSAGES_MAX),
            done: 0,
            flags,
            end: None,
        }
    }

    fn is_wanted(&self) -> bool {
        let is_over = |end| self.done > 0 && Instant::now() >= end;
        self.done < self.count && !self.end.is_some_and(is_over)
    }

    /// The next message, if the program can have one there.
    fn place(&self) -> Option<*mut mmsghdr> {
        let slot = self.at.wrapping_add(self.done as usize);
        (!abi::is_out_of_reach(slot)).then_some(slot)
    }

    /// Notes the length of the next message.
    ///
    /// # Safety
    /// `slot` is the place of that message.
    unsafe fn end_one(&mut self, slot: *mut mmsghdr, len: u32) {
        // SAFETY: as the caller vouches.
        unsafe { (*slot).msg_len = len };
        self.done += 1;
    }

    /// Does the next message by a call for one; errno says why not.
    ///
    /// # Safety
    /// The array is the program's.
    unsafe fn end_by(&mut self, call: impl FnOnce(*mut msghdr) -> isize) -> bool {
        let Some(slot) = self.place() else {
            let _ = fail(Errno::EFAULT);
            return false;
        };
        // SAFETY: a message of the program's.
        let header = unsafe { &raw mut (*slot).msg_hdr };
        let Ok(len) = u32::try_from(call(header)) else {
            return false;
        };
        // SAFETY: a message of the program's.
        unsafe { self.end_one(slot, len) };
        true
    }

    /// Has `take` fill the next place; returns whether it has, and there is another.
    ///
    /// # Safety
    /// As [`Messages::end_by`].
    unsafe fn fill_next(&mut self, take: Take<'_>) -> bool {
        let Some(slot) = self.place() else {
            return false;
        };
        // SAFETY: a message of the program's.
        let header = unsafe { &raw mut (*slot).msg_hdr };
        // SAFETY: as above.
        let known = unsafe { &*header };
        let is_named = !known.msg_name.is_null();
        if has_bad_name(known) || is_named && abi::is_out_of_reach(known.msg_name.cast::<u8>()) {
            return false;
        }
        // SAFETY: the program's place for control messages.
        let control = unsafe { abi::bytes_mut(known.msg_control, control_room(known)) };
        let Ok(control) = control else {
            return false;
        };
        let (vecs, count) = (known.msg_iov, known.msg_iovlen);
        // SAFETY: the program's buffers.
        let taken = unsafe {
            abi::with_slices_mut(vecs, count, Errno::EMSGSIZE, |bufs| take(bufs, control))
        };
        let Ok(Some(received)) = taken else {
            return false;
        };
        // SAFETY: the program's message, whose name has been checked.
        if unsafe { fill(header, received, self.flags) }.is_err() {
            return false;
        }
        // SAFETY: a message of the program's.
        unsafe { self.end_one(slot, u32::try_from(received.len).unwrap_or(u32::MAX)) };
        self.is_wanted()
    }

    /// Has `give` send the next message; returns whether it has, and there is another.
    ///
    /// # Safety
    /// As [`Messages::end_by`].
    unsafe fn send_next(&mut self, give: Give<'_>) -> bool {
        let Some(slot) = self.place() else {
            return false;
        };
        // SAFETY: a message of the program's.
        let header = unsafe { &(*slot).msg_hdr };
        // SAFETY: the program's address.
        let Ok(to) = (unsafe { destination(header) }) else {
            return false;
        };
        // SAFETY: the program's control messages.
        let control = unsafe { abi::bytes(header.msg_control, header.msg_controllen) };
        let Ok(control) = control else {
            return false;
        };
        let (vecs, count) = (header.msg_iov, header.msg_iovlen);
        // SAFETY: the program's buffers.
        let sent = unsafe {
            abi::with_slices(vecs, count, Errno::EMSGSIZE, |bufs| give(bufs, to, control))
        };
        let Ok(Some(len)) = sent else {
            return false;
        };
        // SAFETY: a message of the program's.
        unsafe { self.end_one(slot, u32::try_from(len).unwrap_or(u32::MAX)) };
        self.done < self.count
    }

    /// The result of the call: an error counts only when it hit the first message.
    fn result(&self, count: c_uint, reason: Errno) -> c_int {
        if self.done == 0 && count != 0 {
            return fail(reason);
        }
        self.done.cast_signed()
    }
}

/// Asks the process for something that cannot fail.
fn tell(mut ask: impl FnMut(&Process)) {
    let ask = |process: &Process| {
        ask(process);
        Ok(0)
    };
    answer_uncancelled(Restart::Never, ask, || 0);
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
        return unsafe { recvmmsg_from_kernel(fd, msgs, count, flags, timeout) };
    }
    // SAFETY: null or the program's structure.
    let limit = match unsafe { abi::timespec(timeout) } {
        Ok(limit) => limit,
        Err(errno) => return fail(errno),
    };
    let begun = Instant::now();
    let mut messages = Messages::new(msgs, count, flags & !libc::MSG_WAITFORONE);
    messages.end = limit.and_then(|limit| begun.checked_add(limit));
    let mut reason = None;
    while messages.is_wanted() {
        let one_flags = messages.flags;
        // SAFETY: the program's own call.
        let receive = |header: *mut msghdr| unsafe { recvmsg(fd, header, one_flags) };
        // SAFETY: the program's array.
        if !unsafe { messages.end_by(receive) } {
            reason = Some(Errno(errno()));
            break;
        }
        if flags & libc::MSG_WAITFORONE != 0 {
            messages.flags |= libc::MSG_DONTWAIT;
        }
        if messages.is_wanted() {
            let flags = messages.flags;
            // SAFETY: the program's array.
            let mut next = |take: Take<'_>| unsafe { messages.fill_next(take) };
            tell(|process| process.recv_many(fd, flags, &mut next));
        }
    }
    let done = messages.done as usize;
    if done > 1 {
        tell(|process| process.note_received(fd, done));
    }
    if let Some(reason) = reason.filter(|_| done > 0) {
        tell(|process| process.keep_error(fd, reason));
    }
    // SAFETY: null or the program's structure.
    if let (Some(limit), Some(left)) = (limit.filter(|_| done > 0), unsafe { timeout.as_mut() }) {
        let rest = limit.saturating_sub(begun.elapsed());
        *left = to_timespec(rest);
    }
    messages.result(count, reason.unwrap_or(Errno(0)))
}

/// Messages from a socket of the kernel's.
unsafe fn recvmmsg_from_kernel(
    fd: c_int,
    msgs: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
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
    result
}

pub unsafe fn sendmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    // SAFETY: the program's array.
    if !is_ours(fd) && !unsafe { any_has_control(msgs, count) } {
        // SAFETY: the program's own call.
        return unsafe { (next::sendmmsg.get())(fd, msgs, count, flags) };
    }
    // Not after the burst has begun.
    cancel::point();
    let mut messages = Messages::new(msgs, count, flags);
    let is_burst = count > 1;
    if is_burst {
        tell(Process::begin_burst);
    }
    let mut reason = Errno(0);
    while messages.is_wanted() {
        // SAFETY: the program's own call.
        let send = |header: *mut msghdr| unsafe { sendmsg(fd, header, flags) };
        // SAFETY: the program's array.
        if !unsafe { messages.end_by(send) } {
            reason = Errno(errno());
            break;
        }
        if messages.is_wanted() {
            // SAFETY: the program's array.
            let mut next = |give: Give<'_>| unsafe { messages.send_next(give) };
            tell(|process| process.send_many(fd, flags, &mut next));
        }
    }
    if is_burst {
        let done = messages.done as usize;
        tell(|process| process.end_burst(fd, done));
    }
    messages.result(count, reason)
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

fn to_timespec(time: Duration) -> timespec {
    timespec {
        tv_sec: time.as_secs().cast_signed(),
        tv_nsec: time.subsec_nanos().into(),
    }
}
