//! connect, for both protocols.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use slipstack_channel::{CloseMode, SockId, SocketOption, Transport};

use crate::addr::any;
use crate::addr::for_kernel;
use crate::addr::stack_addr;
use crate::addr::{Family, Given, is_link_local, is_short_of_v6, parse, parse_peer, scope_of};
use crate::attachment::Attachment;
use crate::epoll::{remove_kernel_part, sets_of};
use crate::errno::Errno;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::report::{Given as Placed, Reason};
use crate::process::reuse::{disconnect_if_failed, disconnect_stream};
use crate::process::wait::Plan;
use crate::socket::bound::Bound;
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::kernel_socket::kernel_name;
use crate::socket::options::apply_dgram_options;
use crate::socket::options::apply_stream_options;
use crate::socket::options::push_options;
use crate::socket::{Dgram, Side, Stream};

/// Parameters of a connection attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectParams {
    pub(crate) is_nonblocking: bool,
    /// Set if data may go with the SYN because the server is known to accept it (RFC 7413).
    pub(crate) is_fast: bool,
    /// Set if the call brings that data (MSG_FASTOPEN).
    pub(crate) has_data: bool,
}

impl ConnectParams {
    fn of(socket: &Description) -> ConnectParams {
        let cold = socket.cold.lock();
        let is_fast = cold
            .options
            .is_on(libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT);
        ConnectParams {
            is_nonblocking: socket.is_nonblocking(),
            is_fast,
            has_data: false,
        }
    }

    /// Returns the parameters of a call with MSG_FASTOPEN.
    pub(crate) fn with_data(socket: &Description, flags: i32) -> ConnectParams {
        ConnectParams {
            is_nonblocking: socket.is_nonblocking() || flags & libc::MSG_DONTWAIT != 0,
            is_fast: true,
            has_data: true,
        }
    }

    /// Returns the option that the engine's socket needs for it.
    fn option(self) -> Option<SocketOption> {
        match self.has_data {
            true => Some(SocketOption::FastOpenSend(true)),
            false => self.is_fast.then_some(SocketOption::FastOpenConnect(true)),
        }
    }
}

impl Process {
    /// `connect`.
    pub fn connect(&self, fd: i32, addr: &[u8]) -> Outcome<()> {
        let socket = self.table.socket_of(fd)?;
        let given = match socket.kind {
            // tcp_v6_connect() checks the length first.
            Kind::Stream if socket.family == Family::V6 && is_short_of_v6(addr) => {
                return Err(Errno::EINVAL.into());
            }
            Kind::Stream => parse(addr, socket.family)?,
            Kind::Dgram => parse_peer(addr, socket.family)?,
        };
        let given = self.network.zoned_for(&socket, given);
        // __inet_stream_connect(): SO_ERROR may have returned the error of the failed attempt.
        if let Some(Decided::Stream(stream)) = socket.decided()
            && stream.is_failed()
            && given != Given::Unspecified
            && stream.take_unanswered()
        {
            disconnect_stream(&socket, stream);
            return Err(Errno::ECONNABORTED.into());
        }
        let socket = self.usable_socket_of(fd)?;
        let outcome = self.connect_usable(&socket, given, addr);
        disconnect_if_failed(&socket, &outcome);
        outcome
    }

    fn connect_usable(&self, socket: &Arc<Description>, given: Given, addr: &[u8]) -> Outcome<()> {
        match socket.decided() {
            Some(Decided::Stream(stream)) => {
                self.connect_again(socket, stream, given, ConnectParams::of(socket))
            }
            Some(Decided::Listener(_)) if given == Given::Unspecified => {
                if let Some(number) = socket.kernel_number().filter(|_| socket.kernel_speaks()) {
                    rustix::net::connect_unspec(number.as_fd())?;
                }
                self.stop_listening(socket);
                Ok(())
            }
            Some(Decided::Listener(_)) => Err(Errno::EISCONN.into()),
            Some(Decided::Dgram(dgram)) => self.connect_dgram(socket, dgram, given),
            Some(Decided::Foreign(it)) if socket.kind == Kind::Dgram => {
                self.connect_borrowed(socket, it, addr)
            }
            Some(Decided::Foreign(_)) => Err(Errno::EISCONN.into()),
            None => match given {
                // Nothing to dissolve.
                Given::Unspecified => Ok(()),
                Given::Other => Err(Errno::EAFNOSUPPORT.into()),
                Given::Addr(remote) => {
                    self.connect_fresh(socket, remote, ConnectParams::of(socket))
                }
            },
        }
    }

