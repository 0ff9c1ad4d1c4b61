//! fork, exec and exit.

use std::cmp::Reverse;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstack_channel as channel;
use slipstack_mem::Descriptor;

use crate::addr::Family;
use crate::addr::stack_addr;
use crate::epoll::Set;
use crate::errno::Errno;
use crate::lending::StewardSockets;
use crate::process::Process;
use crate::process::lending::ForkLending;
use crate::process::lending::passing::is_bound;
use crate::process::lending::word::read_word;
use crate::process::place::share_datagrams;
use crate::process::renewal::Parentage;
use crate::process::report::Reason;
use crate::process::table::Entry;
use crate::process::table::Table;
use crate::socket::bound::Bound;
use crate::socket::description::{Decided, Description, Kind, New};
use crate::socket::kernel_socket::backlog_of;
use crate::socket::kernel_socket::kernel_name;
use crate::socket::kernel_socket::set_nonblocking;
use crate::socket::options::apply_dgram_options;
use crate::socket::{Dgram, Listener, Side};

impl Process {
    /// Prepares for `fork` (and calls that act like it: vfork, daemon, clone without CLONE_VM).
    /// Everything the child needs is kept locked until one of the other two functions runs.
    pub fn fork_prepare(&self) {
        let attachments = self.engines.all();
        attachments
            .iter()
            .for_each(|attachment| attachment.commands());
        if !attachments.is_empty() {
            self.realize_datagrams();
        }
        self.lending.bringing.hold();
        let lends = !self.engines.is_attaching();
        if lends {
            // This lock comes first: one thread forks at a time.
            self.engines.attaching.hold();
        }
        let version = self.table.version();
        let mut held = self.table.objects();
        if !attachments.is_empty() {
            copy_peeked(&held);
        }
        if lends {
            self.prepare_lending(&held);
        }
        self.lending.post.hold_steward();
        self.kqueues.hold();
        self.engines.homes.hold();
        self.owners.hold();
        self.nesting.hold();
        if self.table.version() != version {
            held = self.table.objects();
        }
        order_sets(&mut held);
        for entry in &held {
            match entry {
                Entry::Socket(socket) => {
                    if socket.is_first_sharing() && is_intent(socket) {
                        // Each process will have a queue of its own.
                        socket.leave_unread();
                    }
                    socket.hold();
                }
                Entry::Set(set) => {
                    set.is_shared.store(true, Ordering::Relaxed);
                    set.inner.hold();
                }
                Entry::Routes(socket) => socket.asked.hold(),
            }
        }
        *self.held.lock() = held;
        self.network.hold();
        // Threads take it while they hold the lock of a socket.
        self.engines.place.hold();
        self.engines.trouble.hold();
        self.engines.station.sleepers.hold();
        self.report.hold();
        self.programs.hold();
        self.table.hold();
        self.leave_out_closed();
        self.numbers.hold();
        self.poll_looks.hold();
        self.lending.hold();
    }

    /// Ends the preparation in the parent, or when the fork failed. Returns the sockets that the
    /// child may use, which are for [`Process::lend`].
    pub fn fork_parent(&self) -> Option<ForkLending> {
        self.lending.release();
        let lending = self.lending.take_fork();
        self.lending.bringing.release();
        let held = self.release_all(|_| true).into_iter();
        let others: Vec<Arc<Description>> = held.filter_map(Entry::into_unconnected).collect();
        self.leave_listeners(&others);
        self.describe_intents(&others);
        lending
    }

    /// Lets go of those listeners on the stack that this process has not waited on: its workers
    /// will.
    pub(crate) fn leave_listeners(&self, sockets: &[Arc<Description>]) {
        let attachments = self.engines.all();
        if attachments.is_empty() {
            return;
        }
        for socket in sockets {
            if let Some(Decided::Dgram(dgram)) = socket.decided() {
                drop(dgram.take_handed());
            }
            if let Some(Decided::Listener(listener)) = socket.decided()
                && let Some((attachment, sock)) = listener.demote()
            {
                attachment.unlisten(sock);
                attachment.close(sock, channel::CloseMode::Orderly);
                self.has_intents.store(true, Ordering::Release);
                socket.note_intents();
            }
        }
        attachments
            .iter()
            .for_each(|attachment| attachment.commands());
    }

    /// A parent of workers may never wait, nor have listened itself (a daemon's child): its
    /// listeners among `sockets` are described here.
    pub(crate) fn describe_intents(&self, sockets: &[Arc<Description>]) {
        if !self.has_intents.load(Ordering::Acquire) || self.engines.absence.is_now() {
            return;
        }
        for socket in sockets {
            if let Some(Decided::Listener(listener)) = socket.decided()
                && listener.is_intent()
            {
                self.report.on_listener(socket, listener, Reason::Intent);
            }
        }
    }

