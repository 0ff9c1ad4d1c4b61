//! The descriptors by which the users of lent connections speak to the steward: while one of them
//! has bytes that the steward has not taken, users have written what is not in the send ring yet.

use std::os::fd::RawFd;

use rustix::event::{PollFd, PollFlags, Timespec};
use slipstack_mem::Descriptor;

/// A descriptor of the steward's.
#[derive(Clone, Copy, Debug)]
struct Source {
    number: RawFd,
    /// The connection whose pair it is an end of; `None`: it is a child's control socket.
    of: Option<u64>,
}

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub(crate) struct Sources(Vec<Source>);

impl Sources {
    pub(crate) fn note(&mut self, number: RawFd, of: Option<u64>) {
        if self.0.iter().all(|it| it.number != number) {
            self.0.push(Source { number, of });
        }
    }

    /// The descriptor is about to be closed, or the steward reads no more from it.
    pub(crate) fn forget(&mut self, number: RawFd) {
        self.0.retain(|it| it.number != number);
    }

    /// Whether there are bytes about the connection `id`, or a message that may be about it.
    pub(crate) fn have_any_for(&self, id: u64) -> bool {
        self.have_any_of(|source| source.of.is_none_or(|of| of == id))
    }

    /// Whether there are bytes of the connection `id`.
    pub(crate) fn have_bytes_for(&self, id: u64) -> bool {
        self.have_any_of(|source| source.of == Some(id))
    }

    /// Whether there are messages.
    pub(crate) fn have_messages(&self) -> bool {
        self.have_any_of(|source| source.of.is_none())
    }

    fn have_any_of(&self, is_meant: impl Fn(&Source) -> bool) -> bool {
        let are_its = self.0.iter().filter(|it| is_meant(it));
        let numbers = are_its.filter_map(|it| Some((Descriptor::new(it.number)?, it.of.is_some())));
        let numbers: Vec<(Descriptor, bool)> = numbers.collect();
        let fds = numbers.iter();
        let fds = fds.map(|(number, _)| PollFd::from_borrowed_fd(number.as_fd(), PollFlags::IN));
        let mut fds: Vec<PollFd<'_>> = fds.collect();
        if fds.is_empty() || rustix::event::poll(&mut fds, Some(&Timespec::default())) == Ok(0) {
            return false;
        }
        // The end of a pair is no byte.
        let has_any = |(fd, (number, is_pair)): (&PollFd<'_>, &(Descriptor, bool))| {
            let is_ready = fd.revents().contains(PollFlags::IN);
            is_ready && (!is_pair || !matches!(rustix::io::ioctl_fionread(number.as_fd()), Ok(0)))
        };
        fds.iter().zip(&numbers).any(has_any)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

    use super::*;

    #[test]
    fn bytes_are_found_at_the_connections_pair_and_at_controls() {
        let pair = |kind| {
            let family = AddressFamily::UNIX;
            rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap()
        };
        let (ours, theirs) = pair(SocketType::STREAM);
        let (control, childs) = pair(SocketType::SEQPACKET);
        let mut sources = Sources::default();
        assert!(!sources.have_any_for(1));
        sources.note(ours.as_raw_fd(), Some(1));
        sources.note(control.as_raw_fd(), None);
        assert!(!sources.have_any_for(1));
        rustix::net::send(&theirs, b"x", SendFlags::empty()).unwrap();
        assert!(sources.have_any_for(1) && !sources.have_any_for(2));
        drop(theirs);
        assert!(sources.have_any_for(1));
        rustix::io::read(&ours, &mut [0; 8]).unwrap();
        assert!(!sources.have_any_for(1), "the end is no byte");
        rustix::net::send(&childs, b"x", SendFlags::empty()).unwrap();
        assert!(sources.have_any_for(1) && sources.have_any_for(2));
        sources.forget(control.as_raw_fd());
        assert!(!sources.have_any_for(1));
    }
}
