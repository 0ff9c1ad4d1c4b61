//! A doorbell: a descriptor that wakes a sleeping side.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::EventfdFlags;

use crate::descriptor::PrivateFd;

/// An eventfd; clones ring the same bell.
#[derive(Clone, Debug)]
pub struct Doorbell {
    fd: Arc<PrivateFd>,
}

impl Doorbell {
    pub fn new() -> io::Result<Doorbell> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Doorbell::from_fd(rustix::event::eventfd(0, flags)?))
    }

    /// Makes a doorbell from a descriptor that another process passed.
    pub fn from_fd(fd: OwnedFd) -> Doorbell {
        Doorbell {
            fd: Arc::new(PrivateFd::of_engine(fd)),
        }
    }

    /// Makes the descriptor readable, and wakes those who wait for its edges. Never blocks.
    pub fn ring(&self) {
        if self.add(1) == Err(rustix::io::Errno::AGAIN) {
            // Another process has filled the counter: no edge would follow.
            self.clear();
            let _ = self.add(1);
        }
    }

    fn add(&self, count: u64) -> rustix::io::Result<usize> {
        rustix::io::write(&**self.fd, &count.to_ne_bytes())
    }

    /// Makes it unreadable again.
    pub fn clear(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&**self.fd, &mut count);
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

#[cfg(test)]
mod tests {
    use rustix::event::epoll;

    use super::*;

    #[test]
    fn a_ring_is_an_edge_even_if_the_counter_was_filled() {
        let bell = Doorbell::new().unwrap();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let what = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, &bell, epoll::EventData::new_u64(1), what).unwrap();
        let edges = || {
            let mut events = Vec::with_capacity(4);
            let room = rustix::buffer::spare_capacity(&mut events);
            let none = rustix::event::Timespec::default();
            epoll::wait(&set, room, Some(&none)).unwrap()
        };
        bell.ring();
        assert_eq!((edges(), edges()), (1, 0));
        bell.ring();
        assert_eq!((edges(), edges()), (1, 0), "never cleared");
        bell.clear();
        bell.add(u64::MAX - 1).unwrap();
        assert_eq!(edges(), 1);
        bell.ring();
        assert_eq!(edges(), 1);
    }
}