    /// Returns the locked entries; those that `is_released` names are released. Last of all another
    /// thread may fork.
    fn release_all(&self, is_released: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        self.poll_looks.release();
        self.numbers.release();
        self.table.release();
        self.programs.release();
        self.report.release();
        self.engines.station.sleepers.release();
        self.engines.trouble.release();
        self.engines.place.release();
        self.network.release();
        // The entries that were locked are released, not the table's present ones: another thread
        // may have removed some since.
        let held = mem::take(&mut *self.held.lock());
        for entry in held.iter().filter(|entry| is_released(entry)) {
            match entry {
                Entry::Socket(socket) => socket.release(),
                Entry::Set(set) => _ = set.inner.release(),
                Entry::Routes(socket) => _ = socket.asked.release(),
            }
        }
        self.nesting.release();
        self.owners.release();
        self.engines.homes.release();
        self.kqueues.release();
        self.engines.attaching.release();
        held
    }

    /// Resets the state in the child: connections stay with the parent, listeners and bound
    /// datagram sockets become intents again, and the engine is not ours. Nothing is closed or
    /// sent.
    pub fn fork_child(&self) {
        // Before anything is made that is this process's own.
        slipstack_mem::leave_to_parent();
        self.lending.release();
        self.lending.bringing.release();
        let held = self.release_all(|entry| !matches!(entry, Entry::Socket(_)));
        self.table.free_in_child();
        let sets = self.table.sets();
        // Another thread may have made a set after the others were locked.
        sets.iter().for_each(|set| _ = set.inner.release());
        // Threads of the parent hold on to them as well; not even their destructors run.
        mem::forget(held);
        self.engines.station.sleepers.reset(self.kernel.thread());
        self.owners.reset();
        // The channel and the engine behind it are the parent's; not even their destructors run.
        mem::forget(self.engines.place.lock().take());
        self.engines.homes.reset();
        self.engines.attach.after_fork_child();
        self.report.after_fork_child();
        let lent = self.begin_borrowing();
        self.engines.is_forked.store(true, Ordering::Relaxed);
        sets.iter().for_each(|set| renew_set(set));
        self.table.inherit(Parentage::new(&self.ids, lent, sets));
        self.has_intents.store(true, Ordering::Relaxed);
    }

