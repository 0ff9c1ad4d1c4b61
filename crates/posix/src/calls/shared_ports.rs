//! One port in several instances, where the variables of F-Stack's adapter choose them: there each
//! thread, and each program that uses another instance, has a stack of its own.
//!
//! The kernel's part of a socket settles conflicts as ever. If it finds the port taken, and another
//! thread of this process or a program of another instance has it, the port is shared as with
//! SO_REUSEPORT: the kernel's parts have that option, which the program does not see. A thread that
//! shares a port in this way gets an engine of its own like one that has asked for it.

use std::net::SocketAddr;
use std::sync::Arc;

use slipstack_channel::Transport;
use slipstack_mem::Descriptor;

use crate::addr::for_kernel;
use crate::kernel::Kernel;
use crate::process::Process;
use crate::process::table::Table;
use crate::socket::description::{Decided, Description, Kind};

impl Process {
    /// Binds the kernel's part of a socket of both.
    pub(crate) fn bind_kernel_part(
        &self,
        socket: &Arc<Description>,
        number: Descriptor,
        addr: SocketAddr,
    ) -> rustix::io::Result<()> {
        let wanted = for_kernel(addr, socket.family);
        let mut bound = rustix::net::bind(number.as_fd(), &wanted);
        if bound == Err(rustix::io::Errno::ADDRINUSE)
            && socket.kind == Kind::Stream
            && self.table.give_back_of_ended(addr.port())
        {
            bound = rustix::net::bind(number.as_fd(), &wanted);
        }
        if !self.settings.has_ports_per_instance {
            return bound;
        }
        let bound = match bound {
            Err(rustix::io::Errno::ADDRINUSE)
                if self.may_share(socket, &self.table.bound_to(socket, addr), addr.port()) =>
            {
                share_in_kernel(&*self.kernel, number, true);
                let again = rustix::net::bind(number.as_fd(), &wanted);
                if again.is_err() {
                    share_in_kernel(&*self.kernel, number, socket.shares_port());
                }
                again
            }
            bound => bound,
        };
        if bound.is_ok() {
            // Sockets that bind this port later have to share it in the kernel too.
            share_in_kernel(&*self.kernel, number, true);
            socket.cold.lock().binder = self.kernel.thread();
        }
        bound
    }

    /// Whether a socket that is the stack's alone may have an address.
    pub(crate) fn may_bind_alone(&self, socket: &Arc<Description>, addr: SocketAddr) -> bool {
        let holders = self.table.alone_at(socket, addr);
        if !self.settings.has_ports_per_instance {
            return holders.is_empty();
        }
        self.may_share(socket, &holders, addr.port())
    }

    /// Records who has bound a socket that is the stack's alone.
    pub(crate) fn note_binder(&self, socket: &Description) {
        if self.settings.has_ports_per_instance {
            let mut cold = socket.cold.lock();
            (cold.binder, cold.is_port_shared) = (self.kernel.thread(), true);
        }
    }

    /// Whether only other threads of this process have the port, whose connections then keep it
    /// from nobody.
    pub(crate) fn is_port_of_other_thread(
        &self,
        socket: &Arc<Description>,
        addr: SocketAddr,
    ) -> bool {
        if !self.settings.has_ports_per_instance {
            return false;
        }
        let holders = self.table.bound_to(socket, addr);
        !holders.is_empty() && are_of_others(&holders, self.kernel.thread())
    }

    /// Whether a socket may have the port of `holders`, this process's sockets on it, or of another
    /// program if there are none. All of them share it from then on.
    fn may_share(&self, socket: &Description, holders: &[Arc<Description>], port: u16) -> bool {
        let may_share = match (holders, socket.kind) {
            ([], Kind::Stream) => !self
                .engines
                .attach
                .is_port_of_instance(Transport::Tcp, port),
            ([], Kind::Dgram) => !self
                .engines
                .attach
                .is_port_of_instance(Transport::Udp, port),
            _ => are_of_others(holders, self.kernel.thread()),
        };
        if may_share {
            for sharing in holders.iter().map(|it| &**it).chain([socket]) {
                sharing.cold.lock().is_port_shared = true;
            }
        }
        may_share
    }
}

/// A thread that is not known may be `own`.
fn are_of_others(holders: &[Arc<Description>], own: usize) -> bool {
    let binder = |it: &Arc<Description>| it.cold.lock().binder;
    holders
        .iter()
        .all(|it| binder(it) != 0 && binder(it) != own)
}

/// SO_REUSEPORT of a kernel's part. Without it the port is not shared, which the kernel tells.
fn share_in_kernel(kernel: &dyn Kernel, number: Descriptor, is_on: bool) {
    let value = i32::from(is_on).to_ne_bytes();
    let _ = kernel.setsockopt(
        number.number(),
        libc::SOL_SOCKET,
        libc::SO_REUSEPORT,
        &value,
    );
}

impl Table {
    /// Other sockets of this kind that have the address, or one that includes it or is included.
    fn bound_to(&self, socket: &Arc<Description>, addr: SocketAddr) -> Vec<Arc<Description>> {
        let overlaps = |other: SocketAddr| {
            other.port() == addr.port()
                && (other.ip() == addr.ip()
                    || other.ip().is_unspecified()
                    || addr.ip().is_unspecified())
        };
        let has_it = |other: &Arc<Description>| {
            let bound = other.cold.lock().bound;
            !Arc::ptr_eq(other, socket)
                && other.kind == socket.kind
                && bound.is_some_and(|it| overlaps(it.addr) && !it.is_port_given_back)
                && !matches!(other.decided(), Some(Decided::Stream(_)))
        };
        self.sockets().filter(has_it).collect()
    }
}
