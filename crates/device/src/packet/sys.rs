//! System calls on packet sockets that neither the standard library nor rustix wraps.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use slipstack_mem::{RawSlice, RawSpace};
use slipstack_wire::ethernet::EtherType;

use crate::tags::TAG_LEN;

/// Frames that one sendmmsg takes at most.
pub(crate) const BATCH: usize = 64;

pub(crate) const ETH_P_ALL: u16 = 3;

/// TP_STATUS_VLAN_VALID and TP_STATUS_VLAN_TPID_VALID of linux/if_packet.h.
pub(crate) const STATUS_VLAN_VALID: u32 = 1 << 4;
pub(crate) const STATUS_VLAN_TPID_VALID: u32 = 1 << 6;

pub(crate) const PACKET_RX_RING: i32 = 5;
pub(crate) const PACKET_STATISTICS: i32 = 6;
pub(crate) const PACKET_COPY_THRESH: i32 = 7;
pub(crate) const PACKET_AUXDATA: i32 = 8;
pub(crate) const PACKET_VERSION: i32 = 10;
pub(crate) const PACKET_RESERVE: i32 = 12;
pub(crate) const PACKET_VNET_HDR: i32 = 15;
pub(crate) const PACKET_FANOUT: i32 = 18;
pub(crate) const PACKET_QDISC_BYPASS: i32 = 20;
pub(crate) const PACKET_FANOUT_DATA: i32 = 22;
pub(crate) const PACKET_IGNORE_OUTGOING: i32 = 23;

/// Option of linux/socket.h, since Linux 4.12.
const SO_MEMINFO: i32 = 55;
const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// ETHTOOL_SRXCSUM, STXCSUM, SSG, STSO, SGSO and SGRO of linux/ethtool.h.
pub(crate) const ETHTOOL_OFFLOADS: [u32; 6] = [0x15, 0x17, 0x19, 0x1f, 0x24, 0x2c];

/// `struct ethtool_value`.
#[repr(C)]
struct FeatureValue {
    command: u32,
    data: u32,
}

fn check(rc: isize) -> io::Result<usize> {
    usize::try_from(rc).map_err(|_| io::Error::last_os_error())
}

/// A raw packet socket that receives nothing until it is bound.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    check(fd as isize)?;
    // SAFETY: a fresh descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds to one interface, all protocols.
pub(crate) fn bind(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ETH_P_ALL.to_be(),
        sll_ifindex: i32::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is a live sockaddr_ll of the length given.
    let rc = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
    check(rc as isize).map(drop)
}

/// Switches an offload of an interface off.
pub(crate) fn switch_feature_off(
    socket: BorrowedFd<'_>,
    name: &str,
    command: u32,
) -> io::Result<()> {
    let mut value = FeatureValue { command, data: 0 };
    // SAFETY: an ifreq is plain data for which zero means absent.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    // One byte stays zero: names are at most 15 bytes long.
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(15)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request is a live ifreq that points to a live ethtool_value.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    check(rc as isize).map(drop)
}

/// Sets an option of level `SOL_PACKET` or `SOL_SOCKET` made of 32-bit words.
pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    words: &[u32],
) -> io::Result<()> {
    let len = size_of_val(words) as libc::socklen_t;
    // SAFETY: the slice is live and `len` is its length in bytes.
    let rc = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, words.as_ptr().cast(), len) };
    check(rc as isize).map(drop)
}

/// Reads an option made of 32-bit words.
pub(crate) fn option(
    fd: BorrowedFd<'_>,
    level: i32,
    name: i32,
    words: &mut [u32],
) -> io::Result<()> {
    let mut len = size_of_val(words) as libc::socklen_t;
    let out = words.as_mut_ptr().cast();
    // SAFETY: the slice is live and exclusive, and `len` is its length in bytes.
    let rc = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, out, &raw mut len) };
    check(rc as isize).map(drop)
}

fn message(iov: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: a msghdr is plain data for which zero means absent.
    let mut msg: libc::msghdr = unsafe { core::mem::zeroed() };
    msg.msg_iov = iov.as_mut_ptr();
    msg.msg_iovlen = iov.len() as _;
    msg
}

