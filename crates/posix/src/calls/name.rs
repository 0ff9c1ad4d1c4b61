//! bind, listen, shutdown, getsockname, getpeername.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::addr::ANY;
use crate::addr::any;
use crate::addr::stack_addr;
use crate::addr::{AddrBytes, Given, for_kernel, parse_local};
use crate::calls::alone::bounded;
use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::Settings;
use crate::process::lending::word::forget_word;
use crate::process::report::{Given as Placed, Reason};
use crate::process::reuse::{disconnect_stream, learn_of_port};
use crate::process::strict::insist;
use crate::ready::bits;
use crate::socket::borrowed::ReadRequest;
use crate::socket::bound::Bound;
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::kernel_socket::BACKLOG;
use crate::socket::kernel_socket::backlog_of;
use crate::socket::kernel_socket::kernel_name;
use crate::socket::options::apply_dgram_options;
use crate::socket::{Dgram, Listener, SHUT_READ, SHUT_WRITE, Side, shut_bits};

impl Process {
    /// `bind`.
    pub fn bind(&self, fd: i32, addr: &[u8]) -> Outcome<()> {
        let socket = self.bindable_socket_of(fd)?;
        let known = socket.cold.lock().bound;
        let is_bound =
            socket.decided().is_some() || known.is_some_and(|bound| !bound.is_port_given_back);
        let given = parse_local(addr, socket.family)?;
        let addr = match self.network.zoned_for(&socket, given) {
            Given::Addr(addr) if is_bound => {
                return Err(self.network.refuse_to_rebind(&socket, addr).into());
            }
            _ if is_bound => return Err(Errno::EINVAL.into()),
            Given::Addr(addr) => addr,
            // bind(AF_UNSPEC) and foreign families: the kernel has its own rules.
            Given::Unspecified | Given::Other => {
                let (nothing, refusal) = (Placed::Nothing, Errno::EAFNOSUPPORT);
                self.permit_kernel(&socket, nothing, Reason::Family, refusal)?;
                return self.become_kernel(&socket, Reason::Family, Placed::Nothing);
            }
        };
        if socket.is_alone() {
            return self.bind_alone(&socket, addr);
        }
        // On a multicast or broadcast address the kernel's part receives by its interfaces.
        let is_group = addr.ip().is_multicast()
            || self
                .network
                .policy()
                .is_some_and(|policy| policy.is_broadcast(addr.ip()));
        let is_wildcard = addr.ip().is_unspecified() || (is_group && socket.kind == Kind::Dgram);
        match self.network.reason_for_kernel(&socket, addr) {
            Some(reason) => {
                let refusal = Errno::EADDRNOTAVAIL;
                self.permit_kernel(&socket, Placed::Local(addr), reason, refusal)?;
                self.bind_in_kernel(&socket, addr, reason)
            }
            None => self.bind_beside_kernel(&socket, addr, is_wildcard),
        }
    }

    /// The socket leaves for good only if the kernel takes the address: a program may try another.
    fn bind_in_kernel(
        &self,
        socket: &Arc<Description>,
        addr: SocketAddr,
        why: Reason,
    ) -> Outcome<()> {
        let number = self.materialize(socket)?;
        // A start of another program has set IP_FREEBIND, which would permit any address.
        forget_word(&*self.kernel, socket, number.number());
        rustix::net::bind(number.as_fd(), &for_kernel(addr, socket.family))?;
        self.leave_to_kernel(
            socket,
            why,
            Placed::Local(kernel_name(number).unwrap_or(addr)),
        )?;
        Ok(())
    }

