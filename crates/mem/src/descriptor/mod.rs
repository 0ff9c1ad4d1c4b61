//! Descriptor numbers that belong to the program.
//!
//! The program's side makes system calls on numbers it does not own: the program may close or
//! replace any of them at any time, and the kernel's answer (EBADF, or that of the new file) is
//! then the right one.

mod private;
mod sys;

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

pub use private::{PrivateFd, is_parents, is_private, leave_to_parent, parents, privates};
pub use sys::Descriptor;

/// Lowest number of our own descriptors, if the limit allows it. A forked child has a table with
/// places up to the highest number, and the kernel fills all of them: those that a process usually
/// has fit below 4096.
pub const OURS_USUALLY_FROM: i32 = 4096 - 128;

/// Our own descriptors live from the first of these on that the limit allows: programs assume that
/// they are given the lowest free number, and FD_SETSIZE is 1024.
const OURS_FROM: [i32; 3] = [OURS_USUALLY_FROM, 900, 200];

/// Moves a descriptor of ours out of the program's way. Where the limit is too low it stays.
#[must_use]
pub fn raised(fd: OwnedFd) -> PrivateFd {
    for from in OURS_FROM {
        if fd.as_raw_fd() >= from {
            break;
        }
        if let Ok(high) = rustix::io::fcntl_dupfd_cloexec(&fd, from) {
            return PrivateFd::list(high);
        }
    }
    PrivateFd::list(fd)
}

/// Returns a copy of a descriptor for our own use, out of the program's way where the limit allows
/// it.
///
/// # Errors
/// The process may have no more descriptors.
pub fn raised_copy(fd: BorrowedFd<'_>) -> rustix::io::Result<PrivateFd> {
    let mut result = Err(rustix::io::Errno::MFILE);
    for from in OURS_FROM.iter().chain(&[0]) {
        result = result.or_else(|_| rustix::io::fcntl_dupfd_cloexec(fd, *from));
    }
    result.map(PrivateFd::list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn a_number_can_be_replaced_and_closed() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let copy = rustix::io::fcntl_dupfd_cloexec(&reader, 3).unwrap();
        let number = Descriptor::give(copy);
        number.replace_with(&writer, false).unwrap();
        assert!(
            !rustix::io::fcntl_getfd(number.as_fd())
                .unwrap()
                .contains(rustix::io::FdFlags::CLOEXEC)
        );
        assert_eq!(rustix::io::write(number.as_fd(), b"x").unwrap(), 1);
        assert_ne!(number.number(), writer.as_raw_fd());
        number.close();
    }

    #[test]
    fn our_descriptors_have_high_numbers() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        assert!(raised(reader).as_raw_fd() >= OURS_FROM[2]);
        assert!(raised_copy(writer.as_fd()).unwrap().as_raw_fd() >= OURS_FROM[2]);
    }

    #[test]
    fn negative_numbers_are_no_descriptors() {
        assert_eq!(Descriptor::new(-1), None);
    }
}
