//! Placement of a socket: a kernel socket under its numbers, the stack, or both.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use slipstack_channel::{Placement, SocketOption, Transport};
use slipstack_mem::Descriptor;

use crate::addr::{ANY, Family, any, stack_addr};
use crate::attachment::Attachment;
use crate::epoll::{Set, Target, add_kernel_part, sets_of};
use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::engines::listen_on_stack;
use crate::process::lending::word::{attach_behind_word, forget_word};
use crate::process::report::{Given, Reason};
use crate::process::subject::Subject;
use crate::ready::{Watch, Watcher};
use crate::socket::description::{Decided, Description, Kind};
use crate::socket::kernel_socket::{replace, set_nonblocking};
use crate::socket::options::attaching::group_filter;
use crate::socket::options::push_chooser;
use crate::socket::options::replay;
use crate::socket::options::{all_changes, attach_filter, filter_in, push_options};
use crate::socket::{Dgram, Listener, Side};
use slipstack_channel::LogLevel;

impl Process {
    /// A kernel socket like `socket`, with its options.
    pub(crate) fn kernel_twin(
        &self,
        socket: &Description,
        flags: SocketFlags,
    ) -> Result<OwnedFd, Errno> {
        let family = match socket.family {
            Family::V4 => AddressFamily::INET,
            Family::V6 => AddressFamily::INET6,
        };
        let kind = match socket.kind {
            Kind::Stream => SocketType::STREAM,
            Kind::Dgram => SocketType::DGRAM,
        };
        let make = || rustix::net::socket_with(family, kind, flags | SocketFlags::CLOEXEC, None);
        let twin = self.numbers.with_spare(make)?;
        let options = socket.cold.lock().options.clone();
        replay(&*self.kernel, &twin, &options);
        Ok(twin)
    }

    /// Puts a kernel socket under all numbers of a socket that has none yet. Whether the stack
    /// serves it too is still open; the kernel socket never blocks.
    pub(crate) fn materialize(&self, socket: &Arc<Description>) -> Result<Descriptor, Errno> {
        if let Some(number) = socket.kernel_number() {
            socket.keep_kernel_from_blocking()?;
            return Ok(number);
        }
        let twin = self.kernel_twin(socket, SocketFlags::NONBLOCK)?;
        let numbers = socket.cold.lock().numbers.clone();
        let mut first = None;
        for number in numbers.into_iter().filter_map(Descriptor::new) {
            replace(number, &twin)?;
            first.get_or_insert(number);
        }
        drop(twin);
        self.numbers.keep_spare();
        socket.has_kernel.store(true, Ordering::Release);
        for (set, item) in sets_of(socket) {
            add_kernel_part(&set, item);
        }
        first.ok_or(Errno::EBADF)
    }

    /// The socket is the kernel's from now on; the program's call is made there.
    pub(crate) fn become_kernel<T>(
        &self,
        socket: &Arc<Description>,
        why: Reason,
        given: Given,
    ) -> Outcome<T> {
        self.leave_to_kernel(socket, why, given)?;
        Err(Divert::Kernel)
    }

    /// The socket is the kernel's from now on.
    pub(crate) fn leave_to_kernel(
        &self,
        socket: &Arc<Description>,
        why: Reason,
        given: Given,
    ) -> Result<(), Errno> {
        let had_kernel = socket.has_kernel();
        let number = self.materialize(socket)?;
        if had_kernel {
            forget_word(&*self.kernel, socket, number.number());
        }
        if !socket.is_nonblocking() {
            set_nonblocking(number, false)?;
        }
        let watches = socket.take_watches();
        let numbers = std::mem::take(&mut socket.cold.lock().numbers);
        for number in numbers {
            self.table.take(number);
            self.report.on_kernel(number, socket, why, given);
        }
        watches.iter().for_each(Watch::end);
        self.report.tell(&self.engines);
        Ok(())
    }

    /// Gives a socket its kernel part before a call that only a kernel socket can answer (ioctls
    /// about interfaces, options the stack does not know).
    pub fn prepare_kernel(&self, fd: i32) -> Outcome<()> {
        if let Ok(socket) = self.table.socket_of(fd)
            && socket.decided().is_none()
        {
            self.materialize(&socket)?;
        }
        Err(Divert::Kernel)
    }

    /// Gives the sockets that may still become the kernel's their kernel part: threads of the
    /// program are about to be in several network namespaces, and a socket belongs to the one in
    /// which it was made.
    pub fn settle_kernel_parts(&self) {
        for socket in self.table.undecided() {
            self.settle(&socket);
        }
    }

