//! Changes of the kernel's range of local ports while a keeper runs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, inotify};

use crate::leases::{ports_beside, system_ports};

const FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Tells of writes to the sysctl, in this network namespace.
pub struct LocalPortsWatch {
    events: OwnedFd,
    /// Keeps the file's inode: another one would be made for the next writer.
    _file: OwnedFd,
    /// The kernel has the stack's addresses too, and its ports are its own.
    is_beside: bool,
}

impl LocalPortsWatch {
    /// Returns `None` for a stack with ports of its own, or if the kernel does not tell.
    pub fn new(ports: (u16, u16), is_beside: bool) -> Option<LocalPortsWatch> {
        let file = rustix::fs::open(FILE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let events = inotify::init(flags).ok()?;
        inotify::add_watch(&events, FILE, inotify::WatchFlags::MODIFY).ok()?;
        let watch = LocalPortsWatch {
            events,
            _file: file,
            is_beside,
        };
        (watch.ports() == ports).then_some(watch)
    }

    /// Returns the stack's ports of this moment; the next write makes the watch readable again.
    pub fn take(&self) -> (u16, u16) {
        let mut events = [0; 1024];
        while matches!(rustix::io::read(&self.events, &mut events), Ok(len) if len > 0) {}
        self.ports()
    }

    fn ports(&self) -> (u16, u16) {
        match self.is_beside {
            true => ports_beside(system_ports()),
            false => system_ports(),
        }
    }
}

impl AsFd for LocalPortsWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
