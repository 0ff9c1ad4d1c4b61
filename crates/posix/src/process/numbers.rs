//! Descriptors of sockets that have no part in the kernel: copies of one anchor.

use std::os::fd::AsFd;
use std::sync::OnceLock;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use slipstack_mem::{Descriptor, Lock, PrivateFd, raised, raised_copy};

use crate::errno::Errno;

/// The way to new descriptors.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// The descriptor from which others are dup'd.
    anchor: OnceLock<PrivateFd>,
    /// Taken while that is made.
    anchoring: Lock<()>,
    /// Makes room, for a moment, where the program may have no more descriptors.
    spare: Lock<Option<PrivateFd>>,
}

impl Numbers {
    pub(crate) fn anchor(&self) -> rustix::io::Result<&PrivateFd> {
        if let Some(anchor) = self.anchor.get() {
            return Ok(anchor);
        }
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let fresh = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        let anchor = {
            let _anchoring = self.anchoring.lock();
            self.anchor.get_or_init(|| raised(fresh))
        };
        self.keep_spare();
        Ok(anchor)
    }

    /// Has a spare descriptor again, if one can be had.
    pub(crate) fn keep_spare(&self) {
        if let Some(mut spare) = self.spare.try_lock()
            && spare.is_none()
            && let Some(anchor) = self.anchor.get()
        {
            *spare = raised_copy(anchor.as_fd()).ok();
        }
    }

    /// Runs `make`, which found no descriptor free, with the spare's place. [`Numbers::keep_spare`]
    /// has to follow when the result is closed.
    pub(crate) fn with_spare<T>(
        &self,
        make: impl Fn() -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        match make() {
            Err(rustix::io::Errno::MFILE) => {}
            made => return made,
        }
        self.keep_spare();
        // A fork may have left it locked for ever.
        let Some(mut spare) = self.spare.try_lock() else {
            return Err(rustix::io::Errno::MFILE);
        };
        drop(spare.take());
        make()
    }

    /// A number for a socket of ours: the lowest free one, as the kernel would take.
    pub(crate) fn new_number(&self, is_cloexec: bool) -> Result<Descriptor, Errno> {
        let anchor = self.anchor()?;
        let fd = if is_cloexec {
            rustix::io::fcntl_dupfd_cloexec(anchor, 0)?
        } else {
            rustix::io::dup(anchor)?
        };
        Ok(Descriptor::give(fd))
    }

    /// Over a fork.
    pub(crate) fn hold(&self) {
        self.anchoring.hold();
    }

    pub(crate) fn release(&self) {
        self.anchoring.release();
    }
}