    /// Prepares for `exec` in this process. Hands the connections over and returns a text for
    /// [`Process::inherit`] in the new program, about descriptors that survive; `None` if there are
    /// none. `hears`: the new program has the library.
    pub fn before_exec(&self, hears: bool) -> Option<String> {
        let mut items = Vec::new();
        for number in self.table.numbers() {
            let Some(fd) = Descriptor::new(number) else {
                continue;
            };
            let flags = rustix::io::fcntl_getfd(fd.as_fd());
            if flags.is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC)) {
                if let Some(entry) = self.table.find(number) {
                    self.lending.part_from_ended(&entry);
                }
                continue;
            }
            let socket = match self.table.find(number) {
                Some(Entry::Socket(socket)) => socket,
                Some(Entry::Set(set)) => {
                    go_back_to_common(&set, fd);
                    continue;
                }
                Some(Entry::Routes(_)) | None => continue,
            };
            items.extend(match socket.decided() {
                Some(Decided::Foreign(it)) => self.describe_borrowed(&socket, it, number, hears),
                _ => self.describe_unconnected(&socket, number),
            });
        }
        // A process that only receives a connection does not share the ports.
        if items.iter().any(|item| !item.starts_with(['c', 'd', 'h'])) {
            items.push(self.describe_family());
        }
        self.engines.end_sessions(&self.engines.all());
        self.lending.send_kept();
        (!items.is_empty()).then(|| items.join(","))
    }

    /// Returns the text about a socket that is no connection, which a new program finds under
    /// `number`; `None`: to that it is a socket of the kernel's.
    pub(crate) fn describe_unconnected(
        &self,
        socket: &Arc<Description>,
        number: i32,
    ) -> Option<String> {
        let is_stream = socket.kind == Kind::Stream;
        if !is_stream && socket.decided().is_none() {
            self.note_bound_elsewhere(socket);
        }
        let mut remote = None;
        let letter = match socket.decided() {
            Some(Decided::Listener(_)) => 'l',
            Some(Decided::Dgram(dgram)) if dgram.side() != Side::Kernel => {
                remote = *dgram.remote.lock();
                self.name_for_heir(socket, dgram);
                let name = socket.kernel_number().and_then(kernel_name);
                if remote.is_none() && name.is_some_and(|name| name.port() == 0) {
                    // It has been disconnected: the new program finds it as if it were new.
                    return None;
                }
                share_datagrams(&*self.kernel, socket, dgram);
                'u'
            }
            None if is_stream && is_bound(socket) => 'b',
            None if self.name_unbound(socket) => match socket.kind {
                Kind::Stream => 'b',
                Kind::Dgram => 'u',
            },
            _ => return None,
        };
        self.leave_word(socket, socket.kernel_number(), remote);
        let nonblocking = if socket.is_nonblocking() { "n" } else { "" };
        let inode = self.ids.inode_of(socket);
        let remote = remote.map_or_else(String::new, |it| format!("/{it}"));
        Some(format!("{letter}{number}{nonblocking}/{inode}{remote}"))
    }

    /// Returns the text by which the keeper knows a new program for one of ours.
    pub(crate) fn describe_family(&self) -> String {
        format!("k{:x}", self.engines.attach.family())
    }

    /// Handles a failed `exec`: the program goes on, but its connections are gone.
    pub fn exec_failed(&self) {
        self.lending.keep_controls();
        self.lending.post.is_ending.store(false, Ordering::SeqCst);
        // Other threads sleep for sockets that are only intents from now on.
        self.engines.absence.note();
        for attachment in self.engines.homes.attachments() {
            attachment.lose();
            self.on_engine_death(&attachment);
        }
        match self
            .engines
            .first()
            .filter(|attachment| attachment.is_left())
        {
            Some(attachment) => {
                attachment.lose();
                self.on_engine_death(&attachment);
            }
            // Another thread has found out first.
            None => self.engines.wake_all(),
        }
    }

    /// Takes over the sockets that [`Process::before_exec`] of the former program described.
    pub fn inherit(&self, text: &str) {
        let mut steward_sockets = StewardSockets::default();
        // The keeper knows the program by its family, and is asked about the sockets' interfaces.
        let (families, sockets): (Vec<&str>, Vec<&str>) =
            text.split(',').partition(|item| item.starts_with('k'));
        for item in families.into_iter().chain(sockets) {
            self.inherit_one(item, &mut steward_sockets);
        }
    }

    fn inherit_one(&self, item: &str, steward_sockets: &mut StewardSockets) -> Option<()> {
        match item.chars().next()? {
            'c' => return self.inherit_taken(&item[1..], steward_sockets),
            'h' => return self.inherit_held(&item[1..], Kind::Stream, steward_sockets),
            'd' => return self.inherit_held(&item[1..], Kind::Dgram, steward_sockets),
            _ => {}
        }
        let (item, rest) = item.split_once('/').unwrap_or((item, ""));
        let (inode, remote) = rest.split_once('/').unwrap_or((rest, ""));
        let is_nonblocking = item.ends_with('n');
        let kind = match item.chars().next()? {
            'l' | 'b' => Kind::Stream,
            'u' => Kind::Dgram,
            'k' => {
                self.engines
                    .attach
                    .join(u64::from_str_radix(&item[1..], 16).ok()?);
                return Some(());
            }
            _ => return None,
        };
        let number = Descriptor::new(item[1..].trim_end_matches('n').parse().ok()?)?;
        let addr = self.network.zoned(kernel_name(number)?);
        let family = match addr {
            SocketAddr::V4(_) => Family::V4,
            SocketAddr::V6(_) => Family::V6,
        };
        set_nonblocking(number, true).ok()?;
        let socket = Arc::new(Description::new(New {
            id: self.ids.next(),
            family,
            kind,
            protocol: 0,
            is_nonblocking,
        }));
        socket.has_kernel.store(true, Ordering::Release);
        socket.set_inode(inode.parse().unwrap_or(0));
        self.learn_from_kernel(&socket, number);
        socket.note_v6_only(number);
        if let Some(word) = read_word(&*self.kernel, number.number()) {
            word.apply(&socket);
        }
        let is_wildcard = addr.ip().is_unspecified();
        let is_bound = addr.port() != 0;
        socket.cold.lock().bound = is_bound.then(|| Bound::of_kernel(addr));
        if kind == Kind::Dgram && !is_bound {
            // The program that it comes from may have it, too, once one of them has bound it.
            socket.note_sharing();
            socket.leave_unread();
        }
        let decided = match kind {
            _ if !is_bound => None,
            Kind::Stream if item.starts_with('b') => None,
            Kind::Stream => {
                let backlog = backlog_of(&*self.kernel, number);
                Some(Decided::Listener(Listener::new(stack_addr(addr), backlog)))
            }
            Kind::Dgram if is_wildcard => Some(Decided::Dgram(Dgram::new(Side::Both))),
            Kind::Dgram => Some(Decided::Dgram(Dgram::new(Side::Stack))),
        };
        if let Some(decided) = decided {
            let _ = socket.decided.set(decided);
        }
        apply_dgram_options(&socket);
        self.install(number, &socket);
        if let Ok(remote) = remote.parse() {
            self.table.connect_received(number.number(), remote);
        }
        Some(())
    }

    /// Whether there is an engine to be left in order. One that another thread is about to have
    /// counts.
    #[must_use]
    pub fn has_engine(&self) -> bool {
        self.engines.homes.is_any()
            || self
                .engines
                .place
                .try_lock()
                .is_none_or(|place| place.is_some())
    }

    /// Hands the connections over. Later calls see a stack that is gone.
    pub fn exit(&self) {
        let mut attachments = self.engines.homes.try_attachments();
        // A thread that was interrupted inside a call may hold the place.
        let first = self.engines.place.try_lock();
        attachments.extend(first.and_then(|place| place.clone()));
        for attachment in &attachments {
            attachment.commands();
        }
        self.engines.end_sessions(&attachments);
    }
}

