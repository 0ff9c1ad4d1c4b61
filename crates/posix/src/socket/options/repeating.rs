//! Options that a program has set, repeated on another socket: the kernel's or the engine's.

use std::os::fd::{AsRawFd, OwnedFd};

use slipstack_channel::{SockId, SocketOption};

use crate::attachment::Attachment;
use crate::kernel::Kernel;
use crate::socket::description::{Decided, Description};
use crate::socket::options::Options;
use crate::socket::options::attaching::{
    ATTACH, CHOOSE, attach_chooser, attach_filter, chooser_in,
};
use crate::socket::options::way::LEAVES_UNREAD;

/// Repeats the program's settings on a kernel socket. An option that the kernel refuses now was
/// already refused when it was set.
pub(crate) fn replay(kernel: &dyn Kernel, to: &OwnedFd, options: &Options) {
    for set in options.all() {
        let _ = match (set.level, set.name) {
            ATTACH if set.value.is_empty() => Ok(()),
            ATTACH => attach_filter(kernel, to.as_raw_fd(), &set.value),
            CHOOSE => attach_chooser(kernel, to.as_raw_fd(), &set.value),
            (level, name) => kernel.setsockopt(to.as_raw_fd(), level, name, &set.value),
        };
    }
}

/// Tells the stack the options that mean something to it.
pub(crate) fn push_options(attachment: &Attachment, sock: SockId, options: &Options) {
    for set in options.all() {
        if let Some(option) = options.for_stack(set.level, set.name) {
            attachment.set_option(sock, option);
        }
    }
}

/// Hands the program that chooses among the sockets of a group to the engine, if there is one.
pub(crate) fn push_chooser(attachment: &Attachment, sock: SockId, options: &Options) {
    for part in chooser_in(options).into_iter().flatten() {
        attachment.set_option(sock, SocketOption::Chooser(part));
    }
}

impl Description {
    /// Another program is about to have this datagram socket, too.
    pub(crate) fn leave_unread(&self) {
        self.set_way(LEAVES_UNREAD, &1i32.to_ne_bytes());
    }

    /// Sets an option of SOL_SOCKET that chooses the way of packets, here and at the engine.
    pub(crate) fn set_way(&self, name: i32, value: &[u8]) {
        let options = {
            let mut cold = self.cold.lock();
            cold.options.set(libc::SOL_SOCKET, name, value);
            cold.options.clone()
        };
        let Some(option) = options.for_stack(libc::SOL_SOCKET, name) else {
            return;
        };
        match self.decided() {
            Some(Decided::Stream(stream)) => {
                stream.set_option(option);
                stream.attachment().commands();
            }
            Some(Decided::Dgram(dgram)) => {
                if let Some((attachment, sock)) = dgram.part() {
                    attachment.set_option(sock, option);
                }
            }
            Some(Decided::Listener(listener)) => {
                if let Some((attachment, sock)) = &*listener.stack() {
                    attachment.set_option(*sock, option);
                }
            }
            Some(Decided::Foreign(_)) | None => {}
        }
    }
}
