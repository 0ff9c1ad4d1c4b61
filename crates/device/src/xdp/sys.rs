//! System calls on AF_XDP sockets (linux/if_xdp.h).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const SOL_XDP: i32 = 283;
const XDP_MMAP_OFFSETS: i32 = 1;
const XDP_RX_RING: i32 = 2;
const XDP_TX_RING: i32 = 3;
const XDP_UMEM_REG: i32 = 4;
const XDP_UMEM_FILL_RING: i32 = 5;
const XDP_UMEM_COMPLETION_RING: i32 = 6;
const XDP_STATISTICS: i32 = 7;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
/// Longest busy poll; ours request one check each.
const BUSY_POLL_US: u32 = 20;

/// Frames may be preceded by metadata for the device (since Linux 6.8).
const UMEM_TX_METADATA_LEN: u32 = 1 << 2;

/// Mode in which a socket is bound: frames are copied, or the device uses our memory.
pub(super) const BIND_COPY: u16 = 1 << 1;
pub(super) const BIND_ZEROCOPY: u16 = 1 << 2;
/// Frames may lie in several chunks (since Linux 6.6).
pub(super) const BIND_IN_PIECES: u16 = 1 << 4;
const BIND_USE_NEED_WAKEUP: u16 = 1 << 3;

/// `struct xdp_umem_reg`.
#[repr(C)]
struct UmemReg {
    addr: u64,
    len: u64,
    chunk_size: u32,
    headroom: u32,
    flags: u32,
    tx_metadata_len: u32,
}

/// Places of the words and entries of one ring in its mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RingOffset {
    pub producer: u64,
    pub consumer: u64,
    pub desc: u64,
    pub flags: u64,
}

/// `struct xdp_mmap_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MmapOffsets {
    pub rx: RingOffset,
    pub tx: RingOffset,
    pub fill: RingOffset,
    pub completion: RingOffset,
}

/// `struct sockaddr_xdp`.
#[repr(C)]
struct Address {
    family: u16,
    flags: u16,
    index: u32,
    queue: u32,
    shared_umem_fd: u32,
}

/// `struct xdp_statistics`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Statistics {
    pub rx_dropped: u64,
    pub rx_invalid: u64,
    pub tx_invalid: u64,
    pub rx_ring_full: u64,
    pub rx_fill_empty: u64,
    pub tx_ring_empty: u64,
}

fn check(rc: isize) -> io::Result<usize> {
    usize::try_from(rc).map_err(|_| io::Error::last_os_error())
}

pub(super) fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, kind, 0) };
    check(fd as isize)?;
    // SAFETY: a fresh descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn set<T>(fd: BorrowedFd<'_>, name: i32, value: &T) -> io::Result<()> {
    set_at(fd, SOL_XDP, name, value)
}

fn set_at<T>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let (at, len) = ((&raw const *value).cast(), size_of::<T>() as u32);
    // SAFETY: a live value of the length given; the kernel copies it.
    let rc = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, at, len) };
    check(rc as isize).map(drop)
}

fn get<T: Default>(fd: BorrowedFd<'_>, name: i32) -> io::Result<T> {
    let mut value = T::default();
    let mut len = size_of::<T>() as u32;
    let at = (&raw mut value).cast();
    // SAFETY: a live value of plain integers and its length; a shorter answer leaves zeros.
    let rc = unsafe { libc::getsockopt(fd.as_raw_fd(), SOL_XDP, name, at, &raw mut len) };
    check(rc as isize)?;
    Ok(value)
}

/// Registers mapped memory for the socket, in chunks; with a `metadata_len` other than 0 frames may
/// be preceded by that many bytes of metadata.
pub(super) fn register(
    fd: BorrowedFd<'_>,
    memory: (u64, u64),
    chunk_size: u32,
    metadata_len: u32,
) -> io::Result<()> {
    let registration = UmemReg {
        addr: memory.0,
        len: memory.1,
        chunk_size,
        headroom: 0,
        flags: if metadata_len == 0 {
            0
        } else {
            UMEM_TX_METADATA_LEN
        },
        tx_metadata_len: metadata_len,
    };
    set(fd, XDP_UMEM_REG, &registration)
}

/// Makes the four rings, of powers of two of entries.
pub(super) fn make_rings(fd: BorrowedFd<'_>, rx: u32, tx: u32) -> io::Result<()> {
    set(fd, XDP_UMEM_FILL_RING, &rx)?;
    set(fd, XDP_UMEM_COMPLETION_RING, &tx)?;
    set(fd, XDP_RX_RING, &rx)?;
    set(fd, XDP_TX_RING, &tx)
}

pub(super) fn offsets(fd: BorrowedFd<'_>) -> io::Result<MmapOffsets> {
    get(fd, XDP_MMAP_OFFSETS)
}

pub(super) fn statistics(fd: BorrowedFd<'_>) -> io::Result<Statistics> {
    get(fd, XDP_STATISTICS)
}

pub(super) fn bind(fd: BorrowedFd<'_>, index: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = Address {
        family: libc::AF_XDP as u16,
        flags: flags | BIND_USE_NEED_WAKEUP,
        index,
        queue,
        shared_umem_fd: 0,
    };
    let len = size_of::<Address>() as libc::socklen_t;
    // SAFETY: the address is a live sockaddr_xdp of the length given.
    let rc = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
    check(rc as isize).map(drop)
}

/// Has the card's receive path run within our calls, for so many frames each time.
pub(super) fn prefer_busy_poll(fd: BorrowedFd<'_>, frames: u16) -> io::Result<()> {
    let level = libc::SOL_SOCKET;
    set_at(fd, level, SO_PREFER_BUSY_POLL, &1u32)?;
    set_at(fd, level, libc::SO_BUSY_POLL, &BUSY_POLL_US)?;
    set_at(fd, level, SO_BUSY_POLL_BUDGET, &u32::from(frames))
}

/// Lets the kernel send the frames in the ring.
pub(super) fn send(fd: BorrowedFd<'_>) -> io::Result<()> {
    let null = core::ptr::null();
    let (fd, flags) = (fd.as_raw_fd(), libc::MSG_DONTWAIT);
    // SAFETY: no bytes and no address are passed.
    let rc = unsafe { libc::sendto(fd, null, 0, flags, null.cast(), 0) };
    check(rc).map(drop)
}

/// Lets the driver check the fill ring, and for frames if the socket prefers that.
pub(super) fn refill(fd: BorrowedFd<'_>) {
    let null = core::ptr::null_mut();
    let (fd, flags) = (fd.as_raw_fd(), libc::MSG_DONTWAIT);
    // SAFETY: neither bytes nor an address are requested.
    let _ = unsafe { libc::recvfrom(fd, null, 0, flags, null.cast(), core::ptr::null_mut()) };
}
