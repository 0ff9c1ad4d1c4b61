//! TAP: one queue of a virtual Ethernet device whose other side is this machine's kernel, with a
//! virtio header and therefore checksum and segmentation offloads in both directions.

mod backend;
mod sys;

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use slipstack_mem::{PrivateFd, RawSlice};
use slipstack_terms::LinkTags;
use slipstack_wire::TxOffload;

use crate::device::{Device, DeviceCounters, DeviceInfo, Sink, TxFull};
use crate::error::DeviceError;
use crate::parts::LinkProperties;
use crate::tags::{self, ADDRESSES, HEADER_MAX, Kind, TAG_LEN, Tags};
use crate::vnet::{self, Received};

pub(crate) use backend::Tap;

/// The longest frame with its virtio header.
const FRAME_MAX: usize = 68 * 1024;
/// Frames up to this length are copied together: cheaper than describing three pieces.
const COPY_MAX: usize = 512;

/// One queue of a TAP, driven by one engine.
#[derive(Debug)]
pub(crate) struct TapSlot {
    fd: PrivateFd,
    /// The interface's number.
    index: u32,
    info: DeviceInfo,
    buffer: Vec<u8>,
    is_stalled: bool,
    /// The TAP was deleted. Its descriptor would end every sleep at once (EPOLLERR), for ever.
    is_deleted: bool,
    /// VLANs whose frames are accepted.
    tags: Tags,
    counters: DeviceCounters,
}

/// Creates the TAP with all its queues, in the order of their numbers.
pub(crate) fn open_slots(name: &str, count: u16) -> Result<Vec<OwnedFd>, DeviceError> {
    let mut slots = Vec::with_capacity(usize::from(count));
    for slot in 0..count {
        slots.push(open_queue(name, slot == 0)?);
    }
    Ok(slots)
}

/// Creates a TAP with one queue and no virtio header: the kernel hands over complete frames.
pub(crate) fn open_port(name: &str) -> Result<OwnedFd, DeviceError> {
    let fd = open_tun()?;
    sys::attach_plain(fd.as_fd(), name).map_err(|source| refused(name, source))?;
    Ok(fd)
}

fn refused(name: &str, source: io::Error) -> DeviceError {
    match source.raw_os_error() {
        Some(libc::EBUSY | libc::EINVAL | libc::E2BIG) => DeviceError::TapBusy(name.to_owned()),
        _ => DeviceError::system("creating a TAP", "CAP_NET_ADMIN", source),
    }
}

fn open_tun() -> Result<OwnedFd, DeviceError> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .map_err(|source| match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => DeviceError::NoTunDevice,
            _ => DeviceError::system("opening /dev/net/tun", "CAP_NET_ADMIN", source),
        })?;
    Ok(OwnedFd::from(file))
}

fn open_queue(name: &str, is_first: bool) -> Result<OwnedFd, DeviceError> {
    let fd = open_tun()?;
    sys::attach_queue(fd.as_fd(), name, is_first).map_err(|source| refused(name, source))?;
    let configured = sys::set_header_len(fd.as_fd(), vnet::TAP_LEN as i32)
        .and_then(|()| sys::set_offloads(fd.as_fd()));
    configured.map_err(|source| {
        DeviceError::system("setting the offloads of a TAP", "CAP_NET_ADMIN", source)
    })?;
    Ok(fd)
}

/// Gives the TAP the program that chooses the queue of each frame.
pub(crate) fn set_steering(queue: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    sys::set_steering(queue, program)
}

/// Returns whether the queue still belongs to an interface.
pub(crate) fn is_attached(queue: BorrowedFd<'_>) -> bool {
    sys::is_attached(queue)
}

impl TapSlot {
    pub(crate) fn from_fd(fd: OwnedFd, link: &LinkProperties) -> TapSlot {
        TapSlot {
            fd: fd.into(),
            index: link.index,
            info: link.info(),
            buffer: vec![0; FRAME_MAX],
            is_stalled: false,
            is_deleted: false,
            tags: Tags::default(),
            counters: DeviceCounters::default(),
        }
    }

    fn write(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: &TxOffload,
    ) -> io::Result<usize> {
        let mut head = [0; vnet::TAP_LEN + COPY_MAX];
        let head_len = vnet::TAP_LEN + header.len();
        let payload_len = payload[0].len() + payload[1].len();
        if header.len() > HEADER_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        head[..vnet::TAP_LEN].copy_from_slice(&vnet::build(header, offload));
        head[vnet::TAP_LEN..head_len].copy_from_slice(header);
        if head_len + payload_len > head.len() {
            return sys::write_gathered(self.fd.as_fd(), &head[..head_len], payload);
        }
        let (first, second) = head[head_len..].split_at_mut(payload[0].len());
        payload[0].copy_to(first);
        payload[1].copy_to(&mut second[..payload[1].len()]);
        Ok(rustix::io::write(
            &self.fd,
            &head[..head_len + payload_len],
        )?)
    }

