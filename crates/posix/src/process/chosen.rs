//! Kernel sockets that the program has asked for explicitly.

use std::net::SocketAddr;

use slipstack_mem::Descriptor;

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
