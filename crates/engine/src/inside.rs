//! Clients that the engine itself calls: services on its own thread.

use slipstack_channel::{Inside, Owner};
use slipstack_stack::Instant;

use crate::client::{ClientId, Owned};
use crate::engine::Engine;

/// Rounds of a turn in which owners are called again because their commands caused events.
const ROUNDS: usize = 2;

impl Engine {
    /// Attaches a client that runs on this engine's thread. It is called in the turns in which it
    /// has events, until its client has left.
    pub fn attach_owner(&mut self, inside: Inside) -> ClientId {
        let (end, owner) = inside.into_parts();
        let client = self.attach_client(end, None);
        self.owned.push(Owned { client, owner });
        client
    }

    /// Calls the owners that have events or work, and carries out their commands. Returns whether
    /// there was one.
    #[inline]
    pub(crate) fn run_owners(&mut self, now: Instant) -> bool {
        !self.owned.is_empty() && self.call_owners(now)
    }

    #[inline(never)]
    fn call_owners(&mut self, now: Instant) -> bool {
        let mut progress = false;
        for _ in 0..ROUNDS {
            let mut is_called = false;
            for owned in &mut self.owned {
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
            self.run_commands(now);
        }
        progress
    }

    /// Forgets the owners whose clients have left.
    #[cold]
    pub(crate) fn drop_owner(&mut self, client: ClientId) {
        self.owned.retain(|owned| owned.client != client);
    }

    /// Returns whether an owner has something to do now.
    #[inline]
    pub(crate) fn has_owner_work(&self, now: Instant) -> bool {
        !self.owned.is_empty()
            && self.owned.iter().any(|owned| {
                let client = self.env.clients.get(owned.client.0 as usize);
                let has_events = client
                    .and_then(Option::as_ref)
                    .is_some_and(|client| client.end.has_unread_events());
                has_events || is_due(&*owned.owner, now)
            })
    }

    /// When the first owner wants to be called.
    #[inline]
    pub(crate) fn owners_deadline(&self) -> Option<Instant> {
        if self.owned.is_empty() {
            return None;
        }
        let deadlines = self.owned.iter().map(|it| it.owner.next_deadline_ns());
        deadlines.flatten().min().map(Instant)
    }
}

fn is_due(owner: &dyn Owner, now: Instant) -> bool {
    owner.has_work() || owner.next_deadline_ns().is_some_and(|at| at <= now.0)
}