    #[inline(never)]
    fn write_tagged(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: &TxOffload,
    ) -> io::Result<usize> {
        let tagged = self.tags.insert(header, offload);
        let (tagged, offload) = tagged.ok_or(io::ErrorKind::InvalidInput)?;
        self.write(tagged.bytes(), payload, &offload)
    }

    /// Removes the tags of a frame in the buffer, which begins at `from`. Returns where the frame
    /// begins then and its link; `None` if no such VLAN is wanted.
    #[inline(never)]
    fn untag(&mut self, from: usize, outer: Kind) -> Option<(usize, u16)> {
        let inner = || tags::parse_second(&self.buffer[from..]);
        let within = self.tags.link_within(outer, inner);
        let within = within.map(|link| (2 * TAG_LEN, link));
        let found = within.or_else(|| self.tags.link_of(outer).map(|link| (TAG_LEN, link)));
        if let Some((tags_len, link)) = found {
            let to = from + tags_len;
            self.buffer.copy_within(from..from + ADDRESSES, to);
            return Some((to, link));
        }
        // The stack reads the tag that gives a priority alone.
        (outer == (0, false)).then_some((from, 0))
    }

    fn deliver(&mut self, len: usize, sink: &mut dyn Sink) {
        let Some((virtio, frame)) = self.buffer[..len].split_at_checked(vnet::TAP_LEN) else {
            self.counters.rx_malformed += 1;
            return;
        };
        let Some(Received::Frame(mut meta)) = vnet::parse(virtio) else {
            self.counters.rx_malformed += 1;
            return;
        };
        let mut from = vnet::TAP_LEN;
        if let Some(tag) = tags::parse(frame) {
            let Some(untagged) = self.untag(from, tag) else {
                self.counters.rx_vlan += 1;
                return;
            };
            (from, meta.link) = untagged;
        }
        let frame = &self.buffer[from..len];
        let counters = &mut self.counters;
        counters.rx_frames += 1;
        counters.rx_bytes += frame.len() as u64;
        sink.frame(frame, meta);
    }
}

impl Device for TapSlot {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn interfaces(&self) -> Vec<u32> {
        vec![self.index]
    }

    fn rx(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        for done in 0..budget {
            match rustix::io::read(&self.fd, &mut self.buffer[..]) {
                Ok(len) => self.deliver(len, sink),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return done,
                Err(error) => {
                    self.counters.link_errors += 1;
                    self.is_deleted |= error == rustix::io::Errno::BADFD;
                    return done;
                }
            }
        }
        budget
    }

    /// Every frame leaves at once: the kernel takes one per system call anyway, and a frame in
    /// its hands is work that its side can begin.
    fn tx(
        &mut self,
        header: &[u8],
        payload: [RawSlice<'_>; 2],
        offload: TxOffload,
    ) -> Result<(), TxFull> {
        let sent = match offload.link {
            0 => self.write(header, payload, &offload),
            _ => self.write_tagged(header, payload, &offload),
        };
        let counters = &mut self.counters;
        self.is_stalled = false;
        match sent.map_err(|error| error.raw_os_error()) {
            Ok(len) => {
                counters.tx_frames += 1;
                counters.tx_bytes += len.saturating_sub(vnet::TAP_LEN) as u64;
                Ok(())
            }
            Err(Some(libc::EAGAIN | libc::EINTR)) => {
                counters.tx_again += 1;
                counters.tx_full += 1;
                self.is_stalled = true;
                Err(TxFull)
            }
            Err(reason) => {
                // EIO: the TAP is down.
                counters.link_errors += u64::from(reason == Some(libc::EIO));
                counters.tx_dropped += 1;
                Ok(())
            }
        }
    }

    fn set_vlans(&mut self, vlans: &[LinkTags]) {
        self.tags.set(vlans);
    }

    fn flush(&mut self) {
        self.is_stalled = false;
    }

    fn poll_fd(&self) -> RawFd {
        if self.is_deleted {
            return -1;
        }
        self.fd.as_raw_fd()
    }

    /// Returns the one descriptor: it keeps its number, by which others know it, with nothing to
    /// wait for.
    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.fd.as_raw_fd()]
    }

    fn has_rx(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(poll(&mut fds, Some(&now)), Ok(1..)) && fds[0].revents().contains(PollFlags::IN)
    }

    fn tx_pending(&self) -> bool {
        self.is_stalled
    }

    fn counters(&self) -> DeviceCounters {
        self.counters
    }
}