    /// Binds the kernel socket under the number, which settles conflicts with other programs, and
    /// records the address for the stack.
    fn bind_beside_kernel(
        &self,
        socket: &Arc<Description>,
        addr: SocketAddr,
        is_wildcard: bool,
    ) -> Outcome<()> {
        if socket.kind == Kind::Dgram {
            self.insist_on_engine(socket, Placed::Local(addr))?;
        }
        if socket.kind == Kind::Stream
            && !self.is_port_of_other_thread(socket, addr)
            && self.engines.is_port_used(socket, addr)
        {
            return Err(Errno::EADDRINUSE.into());
        }
        let number = self.materialize(socket)?;
        // Needed for the stack's own addresses; on wildcards it shows the keeper which listener
        // this is, before the stack listens too.
        let on = 1i32.to_ne_bytes();
        self.kernel
            .setsockopt(number.number(), libc::IPPROTO_IP, libc::IP_FREEBIND, &on)?;
        let local = match self.bind_kernel_part(socket, number, addr) {
            Ok(()) => {
                socket.note_v6_only(number);
                kernel_name(number).map_or(addr, |name| self.network.zoned(name))
            }
            Err(rustix::io::Errno::ADDRINUSE)
                if self
                    .chosen
                    .has_port(socket.kind == Kind::Stream, addr.port()) =>
            {
                self.give_up_kernel(socket)?;
                addr
            }
            Err(error) => return Err(Errno::from(error).into()),
        };
        let bound = Bound {
            addr: SocketAddr::new(addr.ip(), local.port()),
            is_wildcard,
            is_port_chosen: addr.port() == 0,
            is_port_unseen: addr.port() == 0,
            is_port_given_back: false,
            at_ns: self.kernel.now_ns(),
        };
        socket.cold.lock().bound = Some(bound);
        socket.keep_kernel_from_blocking()?;
        if socket.kind == Kind::Dgram {
            let is_both = (is_wildcard || self.network.is_strange(&bound)) && socket.has_kernel();
            let side = if is_both { Side::Both } else { Side::Stack };
            let _ = socket.decided.set(Decided::Dgram(Dgram::new(side)));
            apply_dgram_options(socket);
            self.on_intent(socket);
            self.realize_bound(socket);
            insist(&self.settings, socket)?;
        }
        Ok(())
    }

    /// Gives a datagram socket whose port the stack has chosen the kernel's part from which another
    /// program makes its own. If the kernel refuses the port, that program gets another one.
    pub(crate) fn name_for_heir(&self, socket: &Arc<Description>, dgram: &Dgram) {
        let is_named = socket.cold.lock().bound.is_some() || dgram.side() == Side::Kernel;
        if is_named || socket.is_kernel_given_up() || socket.is_alone() {
            return;
        }
        if dgram.remote.lock().is_some() {
            self.realize(socket);
        }
        let Some(local) = dgram.local() else {
            // It has been disconnected, which gave its port back.
            socket.materialize_for_exec(self);
            return;
        };
        let Ok(number) = self.materialize(socket) else {
            return;
        };
        // It may have had one before it was connected.
        if kernel_name(number).is_some_and(|name| name.port() != 0) {
            return;
        }
        let on = 1i32.to_ne_bytes();
        let (level, name) = (libc::IPPROTO_IP, libc::IP_FREEBIND);
        let _ = self.kernel.setsockopt(number.number(), level, name, &on);
        let _ = self.bind_kernel_part(socket, number, local);
    }

    /// Notifies sets that watch the socket, so that they carry out the intent when they are waited
    /// on. A process that has an engine need not wait for that, and a server's session does not:
    /// its peer may learn of the socket by another connection before the process waits.
    pub(crate) fn on_intent(&self, socket: &Arc<Description>) {
        let has_engine = self
            .engines
            .first()
            .is_some_and(|attachment| !attachment.is_dead());
        if has_engine && !self.may_get_its_engine(socket) || self.is_session() {
            self.realize(socket);
        } else {
            self.has_intents.store(true, Ordering::Release);
        }
        socket.note_intents();
        // A thread may wait for this socket already, on such a set or in a call.
        fence(Ordering::SeqCst);
        if socket.has_sleepers() {
            self.realize_for_wait(socket);
            socket.wake_sleepers();
        }
    }

