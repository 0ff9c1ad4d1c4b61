//! Open file descriptions: state shared by duplicated numbers.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use slipstack_channel::SavedSyn;
use slipstack_mem::{Descriptor, Lock};

use crate::addr::Family;
use crate::attachment::Attachment;
use crate::kernel::Owner;
use crate::ready::{Awaited, Recipient, Rings, Waiter, Watch, bits, notify_all, notify_one_thread};
use crate::socket::borrowed::{Borrowed, Lent};
use crate::socket::bound::Bound;
use crate::socket::options::{Membership, Options};
use crate::socket::sigio::{SigIo, news};
use crate::socket::{Dgram, Edges, ErrorQueue, Listener, Stream, shut_bits};

/// The requested kind of socket, as far as the stack supports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Stream,
    Dgram,
}

/// The kind of a socket, once it is decided.
#[derive(Debug)]
pub(crate) enum Decided {
    Stream(Stream),
    Listener(Listener),
    Dgram(Dgram),
    /// A connection of the process this one was forked from: it lives there, or has come here.
    Foreign(Borrowed),
}

/// Fields that are rarely touched.
#[derive(Debug, Default)]
pub(crate) struct Cold {
    /// The numbers that refer to this description in this process.
    pub(crate) numbers: Vec<i32>,
    pub(crate) watches: Vec<Watch>,
    pub(crate) options: Options,
    pub(crate) bound: Option<Bound>,
    /// The thread that has bound it, where threads have ports of their own; 0 = unknown.
    pub(crate) binder: usize,
    /// The port is shared as with SO_REUSEPORT, without the program having asked.
    pub(crate) is_port_shared: bool,
    /// F_SETOWN.
    pub(crate) owner: Owner,
    /// Groups on the stack's interface.
    pub(crate) memberships: Vec<Membership>,
    /// TCP_SAVED_SYN, once the engine has handed it over.
    pub(crate) saved_syn: Option<Box<SavedSyn>>,
}

/// One open file description.
#[derive(Debug)]
pub(crate) struct Description {
    /// Number of the description, never reused in a process.
    pub(crate) id: u64,
    /// Inode for `fstat`, if another process has named it first; 0 = this one does, by its own
    /// number and `id`.
    inode: AtomicU64,
    pub(crate) family: Family,
    pub(crate) kind: Kind,
    pub(crate) protocol: i32,
    pub(crate) is_nonblocking: AtomicBool,
    /// The numbers carry a kernel socket (which never blocks), beside the stack's or
    /// before it is decided.
    pub(crate) has_kernel: AtomicBool,
    /// The kernel's part may block, as a program that inherits it expects.
    pub(crate) may_kernel_block: AtomicBool,
    /// Set if the socket has no kernel part.
    pub(crate) is_alone: AtomicBool,
    /// The process that this one was forked from and that has the socket too; 0 = none.
    parent: AtomicU32,
    /// A child, or another program, has been given it since.
    is_given: AtomicBool,
    /// The kernel part was given up for a kernel socket of the program's choice.
    pub(crate) is_kernel_given_up: AtomicBool,
    /// SO_RCVTIMEO and SO_SNDTIMEO in nanoseconds, 0 = none.
    pub(crate) recv_timeout_ns: AtomicU64,
    pub(crate) send_timeout_ns: AtomicU64,
    /// SO_PEEK_OFF: where the next look begins; negative = at the front.
    pub(crate) peek_offset: AtomicI32,
    is_watched: AtomicBool,
    /// Directions shut down of a datagram socket before it was anything else.
    pub(crate) early_shut: AtomicU8,
    /// Threads asleep in a call on it: the socket outlives its last number until they leave.
    pub(crate) users: AtomicUsize,
    /// Threads asleep in poll or select with it: it outlives its last number for them too.
    pollers: AtomicUsize,
    pub(crate) has_ended: AtomicBool,
    pub(crate) sigio: SigIo,
    /// The error queue; errors that the network returns are kept elsewhere.
    pub(crate) error_queue: ErrorQueue,
    /// Count of forked children that keep the connection open.
    pub(crate) lent: Lent,
    pub(crate) decided: OnceLock<Decided>,
    /// The connection of another process since it has come to this one.
    brought: OnceLock<Box<Decided>>,
    pub(crate) cold: Lock<Cold>,
}