    /// A stream or datagram socket that has had no use yet.
    pub(crate) fn connect_fresh(
        &self,
        socket: &Arc<Description>,
        remote: SocketAddr,
        params: ConnectParams,
    ) -> Outcome<()> {
        check_scope(socket, remote)?;
        check_ways(socket, remote)?;
        self.network.check_direct(socket, remote)?;
        if socket.kind == Kind::Stream && self.network.is_for_many(remote) {
            return Err(Errno::ENETUNREACH.into());
        }
        if let Some(reason) = self.network.reason_to_connect_in_kernel(socket, remote) {
            self.permit_kernel(socket, Placed::Remote(remote), reason, Errno::ENETUNREACH)?;
            self.network.check_loopback(socket, reason)?;
            if socket.kind == Kind::Stream
                && reason == Reason::Loopback
                && self.is_on_loopback(socket, remote)?
            {
                self.leave_to_kernel(socket, reason, Placed::Remote(remote))?;
                return Ok(());
            }
            return self.become_kernel(socket, reason, Placed::Remote(remote));
        }
        if socket.kind == Kind::Dgram {
            let _ = socket.decided.set(Decided::Dgram(Dgram::new(Side::Stack)));
            apply_dgram_options(socket);
            let Some(Decided::Dgram(dgram)) = socket.decided() else {
                return Err(Errno::EINVAL.into());
            };
            let outcome = self.connect_dgram(socket, dgram, Given::Addr(remote));
            socket.wake_sleepers();
            return outcome;
        }
        // DEVIATION(Linux): port 0 is refused here; a RST would say so a round trip later.
        if remote.port() == 0 {
            return Err(Errno::ECONNREFUSED.into());
        }
        if self.network.is_own(remote) {
            self.realize_all();
        }
        let attachment = match self.attached_to_connect() {
            Ok(attachment) => attachment,
            Err(_) => {
                let (why, given) = (self.engines.why_no_stack(), Placed::Remote(remote));
                self.permit_kernel(socket, given, why, Errno::ENETUNREACH)?;
                return self.become_kernel(socket, why, given);
            }
        };
        let sock = open_for_connect(socket, &attachment)?;
        if let Some(option) = params.option() {
            attachment.set_option(sock, option);
        }
        attachment.name(sock, socket);
        let stream = Stream::connecting(Arc::clone(&attachment), sock);
        if socket.decided.set(Decided::Stream(stream)).is_err() {
            attachment.close(sock, CloseMode::Abort);
            return Err(Errno::EALREADY.into());
        }
        let Some(Decided::Stream(stream)) = socket.decided() else {
            return Err(Errno::EINVAL.into());
        };
        apply_stream_options(socket, stream);
        if socket.has_kernel() {
            for (set, item) in sets_of(socket) {
                remove_kernel_part(&set, item);
            }
        }
        self.attempt(socket, stream, (&attachment, sock), remote, params)
    }

