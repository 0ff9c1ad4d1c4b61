//! The two operations on foreign descriptor numbers that Rust calls unsafe.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rustix::io::DupFlags;

/// A descriptor number that belongs to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Descriptor(RawFd);

impl Descriptor {
    /// `None` for negative numbers.
    #[must_use]
    pub fn new(number: RawFd) -> Option<Self> {
        (number >= 0).then_some(Descriptor(number))
    }

    /// Hands a descriptor of ours over to the program.
    #[must_use]
    pub fn give(fd: OwnedFd) -> Self {
        Descriptor(fd.into_raw_fd())
    }

    #[must_use]
    pub fn number(self) -> RawFd {
        self.0
    }

    /// For calls about the number. They answer EBADF if the program has closed it.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: not negative (see `new`); that it may be closed meanwhile endangers no memory of
        // ours: nothing here is mapped from or owned through it.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }

    /// Puts another descriptor under this number, whatever is there now.
    pub fn replace_with(self, with: impl AsFd, cloexec: bool) -> rustix::io::Result<()> {
        let flags = if cloexec {
            DupFlags::CLOEXEC
        } else {
            DupFlags::empty()
        };
        // SAFETY: the number is the program's, which requested the replacement; ManuallyDrop keeps
        // us from closing it.
        let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.0) });
        rustix::io::dup3(with, &mut target, flags)
    }

    /// Closes the number for the program.
    pub fn close(self) {
        // SAFETY: the program asked for it to be closed; nothing of ours uses the number.
        unsafe { rustix::io::close(self.0) }
    }
}
