//! Datagram sockets that several processes have from one another.
//!
//! On the kernel such a socket has one queue, from which whoever waits takes the next datagram.
//! Here each process has a queue of its own. Of those on this engine a process gets a datagram that
//! waits for one, or else one that has read lately, with the shortest queue; what then lies unread
//! goes to others ([`crate::late`]). Without this the stack would give everything to the socket
//! that was bound last.

use slipstack_channel::{Envelope, Transport};
use slipstack_stack::{DatagramIn, Instant};

use crate::client::{ClientId, Role};
use crate::environment::Environment;
use crate::owners::{Owner, SharedName, SharedSocket, Sharer};

/// Time for which a process may leave its datagrams unread until others are preferred, and again
/// for each doubling: it may be stopped.
const LATE_NS: u64 = 4_000_000;
/// Time after which a datagram goes to a process that waits for one.
const PROMPT_NS: u64 = 1_000_000;
/// Interval of looks while nobody takes them, at first and at last. In each the keeper may be asked
/// for other engines.
const AGAIN_NS: u64 = 4_000_000;
const LOOK_NS_MAX: u64 = 16_000_000;
/// Longest interval while there are no others.
const ALONE_NS_MAX: u64 = 100_000_000;

/// A sharer as it is now.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Bytes that it has not read.
    unread: u64,
    /// Time for which it has read nothing although something was unread.
    late_ns: u64,
    /// The process waits for a datagram, and none is there.
    waits: bool,
    /// None is there, and it has read what it got.
    may_take: bool,
}

/// A process that leaves its datagrams unread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub(crate) owner: Owner,
    pub(crate) port: u16,
    /// Number of other processes on this engine that take datagrams: those that wait for one, or
    /// if it has been long and none waits, those that have read theirs.
    pub(crate) here: usize,
    /// Nothing was read for so long that others are preferred.
    pub(crate) is_long: bool,
}

impl Environment {
    /// Enters a socket that has just been bound, or named, among its sharers.
    pub(crate) fn note_sharer(&mut self, owner: Owner) {
        self.forget_sharer(owner);
        let Some(name) = self.name_of_shared(owner) else {
            return;
        };
        let sockets = &mut self.shared.sockets;
        let is_it = |it: &SharedSocket| {
            let first = it.sharers.first();
            first.is_some_and(|first| first.name.cookie == name.cookie)
        };
        let is_free = |it: &SharedSocket| it.sharers.is_empty();
        let found = sockets.iter().position(is_it);
        let at = found.or_else(|| sockets.iter().position(is_free));
        let at = at.unwrap_or_else(|| {
            sockets.push(SharedSocket::default());
            sockets.len() - 1
        });
        sockets[at].sharers.push(Sharer {
            owner,
            name,
            read_upto: 0,
            read_at: self.now,
            is_passive: false,
        });
        if let Some(socket) = self.socket(owner) {
            socket.shared_at = Some(at as u32);
        }
        // The others may have left something unread.
        self.watch(at as u32);
    }

    /// Removes a socket that is about to be closed.
    pub(crate) fn forget_sharer(&mut self, owner: Owner) {
        let at = self.socket(owner).and_then(|it| it.shared_at.take());
        if let Some(shared) = at.and_then(|at| self.shared.sockets.get_mut(at as usize)) {
            shared.sharers.retain(|it| it.owner != owner);
        }
    }

    /// Removes the sockets of a client that has gone: another one may get its ids.
    pub(crate) fn forget_sharers_of(&mut self, client: ClientId) {
        for shared in &mut self.shared.sockets {
            shared.sharers.retain(|it| it.owner.client != client);
        }
    }

    /// Returns whose datagram it is that the stack has for `owner`. `None`: it is one to a group,
    /// and a sharer of the socket has it.
    #[inline]
    pub(crate) fn choose_sharer(
        &mut self,
        owner: Owner,
        datagram: &DatagramIn<'_>,
    ) -> Option<Owner> {
        if self.shared.sockets.is_empty() {
            return Some(owner);
        }
        let is_theirs = !datagram.is_to_group || self.is_first_of_sharers(owner);
        is_theirs.then(|| self.choose_among_sharers(owner))
    }

