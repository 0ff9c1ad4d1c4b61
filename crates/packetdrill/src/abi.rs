//! The interface that packetdrill loads: `packetdrill --so_filename=libslipstack_packetdrill.so
//! SCRIPT`.
//!
//! The structure is packetdrill's (gtests/net/packetdrill/packetdrill.h): one pointer to our data,
//! then one function for each call and for the device. The clock is virtual: it advances when
//! packetdrill sleeps, waits for a packet, or polls the clock repeatedly. The sysctls that the
//! script's first commands have set hold here too, and before them `--so_flags=NAME=VALUE,…`, by
//! Linux's names.

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_uint, c_ulong, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use slipstack_drill::run;
use slipstack_drill::world::KernelOptions;
use slipstack_posix::{Divert, Outcome, Process, Received};

use crate::device::{gettimeofday, netdev_receive, netdev_send, usleep};
use crate::linked;
use crate::raw::{buffers, bytes, bytes_mut, fail, put_addr, put_received, world};
use crate::raw::{get_on_kernel, session, set_on_kernel};
use crate::session::Session;

/// `struct packetdrill_interface`.
#[repr(C)]
pub struct Interface {
    userdata: *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    socket: unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int) -> c_int,
    bind: unsafe extern "C" fn(*mut c_void, c_int, *const u8, u32) -> c_int,
    listen: unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int,
    accept: unsafe extern "C" fn(*mut c_void, c_int, *mut u8, *mut u32) -> c_int,
    connect: unsafe extern "C" fn(*mut c_void, c_int, *const u8, u32) -> c_int,
    read: unsafe extern "C" fn(*mut c_void, c_int, *mut u8, usize) -> isize,
    readv: unsafe extern "C" fn(*mut c_void, c_int, *const libc::iovec, c_int) -> isize,
    recv: unsafe extern "C" fn(*mut c_void, c_int, *mut u8, usize, c_int) -> isize,
    recvfrom:
        unsafe extern "C" fn(*mut c_void, c_int, *mut u8, usize, c_int, *mut u8, *mut u32) -> isize,
    recvmsg: unsafe extern "C" fn(*mut c_void, c_int, *mut libc::msghdr, c_int) -> isize,
    write: unsafe extern "C" fn(*mut c_void, c_int, *const u8, usize) -> isize,
    writev: unsafe extern "C" fn(*mut c_void, c_int, *const libc::iovec, c_int) -> isize,
    send: unsafe extern "C" fn(*mut c_void, c_int, *const u8, usize, c_int) -> isize,
    sendto:
        unsafe extern "C" fn(*mut c_void, c_int, *const u8, usize, c_int, *const u8, u32) -> isize,
    sendmsg: unsafe extern "C" fn(*mut c_void, c_int, *const libc::msghdr, c_int) -> isize,
    /// Variadic in C: the third argument comes in the same register either way.
    fcntl: unsafe extern "C" fn(*mut c_void, c_int, c_int, usize) -> c_int,
    /// As `fcntl`.
    ioctl: unsafe extern "C" fn(*mut c_void, c_int, c_ulong, *mut c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    shutdown: unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int,
    getsockopt: unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int, *mut u8, *mut u32) -> c_int,
    setsockopt: unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int, *const u8, u32) -> c_int,
    poll: unsafe extern "C" fn(*mut c_void, *mut libc::pollfd, c_ulong, c_int) -> c_int,
    netdev_send: unsafe extern "C" fn(*mut c_void, *const u8, usize) -> c_int,
    netdev_receive:
        unsafe extern "C" fn(*mut c_void, *mut u8, *mut usize, *mut c_longlong) -> c_int,
    usleep: unsafe extern "C" fn(*mut c_void, c_uint) -> c_int,
    gettimeofday: unsafe extern "C" fn(*mut c_void, *mut libc::timeval, *mut c_void) -> c_int,
    epoll_create: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    epoll_ctl:
        unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int, *mut libc::epoll_event) -> c_int,
    epoll_wait:
        unsafe extern "C" fn(*mut c_void, c_int, *mut libc::epoll_event, c_int, c_int) -> c_int,
    pipe: unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int,
    splice: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        *mut c_long,
        c_int,
        *mut c_long,
        usize,
        c_uint,
    ) -> isize,
}