    /// As [`Process::settle_kernel_parts`], for a new socket.
    pub fn settle_kernel_part(&self, fd: i32) {
        if let Ok(socket) = self.table.socket_of(fd) {
            self.settle(&socket);
        }
    }

    fn settle(&self, socket: &Arc<Description>) {
        let may_have = !socket.is_alone() && !socket.is_kernel_given_up();
        if socket.decided().is_none() && !socket.has_kernel() && may_have {
            // Without a descriptor for it the socket has none, as before.
            let _ = self.materialize(socket);
        }
    }

    /// Carries out intents to listen and bind on the stack, because the process waits now.
    pub(crate) fn realize(&self, socket: &Arc<Description>) {
        if !socket.is_intent() || !self.engines.may_realize() {
            return;
        }
        match socket.decided() {
            Some(Decided::Listener(listener)) => self.realize_listener(socket, listener),
            Some(Decided::Dgram(dgram)) => {
                let attached = self.attached_for_dgram(socket, dgram);
                let asked = attached.as_ref().ok().cloned();
                if let Err(error) = self.bind_on_stack(attached, socket, dgram) {
                    if self.engines.is_put_off(asked.as_ref()) {
                        return self.report.on_absence(socket, dgram);
                    }
                    dgram.refuse();
                    if self.settings.strict {
                        dgram.tell_refusal(error);
                    }
                    self.fell_back(socket, error, "receive datagrams");
                }
            }
            _ => {}
        }
    }

    pub(crate) fn realize_set(&self, set: &Arc<Set>) {
        if !set.has_intents.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut is_put_off = false;
        for socket in set.sockets() {
            self.realize_for_wait(&socket);
            is_put_off |= socket.is_intent();
        }
        for inner in set.sets() {
            self.realize_set(&inner);
            is_put_off |= inner.has_intents.load(Ordering::Acquire);
        }
        if is_put_off {
            // The engine of an intent is away.
            set.note_intents();
        }
        self.borrow_members(set);
    }

    /// Carries out the intents of a new member of a set for threads that already sleep on it.
    /// Threads that are about to sleep check once they count as sleepers.
    pub(crate) fn realize_for_sleepers(&self, set: &Arc<Set>) {
        fence(Ordering::SeqCst);
        if set.has_intents.load(Ordering::SeqCst) && set.has_sleepers() {
            self.realize_set(set);
        }
    }

    /// As [`Process::realize`], for a program that waits on the socket.
    pub(crate) fn realize_for_wait(&self, socket: &Arc<Description>) {
        if let Some(Decided::Listener(listener)) = socket.decided() {
            listener.on_wait();
        }
        socket.come_back();
        self.realize(socket);
    }

    /// Makes all intents real before a connection to an address of the stack: its listener may be
    /// one of this process.
    pub(crate) fn realize_all(&self) {
        // An engine that has died unnoticed leaves intents behind.
        self.living_attachment();
        if !self.has_intents.swap(false, Ordering::AcqRel) {
            return;
        }
        for socket in self.table.unconnected() {
            // Datagrams to a socket that parent and child hold are for the one that receives, and
            // a share of a port belongs to its thread or its child: until one of them waits the
            // keeper queues them.
            let is_elsewhere =
                socket.kind == Kind::Dgram && (socket.is_parents() || socket.shares_port());
            if !is_elsewhere {
                self.realize(&socket);
            }
            if socket.is_intent() {
                self.has_intents.store(true, Ordering::Release);
            }
        }
    }

    /// Before a fork of a process that has an engine: a datagram socket stays one, which the child
    /// uses through this process, instead of becoming two that each hear half of what comes.
    #[cold]
    pub(crate) fn realize_datagrams(&self) {
        if !self.has_intents.load(Ordering::Acquire) {
            return;
        }
        for socket in self.table.unconnected() {
            if socket.kind == Kind::Dgram && !socket.is_parents() && !socket.shares_port() {
                self.realize(&socket);
            }
        }
    }

    fn realize_listener(&self, socket: &Arc<Description>, listener: &Listener) {
        let attached = self.attached_for(socket, Given::Nothing);
        let asked = attached.as_ref().ok().cloned();
        let mut stack = listener.stack();
        if !listener.is_intent() {
            return;
        }
        match attached.and_then(|attachment| listen_on_stack(attachment, socket, listener)) {
            Ok(realized) => {
                *stack = Some(realized);
                listener.set_realized();
                drop(stack);
                self.report.on_listener(socket, listener, Reason::Stack);
            }
            Err(_) if self.engines.is_put_off(asked.as_ref()) => {
                drop(stack);
                let why = match self.engines.why_no_stack() {
                    Reason::NoSlot => Reason::NoSlot,
                    _ => Reason::Away,
                };
                self.report.on_listener(socket, listener, why);
                self.report.tell(&self.engines);
            }
            Err(error) => {
                listener.refuse();
                drop(stack);
                if self.settings.strict {
                    listener.tell_refusal(error);
                }
                self.fell_back(socket, error, "listen");
            }
        }
    }

