//! Clients that the engine itself calls: services on its own thread.

use slipstack_channel::{Arrived, Inside, Outgoing, OutgoingDatagram, Owner};
use slipstack_stack::{DatagramIn, DatagramOut, Instant};

use crate::client::{ClientId, Owned, Role};
use crate::effects::Fx;
use crate::engine::Engine;
use crate::environment::Environment;
use crate::owners;

/// Rounds of a turn in which owners are called again because their commands caused events.
const ROUNDS: usize = 2;

impl Engine {
    /// Attaches a client that runs on this engine's thread. It is called in the turns in which it
    /// has events, until its client has left.
    pub fn attach_owner(&mut self, inside: Inside) -> ClientId {
        let (end, owner) = inside.into_parts();
        let client = self.attach_client(end, None);
        self.env.owned.push(Owned { client, owner });
        client
    }

    /// Calls the owners that have events or work, and carries out their commands. Returns whether
    /// there was one.
    #[inline]
    pub(crate) fn run_owners(&mut self, now: Instant) -> bool {
        !self.env.owned.is_empty() && self.call_owners(now)
    }

    #[inline(never)]
    fn call_owners(&mut self, now: Instant) -> bool {
        let mut progress = false;
        for _ in 0..ROUNDS {
            let mut is_called = false;
            for owned in &mut self.env.owned {
                let client = self.env.clients.get(owned.client.0 as usize);
                let Some(client) = client.and_then(Option::as_ref) else {
                    continue;
                };
                if client.end.has_unread_events() || is_due(&*owned.owner, now) {
                    owned.owner.run(now.0);
                    is_called = true;
                }
            }
            if !is_called {
                break;
            }
            progress = true;
            // Before the commands, one of which may close the socket.
            if std::mem::take(&mut self.env.has_responses) {
                self.send_responses(now);
            }
            self.run_commands(now);
        }
        progress
    }

    /// Sends what owners have answered to datagrams on their arrival.
    #[inline(never)]
    fn send_responses(&mut self, now: Instant) {
        let mut list = std::mem::take(&mut self.outgoing);
        for at in 0..self.env.owned.len() {
            let owned = &mut self.env.owned[at];
            owned.owner.take_outgoing(&mut list);
            if !list.is_empty() {
                let client = owned.client;
                self.send_all(now, client, &list);
                list.clear();
            }
        }
        self.outgoing = list;
    }

    fn send_all(&mut self, now: Instant, client: ClientId, list: &Outgoing) {
        for response in list.iter() {
            let OutgoingDatagram {
                sock,
                peer,
                local,
                payload,
            } = response;
            let owner = owners::Owner { client, sock };
            let Some(Role::Datagram(id)) = self.env.socket(owner).map(|socket| socket.role) else {
                continue;
            };
            let datagram = DatagramOut {
                src: local,
                ..DatagramOut::new(Some(peer), payload)
            };
            let mut fx = Fx::new(&mut self.env, &mut *self.device);
            let sent = self.stack.udp_send(now, id, &datagram, &mut fx);
            if let Err(error) = sent {
                self.note_refused(owner, error);
            }
        }
    }

    /// Forgets the owners whose clients have left.
    #[cold]
    pub(crate) fn drop_owner(&mut self, client: ClientId) {
        self.env.owned.retain(|owned| owned.client != client);
    }

    /// Returns whether an owner has something to do now.
    #[inline]
    pub(crate) fn has_owner_work(&self, now: Instant) -> bool {
        !self.env.owned.is_empty()
            && self.env.owned.iter().any(|owned| {
                let client = self.env.clients.get(owned.client.0 as usize);
                let has_events = client
                    .and_then(Option::as_ref)
                    .is_some_and(|client| client.end.has_unread_events());
                has_events || is_due(&*owned.owner, now)
            })
    }

    /// Time at which the first owner wants to be called.
    #[inline]
    pub(crate) fn owners_deadline(&self) -> Option<Instant> {
        if self.env.owned.is_empty() {
            return None;
        }
        let deadlines = self.env.owned.iter().map(|it| it.owner.next_deadline_ns());
        deadlines.flatten().min().map(Instant)
    }
}

impl Environment {
    /// Hands a datagram to the client on this thread that owns its socket; `false`: it is not one
    /// of those, or leaves the datagram to the socket's ring.
    #[inline]
    pub(crate) fn hand_over(&mut self, to: owners::Owner, datagram: &DatagramIn<'_>) -> bool {
        let now = self.now;
        let mut all = self.owned.iter_mut();
        let Some(owned) = all.find(|owned| owned.client == to.client) else {
            return false;
        };
        let arrived = Arrived {
            from: datagram.from,
            to: datagram.to,
            payload: datagram.payload,
        };
        if !owned.owner.on_datagram(now.0, to.sock, &arrived) {
            return false;
        }
        self.has_responses = true;
        if let Some(socket) = self.socket(to) {
            socket.received_at = now;
        }
        true
    }
}

fn is_due(owner: &dyn Owner, now: Instant) -> bool {
    owner.has_work() || owner.next_deadline_ns().is_some_and(|at| at <= now.0)
}
