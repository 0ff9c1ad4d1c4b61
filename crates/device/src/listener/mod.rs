//! A tap on a device beside the engines that use it: for captures that begin while programs run.
//!
//! A listener does not slow the engines down. The kernel gives it a copy of every frame that a slot
//! receives or sends; frames that it cannot take in time are counted and missing only in the
//! capture.

mod selection;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::capture::Direction;
use crate::error::DeviceError;
use crate::iface;
use crate::packet::{self, Heard};
use crate::tags;
use crate::vnet;

pub use selection::Selection;

/// The longest frame: 64 KiB of a packet with its headers.
const FRAME_MAX: usize = 68 * 1024;

#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    buffer: Vec<u8>,
    /// The device is a TAP: the kernel's side receives the stack's frames.
    is_tap: bool,
    lost: u64,
}

/// A frame as it would be on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub since_epoch: Duration,
    /// Seen from the stack.
    pub way: Direction,
    pub bytes: &'a [u8],
}

impl Listener {
    /// # Errors
    /// No such interface, or no CAP_NET_RAW.
    pub fn open(interface: &str, is_tap: bool) -> Result<Listener, DeviceError> {
        let link = iface::usable(interface)?;
        let failed = |source| DeviceError::system("opening a packet socket", "CAP_NET_RAW", source);
        let fd = packet::open_listener(link.index).map_err(failed)?;
        Ok(Listener {
            fd,
            buffer: vec![0; FRAME_MAX],
            is_tap,
            lost: 0,
        })
    }

    /// Readable while frames wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the next frame; `None` if there is none.
    ///
    /// # Errors
    /// The interface is gone or down.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame<'_>>> {
        let mut header = [0; vnet::PACKET_LEN];
        let heard = match packet::receive_from(self.fd.as_fd(), &mut header, &mut self.buffer) {
            Ok(heard) => heard,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        let len = heard.len.min(self.buffer.len());
        if let Some(partial) = vnet::left_checksum(&header) {
            partial.complete(&mut self.buffer[..len], []);
        }
        let len = tags::restore(&mut self.buffer, len, heard.tag).min(self.buffer.len());
        Ok(Some(Frame {
            since_epoch: arrival(&heard),
            way: way(heard.is_outgoing, self.is_tap),
            bytes: &self.buffer[..len],
        }))
    }

    /// Returns how many frames arrived faster than they were taken, so far.
    pub fn lost(&mut self) -> u64 {
        // The kernel's count starts again whenever it is read.
        self.lost += packet::drops(self.fd.as_fd()).unwrap_or(0);
        self.lost
    }
}

fn arrival(heard: &Heard) -> Duration {
    heard.since_epoch.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap_or_default()
    })
}

fn way(is_outgoing: bool, is_tap: bool) -> Direction {
    if is_outgoing == is_tap {
        Direction::Inbound
    } else {
        Direction::Outbound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_sent_on_the_host_side_of_a_tap_arrive() {
        assert_eq!(way(true, true), Direction::Inbound);
        assert_eq!(way(false, true), Direction::Outbound);
        assert_eq!(way(true, false), Direction::Outbound);
        assert_eq!(way(false, false), Direction::Inbound);
    }
}
