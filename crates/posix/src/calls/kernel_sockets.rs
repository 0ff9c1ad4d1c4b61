//! A port that a program uses twice: on the stack, and with a kernel socket that it has asked for
//! with [`Process::SOCK_KERNEL`].
//!
//! A bound socket has its port in the kernel too: a wildcard socket receives there as well, and
//! other programs find the port in use. Where the program has a kernel socket of its own for the
//! port, the stack's socket gives up its kernel part, whichever was bound first.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstack_mem::Descriptor;

use crate::epoll::{remove_kernel_part, sets_of};
use crate::errno::Errno;
use crate::process::Process;
use crate::process::table::Entry;
use crate::socket::Side;
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::kernel_socket::replace;

impl Process {
    /// A socket that was made with [`Process::SOCK_KERNEL`].
    pub fn note_kernel_socket(&self, fd: i32, kind: i32) {
        const KIND: i32 = 0xf;
        let is_stream = match kind & KIND {
            libc::SOCK_STREAM => true,
            libc::SOCK_DGRAM => false,
            _ => return,
        };
        self.chosen.note(fd, is_stream);
    }

    /// Handles a kernel socket that has found a port taken (`addr`: the requested one, else its
    /// own): a socket on the stack that has the port too gives up its kernel part. Returns `true`
    /// if the call is worth another try.
    #[cold]
    pub fn free_kernel_port(&self, fd: i32, addr: Option<&[u8]>) -> bool {
        let Some(chosen) = self.chosen.find(fd) else {
            return false;
        };
        let port = match addr {
            // sin_port and sin6_port are at the same place.
            Some(addr) => addr
                .get(2..4)
                .map(|port| u16::from_be_bytes([port[0], port[1]])),
            None => chosen.port(),
        };
        let mut has_freed = false;
        for (_, entry) in self.table.all() {
            if let Entry::Socket(socket) = entry
                && (socket.kind == Kind::Stream) == chosen.is_stream
                && port.is_some_and(|port| port != 0 && has_kernel_port(&socket, port))
            {
                has_freed |= self.give_up_kernel(&socket).is_ok();
            }
        }
        has_freed
    }

    /// Gives the kernel part up: the socket is the stack's alone from now on.
    pub(crate) fn give_up_kernel(&self, socket: &Arc<Description>) -> Result<(), Errno> {
        for (set, item) in sets_of(socket) {
            remove_kernel_part(&set, item);
        }
        let numbers = socket.cold.lock().numbers.clone();
        let anchor = rustix::io::fcntl_dupfd_cloexec(self.numbers.anchor()?.as_fd(), 0)?;
        for number in numbers.into_iter().filter_map(Descriptor::new) {
            replace(number, &anchor)?;
        }
        socket.is_kernel_given_up.store(true, Ordering::Release);
        socket.has_kernel.store(false, Ordering::Release);
        match socket.decided() {
            Some(Decided::Dgram(dgram)) => {
                if dgram.side() == Side::Both {
                    dgram.set_side(Side::Stack);
                }
                // A socket without a kernel part is no intent for the keeper.
                self.realize(socket);
            }
            Some(Decided::Listener(_)) => self.realize(socket),
            _ => {}
        }
        Ok(())
    }
}

fn has_kernel_port(socket: &Description, port: u16) -> bool {
    let bound = socket.cold.lock().bound;
    socket.has_kernel()
        && bound.is_some_and(|bound| bound.has_port(port))
        && match socket.decided() {
            None | Some(Decided::Listener(_)) => true,
            Some(Decided::Dgram(dgram)) => dgram.side() != Side::Kernel,
            Some(Decided::Stream(_) | Decided::Foreign(_)) => false,
        }
}