/// Initial state of a description.
pub(crate) struct New {
    pub(crate) id: u64,
    pub(crate) family: Family,
    pub(crate) kind: Kind,
    pub(crate) protocol: i32,
    pub(crate) is_nonblocking: bool,
}

impl Description {
    pub(crate) fn new(new: New) -> Self {
        Self::beginning(new, OnceLock::new())
    }

    /// An undecided one of the same kind, with the same time limits.
    pub(crate) fn like(old: &Description, id: u64) -> Self {
        let new = Self::new(New {
            id,
            family: old.family,
            kind: old.kind,
            protocol: old.protocol,
            is_nonblocking: old.is_nonblocking(),
        });
        new.has_kernel.store(old.has_kernel(), Ordering::Release);
        let may_block = old.may_kernel_block.load(Ordering::SeqCst);
        new.may_kernel_block.store(may_block, Ordering::SeqCst);
        new.is_alone.store(old.is_alone(), Ordering::Relaxed);
        new.is_kernel_given_up
            .store(old.is_kernel_given_up(), Ordering::Release);
        for (from, to) in [
            (&old.recv_timeout_ns, &new.recv_timeout_ns),
            (&old.send_timeout_ns, &new.send_timeout_ns),
        ] {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        new.take_peek_offset(old);
        new
    }

    /// Makes a description whose placement is decided from the start.
    pub(crate) fn decided_as(new: New, decided: Decided) -> Self {
        Self::beginning(new, OnceLock::from(decided))
    }

    fn beginning(new: New, decided: OnceLock<Decided>) -> Self {
        Description {
            id: new.id,
            inode: AtomicU64::new(0),
            family: new.family,
            kind: new.kind,
            protocol: new.protocol,
            is_nonblocking: AtomicBool::new(new.is_nonblocking),
            has_kernel: AtomicBool::new(false),
            may_kernel_block: AtomicBool::new(false),
            is_alone: AtomicBool::new(false),
            parent: AtomicU32::new(0),
            is_given: AtomicBool::new(false),
            is_kernel_given_up: AtomicBool::new(false),
            recv_timeout_ns: AtomicU64::new(0),
            send_timeout_ns: AtomicU64::new(0),
            peek_offset: AtomicI32::new(-1),
            is_watched: AtomicBool::new(false),
            early_shut: AtomicU8::new(0),
            users: AtomicUsize::new(0),
            pollers: AtomicUsize::new(0),
            has_ended: AtomicBool::new(false),
            sigio: SigIo::default(),
            error_queue: ErrorQueue::default(),
            lent: Lent::default(),
            decided,
            brought: OnceLock::new(),
            cold: Lock::new(Cold::default()),
        }
    }

    /// Returns the inode, in process `pid`: the same in all processes that have the socket. The
    /// kernel's numbers for sockets have 32 bits.
    pub(crate) fn inode(&self, pid: u32) -> u64 {
        match self.inode.load(Ordering::Relaxed) {
            0 => u64::from(pid) << 32 | (self.id & u64::from(u32::MAX)),
            inode => inode,
        }
    }

    pub(crate) fn set_inode(&self, inode: u64) {
        self.inode.store(inode, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn decided(&self) -> Option<&Decided> {
        let decided = self.decided.get()?;
        match decided {
            Decided::Foreign(_) => self.brought.get().map(|it| &**it).or(Some(decided)),
            _ => Some(decided),
        }
    }

    /// A connection or a datagram socket of another process has come to this one.
    pub(crate) fn bring(&self, decided: Decided) {
        let _ = self.brought.set(Box::new(decided));
    }

    pub(crate) fn is_brought(&self) -> bool {
        self.brought.get().is_some()
    }

    /// Whether it is a connection that another process has made.
    pub(crate) fn is_from_elsewhere(&self) -> bool {
        matches!(self.decided.get(), Some(Decided::Foreign(_)))
    }

    #[inline]
    pub(crate) fn is_nonblocking(&self) -> bool {
        self.is_nonblocking.load(Ordering::Relaxed)
    }

    /// Marks the description as inherited from the process `parent` by a fork.
    pub(crate) fn set_inherited(&self, parent: u32) {
        self.parent.store(parent, Ordering::Relaxed);
    }

    /// Notes that another process has it, too.
    pub(crate) fn note_sharing(&self) {
        self.is_given.store(true, Ordering::Relaxed);
    }

    /// As [`Description::note_sharing`]. Returns true once.
    pub(crate) fn is_first_sharing(&self) -> bool {
        !self.is_given.swap(true, Ordering::Relaxed)
    }

    /// Whether other processes may have it: it came by a fork, by `exec` or in a message, or went
    /// to a child.
    pub(crate) fn may_be_shared(&self) -> bool {
        let is_of_another = |bound: Bound| bound.at_ns == 0 && !bound.is_port_chosen;
        self.is_given.load(Ordering::Relaxed)
            || self.parent.load(Ordering::Relaxed) != 0
            || self.cold.lock().bound.is_some_and(is_of_another)
    }

    /// Whether the process that this one was forked from may still wait on it.
    pub(crate) fn is_parents(&self) -> bool {
        let parent = self.parent.load(Ordering::Relaxed);
        parent != 0 && parent == std::os::unix::process::parent_id()
    }

    #[inline]
    pub(crate) fn has_kernel(&self) -> bool {
        self.has_kernel.load(Ordering::Acquire)
    }

    pub(crate) fn is_kernel_given_up(&self) -> bool {
        self.is_kernel_given_up.load(Ordering::Acquire)
    }

    /// Offset at which a look begins, if SO_PEEK_OFF is on.
    #[inline]
    pub(crate) fn peek_from(&self) -> Option<usize> {
        usize::try_from(self.peek_offset.load(Ordering::Relaxed)).ok()
    }

    pub(crate) fn take_peek_offset(&self, from: &Description) {
        let offset = from.peek_offset.load(Ordering::Relaxed);
        self.peek_offset.store(offset, Ordering::Relaxed);
    }

    /// A peek advances the offset past the bytes it has seen; a read moves the rest to the front.
    pub(crate) fn move_peek_offset(&self, is_peek: bool, by: usize) {
        let by = i32::try_from(by).unwrap_or(i32::MAX);
        let moved = |at: i32| match is_peek {
            _ if at < 0 => None,
            true => Some(at.saturating_add(by)),
            false => Some((at - by).max(0)),
        };
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.peek_offset.fetch_update(set, fetch, moved);
    }

    /// Whether events of the kernel socket are the program's: that of a connection on the stack
    /// only keeps the port that the program bound.
    #[inline]
    pub(crate) fn kernel_speaks(&self) -> bool {
        self.has_kernel() && !self.is_alone() && !matches!(self.decided(), Some(Decided::Stream(_)))
    }

    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::Relaxed)
    }

    /// Whether it has no number here any more while the kernel has the socket: it is the kernel's,
    /// or closed.
    pub(crate) fn has_left(&self) -> bool {
        self.has_kernel() && self.cold.lock().numbers.is_empty()
    }

    /// Locks, before a fork, what the child reads.
    pub(crate) fn hold(&self) {
        self.cold.hold();
        if let Some(Decided::Dgram(dgram)) = self.decided() {
            dgram.remote.hold();
        }
    }

    /// Releases, in parent or child, what [`Description::hold`] locked.
    pub(crate) fn release(&self) {
        if let Some(Decided::Dgram(dgram)) = self.decided() {
            dgram.remote.release();
        }
        self.cold.release();
    }

    /// The port that datagrams without an address go to; 0 = there is none.
    pub(crate) fn connected_port(&self) -> u16 {
        let remote = match self.decided() {
            Some(Decided::Dgram(dgram)) => *dgram.remote.lock(),
            _ => None,
        };
        remote.map_or(0, |remote| remote.port())
    }

    /// A number that carries the kernel socket.
    pub(crate) fn kernel_number(&self) -> Option<Descriptor> {
        if !self.has_kernel() {
            return None;
        }
        let number = *self.cold.lock().numbers.first()?;
        Descriptor::new(number)
    }

    /// The epoll bits that hold now for the stack's part.
    pub(crate) fn readiness(&self) -> u32 {
        if self.error_queue.awaits_acks() {
            self.settle_acks();
        }
        self.error_queue.bits() | self.own_readiness()
    }

    /// Whether it is a datagram socket for whose datagrams the stack has no room. Its kernel part,
    /// if it has one, knows nothing of that.
    pub(crate) fn awaits_room(&self) -> bool {
        match self.decided() {
            Some(Decided::Dgram(dgram)) => dgram.awaits_room(),
            _ => false,
        }
    }

    /// Stamps what has been acknowledged; an event comes with the next acknowledgement.
    #[cold]
    pub(crate) fn settle_acks(&self) -> bool {
        match self.decided() {
            Some(Decided::Stream(stream)) => self.error_queue.settle(stream.watch_acked()),
            _ => false,
        }
    }

    fn own_readiness(&self) -> u32 {
        match self.decided() {
            Some(Decided::Stream(stream)) => stream.readiness(),
            Some(Decided::Listener(listener)) => listener.readiness(),
            Some(Decided::Dgram(dgram)) => dgram.readiness(),
            Some(Decided::Foreign(it)) if it.is_taken() => 0,
            Some(Decided::Foreign(_)) => (libc::EPOLLHUP | libc::EPOLLERR) as u32,
            // With a kernel socket under the number the kernel reports its state.
            None if self.kernel_speaks() => 0,
            // A fresh socket: tcp_poll and udp_poll of one that is in CLOSE.
            None => match self.kind {
                Kind::Stream => (libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLHUP) as u32,
                Kind::Dgram => bits::OUT | shut_bits(self.early_shut.load(Ordering::Relaxed)),
            },
        }
    }

    /// The engine that it is on, if it is on one.
    pub(crate) fn attachment(&self) -> Option<Arc<Attachment>> {
        match self.decided()? {
            Decided::Stream(stream) => Some(Arc::clone(stream.attachment())),
            Decided::Listener(listener) => {
                let stack = listener.stack();
                stack.as_ref().map(|(attachment, _)| Arc::clone(attachment))
            }
            Decided::Dgram(dgram) => dgram.part().map(|(attachment, _)| attachment),
            Decided::Foreign(_) => None,
        }
    }

    /// Handles the channel's event that something about the socket changed.
    pub(crate) fn on_change(&self) {
        self.note_change(&mut Rings::default());
    }

    /// Whether a thread waits for it now, by itself or by a set.
    pub(super) fn is_attended(&self) -> bool {
        self.watches().iter().any(Watch::is_attended)
    }

    /// Whether a thread sleeps now in a call that has to do with it.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.watches().iter().any(Watch::has_sleepers)
    }