/// Fills the interface in. Flags that are not understood are named on standard error, and every
/// call fails with EINVAL: packetdrill ends at its first look at the clock, which is before a
/// script's first line.
///
/// # Safety
/// `flags` is null or a C string; `interface` points to packetdrill's structure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(
    flags: *const c_char,
    interface: *mut Interface,
) {
    // SAFETY: as the contract has it.
    let userdata = match unsafe { begin(flags) } {
        Ok(session) => {
            let session = Box::into_raw(Box::new(session));
            linked::begin(session);
            session.cast()
        }
        Err(reason) => {
            eprintln!("slipstack: --so_flags: {reason}; no call will be answered");
            std::ptr::null_mut()
        }
    };
    let filled = Interface {
        userdata,
        ..FUNCTIONS
    };
    // packetdrill pins all memory that it will have, for the sake of its timing: in virtual time
    // there is none, and the stack's rings are long. SAFETY: it takes nothing.
    unsafe { libc::munlockall() };
    // SAFETY: it points to packetdrill's structure by the contract; nothing in it needs to be
    // dropped.
    unsafe { interface.write(filled) };
}

/// # Safety
/// `flags` is null or a C string.
unsafe fn begin(flags: *const c_char) -> Result<Session, String> {
    let options = KernelOptions {
        set: set_on_kernel,
        get: get_on_kernel,
    };
    if flags.is_null() {
        return Session::new("", options);
    }
    // SAFETY: a C string by the contract.
    let flags = unsafe { CStr::from_ptr(flags) }.to_string_lossy();
    Session::new(&flags, options)
}

const FUNCTIONS: Interface = Interface {
    userdata: std::ptr::null_mut(),
    free,
    socket,
    bind,
    listen,
    accept,
    connect,
    read,
    readv,
    recv,
    recvfrom,
    recvmsg,
    write,
    writev,
    send,
    sendto,
    sendmsg,
    fcntl,
    ioctl,
    close,
    shutdown,
    getsockopt,
    setsockopt,
    poll,
    netdev_send,
    netdev_receive,
    usleep,
    gettimeofday,
    epoll_create,
    epoll_ctl,
    epoll_wait,
    pipe,
    splice,
};

/// Makes a call and answers as C does.
///
/// # Safety
/// As [`world`].
unsafe fn call(userdata: *mut c_void, body: impl FnOnce(&Process) -> Outcome<i64>) -> isize {
    // SAFETY: the contract is the same.
    let Some(session) = (unsafe { session(userdata) }) else {
        return fail(libc::EINVAL);
    };
    let world = session.world();
    world.begin_call();
    let result = world.calling(|| {
        let result = body(world.process());
        session.note_return();
        result
    });
    match result {
        Ok(value) => value as isize,
        Err(divert) => fail(match divert {
            Divert::Errno(errno) => errno.0,
            Divert::Stopped => libc::EINTR,
            Divert::Pipe => libc::EPIPE,
            Divert::Kernel | Divert::KernelFirst | Divert::KernelRead | Divert::KernelLent => {
                libc::EBADF
            }
        }),
    }
}

unsafe extern "C" fn free(userdata: *mut c_void) {
    if !userdata.is_null() {
        linked::end(userdata.cast());
        // SAFETY: the box that init leaked; packetdrill frees it once, after its last call.
        drop(unsafe { Box::from_raw(userdata.cast::<Session>()) });
    }
}

unsafe extern "C" fn socket(
    userdata: *mut c_void,
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    // SAFETY: packetdrill passes the interface's userdata.
    if let Some(session) = unsafe { session(userdata) } {
        session.take_sysctls();
    }
    let body = |process: &Process| process.socket(domain, kind, protocol).map(i64::from);
    // SAFETY: as above.
    unsafe { call(userdata, body) as c_int }
}

