//! The two operations on foreign descriptor numbers that Rust calls unsafe.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rustix::io::DupFlags;

use super::private::{self, PrivateFd};

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
        let number = Descriptor(fd.into_raw_fd());
        // One of ours that had it may have been closed past us.
        number.unlist();
        number
    }

    /// A descriptor of ours by its number, which stays listed until [`Descriptor::close`].
    #[must_use]
    pub fn keep(fd: PrivateFd) -> Self {
        let number = Descriptor(fd.as_raw_fd());
        std::mem::forget(fd);
        number
    }

    /// Lists a descriptor that this process has inherited, as [`Descriptor::keep`] does.
    pub fn list(self) {
        private::list(self.as_fd());
    }

    /// Takes a number from the list whose descriptor is not the library's any more.
    pub fn unlist(self) {
        private::forget(self.0);
    }

    /// Leaves a listed descriptor to the parent, as [`super::leave_to_parent`] does with others.
    pub fn leave_to_parent(self) {
        private::leave_one(self.0);
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

    /// Closes the number for the program, or one that was kept.
    pub fn close(self) {
        private::forget(self.0);
        // SAFETY: the program asked for it to be closed; nothing of ours uses the number.
        unsafe { rustix::io::close(self.0) }
    }
}