    /// Wakes threads that sleep in a call on it, because its kind has changed.
    pub(crate) fn wake_sleepers(&self) {
        for watch in &self.cold.lock().watches {
            if let Watch::Thread(waiter) = watch {
                waiter.notify();
            }
        }
    }

    pub(crate) fn watches(&self) -> Vec<Watch> {
        self.cold.lock().watches.clone()
    }

    /// Whether no thread is inside a blocking call on it.
    pub(crate) fn may_end(&self) -> bool {
        self.users.load(Ordering::SeqCst) == 0
    }

    /// Whether no thread sleeps in a call that needs it; otherwise the last to leave ends it.
    pub(crate) fn may_close(&self) -> bool {
        self.may_end() && self.pollers.load(Ordering::SeqCst) == 0
    }

    /// Whether something is intended for the stack and not real.
    pub(crate) fn is_intent(&self) -> bool {
        match self.decided() {
            Some(Decided::Listener(listener)) => listener.is_intent(),
            Some(Decided::Dgram(dgram)) => dgram.is_intent(),
            _ => false,
        }
    }

    /// Notifies the sets that contain it of an intent, which is carried out before a thread waits
    /// for it.
    pub(crate) fn note_intents(&self) {
        self.watches().iter().for_each(Watch::note_intents);
    }

