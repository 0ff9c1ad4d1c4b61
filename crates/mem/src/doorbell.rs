//! A doorbell: a descriptor that wakes a sleeping side.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::EventfdFlags;

/// An eventfd; clones ring the same bell.
#[derive(Clone, Debug)]
pub struct Doorbell {
    fd: Arc<OwnedFd>,
}

impl Doorbell {
    pub fn new() -> io::Result<Doorbell> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Doorbell::from_fd(rustix::event::eventfd(0, flags)?))
    }

    /// Makes a doorbell from a descriptor that another process passed.
    pub fn from_fd(fd: OwnedFd) -> Doorbell {
        Doorbell {
            fd: Arc::new(crate::descriptor::raised(fd)),
        }
    }

    /// Makes the descriptor readable. Never blocks: a full counter is rung already.
    pub fn ring(&self) {
        let _ = rustix::io::write(&*self.fd, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable again.
    pub fn clear(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&*self.fd, &mut count);
    }

    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
