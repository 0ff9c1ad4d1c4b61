//! Access to the caller's memory.

use std::ffi::{c_int, c_void};

use slipstack_drill::world::World;
use slipstack_posix::{AddrBytes, Errno, Received};

use crate::session::Session;

/// Sets errno and gives the −1 that goes with it.
pub fn fail(errno: c_int) -> isize {
    // SAFETY: glibc gives the address of the calling thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it is valid for the thread's lifetime.
    unsafe { place.write(errno) };
    -1
}

/// # Safety
/// `at` is null or valid for reading `len` bytes during the call.
pub unsafe fn bytes<'a>(at: *const u8, len: usize) -> &'a [u8] {
    if at.is_null() {
        return &[];
    }
    // SAFETY: valid for `len` bytes by the contract.
    unsafe { std::slice::from_raw_parts(at, len) }
}

/// # Safety
/// `at` is null or valid for writing `len` bytes during the call.
pub unsafe fn bytes_mut<'a>(at: *mut u8, len: usize) -> &'a mut [u8] {
    if at.is_null() {
        return &mut [];
    }
    // SAFETY: valid for `len` bytes by the contract.
    unsafe { std::slice::from_raw_parts_mut(at, len) }
}

/// # Safety
/// `at` points to `count` elements, each of which names valid memory.
pub unsafe fn buffers(at: *const libc::iovec, count: usize) -> Vec<(*mut u8, usize)> {
    if at.is_null() {
        return Vec::new();
    }
    // SAFETY: `count` elements by the contract.
    let all: &[libc::iovec] = unsafe { std::slice::from_raw_parts(at, count) };
    all.iter()
        .map(|one| (one.iov_base.cast(), one.iov_len))
        .collect()
}

/// Writes recvmsg's results besides the bytes: the sender (a stream has none), control messages'
/// length and flags.
///
/// # Safety
/// `msg_name` is null or has room for `msg_namelen` bytes.
pub unsafe fn put_received(msg: &mut libc::msghdr, received: &Received, flags: c_int) {
    match &received.from {
        // SAFETY: the room is the header's by the contract.
        Some(addr) => unsafe {
            put_addr(addr, msg.msg_name.cast(), &raw mut msg.msg_namelen);
        },
        None if msg.msg_name.is_null() => {}
        None => msg.msg_namelen = 0,
    }
    msg.msg_flags = received.flags | flags & libc::MSG_CMSG_CLOEXEC;
    msg.msg_controllen = received.control_len;
}

/// Writes an address as accept and recvfrom do: cut off at the room, with its full length.
///
/// # Safety
/// `at` and `len` are null, or `len` holds the room at `at`.
pub unsafe fn put_addr(addr: &AddrBytes, at: *mut u8, len: *mut u32) {
    if at.is_null() || len.is_null() {
        return;
    }
    let addr = addr.as_bytes();
    // SAFETY: not null, so it points to the room's length by the contract.
    let room = unsafe { len.read() } as usize;
    // SAFETY: `at` has that room.
    let out = unsafe { bytes_mut(at, room.min(addr.len())) };
    out.copy_from_slice(&addr[..out.len()]);
    // SAFETY: as when it was read.
    unsafe { len.write(addr.len() as u32) };
}

/// Returns the session behind the first argument of each function; `None` if
/// `packetdrill_interface_init` has refused its flags.
///
/// # Safety
/// `userdata` was put into the structure by `packetdrill_interface_init`, and is not freed yet.
pub unsafe fn session<'a>(userdata: *mut c_void) -> Option<&'a Session> {
    // SAFETY: null, or the box that init leaked, alive by the contract; Session is Sync.
    unsafe { userdata.cast::<Session>().as_ref() }
}

/// Returns the session's world, for a call that does not read the clock.
///
/// # Safety
/// As [`session`].
pub unsafe fn world<'a>(userdata: *mut c_void) -> Option<&'a World> {
    // SAFETY: the contract is the same.
    Some(unsafe { session(userdata) }?.world())
}

fn last_errno() -> Errno {
    Errno(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EINVAL),
    )
}

/// The system call setsockopt, on a socket of the kernel's.
pub fn set_on_kernel(fd: c_int, level: c_int, name: c_int, value: &[u8]) -> Result<(), Errno> {
    let (at, len) = (value.as_ptr().cast::<c_void>(), value.len() as u32);
    // SAFETY: `at` is valid for reading `len` bytes.
    let result = unsafe { libc::setsockopt(fd, level, name, at, len) };
    (result == 0).then_some(()).ok_or_else(last_errno)
}

/// The system call getsockopt, past the symbol that this library has of that name.
pub fn get_on_kernel(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: &mut [u8],
) -> Result<usize, Errno> {
    let (at, mut len) = (value.as_mut_ptr(), value.len() as u32);
    // SAFETY: `at` is valid for writing `len` bytes, and `len` for reading and writing.
    let result = unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, at, &raw mut len) };
    (result == 0).then_some(len as usize).ok_or_else(last_errno)
}