    /// Returns whether the stack has a datagram to a group for this socket before its sharers: the
    /// process that gets it is chosen then.
    #[cold]
    fn is_first_of_sharers(&mut self, owner: Owner) -> bool {
        let name = self.name_of_shared(owner);
        let Some(name) = name.filter(|_| !self.is_connected(owner)) else {
            return true;
        };
        let served = &mut self.shared.served;
        match served.iter().find(|it| it.0 == name) {
            // Each of the datagrams that have been joined is the socket's that had the first one.
            Some((_, first)) => *first == owner,
            None => {
                served.push((name, owner));
                true
            }
        }
    }

    /// Gives a datagram that was taken back to a sharer of its socket, as it arrived.
    #[cold]
    pub(crate) fn give_to_sharer(&mut self, owner: Owner, envelope: Envelope, payload: &[u8]) {
        let owner = self.choose_among_sharers(owner);
        self.push_datagram(owner, envelope, payload);
    }

    /// Puts a datagram into a socket's queue.
    pub(crate) fn push_datagram(&mut self, owner: Owner, envelope: Envelope, payload: &[u8]) {
        let now = self.now;
        let Some(client) = self.client(owner.client) else {
            return;
        };
        let Some((socket, end)) = client.find(owner.sock) else {
            return;
        };
        socket.received_at = now;
        let envelope = Envelope {
            lost: socket.lost,
            ..envelope
        };
        let is_taken = socket.push_datagram(end, owner.sock, &envelope, payload);
        if !is_taken {
            socket.lost = socket.lost.wrapping_add(1);
        }
        client.list_holder(owner.sock);
        if !is_taken {
            self.counters.rx_datagrams_lost += 1;
        }
    }

    #[inline(never)]
    fn choose_among_sharers(&mut self, owner: Owner) -> Owner {
        let at = self.socket(owner).and_then(|socket| socket.shared_at);
        let name = self.name_of_shared(owner);
        let (Some(at), Some(name), false) = (at, name, self.is_connected(owner)) else {
            return owner;
        };
        self.watch(at);
        let mut sharers = self.take_sharers(at);
        let of_name = sharers.iter_mut().filter(|it| it.name == name);
        let orders = of_name.filter_map(|it| {
            let look = self.look_at_sharer(it)?;
            let late = look.late_ns / LATE_NS;
            let late = late.checked_ilog2().map_or(0, |log| log + 1);
            Some(((it.is_passive, !look.waits, late, look.unread), it.owner))
        });
        let chosen = orders.min_by_key(|(order, _)| *order);
        self.shared.sockets[at as usize].sharers = sharers;
        chosen.map_or(owner, |(_, owner)| owner)
    }

    fn take_sharers(&mut self, at: u32) -> Vec<Sharer> {
        let shared = self.shared.sockets.get_mut(at as usize);
        shared.map_or_else(Vec::new, |it| core::mem::take(&mut it.sharers))
    }

    /// Looks at a socket's unread datagrams after a while.
    fn watch(&mut self, at: u32) {
        let Some(shared) = self.shared.sockets.get_mut(at as usize) else {
            return;
        };
        if !core::mem::replace(&mut shared.is_watched, true) {
            self.shared.watched.push(at);
        }
        let due_at = Instant(self.now.0 + PROMPT_NS);
        self.shared.due_at = self.shared.due_at.min(due_at);
        self.left_at = self.left_at.min(self.shared.due_at);
        self.has_rest = true;
    }

    /// Looks at a sharer; `None`: it is none any more, or connected.
    fn look_at_sharer(&mut self, sharer: &mut Sharer) -> Option<Look> {
        let (now, owner) = (self.now, sharer.owner);
        if self.name_of_shared(owner) != Some(sharer.name) || self.is_connected(owner) {
            return None;
        }
        let client = self.client(owner.client)?;
        let (socket, end) = client.find(owner.sock)?;
        let unread = socket.receive.unread(end, owner.sock);
        let read_upto = socket.receive.head() - unread;
        if read_upto != sharer.read_upto {
            sharer.is_passive = false;
        }
        if read_upto != sharer.read_upto || (unread == 0 && !sharer.is_passive) {
            (sharer.read_upto, sharer.read_at) = (read_upto, now);
        }
        Some(Look {
            unread,
            late_ns: now.0.saturating_sub(sharer.read_at.0),
            waits: unread == 0 && end.is_program_asleep(),
            may_take: unread == 0 && !sharer.is_passive,
        })
    }

