//! Datagram sockets that several processes have from one another, through one instance.
//!
//! On the kernel such a socket has one queue, from which whoever waits takes the next datagram.
//! Here each process has a queue of its own, and the stack would give everything to the socket that
//! was bound last. A datagram goes to a process that waits for one, or else to one that has read
//! lately, with the shortest queue. What is in a queue stays there.

use slipstack_stack::Instant;

use crate::client::{Bound, Role};
use crate::environment::Environment;
use crate::owners::{Owner, Sharer};

/// Time for which a process may leave its datagrams unread until others are preferred, and again
/// for each doubling: it may be stopped.
const LATE_NS: u64 = 4_000_000;

/// The name that sharers have in common: the kernel's socket, by its cookie, and the address. A
/// client may claim any cookie, but on the stack only sockets that can share the address are bound
/// to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    cookie: u64,
    bound: slipstack_stack::Bound,
    port: u16,
    link: u16,
}

impl Environment {
    /// Looks for the other sockets of a new one's socket of the kernel.
    pub(crate) fn note_sharer(&mut self, owner: Owner) {
        let Some(name) = self.name_of_shared(owner) else {
            return;
        };
        let mut shared = core::mem::take(&mut self.shared);
        shared.retain_mut(|sharers| {
            sharers.retain(|it| self.name_of_shared(it.owner).is_some());
            sharers.len() > 1
        });
        let new = Sharer::new(owner, self.now);
        let is_it = |it: &Vec<Sharer>| self.name_of_shared(it[0].owner) == Some(name);
        match shared.iter().position(is_it) {
            Some(at) => shared[at].push(new),
            None => {
                let mut sharers = self.find_sharers(owner, name);
                sharers.push(new);
                if sharers.len() > 1 {
                    shared.push(sharers);
                }
            }
        }
        self.shared = shared;
    }

    /// The other clients' sockets of that name.
    fn find_sharers(&mut self, owner: Owner, name: Name) -> Vec<Sharer> {
        let others = self.client_ids().filter(|id| *id != owner.client);
        let mut found = Vec::new();
        for client in others {
            let of = self.client(client);
            for sock in of.map_or(Vec::new(), |client| client.sockets()) {
                let other = Owner { client, sock };
                if self.name_of_shared(other) == Some(name) {
                    found.push(Sharer::new(other, self.now));
                }
            }
        }
        found
    }

    /// Returns whose datagram it is that the stack has for `owner`. One to a group is everybody's.
    #[inline]
    pub(crate) fn choose_sharer(&mut self, owner: Owner, is_to_group: bool) -> Owner {
        match self.shared.is_empty() || is_to_group {
            true => owner,
            false => self.choose_among_sharers(owner),
        }
    }

    #[cold]
    fn choose_among_sharers(&mut self, owner: Owner) -> Owner {
        let is_it = |it: &Sharer| it.owner == owner;
        let Some(at) = self.shared.iter().position(|all| all.iter().any(is_it)) else {
            return owner;
        };
        if self.is_connected(owner) {
            return owner;
        }
        let mut sharers = core::mem::take(&mut self.shared[at]);
        let orders = sharers
            .iter_mut()
            .filter_map(|it| Some((self.order(it)?, it.owner)));
        let chosen = orders.min_by_key(|(order, _)| *order);
        self.shared[at] = sharers;
        chosen.map_or(owner, |(_, owner)| owner)
    }

    /// Orders the sharers: whether the process does something else, for how long it has read
    /// nothing, and the bytes that are unread. `None`: it is none any more, or connected.
    fn order(&mut self, sharer: &mut Sharer) -> Option<(bool, u32, u64)> {
        let now = self.now;
        if self.name_of_shared(sharer.owner).is_none() || self.is_connected(sharer.owner) {
            return None;
        }
        let client = self.client(sharer.owner.client)?;
        let (socket, end) = client.find(sharer.owner.sock)?;
        let unread = socket.receive.unread(end, sharer.owner.sock);
        let read_upto = socket.receive.head() - unread;
        if unread == 0 || read_upto != sharer.read_upto {
            (sharer.read_upto, sharer.read_at) = (read_upto, now);
        }
        let late = now.0.saturating_sub(sharer.read_at.0) / LATE_NS;
        let waits = unread == 0 && end.is_program_asleep();
        Some((
            !waits,
            late.checked_ilog2().map_or(0, |log| log + 1),
            unread,
        ))
    }

    /// Returns what other clients' sockets may have in common with this one.
    fn name_of_shared(&mut self, owner: Owner) -> Option<Name> {
        let socket = self.socket(owner)?;
        let is_bound = matches!(socket.role, Role::Datagram(_)) && !socket.is_closing;
        let options = socket.options.as_deref();
        let options = options.filter(|it| is_bound && it.cookie != 0 && it.rank == 0)?;
        let bound = socket.bound()?;
        Some(Name {
            cookie: options.cookie,
            bound: bound.span(),
            port: bound.addr.port(),
            link: socket.link(),
        })
    }

    fn is_connected(&mut self, owner: Owner) -> bool {
        let bound = self.socket(owner).and_then(|socket| socket.bound());
        bound.is_some_and(|bound: Bound| bound.flow.is_some())
    }
}

impl Sharer {
    fn new(owner: Owner, now: Instant) -> Sharer {
        Sharer {
            owner,
            read_upto: 0,
            read_at: now,
        }
    }
}