    /// Repeats the placement during a wait, because its subject may have lost its engine and found
    /// another.
    pub(crate) fn seek(&self, subject: Subject<'_>) {
        if !self.engines.absence.has_been() {
            return;
        }
        match subject {
            Subject::Socket(socket) => self.realize(socket),
            Subject::Set(set) => self.realize_set(set),
            Subject::Many(targets) => {
                for target in targets {
                    match target {
                        Target::Socket(socket) => self.realize(socket),
                        Target::Set(set) => self.realize_set(set),
                    }
                }
            }
            Subject::Wire => {}
        }
    }

    /// Binds a UDP socket on the stack if it is not yet.
    pub(crate) fn realize_dgram(
        &self,
        socket: &Arc<Description>,
        dgram: &Dgram,
    ) -> Result<(), Errno> {
        let attached = self.attached_for_dgram(socket, dgram);
        self.bind_on_stack(attached, socket, dgram)
    }

    fn attached_for_dgram(
        &self,
        socket: &Description,
        dgram: &Dgram,
    ) -> Result<Arc<Attachment>, Errno> {
        let remote = *dgram.remote.lock();
        self.attached_for(socket, remote.map_or(Given::Nothing, Given::Remote))
    }

    fn bind_on_stack(
        &self,
        attached: Result<Arc<Attachment>, Errno>,
        socket: &Arc<Description>,
        dgram: &Dgram,
    ) -> Result<(), Errno> {
        let mut stack = dgram.stack();
        if !dgram.is_intent() {
            return Ok(());
        }
        let attachment = attached?;
        let remote = *dgram.remote.lock();
        let sock = attachment.open(Transport::Udp)?;
        attachment.name(sock, socket);
        let (bound, options, memberships) = {
            let cold = socket.cold.lock();
            (cold.bound, cold.options.clone(), cold.memberships.clone())
        };
        if dgram.side() == Side::Both {
            self.spare_kernel_groups(socket);
        }
        let local = bound.map_or_else(|| any(socket.family), |bound| stack_addr(bound.addr));
        // The kernel's part has decided whether the port is free; this decides which of several
        // sockets receives.
        let are_several = self.engines.attach.is_spread() || self.settings.has_ports_per_instance;
        let reuse_port = socket.shares_port() || are_several;
        if remote.is_none() {
            name_among_sharers(&*self.kernel, &attachment, sock, socket);
        }
        if let Some(range) = options.port_range() {
            attachment.set_option(sock, range);
        }
        if remote.is_some() {
            attachment.set_option(sock, SocketOption::AwaitsPeer(true));
        }
        if options.is_transparent() {
            attachment.set_option(sock, SocketOption::Transparent(true));
        }
        let outcome = attachment
            .bind(sock, local, socket.is_v6_only(), reuse_port)
            .map_err(|error| match error {
                // inet_autobind(): no port is left.
                Errno::EADDRNOTAVAIL if bound.is_none() => Errno::EAGAIN,
                error => error,
            })
            .inspect(|_| {
                push_options(&attachment, sock, &options);
                push_chooser(&attachment, sock, &options);
                for option in all_changes(&memberships) {
                    attachment.set_option(sock, option);
                }
            })
            .and_then(|_| remote.map_or(Ok(()), |remote| fix_peer(&attachment, sock, remote)));
        if let Err(error) = outcome {
            attachment.close(sock, slipstack_channel::CloseMode::Abort);
            return Err(error);
        }
        if !memberships.is_empty() {
            // Events that happen from now on are reported.
            attachment.commands();
        }
        *stack = Some((Arc::clone(&attachment), sock));
        dgram.set_realized();
        drop(stack);
        if bound.is_some() {
            bring_early(&*self.kernel, &attachment, sock);
        }
        self.report.on_dgram(socket, dgram);
        Ok(())
    }

    /// Puts a bound socket that has joined a group on the stack at once, so that it receives the
    /// group before any wait.
    pub(crate) fn realize_bound(&self, socket: &Arc<Description>) {
        if !socket.cold.lock().memberships.is_empty() {
            self.realize(socket);
        }
    }

