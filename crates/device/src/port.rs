//! A whole interface as a port of a bridge: complete frames in and out, no offloads, no steering.
//!
//! A port is for programs that bridge frames between interfaces; engines use [`crate::Device`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::DeviceError;
use crate::iface;
use crate::packet;
use crate::tags;
use crate::tap;

/// The longest frame taken. Longer ones are cut off, which [`Port::receive`] shows by its length.
pub const FRAME_MAX: usize = 65_550;

/// One side of a bridge. Nothing here blocks.
#[derive(Debug)]
pub struct Port {
    fd: OwnedFd,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tap,
    Packet,
}

impl Port {
    /// Opens an existing Ethernet interface, whose offloads are switched off as far as it has any.
    /// The kernel sees the frames too: give the interface no address.
    pub fn open_packet(name: &str) -> Result<Port, DeviceError> {
        let link = iface::usable(name)?;
        let failed = |source| DeviceError::system("opening a packet socket", "CAP_NET_RAW", source);
        let fd = packet::open_port(link.index).map_err(failed)?;
        packet::switch_offloads_off(fd.as_fd(), name).map_err(|source| {
            DeviceError::system("switching offloads off", "CAP_NET_ADMIN", source)
        })?;
        Ok(Port {
            fd,
            kind: Kind::Packet,
        })
    }

    /// Creates a TAP, which ends with the port, and sets it up.
    pub fn open_tap(name: &str) -> Result<Port, DeviceError> {
        iface::check_name(name)?;
        let fd = tap::open_port(name)?;
        iface::set_up(name)?;
        Ok(Port {
            fd,
            kind: Kind::Tap,
        })
    }

    /// Readable while frames wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The next frame's length, its bytes in `buffer`; more than the buffer's length for a frame
    /// that was cut off. `None` when no frame waits.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let received = match self.kind {
            Kind::Packet => packet::receive_from(self.fd.as_fd(), &mut [], buffer)
                .map(|heard| tags::restore(buffer, heard.len, heard.tag)),
            Kind::Tap => rustix::io::read(&self.fd, buffer).map_err(io::Error::from),
        };
        match received {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends frames at `(offset, len)` in `arena`, in order; returns how many the kernel took,
    /// which is fewer when it has no room, and an error when it refuses the first.
    pub fn send(&self, arena: &[u8], frames: &[(u32, u32)]) -> io::Result<usize> {
        match self.kind {
            Kind::Packet => packet::send_batch(
                self.fd.as_fd(),
                arena,
                &frames[..frames.len().min(packet::BATCH)],
            ),
            Kind::Tap => {
                let Some(&(offset, len)) = frames.first() else {
                    return Ok(0);
                };
                let frame = arena.get(offset as usize..(offset + len) as usize);
                rustix::io::write(&self.fd, frame.unwrap_or_default())?;
                Ok(1)
            }
        }
    }
}
