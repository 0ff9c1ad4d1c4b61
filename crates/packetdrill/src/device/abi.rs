//! Packets in and out, and the clock.

use std::ffi::{c_int, c_longlong, c_uint, c_void};

use crate::raw::{bytes, bytes_mut, fail, session, world};

pub unsafe extern "C" fn netdev_send(
    userdata: *mut c_void,
    packet: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: packetdrill passes the interface's userdata.
    let Some(world) = (unsafe { world(userdata) }) else {
        return fail(libc::EINVAL) as c_int;
    };
    // SAFETY: the packet has `len` bytes.
    world.deliver(unsafe { bytes(packet, len) });
    world.settle();
    0
}

/// Waits in virtual time: until something leaves, or it is certain that nothing will. That is a
/// packet of no bytes, which fails the script; after a failure of this call packetdrill makes it
/// again, for ever.
pub unsafe extern "C" fn netdev_receive(
    userdata: *mut c_void,
    packet: *mut u8,
    len: *mut usize,
    time_us: *mut c_longlong,
) -> c_int {
    // SAFETY: packetdrill passes the interface's userdata.
    let Some(session) = (unsafe { session(userdata) }) else {
        return fail(libc::EINVAL) as c_int;
    };
    let world = session.world_to_wait_in();
    world.settle();
    let (at_ns, sent) = loop {
        match world.sent() {
            Some(found) => break found,
            None if !world.has_deadline() => break (world.now_ns(), Vec::new()),
            None => world.step(u64::MAX),
        };
        world.settle();
    };
    // SAFETY: `len` holds the room at `packet`.
    let room = unsafe { len.read() };
    // SAFETY: `packet` has that room.
    let out = unsafe { bytes_mut(packet, room.min(sent.len())) };
    out.copy_from_slice(&sent[..out.len()]);
    // SAFETY: as when it was read.
    unsafe { len.write(out.len()) };
    // SAFETY: the caller's variable.
    unsafe { time_us.write((at_ns / 1000) as c_longlong) };
    0
}

pub unsafe extern "C" fn usleep(userdata: *mut c_void, us: c_uint) -> c_int {
    // SAFETY: packetdrill passes the interface's userdata.
    let Some(session) = (unsafe { session(userdata) }) else {
        return fail(libc::EINVAL) as c_int;
    };
    let world = session.world_to_wait_in();
    world.advance(world.now_ns() + u64::from(us) * 1000);
    0
}

pub unsafe extern "C" fn gettimeofday(
    userdata: *mut c_void,
    time: *mut libc::timeval,
    _zone: *mut c_void,
) -> c_int {
    // SAFETY: packetdrill passes the interface's userdata.
    let Some(session) = (unsafe { session(userdata) }) else {
        return fail(libc::EINVAL) as c_int;
    };
    let now_ns = session.look_ns();
    let value = libc::timeval {
        tv_sec: (now_ns / 1_000_000_000) as i64,
        tv_usec: (now_ns % 1_000_000_000 / 1000) as i64,
    };
    // SAFETY: the caller's variable.
    unsafe { time.write(value) };
    0
}
