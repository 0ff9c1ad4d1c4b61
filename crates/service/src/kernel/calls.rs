//! The system calls that replace the work of an engine.

use std::net::SocketAddr;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt,
};
use slipstack_channel::{
    Ends, Envelope, Limits, Reason, Reply, SockId, SocketError, State, Transport,
};

use super::Kernel;
use super::socket::Socket;

/// Buffers of a connection in the channel, beside the kernel's own.
const LIMITS: Limits = Limits {
    send: 256 * 1024,
    receive: 256 * 1024,
};
/// Distance of two notices of consumption.
const STEP: u64 = 64 * 1024;
const DATAGRAMS_AT_ONCE: usize = 256;

type Answer = Result<Reply, SocketError>;

fn refusal(errno: Errno) -> SocketError {
    match errno {
        Errno::ADDRINUSE => SocketError::AddrInUse,
        Errno::ADDRNOTAVAIL => SocketError::AddrNotAvailable,
        Errno::ACCESS | Errno::PERM => SocketError::NotPermitted,
        Errno::NETUNREACH => SocketError::NetUnreachable,
        Errno::HOSTUNREACH => SocketError::HostUnreachable,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => SocketError::LimitReached,
        Errno::AFNOSUPPORT => SocketError::FamilyNotSupported,
        _ => SocketError::InvalidArgument,
    }
}

fn reason(errno: Errno) -> Reason {
    match errno {
        Errno::CONNREFUSED => Reason::Refused,
        Errno::TIMEDOUT => Reason::TimedOut,
        Errno::HOSTUNREACH => Reason::HostUnreachable,
        Errno::NETUNREACH => Reason::NetUnreachable,
        Errno::PIPE => Reason::BrokenPipe,
        _ => Reason::Reset,
    }
}

