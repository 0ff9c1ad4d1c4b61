//! accept4: from the stack's queue and from the kernel's, fairly.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::net::SocketFlags;
use slipstack_mem::Descriptor;

use crate::addr::AddrBytes;
use crate::errno::Errno;
use crate::outcome::Outcome;
use crate::process::subject::Subject;
use crate::process::table::NUMBERS_MAX;
use crate::process::wait::Plan;
use crate::process::wait::polled;
use crate::process::{Accepted, Process};
use crate::ready::Look;
use crate::socket::description::{Decided, Description, New};
use crate::socket::options::apply_stream_options;
use crate::socket::options::push_options;
use crate::socket::{Listener, Stream};

impl Process {
    /// accept, accept4.
    pub fn accept4(&self, fd: i32, flags: i32) -> Outcome<Accepted> {
        let socket = self.table.socket_of(fd)?;
        let listener = match socket.decided() {
            Some(Decided::Listener(listener)) => listener,
            Some(Decided::Dgram(_)) => return Err(Errno::EOPNOTSUPP.into()),
            Some(Decided::Stream(_) | Decided::Foreign(_)) | None => {
                return Err(Errno::EINVAL.into());
            }
        };
        if flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
            return Err(Errno::EINVAL.into());
        }
        self.realize_for_wait(&socket);
        let is_nonblocking = socket.is_nonblocking();
        if let Some(accepted) = self.accept_now(&socket, listener, flags, None)? {
            // The thread would have waited: the first engine is for it, if it is the first thread.
            if !is_nonblocking {
                self.engines.on_waited(Subject::Socket(&socket));
            }
            return Ok(accepted);
        }
        if is_nonblocking {
            if let Some(attachment) = self.attachment_for(Subject::Socket(&socket)) {
                self.turn_if_idle(&attachment);
            }
            return self
                .accept_now(&socket, listener, flags, None)?
                .ok_or(Errno::EAGAIN.into());
        }
        let number = socket.kernel_number().filter(|_| socket.kernel_speaks());
        let kernel = polled(number, libc::POLLIN);
        let plan = Plan::of_call(
            &*self.kernel,
            &socket,
            &socket.recv_timeout_ns,
            kernel.as_slice(),
        );
        self.wait(&plan, |kernel_look| {
            Ok(self.accept_now(&socket, listener, flags, Some(kernel_look))?)
        })?
        .ok_or(Errno::EAGAIN.into())
    }

    fn accept_now(
        &self,
        socket: &Arc<Description>,
        listener: &Listener,
        flags: i32,
        look: Option<Look>,
    ) -> Result<Option<Accepted>, Errno> {
        if listener.is_shut() {
            return Err(Errno::EINVAL);
        }
        if listener.is_kernels_turn(look)
            && let Some(accepted) = self.accept_from_kernel(socket, listener, flags)?
        {
            return Ok(Some(accepted));
        }
        if let Some(accepted) = self.accept_from_stack(socket, listener, flags)? {
            return Ok(Some(accepted));
        }
        if listener.may_kernel_have(look, || self.kernel.now_ns()) {
            return self.accept_from_kernel(socket, listener, flags);
        }
        Ok(None)
    }

    fn accept_from_kernel(
        &self,
        socket: &Description,
        listener: &Listener,
        flags: i32,
    ) -> Result<Option<Accepted>, Errno> {
        let number = socket.kernel_number().filter(|_| socket.kernel_speaks());
        let Some(number) = number else {
            return Ok(None);
        };
        let flags = SocketFlags::from_bits_retain(flags as u32);
        match rustix::net::acceptfrom_with(number.as_fd(), flags) {
            Ok((fd, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                let peer = peer.unwrap_or(SocketAddr::V4(crate::addr::ANY));
                let number = Descriptor::give(fd);
                self.invalidate(number.number());
                Ok(Some(Accepted {
                    fd: number.number(),
                    peer: AddrBytes::new(peer, socket.family),
                }))
            }
            Err(rustix::io::Errno::AGAIN) => {
                listener.on_kernel_empty();
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn accept_from_stack(
        &self,
        socket: &Arc<Description>,
        listener: &Listener,
        flags: i32,
    ) -> Result<Option<Accepted>, Errno> {
        if listener.readiness() == 0 {
            return Ok(None);
        }
        // The number comes first: without one the connection stays in the queue.
        let number = self.numbers.new_number(flags & libc::SOCK_CLOEXEC != 0)?;
        if number.number() as usize >= NUMBERS_MAX {
            number.close();
            return Err(Errno::EMFILE);
        }
        let (attachment, sock) = match listener.accept() {
            Ok(Some(found)) => found,
            other => {
                number.close();
                return other.map(|_| None);
            }
        };
        let peer = attachment
            .program
            .remote(sock)
            .unwrap_or(SocketAddr::V4(crate::addr::ANY));
        let stream = Stream::accepted(Arc::clone(&attachment), sock);
        let new = New {
            id: self.ids.next(),
            family: socket.family,
            kind: socket.kind,
            protocol: socket.protocol,
            is_nonblocking: flags & libc::SOCK_NONBLOCK != 0,
        };
        let accepted = Arc::new(Description::decided_as(new, Decided::Stream(stream)));
        let options = socket.cold.lock().options.of_accepted();
        if !options.is_empty() {
            push_options(&attachment, sock, &options);
            accepted.cold.lock().options = options;
        }
        let inherit = |from: &Description, to: &Description| {
            let recv = from.recv_timeout_ns.load(Ordering::Relaxed);
            let send = from.send_timeout_ns.load(Ordering::Relaxed);
            to.recv_timeout_ns.store(recv, Ordering::Relaxed);
            to.send_timeout_ns.store(send, Ordering::Relaxed);
            to.take_peek_offset(from);
        };
        inherit(socket, &accepted);
        attachment.name(sock, &accepted);
        if let Some(Decided::Stream(stream)) = accepted.decided() {
            apply_stream_options(&accepted, stream);
            self.install(number, &accepted);
            self.report.on_stream(&accepted, stream, Some(peer));
        }
        Ok(Some(Accepted {
            fd: number.number(),
            peer: self.network.shown(peer, socket.family),
        }))
    }
}
