//! The number of bytes that this process has read from the pair of a borrowed connection, whichever
//! call of libc's or of the kernel's has read them: if its owner is killed while it passes bytes
//! on, this tells whether they have arrived.
//!
//! The kernel counts them: SO_PEEK_OFF of a unix socket becomes less with each byte that is read.
//! It begins so high that MSG_PEEK would find nothing, so the count ends with the first one. If the
//! program has set SO_PEEK_OFF itself, nothing is counted.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::RecvFlags;
use slipstack_mem::Descriptor;

use crate::kernel::Kernel;

const BEGIN: i32 = i32::MAX;
const OFF: i32 = -1;

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub(crate) struct Reads {
    are_counted: AtomicBool,
}

impl Reads {
    /// A pair has been made, from which nothing was read yet: number `fd` is its end. `own`: the
    /// program's SO_PEEK_OFF.
    pub(crate) fn begin(&self, kernel: &dyn Kernel, fd: i32, own: i32) {
        let is_own = own >= 0;
        let is_set = set(kernel, fd, if is_own { own } else { BEGIN });
        self.are_counted.store(is_set && !is_own, Ordering::Relaxed);
    }

    /// The former program of this process has begun to count.
    pub(crate) fn go_on(&self) {
        self.are_counted.store(true, Ordering::Relaxed);
    }

    /// Whether SO_PEEK_OFF has this purpose, and not the program's.
    pub(crate) fn are_counted(&self) -> bool {
        self.are_counted.load(Ordering::Relaxed)
    }

    /// Others will read from the pair, or this process will look at bytes that stay.
    pub(crate) fn end(&self, kernel: &dyn Kernel, fd: Option<i32>) {
        if let (true, Some(fd)) = (self.are_counted(), fd) {
            set(kernel, fd, OFF);
        }
        // Not before: another thread would look with an offset that is still there.
        self.are_counted.store(false, Ordering::Relaxed);
    }

    /// Returns the number of bytes. `None`: it is not known.
    pub(crate) fn count(&self, kernel: &dyn Kernel, fd: i32) -> Option<u32> {
        if !self.are_counted() {
            return None;
        }
        // It stays 0 from then on.
        let left = offset(kernel, fd).filter(|left| *left > 0)?;
        Some(left.abs_diff(BEGIN))
    }

    /// Returns the next `count` bytes, which stay unread. `None`: there are not as many.
    pub(crate) fn look(
        &self,
        kernel: &dyn Kernel,
        number: Descriptor,
        count: u32,
    ) -> Option<Vec<u8>> {
        let before = offset(kernel, number.number())?;
        let mut bytes = vec![0; count as usize];
        // Each look begins where the last one has ended.
        let mut seen = 0;
        if set(kernel, number.number(), 0) {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            while let Ok((more, _)) = rustix::net::recv(number.as_fd(), &mut bytes[seen..], flags)
                && more > 0
            {
                seen += more;
            }
        }
        let is_as_before = set(kernel, number.number(), before);
        (is_as_before && seen == bytes.len()).then_some(bytes)
    }
}

fn offset(kernel: &dyn Kernel, fd: i32) -> Option<i32> {
    let mut value = [0; 4];
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    kernel.getsockopt(fd, level, name, &mut value).ok()?;
    Some(i32::from_ne_bytes(value))
}

fn set(kernel: &dyn Kernel, fd: i32, offset: i32) -> bool {
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEEK_OFF);
    kernel
        .setsockopt(fd, level, name, &offset.to_ne_bytes())
        .is_ok()
}
