//! Descriptor numbers that belong to the program.
//!
//! The program's side speaks to the kernel about numbers it does not own: the program may close
//! or replace any of them at any time, and the kernel's answer (EBADF, or whatever is there now)
//! is the right one.

mod sys;

pub use sys::Descriptor;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

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
    fn negative_numbers_are_nobodys() {
        assert_eq!(Descriptor::new(-1), None);
    }
}