    /// Connects a blocking socket on the loopback, where a refusal is known at once: a refused
    /// socket may still go elsewhere, so it becomes the kernel's only when it is not refused.
    /// Returns `false` if the result is not known yet.
    fn is_on_loopback(&self, socket: &Arc<Description>, remote: SocketAddr) -> Result<bool, Errno> {
        if socket.is_nonblocking() {
            return Ok(false);
        }
        let number = self.materialize(socket)?;
        let remote = for_kernel(remote, socket.family);
        let begun = rustix::net::connect(number.as_fd(), &remote);
        let result = match begun {
            Err(rustix::io::Errno::INPROGRESS) => rustix::net::connect(number.as_fd(), &remote),
            result => result,
        };
        match result {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::ALREADY) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends the SYN and, unless the socket is non-blocking, waits for the result.
    fn attempt(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        (attachment, sock): (&Attachment, SockId),
        remote: SocketAddr,
        params: ConnectParams,
    ) -> Outcome<()> {
        if let Err(error) = attachment.connect(sock, remote) {
            match error {
                Errno::EADDRINUSE | Errno::EADDRNOTAVAIL | Errno::ENOBUFS => stream.fail(),
                _ => stream.refuse(),
            }
            // __inet_check_established(): the local port is fine, with another peer.
            let error = match error {
                Errno::EADDRINUSE => Errno::EADDRNOTAVAIL,
                other => other,
            };
            return Err(error.into());
        }
        self.report.on_stream(socket, stream, Some(remote));
        attachment.commands();
        // EINPROGRESS even if the answer is there already, as programs expect. (A Fast Open that
        // waits for its data returns at once.)
        stream.leave_unanswered();
        if params.is_nonblocking && !params.is_fast {
            return Err(Errno::EINPROGRESS.into());
        }
        if let Some(outcome) = stream.poll_connect() {
            stream.take_unanswered();
            return outcome.map_err(Divert::from);
        }
        if params.is_nonblocking {
            return Err(Errno::EINPROGRESS.into());
        }
        self.await_connection(socket, stream, Errno::EINPROGRESS)
    }

    /// Waits for the SYN-ACK of a SYN that has data, unless SO_SNDTIMEO ends it before: a refusal
    /// is the call's (tcp_sendmsg_fastopen()).
    #[cold]
    pub(crate) fn await_opening(&self, socket: &Arc<Description>, stream: &Stream) -> Outcome<()> {
        stream.attachment().commands();
        let plan = Plan::of_call(&*self.kernel, socket, &socket.send_timeout_ns, &[]);
        match self.wait(&plan, |_| Ok(stream.poll_opened()))? {
            Some(Err(error)) => Err(error.into()),
            Some(Ok(())) | None => Ok(()),
        }
    }

    pub(crate) fn await_connection(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        late: Errno,
    ) -> Outcome<()> {
        let plan = Plan::of_call(&*self.kernel, socket, &socket.send_timeout_ns, &[]);
        match self.wait(&plan, |_| Ok(stream.poll_connect()))? {
            Some(outcome) => {
                stream.take_unanswered();
                outcome.map_err(Divert::from)
            }
            None => Err(late.into()),
        }
    }

    pub(crate) fn connect_again(
        &self,
        socket: &Arc<Description>,
        stream: &Stream,
        given: Given,
        params: ConnectParams,
    ) -> Outcome<()> {
        let remote = match given {
            Given::Addr(remote) => remote,
            Given::Unspecified => {
                disconnect_stream(socket, stream);
                return Ok(());
            }
            Given::Other => return Err(Errno::EAFNOSUPPORT.into()),
        };
        if stream.is_failed() {
            check_ways(socket, remote)?;
            self.network.check_direct(socket, remote)?;
            let attachment = Arc::clone(stream.attachment());
            let sock = open_for_connect(socket, &attachment)?;
            if let Some(option) = params.option() {
                attachment.set_option(sock, option);
            }
            attachment.close(stream.attachment_and_sock().1, CloseMode::Abort);
            attachment.name(sock, socket);
            stream.try_again(sock);
            return self.attempt(socket, stream, (&attachment, sock), remote, params);
        }
        match stream.connect_again() {
            Err(Errno::EALREADY) if !params.is_nonblocking => {
                self.await_connection(socket, stream, Errno::EALREADY)
            }
            outcome => {
                if outcome != Err(Errno::EALREADY) {
                    stream.take_unanswered();
                }
                outcome.map_err(Divert::from)
            }
        }
    }

    fn connect_dgram(&self, socket: &Arc<Description>, dgram: &Dgram, given: Given) -> Outcome<()> {
        let remote = match given {
            Given::Addr(remote) => remote,
            Given::Other => return Err(Errno::EAFNOSUPPORT.into()),
            Given::Unspecified => {
                let bound = socket.cold.lock().bound;
                dgram.disconnect(bound.is_some_and(|bound| bound.is_wildcard))?;
                self.report.on_dgram(socket, dgram);
                return Ok(());
            }
        };
        check_scope(socket, remote)?;
        check_ways(socket, remote)?;
        self.network.check_direct(socket, remote)?;
        if let Some(reason) = self.network.reason_to_connect_in_kernel(socket, remote) {
            let given = Placed::Remote(remote);
            self.permit_kernel(socket, given, reason, Errno::ENETUNREACH)?;
            if dgram.side() == Side::Stack {
                return Err(Errno::ENETUNREACH.into());
            }
            dgram.set_side(Side::Kernel);
            *dgram.remote.lock() = None;
            dgram.gathering.on_connect(None);
            self.report.on_dgram(socket, dgram);
            return Err(Divert::Kernel);
        }
        self.network.may_broadcast(dgram, remote)?;
        *dgram.remote.lock() = Some(remote);
        dgram.gathering.on_connect(Some(remote));
        if dgram.is_intent() {
            if let Err(error) = self.realize_dgram(socket, dgram) {
                *dgram.remote.lock() = None;
                return Err(error.into());
            }
        } else {
            dgram.set_side(Side::Stack);
            let (attachment, sock) = dgram.part().ok_or(Errno::ENETUNREACH)?;
            attachment.udp_connect(sock, Some(remote))?;
        }
        dgram.set_side(Side::Stack);
        self.report.on_dgram(socket, dgram);
        Ok(())
    }

    /// A datagram socket that is used before it was bound: a port of the kernel's choice, on both
    /// sides.
    pub(crate) fn bind_dgram_anywhere(&self, socket: &Arc<Description>) -> Result<(), Errno> {
        let number = self.materialize(socket)?;
        let any = any(socket.family);
        if let Err(error) = rustix::net::bind(number.as_fd(), &for_kernel(any, socket.family)) {
            let is_bound = error == rustix::io::Errno::INVAL && self.note_bound_elsewhere(socket);
            // inet_autobind(): whatever the reason.
            return is_bound.then_some(()).ok_or(Errno::EAGAIN);
        }
        let addr = kernel_name(number).unwrap_or(any);
        socket.cold.lock().bound = Some(Bound {
            addr,
            is_wildcard: true,
            is_port_chosen: true,
            is_port_unseen: false,
            is_port_given_back: false,
            at_ns: 0,
        });
        socket.keep_kernel_from_blocking()?;
        let _ = socket.decided.set(Decided::Dgram(Dgram::new(Side::Both)));
        apply_dgram_options(socket);
        self.on_intent(socket);
        Ok(())
    }

    /// Returns whether a datagram socket that this process has not bound is bound by another
    /// program, which has the same kernel's part by `posix_spawn` or `exec`. Then it is here too.
    pub(crate) fn note_bound_elsewhere(&self, socket: &Arc<Description>) -> bool {
        if socket.decided().is_some() {
            // Another thread has just bound it.
            return true;
        }
        let name = socket.kernel_number().and_then(kernel_name);
        let Some(name) = name.filter(|name| name.port() != 0) else {
            return false;
        };
        let addr = self.network.zoned(name);
        // As where it is bound here.
        let side = if addr.ip().is_unspecified() || addr.ip().is_multicast() {
            Side::Both
        } else if self.network.is_own(addr) {
            Side::Stack
        } else {
            return false;
        };
        socket.cold.lock().bound = Some(Bound::of_kernel(addr));
        let _ = socket.decided.set(Decided::Dgram(Dgram::new(side)));
        apply_dgram_options(socket);
        self.on_intent(socket);
        true
    }
}

/// Returns the local address that a connection has to use; a port that the program has not looked
/// at is left to the stack, which has ports of its own for outgoing connections.
fn wanted_local(bound: Bound) -> Option<SocketAddr> {
    let mut local = stack_addr(bound.addr);
    if bound.is_port_unseen {
        local.set_port(0);
    }
    if local.port() == 0 && local.ip().is_unspecified() {
        return None;
    }
    Some(local)
}

/// A channel socket with the program's options and, if it chose one, its local address.
fn open_for_connect(socket: &Description, attachment: &Attachment) -> Result<SockId, Errno> {
    let sock = attachment.open(Transport::Tcp)?;
    let (bound, options) = {
        let cold = socket.cold.lock();
        (cold.bound, cold.options.clone())
    };
    push_options(attachment, sock, &options);
    if let Some(local) = bound.and_then(wanted_local)
        && let Err(error) = attachment.bind(sock, local, socket.is_v6_only(), false)
    {
        attachment.close(sock, CloseMode::Abort);
        return Err(error);
    }
    Ok(sock)
}

/// An IPv6 socket bound to an address of one family sends only to that family, and an IPv6-only
/// one only to IPv6 (tcp_v6_connect(), udpv6_sendmsg(), ip6_dst_lookup_tail()).
pub(crate) fn check_ways(socket: &Description, remote: SocketAddr) -> Result<(), Errno> {
    if socket.family == Family::V4 || remote.ip().is_loopback() {
        return Ok(());
    }
    let bound = socket.cold.lock().bound;
    let own = bound.map(|bound| bound.addr.ip().to_canonical());
    let own = own.filter(|own| !own.is_unspecified() && !own.is_multicast());
    match remote.ip().to_canonical() {
        IpAddr::V4(_) if own.is_some_and(|own| own.is_ipv6()) || socket.is_v6_only() => {
            Err(Errno::ENETUNREACH)
        }
        IpAddr::V6(_) if own.is_some_and(|own| own.is_ipv4()) => Err(Errno::EAFNOSUPPORT),
        _ => Ok(()),
    }
}

/// RFC 4007 6: a link-local address needs an interface, either its own scope or that of the
/// socket's binding (__ip6_datagram_connect(), tcp_v6_connect()).
pub(crate) fn check_scope(socket: &Description, remote: SocketAddr) -> Result<(), Errno> {
    if !is_link_local(remote.ip()) || scope_of(remote) != 0 {
        return Ok(());
    }
    let bound = socket.cold.lock().bound;
    match bound.is_some_and(|bound| is_link_local(bound.addr.ip())) {
        true => Ok(()),
        false => Err(Errno::EINVAL),
    }
}
