//! `ff_regist_packet_dispatcher`, `ff_dpdk_raw_packet_send` and `ff_get_traffic`, declared as in
//! F-Stack's headers, and the dispatcher's workers.
#![allow(clippy::missing_safety_doc, reason = "each is as in C")]

use core::ffi::{c_int, c_uint, c_void};
use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use slipstack_abi::abi;
use slipstack_attach::LinkId;
use slipstack_posix::Errno;

use crate::call::fail;
use crate::dispatcher::abi::{Dispatch, DispatchInContext};
use crate::dispatcher::{PLAIN, WITH_CONTEXT, send, workers};
use crate::kernel::say;
use crate::{life, thread, traffic};

/// Longest and shortest frame that is sent (without its checksum).
const FRAME_MAX: usize = 65_535;
const FRAME_MIN: usize = 14;

#[unsafe(no_mangle)]
pub extern "C" fn ff_regist_packet_dispatcher(function: Option<Dispatch>) {
    log_dispatch(function.is_some());
    PLAIN.store(function.map_or(0, |it| it as usize), Ordering::Release);
}

#[unsafe(no_mangle)]
pub extern "C" fn ff_regist_packet_dispatcher_context(function: Option<DispatchInContext>) {
    log_dispatch(function.is_some());
    WITH_CONTEXT.store(function.map_or(0, |it| it as usize), Ordering::Release);
}

/// Says that a function will see nothing, where frames are an instance's.
fn log_dispatch(is_named: bool) {
    if is_named && life::uses_instance() {
        say(
            "the packet dispatcher sees the frames of the program's own engine, and with \
             --instance (or FF_PROC_ID) it has none: start the program with --conf or --if, which \
             works beside a running instance too",
        );
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_dpdk_raw_packet_send(
    data: *mut c_void,
    total: c_int,
    port: u16,
) -> c_int {
    let len = match usize::try_from(total) {
        Ok(len @ FRAME_MIN..=FRAME_MAX) => len,
        _ => return fail(Errno::EINVAL) as c_int,
    };
    let Some(process) = life::process() else {
        return fail(Errno::ENETDOWN) as c_int;
    };
    if life::uses_instance() {
        return fail(Errno::EOPNOTSUPP) as c_int;
    }
    // A stack with one interface has no other port.
    let further = life::options().map_or(0, |options| options.further.len());
    let link = match (further, usize::from(port)) {
        (0, _) => LinkId(0),
        (further, at) if at <= further => LinkId::new(port, 0),
        _ => return fail(Errno::EINVAL) as c_int,
    };
    // SAFETY: the program's frame.
    let frame = match unsafe { abi::bytes(data, len) } {
        Ok(frame) => frame.to_vec(),
        Err(errno) => return fail(errno) as c_int,
    };
    if !send(frame, link) {
        return fail(Errno(libc::ENOBUFS)) as c_int;
    }
    // In the loop it leaves with the turn.
    if !thread::runs_loop() {
        process.work();
    }
    0
}

/// Writes six numbers: packets and bytes received and sent, and drops in each direction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ff_get_traffic(place: *mut c_void) {
    if place.is_null() {
        return;
    }
    for (index, count) in traffic::now().into_iter().enumerate() {
        let count = count.to_ne_bytes();
        let at = place.cast::<[u8; 8]>().wrapping_add(index);
        // SAFETY: the program has room for six words.
        unsafe { at.write_unaligned(count) };
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn slipstack_dispatch_workers(count: c_uint, work: Option<Dispatch>) -> c_int {
    let count = count as usize;
    let Some(work) = work.filter(|_| (1..=workers::WORKERS_MAX).contains(&count)) else {
        return fail(Errno::EINVAL) as c_int;
    };
    if life::process().is_none() {
        return fail(Errno::ENETDOWN) as c_int;
    }
    if life::uses_instance() {
        return fail(Errno::EOPNOTSUPP) as c_int;
    }
    match workers::start(count, work as usize, life::queues()) {
        Ok(()) => 0,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fail(Errno(libc::EALREADY)) as c_int
        }
        Err(_) => fail(Errno::EAGAIN) as c_int,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn slipstack_worker_counts(worker: c_uint, place: *mut u64) -> c_int {
    let Some(counts) = workers::counts(worker as usize).filter(|_| !place.is_null()) else {
        return fail(Errno::EINVAL) as c_int;
    };
    let words = [
        &counts.frames,
        &counts.bursts,
        &counts.largest_burst,
        &counts.in_large_bursts,
        &counts.answers,
        &counts.ring_full,
    ];
    for (at, word) in words.into_iter().enumerate() {
        let count = word.load(Ordering::Relaxed);
        // SAFETY: the program has room for a `struct slipstack_worker_counts`.
        unsafe { place.wrapping_add(at).write(count) };
    }
    0
}