    /// Notes that a socket's datagrams up to a place were taken back, or that its program waits for
    /// one.
    pub(crate) fn set_passive(&mut self, owner: Owner, upto: Option<u64>) {
        let at = self.socket(owner).and_then(|socket| socket.shared_at);
        let Some(shared) = at.and_then(|at| self.shared.sockets.get_mut(at as usize)) else {
            return;
        };
        for sharer in shared.sharers.iter_mut().filter(|it| it.owner == owner) {
            sharer.read_upto = upto.unwrap_or(sharer.read_upto);
            sharer.is_passive = upto.is_some();
        }
    }

    /// Returns the processes whose unread datagrams others may have, and sets the time of the next
    /// look.
    pub(crate) fn find_late(&mut self) -> Vec<Late> {
        let mut found = Vec::new();
        self.shared.due_at = Instant::FAR_FUTURE;
        for at in core::mem::take(&mut self.shared.watched) {
            let mut sharers = self.take_sharers(at);
            let next = self.find_late_among(&mut sharers, &mut found);
            let shared = &mut self.shared.sockets[at as usize];
            shared.sharers = sharers;
            shared.is_watched = next.is_some();
            if let Some(next) = next {
                self.shared.watched.push(at);
                self.shared.due_at = self.shared.due_at.min(next);
            }
        }
        found
    }

    /// Returns the time of the next look, if there is something unread.
    fn find_late_among(
        &mut self,
        sharers: &mut [Sharer],
        found: &mut Vec<Late>,
    ) -> Option<Instant> {
        let mut next = None;
        let looks: Vec<_> = sharers
            .iter_mut()
            .filter_map(|it| Some((it.owner, it.name, self.look_at_sharer(it)?)))
            .collect();
        for (owner, name, look) in looks.iter().filter(|it| it.2.unread > 0) {
            let others = || looks.iter().filter(|it| it.0 != *owner && it.1 == *name);
            let interconnect = self.local.interconnect.as_ref();
            let has_engines =
                interconnect.is_some_and(|it| it.has_others(Transport::Udp, name.port));
            let waiting = others().filter(|it| it.2.waits && it.2.may_take).count();
            let is_long = look.late_ns >= LATE_NS;
            let here = match waiting {
                0 if is_long => others().filter(|it| it.2.may_take).count(),
                waiting => waiting,
            };
            // Others that leave the port to this one now may come back.
            let pause_ns_max = match has_engines || others().next().is_some() {
                true => LOOK_NS_MAX,
                false => ALONE_NS_MAX,
            };
            let pause_ns = match is_long {
                true => (look.late_ns / 4).clamp(AGAIN_NS, pause_ns_max),
                false => PROMPT_NS,
            };
            let at = Instant(self.now.0 + pause_ns);
            next = Some(next.map_or(at, |next: Instant| next.min(at)));
            let may_give = match here {
                0 => is_long && has_engines,
                _ => look.late_ns >= PROMPT_NS,
            };
            if may_give {
                found.push(Late {
                    owner: *owner,
                    port: name.port,
                    here,
                    is_long,
                });
            }
        }
        next
    }

    /// Returns what other processes' sockets may have in common with this one.
    fn name_of_shared(&mut self, owner: Owner) -> Option<SharedName> {
        let socket = self.socket(owner)?;
        let is_bound = matches!(socket.role, Role::Datagram(_)) && !socket.is_closing;
        let options = socket.options.as_deref();
        let options = options.filter(|it| is_bound && it.cookie != 0 && it.rank == 0)?;
        let bound = socket.bound()?;
        Some(SharedName {
            cookie: options.cookie,
            bound: bound.span(),
            port: bound.addr.port(),
            link: socket.link(),
        })
    }

    pub(crate) fn is_connected(&mut self, owner: Owner) -> bool {
        let bound = self.socket(owner).and_then(|socket| socket.bound());
        bound.is_some_and(|bound| bound.flow.is_some())
    }
}