fn iovec(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// Receives one message from the socket's queue. Returns its whole length, which is larger than
/// `buffer` when it did not fit.
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let (at, len) = (buffer.as_mut_ptr().cast(), buffer.len());
    past_error(|| {
        // SAFETY: `buffer` is live, exclusive and of that length.
        unsafe { libc::recv(fd.as_raw_fd(), at, len, flags) }
    })
}

/// Repeats a call after an error that took no message: ENETDOWN is reported once, by the first call
/// after the interface went down, before waiting frames.
fn past_error(mut receive: impl FnMut() -> isize) -> io::Result<usize> {
    match check(receive()) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => check(receive()),
        result => result,
    }
}

/// Receives one message from the socket's queue, its first bytes into `head`, the others into
/// shared memory. Returns its whole length.
pub(crate) fn receive_scattered(
    fd: BorrowedFd<'_>,
    head: &mut [u8],
    rest: [RawSpace<'_>; 2],
) -> io::Result<usize> {
    let head = libc::iovec {
        iov_base: head.as_mut_ptr().cast(),
        iov_len: head.len(),
    };
    let mut iov = [head, rest[0].as_iovec(), rest[1].as_iovec()];
    let mut msg = message(&mut iov);
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    past_error(|| {
        // SAFETY: the head is live and exclusive; the rest is mapped memory that no reference
        // covers, for which others' writes at the same time are expected.
        unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut msg, flags) }
    })
}

/// One message of a listener's socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    /// Whole length of the frame.
    pub len: usize,
    /// The frame left the interface, seen from the kernel.
    pub is_outgoing: bool,
    /// The VLAN tag that the kernel has taken out of the frame.
    pub tag: Option<[u8; TAG_LEN]>,
    pub since_epoch: Option<Duration>,
}

/// Receives one message: its virtio header in `header`, its frame in `buffer`.
pub(crate) fn receive_from(
    fd: BorrowedFd<'_>,
    header: &mut [u8],
    buffer: &mut [u8],
) -> io::Result<Heard> {
    let mut iov = [iovec(header), iovec(buffer)];
    // SAFETY: a sockaddr_ll is plain data.
    let mut address: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
    let mut control = [0u64; 16];
    let mut msg = message(&mut iov);
    msg.msg_name = (&raw mut address).cast();
    msg.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    msg.msg_control = control.as_mut_ptr().cast();
    msg.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: all that the message names is live, exclusive and of the length given.
    let received = past_error(|| unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut msg, flags) });
    let len = received?;
    let (since_epoch, tag) = control_messages(&msg);
    Ok(Heard {
        len: len.saturating_sub(header.len()),
        is_outgoing: address.sll_pkttype == libc::PACKET_OUTGOING,
        tag,
        since_epoch,
    })
}

/// The time of arrival and the VLAN tag in a message's control data.
fn control_messages(msg: &libc::msghdr) -> (Option<Duration>, Option<[u8; TAG_LEN]>) {
    let (mut since_epoch, mut tag) = (None, None);
    // SAFETY: the kernel filled in the control bytes and their length, and both are still there.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(msg) };
    // SAFETY: null or a header within those bytes.
    while let Some(header) = unsafe { next.as_ref() } {
        // SAFETY: the header is followed by its data.
        let data = unsafe { libc::CMSG_DATA(next) };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: data of SCM_TIMESTAMPNS is a timespec, perhaps unaligned.
                let time = unsafe { core::ptr::read_unaligned(data.cast()) };
                since_epoch = duration(&time);
            }
            (libc::SOL_PACKET, PACKET_AUXDATA) => {
                // SAFETY: data of PACKET_AUXDATA is a tpacket_auxdata, perhaps unaligned.
                let auxiliary = unsafe { core::ptr::read_unaligned(data.cast()) };
                tag = vlan_tag(&auxiliary);
            }
            _ => {}
        }
        // SAFETY: `next` is a header within the message's control bytes.
        next = unsafe { libc::CMSG_NXTHDR(msg, next) };
    }
    (since_epoch, tag)
}