fn family(addr: SocketAddr) -> AddressFamily {
    match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

impl Kernel {
    pub(super) fn open(&mut self, sock: SockId, kind: Transport) {
        if self.end.begin(sock, LIMITS) {
            self.sockets.put(sock, Socket::new(sock.generation, kind));
        }
    }

    /// Makes the descriptor of a socket whose address family is known now.
    fn make(&mut self, sock: SockId, addr: SocketAddr) -> Result<(), SocketError> {
        let socket = self.sockets.find(sock).ok_or(SocketError::UnknownId)?;
        let kind = match socket.kind {
            Transport::Tcp => SocketType::STREAM,
            Transport::Udp => SocketType::DGRAM,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(family(addr), kind, flags, None).map_err(refusal)?;
        if socket.kind == Transport::Tcp {
            let _ = sockopt::set_tcp_nodelay(&fd, true);
        }
        socket.fd = Some(fd);
        Ok(())
    }

    pub(super) fn bind(&mut self, sock: SockId, addr: SocketAddr, is_shared: bool) -> Answer {
        self.make(sock, addr)?;
        let socket = self.sockets.find(sock).ok_or(SocketError::UnknownId)?;
        let fd = socket.fd.as_ref().ok_or(SocketError::UnknownId)?;
        let is_tcp = socket.kind == Transport::Tcp;
        let _ = sockopt::set_socket_reuseaddr(fd, is_tcp);
        let _ = sockopt::set_socket_reuseport(fd, is_shared);
        if addr.is_ipv6() {
            let _ = sockopt::set_ipv6_v6only(fd, true);
        }
        rustix::net::bind(fd, &addr).map_err(refusal)?;
        if !is_tcp {
            self.watch(sock);
        }
        Ok(Reply::Bound { local: addr })
    }

    pub(super) fn listen(&mut self, sock: SockId, backlog: u32) -> Answer {
        let socket = self.sockets.find(sock).ok_or(SocketError::UnknownId)?;
        let fd = socket.fd.as_ref().ok_or(SocketError::UnknownId)?;
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        rustix::net::listen(fd, backlog).map_err(refusal)?;
        socket.is_listening = true;
        socket.state |= State::LISTENING;
        self.watch(sock);
        Ok(Reply::Done)
    }

    pub(super) fn connect(&mut self, sock: SockId, remote: SocketAddr) -> Answer {
        self.make(sock, remote)?;
        let socket = self.sockets.find(sock).ok_or(SocketError::UnknownId)?;
        let fd = socket.fd.as_ref().ok_or(SocketError::UnknownId)?;
        match rustix::net::connect(fd, &remote) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(refusal(errno)),
        }
        let local = rustix::net::getsockname(fd).ok();
        let local = local.and_then(|any| SocketAddr::try_from(any).ok());
        socket.is_connecting = true;
        self.end.set_addrs(sock, local, Some(remote));
        self.watch(sock);
        Ok(Reply::Done)
    }

    pub(super) fn on_connected(&mut self, sock: SockId) {
        let Some(socket) = self.sockets.find(sock) else {
            return;
        };
        socket.is_connecting = false;
        let error = socket.fd.as_ref().map(sockopt::socket_error);
        match error {
            Some(Ok(Ok(()))) => self.set_state(sock, State::CONNECTED),
            Some(Ok(Err(errno))) => return self.fail(sock, errno),
            _ => return self.fail(sock, Errno::CONNRESET),
        }
        self.send(sock);
    }

    pub(super) fn accept_all(&mut self, listener: SockId) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Some(socket) = self.sockets.find(listener) {
            let Some(fd) = &socket.fd else { return };
            let Ok(accepted) = rustix::net::accept_with(fd, flags) else {
                return;
            };
            let local = rustix::net::getsockname(&accepted).ok();
            let remote = rustix::net::getpeername(&accepted).ok().flatten();
            let addr = |any: Option<_>| any.and_then(|any| SocketAddr::try_from(any).ok());
            let (Some(local), Some(remote)) = (addr(local), addr(remote)) else {
                continue;
            };
            let _ = sockopt::set_tcp_nodelay(&accepted, true);
            let ends = Ends::of(local, remote);
            let Some(sock) = self.end.accepted(listener, &ends, LIMITS) else {
                continue;
            };
            let mut socket = Socket::new(sock.generation, Transport::Tcp);
            socket.fd = Some(accepted);
            socket.state = State::CONNECTED | State::BOUND;
            self.sockets.put(sock, socket);
            self.watch(sock);
        }
    }

    /// Sends bytes written by the service, as far as the kernel takes them.
    pub(super) fn send(&mut self, sock: SockId) {
        let Some(socket) = self.sockets.find(sock) else {
            return;
        };
        socket.send.look(&mut self.end, sock);
        if socket.kind == Transport::Udp {
            return self.send_datagrams(sock);
        }
        let Some(fd) = &socket.fd else { return };
        if socket.is_connecting {
            return;
        }
        while socket.unsent() > 0 {
            let len = (socket.unsent() as usize).min(self.buffer.len());
            let pieces = socket.send.gather(&self.end, sock, socket.sent, len);
            let first = pieces[0].copy_to(&mut self.buffer);
            let second = pieces[1].copy_to(&mut self.buffer[first..]);
            match rustix::net::send(fd, &self.buffer[..first + second], SendFlags::NOSIGNAL) {
                Ok(taken) => {
                    socket.sent += taken as u64;
                    socket.send.on_acked(&mut self.end, sock, socket.sent);
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return self.fail(sock, errno),
            }
        }
        let is_done = socket.unsent() == 0;
        if is_done && socket.shuts_down {
            let _ = rustix::net::shutdown(fd, Shutdown::Write);
            socket.shuts_down = false;
        }
        match is_done && socket.is_closing {
            true => self.release(sock),
            false => self.watch(sock),
        }
    }

    fn send_datagrams(&mut self, sock: SockId) {
        let mut payload = Vec::new();
        while let Some(socket) = self.sockets.find(sock) {
            let Some(envelope) =
                socket
                    .send
                    .next_datagram(&mut self.end, sock, &mut payload, |_| true)
            else {
                return;
            };
            if let (Some(peer), Some(fd)) = (envelope.peer, &socket.fd) {
                // One that finds no room is lost, as on a wire.
                let _ = rustix::net::sendto(fd, &payload, SendFlags::NOSIGNAL, &peer);
            }
        }
    }

    pub(super) fn receive(&mut self, sock: SockId) {
        let Some(socket) = self.sockets.find(sock) else {
            return;
        };
        if socket.kind == Transport::Udp {
            return self.receive_datagrams(sock);
        }
        let Some(fd) = &socket.fd else { return };
        if socket.is_connecting || socket.has_ended {
            return;
        }
        loop {
            let waiting = socket.received - socket.receive.look(&mut self.end, sock);
            let room = u64::from(LIMITS.receive).saturating_sub(waiting) as usize;
            socket.is_full = room == 0;
            if socket.is_full {
                break;
            }
            let len = room.min(self.buffer.len());
            match rustix::net::recv(fd, &mut self.buffer[..len], RecvFlags::empty()) {
                Ok((_, 0)) => {
                    socket.has_ended = true;
                    self.watch(sock);
                    return self.set_state(sock, State::RDHUP | State::FIN);
                }
                Ok((_, got)) => {
                    let bytes = &self.buffer[..got];
                    if socket.is_closing {
                        continue;
                    }
                    let at = socket.received;
                    if !socket.receive.store(&mut self.end, sock, at, bytes) {
                        return self.fail(sock, Errno::NOMEM);
                    }
                    socket.received += got as u64;
                    let upto = socket.received;
                    socket.receive.publish(&mut self.end, sock, upto, STEP);
                    if got < len {
                        break;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return self.fail(sock, errno),
            }
        }
        self.watch(sock);
    }

    fn receive_datagrams(&mut self, sock: SockId) {
        for _ in 0..DATAGRAMS_AT_ONCE {
            let Some(socket) = self.sockets.find(sock) else {
                return;
            };
            let Some(fd) = &socket.fd else { return };
            let received = rustix::net::recvfrom(fd, &mut self.buffer[..], RecvFlags::empty());
            let Ok((_, len, Some(from))) = received else {
                return;
            };
            let local = rustix::net::getsockname(fd).ok();
            let envelope = Envelope {
                peer: SocketAddr::try_from(from).ok(),
                local: local.and_then(|any| SocketAddr::try_from(any).ok()),
                ..Envelope::default()
            };
            let payload = &self.buffer[..len];
            let limit = u64::from(LIMITS.receive);
            socket
                .receive
                .push_datagram(&mut self.end, sock, &envelope, payload, limit);
        }
    }

    pub(super) fn on_consumed(&mut self, sock: SockId) {
        let Some(socket) = self.sockets.find(sock) else {
            return;
        };
        socket.receive.on_consumed(&mut self.end, sock, STEP);
        if socket.is_full {
            self.receive(sock);
        }
    }

    pub(super) fn shut_down(&mut self, sock: SockId) {
        if let Some(socket) = self.sockets.find(sock) {
            socket.shuts_down = true;
        }
        self.send(sock);
    }

    fn set_state(&mut self, sock: SockId, add: State) {
        let Some(socket) = self.sockets.find(sock) else {
            return;
        };
        socket.state |= add;
        let (state, reason, errors) = (socket.state, socket.reason, socket.errors);
        self.end.set_state(sock, state, reason, errors);
        self.end.changed(sock);
    }

    fn fail(&mut self, sock: SockId, errno: Errno) {
        let Some(socket) = self.sockets.find(sock) else {
            return;
        };
        if socket.is_closing {
            return self.release(sock);
        }
        socket.reason = Some(reason(errno));
        socket.errors = socket.errors.wrapping_add(1).max(1);
        if let (Some(fd), Some(_)) = (&socket.fd, socket.watched.take()) {
            let _ = epoll::delete(&self.epoll, fd);
        }
        socket.fd = None;
        let bits = State::ERR | State::HUP | State::RDHUP | State::CLOSED;
        self.set_state(sock, bits);
    }

    /// Registers the socket's awaited events with the epoll set.
    pub(super) fn watch(&mut self, sock: SockId) {
        let Some(socket) = self.sockets.find(sock) else {
            return;
        };
        let Some(fd) = &socket.fd else { return };
        let mut wanted = EventFlags::empty();
        if !socket.is_full && !socket.has_ended {
            wanted |= EventFlags::IN;
        }
        if socket.is_connecting || socket.unsent() > 0 {
            wanted |= EventFlags::OUT;
        }
        if socket.watched == Some(wanted) {
            return;
        }
        let word = u64::from(sock.index) | u64::from(sock.generation) << 32;
        let data = EventData::new_u64(word);
        let _ = match socket.watched {
            None => epoll::add(&self.epoll, fd, data, wanted),
            Some(_) => epoll::modify(&self.epoll, fd, data, wanted),
        };
        socket.watched = Some(wanted);
    }
}
