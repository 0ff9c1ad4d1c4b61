//! Kernel sockets that the program has asked for explicitly.

use std::net::SocketAddr;

use slipstack_mem::{Descriptor, Lock};

/// One chosen descriptor. Its number may have been reused since; its inode identifies the socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub(crate) number: i32,
    inode: u64,
    pub(crate) is_stream: bool,
}

impl Chosen {
    pub(crate) fn of(number: i32, is_stream: bool) -> Option<Chosen> {
        let fd = Descriptor::new(number)?;
        let inode = rustix::fs::fstat(fd.as_fd()).ok()?.st_ino;
        Some(Chosen {
            number,
            inode,
            is_stream,
        })
    }

    pub(crate) fn is_there(&self) -> bool {
        Chosen::of(self.number, self.is_stream).is_some_and(|now| now.inode == self.inode)
    }

    /// The port that it has.
    pub(crate) fn port(&self) -> Option<u16> {
        let fd = Descriptor::new(self.number)?;
        let name = rustix::net::getsockname(fd.as_fd()).ok()?;
        let port = SocketAddr::try_from(name).ok()?.port();
        (port != 0 && self.is_there()).then_some(port)
    }
}

/// All that are there.
#[derive(Debug, Default)]
pub(crate) struct ChosenSockets(Lock<Vec<Chosen>>);

impl ChosenSockets {
    /// Notes a socket that the program has just made.
    pub(crate) fn note(&self, number: i32, is_stream: bool) {
        if let Some(chosen) = Chosen::of(number, is_stream) {
            let mut all = self.0.lock();
            all.retain(|one| one.number != number && one.is_there());
            all.push(chosen);
        }
    }

    pub(crate) fn find(&self, number: i32) -> Option<Chosen> {
        let all = self.0.lock();
        let found = all.iter().find(|it| it.number == number).copied();
        found.filter(Chosen::is_there)
    }

    /// Returns whether one of this kind has the port.
    #[cold]
    pub(crate) fn has_port(&self, is_stream: bool, port: u16) -> bool {
        let all = self.0.lock();
        let of_kind = all.iter().filter(|it| it.is_stream == is_stream);
        of_kind.filter_map(Chosen::port).any(|other| other == port)
    }
}