fn duration(time: &libc::timespec) -> Option<Duration> {
    let sec = u64::try_from(time.tv_sec).ok()?;
    Some(Duration::new(sec, u32::try_from(time.tv_nsec).ok()?))
}

fn vlan_tag(auxiliary: &libc::tpacket_auxdata) -> Option<[u8; TAG_LEN]> {
    if auxiliary.tp_status & STATUS_VLAN_VALID == 0 {
        return None;
    }
    let kind = match auxiliary.tp_status & STATUS_VLAN_TPID_VALID {
        0 => EtherType::TAGGED.0,
        _ => auxiliary.tp_vlan_tpid,
    };
    let ([k0, k1], [c0, c1]) = (kind.to_be_bytes(), auxiliary.tp_vlan_tci.to_be_bytes());
    Some([k0, k1, c0, c1])
}

/// Frames that found the socket's queue full since the last call.
pub(crate) fn drops(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut words = [0; 2];
    option(fd, libc::SOL_PACKET, PACKET_STATISTICS, &mut words)?;
    Ok(words[1].into())
}

/// Returns the kernel memory that the frames sent by a socket fill until they have left, and how
/// much they may.
pub(crate) fn send_queue(fd: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    // Words of linux/sock_diag.h: SK_MEMINFO_WMEM_ALLOC and SK_MEMINFO_SNDBUF are these two.
    let mut words = [0; 4];
    option(fd, libc::SOL_SOCKET, SO_MEMINFO, &mut words)?;
    Ok((words[2], words[3]))
}

/// Sends one message.
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    let (at, len) = (bytes.as_ptr().cast(), bytes.len());
    // SAFETY: `bytes` is live and of that length.
    check(unsafe { libc::send(fd.as_raw_fd(), at, len, libc::MSG_DONTWAIT) }).map(drop)
}

/// Sends one message gathered from private and shared memory.
pub(crate) fn send_gathered(
    fd: BorrowedFd<'_>,
    head: &[u8],
    payload: [RawSlice<'_>; 2],
) -> io::Result<()> {
    let mut iov = [iovec(head), payload[0].as_iovec(), payload[1].as_iovec()];
    let msg = message(&mut iov);
    // SAFETY: the message's pieces are live for the call; the kernel only reads them, and shared
    // bytes that change meanwhile are sent in either state.
    check(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const msg, libc::MSG_DONTWAIT) }).map(drop)
}

/// Sends up to [`BATCH`] messages at `(offset, len)` in `arena`; returns how many were sent.
pub(crate) fn send_batch(
    fd: BorrowedFd<'_>,
    arena: &[u8],
    frames: &[(u32, u32)],
) -> io::Result<usize> {
    if frames.len() <= 8 {
        send_up_to::<8>(fd, arena, frames)
    } else {
        send_up_to::<BATCH>(fd, arena, frames)
    }
}

fn send_up_to<const N: usize>(
    fd: BorrowedFd<'_>,
    arena: &[u8],
    frames: &[(u32, u32)],
) -> io::Result<usize> {
    let mut iov = [const { iovec_empty() }; N];
    // SAFETY: mmsghdr is plain data for which zero means absent.
    let mut messages: [libc::mmsghdr; N] = unsafe { core::mem::zeroed() };
    let mut count = 0;
    for ((&(offset, len), iov), msg) in frames.iter().zip(&mut iov).zip(&mut messages) {
        let (offset, len) = (offset as usize, len as usize);
        let Some(bytes) = arena.get(offset..offset + len) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        *iov = iovec(bytes);
        msg.msg_hdr.msg_iov = iov;
        msg.msg_hdr.msg_iovlen = 1;
        count += 1;
    }
    let at = messages.as_mut_ptr();
    // SAFETY: `count` messages were filled in, and their pieces are live for the call.
    let rc = unsafe { libc::sendmmsg(fd.as_raw_fd(), at, count, libc::MSG_DONTWAIT) };
    check(rc as isize)
}

const fn iovec_empty() -> libc::iovec {
    libc::iovec {
        iov_base: core::ptr::null_mut(),
        iov_len: 0,
    }
}
