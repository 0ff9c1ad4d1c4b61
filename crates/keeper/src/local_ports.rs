//! Changes of the kernel's range of local ports while a keeper runs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, inotify};

use crate::leases::system_ports;

const FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Reports writes to the sysctl of this network namespace by this mount of `/proc`.
pub struct LocalPortsWatch {
    events: OwnedFd,
    /// Keeps the file's inode, on which the watch is: the next writer would get another one.
    _file: OwnedFd,
}

impl LocalPortsWatch {
    /// Returns `None` if the kernel does not report them.
    pub fn new() -> Option<LocalPortsWatch> {
        let file = rustix::fs::open(FILE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let events = inotify::init(flags).ok()?;
        inotify::add_watch(&events, FILE, inotify::WatchFlags::MODIFY).ok()?;
        Some(LocalPortsWatch {
            events,
            _file: file,
        })
    }

    /// Returns the range of this moment; the next write makes the watch readable again.
    pub fn take(&self) -> (u16, u16) {
        let mut events = [0; 1024];
        while matches!(rustix::io::read(&self.events, &mut events), Ok(len) if len > 0) {}
        system_ports()
    }
}

impl AsFd for LocalPortsWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
