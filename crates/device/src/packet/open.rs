//! Opening all slots of an AF_PACKET device: the keeper's half.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{RingParams, sys};
use crate::error::DeviceError;

/// Default number of ring slots.
const FRAMES: u32 = 2048;
/// Bytes of a block of ring memory.
const BLOCK_SIZE: u32 = 64 * 1024;
/// Bytes that the kernel keeps in a slot before a frame: its header, the address, the virtio
/// header and alignment.
const SLOT_OVERHEAD: u32 = 128;
const SLOT_SIZE_MIN: u32 = 2048;
/// Slots larger than this would cost more memory than fetching large frames one by one costs time.
const SLOT_SIZE_MAX: u32 = 4096;
/// Queue for frames larger than a slot, in bytes of kernel memory.
const LARGE_QUEUE: u32 = 16 << 20;
/// Frames on their way to the device, in bytes of kernel memory.
const SEND_QUEUE: u32 = 8 << 20;
/// Queue of a port, which has no ring.
const PORT_QUEUE: u32 = 32 << 20;
/// Queue of a listener: frames that it does not take in time are missing in a capture.
const LISTENER_QUEUE: u32 = 64 << 20;
/// Frames up to this length always fit their slot.
const COPY_THRESHOLD: u32 = 1;

const TPACKET_V2: u32 = 1;
const FANOUT_EBPF: u32 = 7;
const FANOUT_UNIQUE_ID: u32 = 0x2000;
/// Like PACKET_IGNORE_OUTGOING, which a group does not heed; since Linux 6.2.
const FANOUT_IGNORE_OUTGOING: u32 = 0x4000;
const SO_ATTACH_BPF: i32 = 50;
const SO_LOCK_FILTER: i32 = 44;

/// The sockets of all slots, in the order of their numbers, and the shape of their rings.
pub(crate) fn open_slots(
    index: u32,
    mtu: u16,
    count: u16,
) -> Result<(Vec<OwnedFd>, RingParams), DeviceError> {
    let ring = ring_params(mtu);
    let failed = |source| DeviceError::system("opening a packet socket", "CAP_NET_RAW", source);
    let mut slots = Vec::with_capacity(usize::from(count));
    let mut group = None;
    for _ in 0..count {
        let fd = open_one(index, ring).map_err(failed)?;
        if slots.is_empty() {
            hear_groups(fd.as_fd(), index).map_err(failed)?;
        }
        group = Some(join_fanout(fd.as_fd(), group).map_err(failed)?);
        slots.push(fd);
    }
    Ok((slots, ring))
}

/// Lets the interface receive all multicast for as long as the socket lives: IPv6 neighbours use
/// the groups of our addresses (RFC 4861 7.2.2), which the kernel has not joined.
fn hear_groups(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    const PACKET_ADD_MEMBERSHIP: i32 = 1;
    const PACKET_MR_ALLMULTI: u32 = 2;
    // struct packet_mreq: interface, type and length of the address, which is not used.
    let request = [index, PACKET_MR_ALLMULTI, 0, 0];
    sys::set_option(fd, libc::SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request)
}

/// Lets the interface receive frames to all stations for as long as the socket lives.
pub(crate) fn hear_all(index: u32) -> io::Result<OwnedFd> {
    const PACKET_ADD_MEMBERSHIP: i32 = 1;
    const PACKET_MR_PROMISC: u32 = 1;
    let socket = sys::socket()?;
    let request = [index, PACKET_MR_PROMISC, 0, 0];
    sys::set_option(
        socket.as_fd(),
        libc::SOL_PACKET,
        PACKET_ADD_MEMBERSHIP,
        &request,
    )?;
    Ok(socket)
}

fn ring_params(mtu: u16) -> RingParams {
    let frame_size = (u32::from(mtu) + SLOT_OVERHEAD)
        .next_power_of_two()
        .clamp(SLOT_SIZE_MIN, SLOT_SIZE_MAX);
    let per_block = BLOCK_SIZE / frame_size;
    RingParams {
        frame_size,
        frame_count: FRAMES.next_multiple_of(per_block),
        block_size: BLOCK_SIZE,
    }
}