    /// Tells all watchers of these epoll bits.
    pub(crate) fn notify(&self, edges: u32) {
        self.tell(edges, &mut Rings::default());
    }

    fn tell(&self, edges: u32, rings: &mut Rings) {
        if self.is_watched.load(Ordering::Acquire) {
            notify_all(&self.cold.lock().watches, edges, rings);
        }
    }

    /// As [`Description::tell`], for a connection that can be accepted: one of the sleeping threads
    /// is woken, as on the kernel. If it leaves without the connection, the next one is.
    fn tell_of_arrival(&self, rings: &mut Rings) {
        if self.is_watched.load(Ordering::Acquire) {
            notify_one_thread(&self.cold.lock().watches, bits::IN, rings);
        }
    }

    /// Removes and returns all epoll items, because the description is closed or leaves the stack.
    pub(crate) fn take_watches(&self) -> Vec<Watch> {
        let mut cold = self.cold.lock();
        self.is_watched.store(false, Ordering::Release);
        std::mem::take(&mut cold.watches)
    }
}

impl Awaited for Description {
    fn watch(&self, watch: Watch) {
        let mut cold = self.cold.lock();
        cold.watches.push(watch);
        self.is_watched.store(true, Ordering::Release);
    }

    fn unwatch(&self, is_it: &dyn Fn(&Watch) -> bool) {
        let mut cold = self.cold.lock();
        cold.watches.retain(|watch| !is_it(watch));
        self.is_watched
            .store(!cold.watches.is_empty(), Ordering::Release);
    }