    /// Whether a datagram socket that has a share of a port may be on another engine once its
    /// thread waits: until then the keeper queues for it. (A listener can move.)
    fn may_get_its_engine(&self, socket: &Description) -> bool {
        socket.kind == Kind::Dgram
            && self.engines.attach.engines_max() > 1
            && self.engines.own().is_none()
            && !self.engines.homes.is_of_first(self.kernel.thread())
            && socket.shares_port()
    }

    /// `listen`.
    pub fn listen(&self, fd: i32, backlog: i32) -> Outcome<()> {
        let socket = self.usable_socket_of(fd)?;
        if socket.kind == Kind::Dgram {
            return Err(Errno::EOPNOTSUPP.into());
        }
        match socket.decided() {
            Some(Decided::Listener(listener)) if socket.is_alone() => {
                return Ok(listener.set_backlog(bounded(backlog))?);
            }
            Some(Decided::Listener(listener)) => {
                return self.listen_again(&socket, listener, backlog);
            }
            Some(_) => return Err(Errno::EINVAL.into()),
            None => {}
        }
        if socket.is_alone() {
            return self.listen_alone(&socket, backlog);
        }
        if self
            .network
            .policy()
            .is_none_or(|policy| policy.addresses().is_empty())
        {
            let (why, refusal) = (Reason::NoStack, Errno::ENETDOWN);
            self.permit_kernel(&socket, Placed::Nothing, why, refusal)?;
            return self.become_kernel(&socket, why, Placed::Nothing);
        }
        if !socket.is_kernel_given_up() {
            self.materialize(&socket)?;
        }
        let bound = socket.cold.lock().bound;
        if let Some(bound) = bound.filter(|bound| self.network.is_strange(bound)) {
            let (why, given) = (Reason::LocalAddress, Placed::Local(bound.addr));
            self.permit_kernel(&socket, given, why, Errno::EADDRNOTAVAIL)?;
            return self.become_kernel(&socket, why, given);
        }
        self.insist_on_engine(&socket, Placed::Nothing)?;
        let backlog = self.listen_in_kernel(&socket, backlog)?;
        let bound = bound_of_listener(&socket);
        socket.keep_kernel_from_blocking()?;
        let listener = Listener::new(stack_addr(bound.addr), backlog);
        self.report.on_listener(&socket, &listener, Reason::Intent);
        if socket.decided.set(Decided::Listener(listener)).is_err() {
            return Err(Errno::EINVAL.into());
        }
        self.on_intent(&socket);
        self.report.tell(&self.engines);
        insist_on_listening(&self.settings, &socket)
    }

    fn listen_again(
        &self,
        socket: &Arc<Description>,
        listener: &Listener,
        backlog: i32,
    ) -> Outcome<()> {
        let backlog = self.listen_in_kernel(socket, backlog)?;
        listener.set_backlog(backlog)?;
        if listener.was_refused() && self.settings.strict {
            listener.forget_refusal();
            self.on_intent(socket);
        }
        insist_on_listening(&self.settings, socket)
    }