fn open_one(index: u32, ring: RingParams) -> io::Result<OwnedFd> {
    let socket = sys::socket()?;
    let fd = socket.as_fd();
    let packet = |name, words: &[u32]| sys::set_option(fd, libc::SOL_PACKET, name, words);
    packet(sys::PACKET_VERSION, &[TPACKET_V2])?;
    packet(sys::PACKET_VNET_HDR, &[1])?;
    packet(sys::PACKET_COPY_THRESH, &[COPY_THRESHOLD])?;
    packet(sys::PACKET_IGNORE_OUTGOING, &[1])?;
    // Puts the IP header on a multiple of 16 behind 10 bytes of virtio header.
    packet(sys::PACKET_RESERVE, &[6])?;
    packet(
        sys::PACKET_RX_RING,
        &[
            ring.block_size,
            ring.frame_count / (ring.block_size / ring.frame_size),
            ring.frame_size,
            ring.frame_count,
        ],
    )?;
    set_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, LARGE_QUEUE)?;
    set_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_QUEUE)?;
    sys::bind(fd, index)?;
    Ok(socket)
}

/// A socket for all frames of an interface but those sent on it by this machine's kernel and by
/// ourselves.
pub(crate) fn open_port(index: u32) -> io::Result<OwnedFd> {
    let socket = sys::socket()?;
    let fd = socket.as_fd();
    sys::set_option(fd, libc::SOL_PACKET, sys::PACKET_IGNORE_OUTGOING, &[1])?;
    sys::set_option(fd, libc::SOL_PACKET, sys::PACKET_QDISC_BYPASS, &[1])?;
    sys::set_option(fd, libc::SOL_PACKET, sys::PACKET_AUXDATA, &[1])?;
    set_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, PORT_QUEUE)?;
    set_buffer(fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_QUEUE)?;
    sys::bind(fd, index)?;
    Ok(socket)
}

/// A socket for a copy of all frames of an interface, those of packet sockets included.
pub(crate) fn open_listener(index: u32) -> io::Result<OwnedFd> {
    let socket = sys::socket()?;
    let fd = socket.as_fd();
    sys::set_option(fd, libc::SOL_PACKET, sys::PACKET_VNET_HDR, &[1])?;
    sys::set_option(fd, libc::SOL_PACKET, sys::PACKET_AUXDATA, &[1])?;
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &[1])?;
    set_buffer(fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, LISTENER_QUEUE)?;
    sys::bind(fd, index)?;
    Ok(socket)
}

/// Switches off the interface's segmentation, coalescing and checksum offloads, because the sender
/// does that work. A feature that the interface does not have, or refuses to switch off, is left as
/// it is.
pub(crate) fn switch_offloads_off(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    for feature in sys::ETHTOOL_OFFLOADS {
        match sys::switch_feature_off(socket, name, feature) {
            Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Beyond the system's limit where we may, else up to it.
fn set_buffer(fd: BorrowedFd<'_>, force: i32, plain: i32, bytes: u32) -> io::Result<()> {
    sys::set_option(fd, libc::SOL_SOCKET, force, &[bytes])
        .or_else(|_| sys::set_option(fd, libc::SOL_SOCKET, plain, &[bytes]))
}

/// Joins the fan-out group (its number and kind in one word), or founds one whose number the kernel
/// chooses; returns the word for the next member. A member can neither be bound elsewhere nor
/// leave, so that an unprivileged holder cannot receive from other interfaces.
fn join_fanout(fd: BorrowedFd<'_>, group: Option<u32>) -> io::Result<u32> {
    let join = |word: u32| sys::set_option(fd, libc::SOL_PACKET, sys::PACKET_FANOUT, &[word]);
    if let Some(word) = group {
        join(word)?;
        return Ok(word);
    }
    let kind = FANOUT_EBPF | FANOUT_UNIQUE_ID;
    join((kind | FANOUT_IGNORE_OUTGOING) << 16).or_else(|_| join(kind << 16))?;
    let mut word = [0];
    sys::option(fd, libc::SOL_PACKET, sys::PACKET_FANOUT, &mut word)?;
    // The others join by number, with the same flags.
    Ok(word[0] & !(FANOUT_UNIQUE_ID << 16))
}

/// Gives the group the program that chooses a member for each frame.
pub(crate) fn set_fanout_program(
    member: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
) -> io::Result<()> {
    let word = program.as_raw_fd().cast_unsigned();
    sys::set_option(member, libc::SOL_PACKET, sys::PACKET_FANOUT_DATA, &[word])
}

/// Attaches a filter to the frames of one slot (if given) and locks filter and fan-out program
/// against changes by the slot's holder.
pub(crate) fn attach_filter(
    slot: BorrowedFd<'_>,
    program: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    if let Some(program) = program {
        let word = program.as_raw_fd().cast_unsigned();
        sys::set_option(slot, libc::SOL_SOCKET, SO_ATTACH_BPF, &[word])?;
    }
    sys::set_option(slot, libc::SOL_SOCKET, SO_LOCK_FILTER, &[1])
}