    fn forget_wait(&self) {
        forget_one(&self.users);
    }

    fn forget_poll(&self) {
        forget_one(&self.pollers);
    }

    fn begin_poll(&self, waiter: &Arc<Waiter>) {
        self.pollers.fetch_add(1, Ordering::AcqRel);
        self.watch(Watch::Thread(Arc::clone(waiter)));
    }

    fn end_poll(&self, waiter: &Arc<Waiter>) -> bool {
        self.unwatch(&|watch| watch.is_thread(waiter));
        self.pollers.fetch_sub(1, Ordering::SeqCst) == 1
    }

    fn begin_wait(&self, waiter: &Arc<Waiter>) {
        self.users.fetch_add(1, Ordering::AcqRel);
        self.watch(Watch::Thread(Arc::clone(waiter)));
    }

    fn end_wait(&self, waiter: &Arc<Waiter>) -> bool {
        self.unwatch(&|watch| watch.is_thread(waiter));
        if let Some(Decided::Listener(listener)) = self.decided()
            && listener.readiness() & bits::IN != 0
        {
            self.tell_of_arrival(&mut Rings::default());
        }
        self.users.fetch_sub(1, Ordering::SeqCst) == 1
    }
}

/// Forgets a thread that may not have been counted yet.
fn forget_one(count: &AtomicUsize) {
    let now = count.load(Ordering::SeqCst);
    count.store(now.saturating_sub(1), Ordering::SeqCst);
}

impl Recipient for Description {
    fn note_change(&self, rings: &mut Rings) {
        let edges = match self.decided() {
            Some(Decided::Stream(stream)) => {
                let edges = stream.edges();
                // sk_wake_async(): a thread that waits in a call finds it there.
                let heard = match self.users.load(Ordering::SeqCst) {
                    0 => 0,
                    _ => news::IN | news::HUP,
                };
                self.sigio.note(edges.news & !heard);
                match self.error_queue.awaits_acks() && self.settle_acks() {
                    true => edges.bits | self.error_queue.bits(),
                    false => edges.bits,
                }
            }
            Some(Decided::Listener(listener)) => listener.readiness(),
            Some(Decided::Dgram(dgram)) => {
                let edges = dgram.edges();
                self.sigio.note(Edges::of(edges).news);
                dgram.note_yielding();
                self.come_back_if_attended();
                edges
            }
            Some(Decided::Foreign(_)) | None => 0,
        };
        if edges != 0 {
            self.tell(edges, rings);
        }
    }

    fn on_arrival(&self, rings: &mut Rings) {
        let Some(Decided::Listener(listener)) = self.decided() else {
            return;
        };
        listener.on_arrival();
        self.sigio.note(news::IN);
        self.tell_of_arrival(rings);
    }

    fn on_withdrawal(&self) {
        if let Some(Decided::Listener(listener)) = self.decided() {
            listener.on_withdrawal();
            self.come_back_if_attended();
        }
    }
}

impl Description {
    /// Whether the socket shares its port: SO_REUSEPORT.
    pub(crate) fn shares_port(&self) -> bool {
        let cold = self.cold.lock();
        cold.is_port_shared || cold.options.is_on(libc::SOL_SOCKET, libc::SO_REUSEPORT)
    }

    /// Whether a socket declines IPv4 (IPV6_V6ONLY).
    pub(crate) fn is_v6_only(&self) -> bool {
        let cold = self.cold.lock();
        self.family == Family::V6 && cold.options.is_on(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)
    }

    /// Takes over from the kernel's part whether it declines IPv4: by an option that is not
    /// recorded, or by the system's default.
    pub(crate) fn note_v6_only(&self, number: Descriptor) {
        if self.family == Family::V6
            && rustix::net::sockopt::ipv6_v6only(number.as_fd()).unwrap_or(false)
        {
            let on = 1i32.to_ne_bytes();
            let mut cold = self.cold.lock();
            cold.options.set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &on);
        }
    }
}