    /// Makes the kernel's part listen, which settles conflicts. Returns the backlog as the kernel
    /// understands it.
    fn listen_in_kernel(&self, socket: &Arc<Description>, backlog: i32) -> Result<i32, Errno> {
        if socket.is_kernel_given_up() {
            return Ok(backlog_without_kernel(backlog));
        }
        let number = socket.kernel_number().ok_or(Errno::EBADF)?;
        show_deferral(&*self.kernel, socket);
        match rustix::net::listen(number.as_fd(), backlog) {
            Ok(()) => Ok(backlog_of(&*self.kernel, number)),
            Err(rustix::io::Errno::ADDRINUSE) => {
                let bound = socket.cold.lock().bound;
                if !bound.is_some_and(|bound| self.chosen.has_port(true, bound.addr.port())) {
                    return Err(Errno::EADDRINUSE);
                }
                self.give_up_kernel(socket)?;
                Ok(backlog_without_kernel(backlog))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// `shutdown`.
    pub fn shutdown(&self, fd: i32, how: i32) -> Outcome<()> {
        let socket = self.table.socket_of(fd)?;
        let (read, write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Errno::EINVAL.into()),
        };
        match socket.decided() {
            Some(Decided::Stream(stream)) => {
                if stream.is_attempt() {
                    // As [`Stream::shutdown`] does, and its port is free.
                    disconnect_stream(&socket, stream);
                    return Ok(());
                }
                if write {
                    self.shut_behind_users(&socket, stream, read)?;
                } else {
                    stream.shutdown(read, false)?;
                }
                if write {
                    stream.attachment().after_push(&*self.kernel, socket.id);
                }
                socket.notify(stream.readiness());
                if write {
                    self.await_refusals(&socket);
                }
                Ok(())
            }
            // inet_shutdown(): a listener sends nothing.
            Some(Decided::Listener(_)) if !read => Ok(()),
            Some(Decided::Listener(_)) => {
                self.stop_listening(&socket);
                match socket.is_alone() {
                    true => Ok(()),
                    false => Err(Divert::Kernel),
                }
            }
            Some(Decided::Dgram(dgram)) => shutdown_dgram(&socket, dgram, (read, write)),
            Some(Decided::Foreign(it)) if socket.kind == Kind::Dgram => {
                self.shutdown_borrowed(&socket, it, how)
            }
            // inet_shutdown(): it is closed.
            Some(Decided::Foreign(it)) if self.is_closed_elsewhere(&socket, it) => {
                Err(Errno::ENOTCONN.into())
            }
            Some(Decided::Foreign(it)) => match self.borrow(&socket, it, ReadRequest::None) {
                Some(divert) => {
                    it.shut((read, write));
                    Err(divert)
                }
                None => self.shutdown(fd, how),
            },
            None if socket.kind == Kind::Stream && socket.has_kernel() => Err(Divert::Kernel),
            None if socket.kind == Kind::Stream => Err(Errno::ENOTCONN.into()),
            None => {
                let what = what_is_shut((read, write));
                let before = socket.early_shut.fetch_or(what, Ordering::Relaxed);
                socket.notify(shut_bits(before | what));
                // The kernel's part would return the same error, and has to be shut down too.
                if socket.has_kernel() {
                    return Err(Divert::Kernel);
                }
                Err(Errno::ENOTCONN.into())
            }
        }
    }

    /// `getsockname`.
    pub fn getsockname(&self, fd: i32) -> Outcome<AddrBytes> {
        let socket = self.table.socket_of(fd)?;
        if socket.kind == Kind::Dgram && socket.decided().is_none() {
            self.note_bound_elsewhere(&socket);
        }
        let unnamed = SocketAddr::V4(ANY);
        let bound = {
            let mut cold = socket.cold.lock();
            if let Some(bound) = &mut cold.bound {
                bound.is_port_unseen = bound.is_port_given_back;
            }
            cold.bound
        };
        let bound_addr = bound.map(|bound| bound.addr);
        let addr = match socket.decided() {
            Some(Decided::Stream(stream)) => stream.local().or(bound_addr),
            Some(Decided::Dgram(dgram)) if dgram.side() == Side::Kernel => {
                return Err(Divert::Kernel);
            }
            Some(Decided::Dgram(dgram)) => name_of_dgram(&socket, dgram, bound),
            Some(Decided::Foreign(it)) => it.local.or(bound_addr),
            Some(Decided::Listener(_)) | None => bound_addr,
        };
        let addr = addr.unwrap_or(unnamed);
        Ok(self.network.shown(addr, socket.family))
    }

    /// `getpeername`.
    pub fn getpeername(&self, fd: i32) -> Outcome<AddrBytes> {
        let socket = self.table.socket_of(fd)?;
        let remote = match socket.decided() {
            Some(Decided::Stream(stream)) => stream.remote()?,
            Some(Decided::Dgram(dgram)) if dgram.side() == Side::Kernel => {
                return Err(Divert::Kernel);
            }
            Some(Decided::Dgram(dgram)) => {
                // inet_getname(): a peer without a port is none.
                let remote = dgram.remote.lock().filter(|remote| remote.port() != 0);
                remote.ok_or(Errno::ENOTCONN)?
            }
            // inet_getname(): what is closed has no peer.
            Some(Decided::Foreign(it))
                if socket.kind == Kind::Stream && self.is_closed_elsewhere(&socket, it) =>
            {
                return Err(Errno::ENOTCONN.into());
            }
            Some(Decided::Foreign(it)) => it.remote().ok_or(Errno::ENOTCONN)?,
            _ => return Err(Errno::ENOTCONN.into()),
        };
        Ok(self.network.shown(remote, socket.family))
    }
}

/// Returns where a socket listens: without a port of its own at one of the kernel's choice.
fn bound_of_listener(socket: &Description) -> Bound {
    let known = learn_of_port(socket);
    if let Some(bound) = known.filter(|bound| !bound.is_port_given_back) {
        return bound;
    }
    let number = socket.kernel_number();
    let mut local = number.and_then(kernel_name).unwrap_or(any(socket.family));
    if let Some(past) = known {
        local.set_ip(past.addr.ip());
    }
    let bound = Bound {
        addr: local,
        is_wildcard: known.is_none_or(|past| past.is_wildcard),
        is_port_chosen: true,
        is_port_unseen: false,
        is_port_given_back: false,
        at_ns: 0,
    };
    socket.cold.lock().bound = Some(bound);
    bound
}

/// inet_listen(): a negative one is as many as possible.
fn backlog_without_kernel(backlog: i32) -> i32 {
    if backlog < 0 {
        BACKLOG
    } else {
        backlog.min(BACKLOG)
    }
}

/// To the next datagram, a port that the program did not ask for looks like a disconnect:
/// __udp_disconnect() and inet_autobind().
fn name_of_dgram(socket: &Description, dgram: &Dgram, bound: Option<Bound>) -> Option<SocketAddr> {
    if let Some(local) = dgram.local() {
        return Some(local);
    }
    let (mut addr, is_chosen) = match bound {
        Some(bound) => (bound.addr, bound.is_port_chosen),
        None => (
            SocketAddr::new(any(socket.family).ip(), dgram.stack_port()?),
            true,
        ),
    };
    if is_chosen && dgram.has_no_port() {
        addr.set_port(0);
    }
    Some(addr)
}

/// inet_shutdown(): an unconnected socket returns the error, and is shut all the same.
fn shutdown_dgram(socket: &Description, dgram: &Dgram, what: (bool, bool)) -> Outcome<()> {
    dgram.shutdown(what_is_shut(what));
    socket.notify(dgram.readiness() | bits::OUT);
    if dgram.side() == Side::Kernel {
        return Err(Divert::Kernel);
    }
    if dgram.remote.lock().is_some() {
        return Ok(());
    }
    Err(Errno::ENOTCONN.into())
}

fn what_is_shut((read, write): (bool, bool)) -> u8 {
    (u8::from(read) * SHUT_READ) | (u8::from(write) * SHUT_WRITE)
}

/// Under `--strict` a socket that cannot listen on the stack does not listen.
pub(crate) fn insist_on_listening(settings: &Settings, socket: &Arc<Description>) -> Outcome<()> {
    insist(settings, socket).inspect_err(|_| {
        if let Some(number) = socket.kernel_number() {
            let _ = rustix::net::shutdown(number.as_fd(), rustix::net::Shutdown::Read);
        }
    })?;
    Ok(())
}

/// Shows the keeper, which answers until an engine listens, that connections wait for data
/// (TCP_DEFER_ACCEPT), by an option of the kernel's part that a listener has no use for.
pub(crate) fn show_deferral(kernel: &dyn Kernel, socket: &Description) {
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT);
    let asked = socket.cold.lock().options.int(level, name);
    let (Some(seconds), Some(number)) = (asked, socket.kernel_number()) else {
        return;
    };
    let (level, name) = (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP);
    let value = i32::from(seconds <= 0).to_ne_bytes();
    let _ = kernel.setsockopt(number.number(), level, name, &value);
}