/// Whether it is a datagram socket that no engine serves so far.
fn is_intent(socket: &Description) -> bool {
    matches!(socket.decided(), Some(Decided::Dgram(dgram)) if dgram.is_intent())
}

/// The new program gets the kernel's set that other processes have too.
fn go_back_to_common(set: &Set, number: Descriptor) {
    if let Some(common) = set.common() {
        let _ = number.replace_with(common.as_fd(), false);
    }
}

/// The set's kernel part is shared with the parent; its threads are not.
fn renew_set(set: &Set) {
    set.forget_waiters();
    set.home.forget();
    set.is_inherited.store(true, Ordering::Release);
    // The set's members may be intents, or those of a set in it.
    set.has_intents.store(true, Ordering::Release);
}

impl Description {
    /// Puts a kernel socket under an undecided number so that the next program finds one. If this
    /// program goes on, its next use of the socket ends the kernel part's blocking.
    pub(crate) fn materialize_for_exec(self: &Arc<Self>, process: &Process) -> bool {
        let Ok(number) = process.materialize(self) else {
            return false;
        };
        if self.is_nonblocking() {
            return true;
        }
        self.may_kernel_block.store(true, Ordering::SeqCst);
        let is_made = set_nonblocking(number, false).is_ok();
        // Another thread may have bound it meanwhile, and not seen that it may block.
        let is_unused = matches!(self.decided(), None | Some(Decided::Dgram(_)));
        if !is_unused || is_bound(self) {
            self.may_kernel_block.store(false, Ordering::SeqCst);
            let _ = set_nonblocking(number, true);
        }
        is_made
    }

    /// Ends the blocking of a kernel's part that a started program was to inherit.
    pub(crate) fn keep_kernel_from_blocking(&self) -> Result<(), Errno> {
        if !self.may_kernel_block.load(Ordering::SeqCst)
            || !self.may_kernel_block.swap(false, Ordering::SeqCst)
        {
            return Ok(());
        }
        self.kernel_number()
            .map_or(Ok(()), |number| set_nonblocking(number, true))
    }
}

fn copy_peeked(entries: &[Entry]) {
    for entry in entries {
        if let Entry::Socket(socket) = entry
            && let Some(Decided::Dgram(dgram)) = socket.decided()
        {
            dgram.copy_peeked();
        }
    }
}

/// Puts [`Table::objects`] into an order that all threads keep while they lock: sets come before
/// those that they contain.
fn order_sets(objects: &mut [Entry]) {
    let sockets = objects.partition_point(|entry| matches!(entry, Entry::Socket(_)));
    objects[sockets..].sort_by_cached_key(|entry| match entry {
        Entry::Set(set) => (entry.order().0, Reverse(set.depth())),
        Entry::Socket(_) | Entry::Routes(_) => (entry.order().0, Reverse(0)),
    });
}

impl Table {
    /// Returns the objects behind our numbers, each once: sockets before sets, and by their ids.
    fn objects(&self) -> Vec<Entry> {
        let mut all: Vec<Entry> = self.all().into_iter().map(|(_, it)| it).collect();
        all.sort_by_key(Entry::order);
        all.dedup_by_key(|entry| entry.order());
        all
    }
}
