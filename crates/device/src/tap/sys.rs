//! ioctls of /dev/net/tun and the gathering write.

use std::ffi::c_ulong;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use slipstack_mem::RawSlice;

const TUNSETIFF: c_ulong = 0x4004_54ca;
const TUNGETIFF: c_ulong = 0x8004_54d2;
const TUNSETOFFLOAD: c_ulong = 0x4004_54d0;
const TUNSETVNETHDRSZ: c_ulong = 0x4004_54d8;
const TUNSETSTEERINGEBPF: c_ulong = 0x8004_54e0;

const IFF_TAP: u16 = 0x0002;
const IFF_MULTI_QUEUE: u16 = 0x0100;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
/// Fail when the interface exists.
const IFF_TUN_EXCL: u16 = 0x8000;

/// Checksums and TCP segmentation (v4, v6, with ECN) are left to us by the kernel.
const OFFLOADS: c_ulong = 0x01 | 0x02 | 0x04 | 0x08;
/// Offloads of joined datagrams (v4, v6), by kernels from 6.2 on.
const OFFLOADS_UDP: c_ulong = 0x20 | 0x40;

/// `struct ifreq` with the flags filled in.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: u16,
    padding: [u8; 22],
}

fn check(rc: i32) -> io::Result<()> {
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes a fresh descriptor of /dev/net/tun a queue of the TAP `name`, or its first one: then the
/// TAP must not exist, or we would join another process's.
pub(crate) fn attach_queue(fd: BorrowedFd<'_>, name: &str, is_first: bool) -> io::Result<()> {
    let exclusive = if is_first { IFF_TUN_EXCL } else { 0 };
    attach(fd, name, IFF_MULTI_QUEUE | IFF_VNET_HDR | exclusive)
}

/// Makes a fresh descriptor the only queue of a new TAP, without virtio headers.
pub(crate) fn attach_plain(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    attach(fd, name, IFF_TUN_EXCL)
}

fn attach(fd: BorrowedFd<'_>, name: &str, flags: u16) -> io::Result<()> {
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        flags: IFF_TAP | IFF_NO_PI | flags,
        padding: [0; 22],
    };
    // One byte stays zero: names are at most 15 bytes long.
    for (to, from) in request.name.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    // SAFETY: the request is a live ifreq.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF, &raw mut request) })
}

/// Returns whether the descriptor is a queue of an interface, wherever that has been moved to.
pub(crate) fn is_attached(fd: BorrowedFd<'_>) -> bool {
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        flags: 0,
        padding: [0; 22],
    };
    // SAFETY: the request is a live ifreq, which the kernel fills in.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNGETIFF, &raw mut request) }).is_ok()
}

/// Sets the length of the virtio header.
pub(crate) fn set_header_len(fd: BorrowedFd<'_>, len: i32) -> io::Result<()> {
    // SAFETY: the argument is a live int.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETHDRSZ, &raw const len) })
}

/// Sets the offloads; they belong to the device and outlive the process that set them before.
pub(crate) fn set_offloads(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the argument is a number.
    let set =
        |offloads: c_ulong| check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETOFFLOAD, offloads) });
    set(OFFLOADS | OFFLOADS_UDP).or_else(|_| set(OFFLOADS))
}

/// Sets the program that chooses the queue of each frame.
pub(crate) fn set_steering(fd: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let program = program.as_raw_fd();
    // SAFETY: the argument is a live int.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETSTEERINGEBPF, &raw const program) })
}

/// Writes one frame gathered from private and shared memory.
pub(crate) fn write_gathered(
    fd: BorrowedFd<'_>,
    head: &[u8],
    payload: [RawSlice<'_>; 2],
) -> io::Result<usize> {
    let head = libc::iovec {
        iov_base: head.as_ptr().cast_mut().cast(),
        iov_len: head.len(),
    };
    let iov = [head, payload[0].as_iovec(), payload[1].as_iovec()];
    // SAFETY: the pieces are live for the call; the kernel only reads them, and shared bytes that
    // change meanwhile are sent in either state.
    let rc = unsafe { libc::writev(fd.as_raw_fd(), iov.as_ptr(), iov.len() as i32) };
    usize::try_from(rc).map_err(|_| io::Error::last_os_error())
}