    /// Leaves datagrams to groups on the stack's interface to the stack's part; the kernel's part,
    /// which would get the same again, leaves it.
    pub(crate) fn spare_kernel_groups(&self, socket: &Description) {
        let index = self.network.stack_interface();
        let part = socket.kernel_number();
        // Another thread may set a filter.
        let cold = socket.cold.lock();
        if let Some(number) = part
            && index != 0
            && filter_in(&cold.options).is_none()
        {
            let (kernel, fd) = (&*self.kernel, number.number());
            let code = group_filter(index);
            // Another program may not have taken the word yet that the part has for it.
            if attach_behind_word(kernel, fd, &code) == Ok(false) {
                let _ = attach_filter(kernel, fd, &code);
            }
        }
    }

    /// Something that belongs on the stack is not there.
    fn fell_back(&self, socket: &Arc<Description>, error: Errno, what: &str) {
        let bound = socket.cold.lock().bound;
        let addr = bound.map_or(ANY.into(), |bound| bound.addr);
        if self.settings.strict {
            return self.refuse_late(socket, error);
        }
        let sentence = format!(
            "cannot {what} on the stack at {addr}: {error}; only the kernel's side is served"
        );
        self.log.say(LogLevel::Error, &sentence);
        let why = match self.engines.first() {
            Some(_) => Reason::Refused,
            None => self.engines.why_no_stack(),
        };
        let numbers = socket.cold.lock().numbers.clone();
        for number in numbers {
            self.report.on_kernel(number, socket, why, Given::Nothing);
        }
    }
}

/// Connects a part that had no peer so far.
fn fix_peer(
    attachment: &Attachment,
    sock: slipstack_channel::SockId,
    remote: SocketAddr,
) -> Result<(), Errno> {
    attachment.udp_connect(sock, Some(remote))?;
    attachment.set_option(sock, SocketOption::AwaitsPeer(false));
    Ok(())
}

/// Returns the rank of a datagram socket in its SO_REUSEPORT group. One that another process
/// has bound is the last.
fn rank_of(kernel: &dyn Kernel, socket: &Description) -> u64 {
    let mut cold = socket.cold.lock();
    match &mut cold.bound {
        Some(bound) if bound.at_ns != 0 => bound.at_ns,
        Some(bound) => {
            bound.at_ns = kernel.now_ns();
            bound.at_ns
        }
        None => 0,
    }
}

/// Returns the cookie of a socket's kernel part, which maps of sockets have in its place.
fn cookie_of(kernel: &dyn Kernel, socket: &Description) -> Option<u64> {
    let lent = match socket.decided() {
        // The pair of one that is another process's is under its numbers.
        Some(Decided::Foreign(it)) => *it.kernel_part.lock(),
        _ => None,
    };
    let number = lent.or_else(|| socket.kernel_number())?.number();
    let mut cookie = [0; 8];
    let (level, name) = (libc::SOL_SOCKET, libc::SO_COOKIE);
    kernel.getsockopt(number, level, name, &mut cookie).ok()?;
    Some(u64::from_ne_bytes(cookie))
}

/// Says which of the sockets that share a port, in a SO_REUSEPORT group or as copies of a parent's,
/// this one is.
fn name_among_sharers(
    kernel: &dyn Kernel,
    attachment: &Attachment,
    sock: slipstack_channel::SockId,
    socket: &Description,
) {
    let is_in_group = socket.shares_port();
    if is_in_group {
        attachment.set_option(sock, SocketOption::Rank(rank_of(kernel, socket)));
    }
    if (is_in_group || socket.may_be_shared())
        && let Some(cookie) = cookie_of(kernel, socket)
    {
        attachment.set_option(sock, SocketOption::Cookie(cookie));
    }
}

/// Prepares a datagram socket for another program, which will have it too.
pub(crate) fn share_datagrams(kernel: &dyn Kernel, socket: &Description, dgram: &Dgram) {
    socket.note_sharing();
    socket.leave_unread();
    name_part(kernel, socket, dgram);
}

/// Says which socket a part on the stack is, if other processes may have it too.
pub(crate) fn name_part(kernel: &dyn Kernel, socket: &Description, dgram: &Dgram) {
    if let Some((attachment, sock)) = dgram.part() {
        name_among_sharers(kernel, &attachment, sock, socket);
    }
}

/// Takes datagrams that arrived before a bound socket was on the stack. They waited at the
/// keeper, which has handed them to the engine before the bind is answered: the first check of
/// the socket finds them.
fn bring_early(kernel: &dyn Kernel, attachment: &Arc<Attachment>, sock: slipstack_channel::SockId) {
    attachment.turn(kernel.now_ns());
    if attachment.driver.placement() == Placement::Instance {
        // The answer comes after one pass of the instance's loop.
        let _ = attachment.info(sock);
    }
}
