//! Datagram sockets that several processes have from their parent, through one instance.
//!
//! On the kernel such a socket has one queue, from which whoever waits takes the next datagram.
//! Here each process has a queue of its own, and the stack would give everything to the socket that
//! was bound last. A datagram goes to a process that waits for one, or else to the shortest queue.
//! What is in a queue stays there.

use slipstack_stack::Instant;

use crate::client::Role;
use crate::environment::Environment;
use crate::owners::{Owner, Shared};

/// Time for which datagrams may be unread until others are preferred to their process: it may be
/// stopped.
const LATE_NS: u64 = 4_000_000;

impl Environment {
    /// Looks for the other sockets of a new one's socket of the kernel.
    pub(crate) fn note_sharer(&mut self, owner: Owner) {
        let cookie = self.sharing_cookie(owner);
        if cookie == 0 {
            return;
        }
        if let Some(shared) = self.shared.iter_mut().find(|it| it.cookie == cookie) {
            shared.owners.push(owner);
            return;
        }
        let mut owners = vec![owner];
        for id in self.client_ids().filter(|id| *id != owner.client) {
            let socks = self
                .client(id)
                .map_or(Vec::new(), |client| client.sockets());
            let all = socks.into_iter().map(|sock| Owner { client: id, sock });
            let alike: Vec<Owner> = all
                .filter(|other| self.sharing_cookie(*other) == cookie)
                .collect();
            owners.extend(alike);
        }
        if owners.len() > 1 {
            self.shared.push(Shared { cookie, owners });
        }
    }

    /// Returns whose datagram it is that the stack has for `owner`.
    #[inline]
    pub(crate) fn choose_sharer(&mut self, owner: Owner) -> Owner {
        match self.shared.is_empty() {
            true => owner,
            false => self.choose_among_sharers(owner),
        }
    }

    #[cold]
    fn choose_among_sharers(&mut self, owner: Owner) -> Owner {
        let cookie = self.sharing_cookie(owner);
        let found = self.shared.iter().position(|it| it.cookie == cookie);
        let Some(at) = found.filter(|_| cookie != 0) else {
            return owner;
        };
        let mut owners = core::mem::take(&mut self.shared[at].owners);
        owners.retain(|it| self.sharing_cookie(*it) == cookie);
        let chosen = owners
            .iter()
            .copied()
            .min_by_key(|it| self.wait_at(*it))
            .unwrap_or(owner);
        match owners.len() {
            0 | 1 => drop(self.shared.swap_remove(at)),
            _ => self.shared[at].owners = owners,
        }
        chosen
    }

    /// Orders the sharers: whether what is there already waits for too long, whether the process
    /// does something else, and the bytes that are unread.
    fn wait_at(&mut self, owner: Owner) -> (bool, bool, u64) {
        let now = self.now;
        let client = self.client(owner.client);
        let Some((socket, end)) = client.and_then(|client| client.find(owner.sock)) else {
            return (true, true, u64::MAX);
        };
        let unread = socket.receive.unread(end, owner.sock);
        let is_late = unread > 0 && is_late(socket.received_at, now);
        let waits = unread == 0 && end.is_program_asleep();
        (is_late, !waits, unread)
    }

    /// The cookie by which a socket may be one of several; 0: it is not.
    fn sharing_cookie(&mut self, owner: Owner) -> u64 {
        let Some(socket) = self.socket(owner) else {
            return 0;
        };
        let options = socket.options.as_deref();
        let is_bound = matches!(socket.role, Role::Datagram(_)) && !socket.is_closing;
        let is_connected = socket.bound().is_some_and(|bound| bound.flow.is_some());
        options
            .filter(|it| it.rank == 0 && is_bound && !is_connected)
            .map_or(0, |it| it.cookie)
    }
}

fn is_late(since: Instant, now: Instant) -> bool {
    now.0.saturating_sub(since.0) >= LATE_NS
}