unsafe extern "C" fn bind(userdata: *mut c_void, fd: c_int, addr: *const u8, len: u32) -> c_int {
    // SAFETY: the caller's address is `len` bytes long.
    let addr = unsafe { bytes(addr, len as usize) };
    // SAFETY: packetdrill passes the interface's userdata.
    if let Some(world) = unsafe { world(userdata) } {
        run::adopt(world, addr);
    }
    // SAFETY: as above.
    unsafe { call(userdata, |process| process.bind(fd, addr).map(|()| 0)) as c_int }
}

unsafe extern "C" fn listen(userdata: *mut c_void, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe { call(userdata, |process| run::listen(process, fd, backlog)) as c_int }
}

unsafe extern "C" fn accept(
    userdata: *mut c_void,
    fd: c_int,
    addr: *mut u8,
    len: *mut u32,
) -> c_int {
    let body = |process: &Process| {
        let accepted = process.accept4(fd, 0)?;
        // SAFETY: `len` holds the room at `addr`, as accept(2) has it.
        unsafe { put_addr(&accepted.peer, addr, len) };
        Ok(i64::from(accepted.fd))
    };
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe { call(userdata, body) as c_int }
}

unsafe extern "C" fn connect(userdata: *mut c_void, fd: c_int, addr: *const u8, len: u32) -> c_int {
    // SAFETY: the caller's address is `len` bytes long.
    let addr = unsafe { bytes(addr, len as usize) };
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe { call(userdata, |process| process.connect(fd, addr).map(|()| 0)) as c_int }
}

unsafe extern "C" fn read(userdata: *mut c_void, fd: c_int, buf: *mut u8, len: usize) -> isize {
    // SAFETY: as recv's contract.
    unsafe { recv(userdata, fd, buf, len, 0) }
}

unsafe extern "C" fn readv(
    userdata: *mut c_void,
    fd: c_int,
    iov: *const libc::iovec,
    count: c_int,
) -> isize {
    // SAFETY: the caller's vector has `count` elements.
    let buffers = unsafe { buffers(iov, count.max(0) as usize) };
    // SAFETY: each element names memory of the caller's.
    unsafe { receive(userdata, fd, &buffers, &mut [], 0, &mut None) }
}

unsafe extern "C" fn recv(
    userdata: *mut c_void,
    fd: c_int,
    buf: *mut u8,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's buffer has `len` bytes.
    unsafe { receive(userdata, fd, &[(buf, len)], &mut [], flags, &mut None) }
}

unsafe extern "C" fn recvfrom(
    userdata: *mut c_void,
    fd: c_int,
    buf: *mut u8,
    len: usize,
    flags: c_int,
    addr: *mut u8,
    addr_len: *mut u32,
) -> isize {
    let mut received = None;
    // SAFETY: the caller's buffer has `len` bytes.
    let result = unsafe { receive(userdata, fd, &[(buf, len)], &mut [], flags, &mut received) };
    if let Some(from) = received.and_then(|received| received.from) {
        // SAFETY: `addr_len` holds the room at `addr`.
        unsafe { put_addr(&from, addr, addr_len) };
    }
    result
}

unsafe extern "C" fn recvmsg(
    userdata: *mut c_void,
    fd: c_int,
    msg: *mut libc::msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's message header.
    let msg = unsafe { &mut *msg };
    // SAFETY: the header's vector has that many elements.
    let buffers = unsafe { buffers(msg.msg_iov, msg.msg_iovlen) };
    // SAFETY: the header's place for control messages has that room.
    let control = unsafe { bytes_mut(msg.msg_control.cast(), msg.msg_controllen) };
    let mut received = None;
    // SAFETY: each element names memory of the caller's.
    let result = unsafe { receive(userdata, fd, &buffers, control, flags, &mut received) };
    if let Some(received) = &received {
        // SAFETY: the header's address has that room.
        unsafe { put_received(msg, received, flags) };
    }
    result
}

/// # Safety
/// Each buffer is valid for writing.
unsafe fn receive(
    userdata: *mut c_void,
    fd: c_int,
    buffers: &[(*mut u8, usize)],
    control: &mut [u8],
    flags: c_int,
    out: &mut Option<Received>,
) -> isize {
    // SAFETY: valid for writing by the contract.
    let slice = |&(at, len): &(*mut u8, usize)| IoSliceMut::new(unsafe { bytes_mut(at, len) });
    let body = |process: &Process| {
        let mut slices: Vec<_> = buffers.iter().map(slice).collect();
        let received = process.recvmsg(fd, &mut slices, control, flags)?;
        let len = received.len as i64;
        *out = Some(received);
        Ok(len)
    };
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe { call(userdata, body) }
}

unsafe extern "C" fn write(userdata: *mut c_void, fd: c_int, buf: *const u8, len: usize) -> isize {
    // SAFETY: as send's contract.
    unsafe { send(userdata, fd, buf, len, 0) }
}

unsafe extern "C" fn writev(
    userdata: *mut c_void,
    fd: c_int,
    iov: *const libc::iovec,
    count: c_int,
) -> isize {
    // SAFETY: the caller's vector has `count` elements.
    let buffers = unsafe { buffers(iov, count.max(0) as usize) };
    // SAFETY: each element names memory of the caller's.
    unsafe { transmit(userdata, fd, &buffers, 0, None, &[]) }
}

unsafe extern "C" fn send(
    userdata: *mut c_void,
    fd: c_int,
    buf: *const u8,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's buffer has `len` bytes.
    unsafe { transmit(userdata, fd, &[(buf.cast_mut(), len)], flags, None, &[]) }
}

unsafe extern "C" fn sendto(
    userdata: *mut c_void,
    fd: c_int,
    buf: *const u8,
    len: usize,
    flags: c_int,
    addr: *const u8,
    addr_len: u32,
) -> isize {
    // SAFETY: the caller's address is `addr_len` bytes long.
    let to = (!addr.is_null()).then(|| unsafe { bytes(addr, addr_len as usize) });
    // SAFETY: the caller's buffer has `len` bytes.
    unsafe { transmit(userdata, fd, &[(buf.cast_mut(), len)], flags, to, &[]) }
}

unsafe extern "C" fn sendmsg(
    userdata: *mut c_void,
    fd: c_int,
    msg: *const libc::msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's message header.
    let msg = unsafe { &*msg };
    // SAFETY: the header's vector has that many elements.
    let buffers = unsafe { buffers(msg.msg_iov, msg.msg_iovlen) };
    // SAFETY: the header's address is that long.
    let to = (!msg.msg_name.is_null())
        .then(|| unsafe { bytes(msg.msg_name.cast(), msg.msg_namelen as usize) });
    // SAFETY: the header's control messages are that long.
    let control = unsafe { bytes(msg.msg_control.cast(), msg.msg_controllen) };
    // SAFETY: each element names memory of the caller's.
    unsafe { transmit(userdata, fd, &buffers, flags, to, control) }
}

/// # Safety
/// Each buffer is valid for reading.
unsafe fn transmit(
    userdata: *mut c_void,
    fd: c_int,
    buffers: &[(*mut u8, usize)],
    flags: c_int,
    to: Option<&[u8]>,
    control: &[u8],
) -> isize {
    // SAFETY: valid for reading by the contract.
    let slice = |&(at, len): &(*mut u8, usize)| IoSlice::new(unsafe { bytes(at, len) });
    let body = |process: &Process| {
        let slices: Vec<_> = buffers.iter().map(slice).collect();
        let sent = process.sendmsg(fd, &slices, to, control, flags);
        sent.map(|sent| sent as i64)
    };
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe { call(userdata, body) }
}

unsafe extern "C" fn fcntl(
    userdata: *mut c_void,
    fd: c_int,
    command: c_int,
    value: usize,
) -> c_int {
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe {
        call(userdata, |process| {
            process.fcntl(fd, command, value).map(i64::from)
        }) as c_int
    }
}

unsafe extern "C" fn ioctl(
    userdata: *mut c_void,
    fd: c_int,
    request: c_ulong,
    value: *mut c_int,
) -> c_int {
    let body = |process: &Process| {
        if !Process::ioctl_takes_int(request) || value.is_null() {
            return Err(slipstack_posix::Errno::EINVAL.into());
        }
        // SAFETY: requests that take an int come with a pointer to one.
        process
            .ioctl(fd, request, unsafe { &mut *value })
            .map(i64::from)
    };
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe { call(userdata, body) as c_int }
}

unsafe extern "C" fn close(userdata: *mut c_void, fd: c_int) -> c_int {
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe { call(userdata, |process| process.close(fd).map(|()| 0)) as c_int }
}

unsafe extern "C" fn shutdown(userdata: *mut c_void, fd: c_int, how: c_int) -> c_int {
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe { call(userdata, |process| process.shutdown(fd, how).map(|()| 0)) as c_int }
}

/// # Safety
/// `userdata` is the interface's, or null; `len` points to the room at `value`.
pub unsafe extern "C" fn getsockopt(
    userdata: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut u8,
    len: *mut u32,
) -> c_int {
    let body = |process: &Process| {
        // SAFETY: `len` points to the room at `value`, as getsockopt(2) has it.
        let room = unsafe { len.read() } as usize;
        // SAFETY: `value` has that room.
        let written = process.getsockopt(fd, level, name, unsafe { bytes_mut(value, room) })?;
        // SAFETY: as when it was read.
        unsafe { len.write(written as u32) };
        if written > room {
            return Err(slipstack_posix::Errno::EINVAL.into());
        }
        Ok(0)
    };
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe { call(userdata, body) as c_int }
}

unsafe extern "C" fn setsockopt(
    userdata: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const u8,
    len: u32,
) -> c_int {
    // SAFETY: the caller's value is `len` bytes long.
    let value = unsafe { bytes(value, len as usize) };
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe {
        call(userdata, |process| {
            process.setsockopt(fd, level, name, value).map(|()| 0)
        }) as c_int
    }
}

unsafe extern "C" fn poll(
    userdata: *mut c_void,
    fds: *mut libc::pollfd,
    count: c_ulong,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's array has `count` elements.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe {
        call(userdata, |process| {
            process.poll(fds, timeout, None).map(|count| count as i64)
        }) as c_int
    }
}

unsafe extern "C" fn epoll_create(userdata: *mut c_void, _size: c_int) -> c_int {
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe { call(userdata, |process| process.epoll_create1(0).map(i64::from)) as c_int }
}

unsafe extern "C" fn epoll_ctl(
    userdata: *mut c_void,
    set: c_int,
    op: c_int,
    fd: c_int,
    event: *mut libc::epoll_event,
) -> c_int {
    // SAFETY: null, or the caller's event.
    let event = (!event.is_null()).then(|| unsafe { event.read() });
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe {
        call(userdata, |process| {
            process.epoll_ctl(set, op, fd, event).map(|()| 0)
        }) as c_int
    }
}

unsafe extern "C" fn epoll_wait(
    userdata: *mut c_void,
    set: c_int,
    events: *mut libc::epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's array has `count` elements.
    let out = unsafe { std::slice::from_raw_parts_mut(events, count.max(0) as usize) };
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    let body = |process: &Process| {
        process
            .epoll_wait(set, out, timeout, None)
            .map(|count| count as i64)
    };
    // SAFETY: packetdrill passes the interface's userdata.
    unsafe { call(userdata, body) as c_int }
}

/// A pipe of the kernel's, for scripts that splice.
unsafe extern "C" fn pipe(userdata: *mut c_void, fds: *mut c_int) -> c_int {
    if userdata.is_null() {
        return fail(libc::EINVAL) as c_int;
    }
    // SAFETY: the caller's array of two.
    unsafe { libc::pipe(fds) }
}

unsafe extern "C" fn splice(
    _userdata: *mut c_void,
    _in: c_int,
    _in_offset: *mut c_long,
    _out: c_int,
    _out_offset: *mut c_long,
    _len: usize,
    _flags: c_uint,
) -> isize {
    fail(libc::EINVAL)
}
