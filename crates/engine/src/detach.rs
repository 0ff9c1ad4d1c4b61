//! Ends of clients: in order, by crash, because of invalid shared memory, and with the engine
//! itself.

use std::collections::HashSet;

use slipstack_channel::{HandoverArea, SockId, Transport};
use slipstack_mem::Region;
use slipstack_stack::{CloseMode, ConnId, Instant};

use crate::client::{ClientId, Role};
use crate::effects::Fx;
use crate::engine::Engine;
use crate::owners::Owner;
use crate::streams::LOOKS_BEFORE_RESET_MAX;

/// The connections that a client leaves in the handover area of its region.
#[derive(Debug)]
pub struct Handover {
    pub region: Region,
    conns: Vec<ConnId>,
}

impl Handover {
    /// Number of the connections.
    pub fn images(&self) -> u32 {
        self.conns.len() as u32
    }
}

impl Engine {
    /// Ends a client whose process has ended without a goodbye, as the kernel ends the connections
    /// of a killed process: written data is delivered, unread bytes cause a reset. Its memory stays
    /// until that is done. Connections that another program may go on with stay open until
    /// [`Engine::end_lent`]; returns whether there are any.
    pub fn detach_client(&mut self, now: Instant, id: ClientId) -> bool {
        let Some(client) = self.env.client(id) else {
            return false;
        };
        if client.is_leaving {
            return false;
        }
        self.env.counters.clients_crashed += 1;
        let lent = self.lent_of(id);
        self.close_others(now, id, CloseMode::Orderly, &lent);
        for sock in &lent {
            // Bytes written just before the end are still to be sent.
            self.on_send(
                now,
                Owner {
                    client: id,
                    sock: *sock,
                },
            );
        }
        if let Some(client) = self.env.client(id) {
            client.is_leaving = true;
        }
        self.device.flush();
        !lent.is_empty()
    }

    #[cold]
    pub(crate) fn on_end_session(&mut self, now: Instant, id: ClientId) {
        self.env.counters.clients_left += 1;
        self.close_all(now, id, CloseMode::Orderly);
        if let Some(client) = self.env.client(id) {
            client.is_leaving = true;
        }
    }

    /// Returns whether the engine may end at once: it has no socket, no connection but those in
    /// TIME-WAIT, no frame that waits for a neighbour, and forwards none to other engines.
    pub fn has_nothing_left(&mut self, now: Instant) -> bool {
        let ids = self.env.client_ids();
        let has_sockets = ids
            .into_iter()
            .any(|id| self.env.client(id).is_some_and(|client| client.live > 0));
        !has_sockets
            && !self.env.departed.is_any(now)
            && !self.stack.holds_frames()
            && self.stack.tcp_connections().is_empty()
    }

    fn close_all(&mut self, now: Instant, id: ClientId, mode: CloseMode) {
        self.close_others(now, id, mode, &HashSet::new());
    }

    /// Closes every socket of a client except `kept`. Connections that it has not accepted come
    /// before their listeners: they go with those to others.
    fn close_others(
        &mut self,
        now: Instant,
        id: ClientId,
        mode: CloseMode,
        kept: &HashSet<SockId>,
    ) {
        if mode == CloseMode::Orderly {
            self.send_before_resets(now, id, kept);
        }
        let Some(client) = self.env.client(id) else {
            return;
        };
        let (accepted, opened): (Vec<SockId>, Vec<SockId>) = client
            .sockets()
            .into_iter()
            .filter(|sock| !kept.contains(sock))
            .partition(|sock| client.socket(*sock).is_some_and(|it| it.listener.is_some()));
        for sock in accepted.into_iter().chain(opened) {
            let owner = Owner { client: id, sock };
            let unread = self.has_unread(owner);
            let mode = match self.is_unaccepted(owner) {
                true => CloseMode::Pass,
                false if self.has_users(owner) => mode,
                false => self.end_mode(owner, mode),
            };
            self.on_close(now, owner, mode, unread);
        }
    }

    /// Sends what a client has written to those of its connections that are reset now. New ones may
    /// open meanwhile.
    fn send_before_resets(&mut self, now: Instant, id: ClientId, kept: &HashSet<SockId>) {
        let socks = self.env.client(id).map_or_else(Vec::new, |it| it.sockets());
        let mut looks = LOOKS_BEFORE_RESET_MAX;
        for sock in socks.into_iter().filter(|sock| !kept.contains(sock)) {
            let owner = Owner { client: id, sock };
            let mode = self.end_mode(owner, CloseMode::Orderly);
            if mode == CloseMode::Abort && !self.has_users(owner) {
                self.send_before_reset(now, owner, &mut looks);
            }
        }
    }

    /// Returns how a connection ends with the last program that has it: by a reset if that is
    /// chosen, else in this way.
    pub(crate) fn end_mode(&mut self, owner: Owner, mode: CloseMode) -> CloseMode {
        match self.env.socket(owner).map(|socket| socket.role) {
            Some(Role::Stream(conn)) if self.stack.tcp_resets_at_end(conn) => CloseMode::Abort,
            _ => mode,
        }
    }

    /// Returns whether a connection came from a listener and the program has not taken it.
    fn is_unaccepted(&mut self, owner: Owner) -> bool {
        let Some(client) = self.env.client(owner.client) else {
            return false;
        };
        client
            .find(owner.sock)
            .is_some_and(|(socket, end)| socket.listener.is_some() && !end.is_taken(owner.sock))
    }

    pub(crate) fn has_unread(&mut self, owner: Owner) -> bool {
        let Some(client) = self.env.client(owner.client) else {
            return false;
        };
        client.find(owner.sock).is_some_and(|(socket, end)| {
            socket.kind == Transport::Tcp && socket.receive.has_unread(end, owner.sock)
        })
    }

    /// Resets everything of a client and frees its memory.
    #[cold]
    fn drop_client(&mut self, now: Instant, id: ClientId) {
        self.abort_orphans(now, id);
        self.close_all(now, id, CloseMode::Abort);
        self.run_deferred(now);
        if let Some(client) = self.env.client(id) {
            client.end.set_gone();
            if let Some(bell) = &client.bell {
                bell.ring();
            }
        }
        if let Some(slot) = self.env.clients.get_mut(id.0 as usize) {
            *slot = None;
        }
        self.forget_client(id);
    }

    /// Another client may get the place of one that has left, and its ids: nothing that was offered
    /// is to be had by them.
    fn forget_client(&mut self, id: ClientId) {
        self.drop_owner(id);
        self.env.waiting.forget_client(id);
        self.env.forget_sharers_of(id);
        let offers = &mut self.env.offers;
        offers.retain(|_, (owner, _)| owner.client != id);
        self.env.forget_withdrawn();
    }

    /// Connections and datagram sockets that the program has closed but that still send.
    fn abort_orphans(&mut self, now: Instant, id: ClientId) {
        let Some(client) = self.env.client(id) else {
            return;
        };
        for sock in client.sockets() {
            let owner = Owner { client: id, sock };
            let Some(socket) = self.env.socket(owner) else {
                continue;
            };
            match (socket.is_closing, socket.role) {
                (true, Role::Stream(conn)) => {
                    let mut fx = Fx::new(&mut self.env, &mut *self.device);
                    self.stack
                        .tcp_close(now, conn, CloseMode::Abort, false, &mut fx);
                }
                (true, Role::Datagram(id)) => self.end_datagram(owner, id),
                _ => {}
            }
        }
    }

    /// Ends a turn: rings the doorbells of waiting programs, detaches clients with invalid memory,
    /// and forgets those that have left.
    pub(crate) fn settle_clients(&mut self, now: Instant) {
        for id in self.env.client_ids() {
            let Some(client) = self.env.client(id) else {
                continue;
            };
            if client.end.contradiction().is_some() {
                self.env.counters.clients_lied += 1;
                self.drop_client(now, id);
                self.device.flush();
                continue;
            }
            if client.is_leaving && client.live == 0 {
                if let Some(slot) = self.env.clients.get_mut(id.0 as usize) {
                    *slot = None;
                }
                self.forget_client(id);
                continue;
            }
            if client.end.take_doorbell()
                && let Some(bell) = &client.bell
            {
                bell.ring();
                self.env.counters.doorbells += 1;
            }
        }
    }

    /// Handles the orderly end of the process: closes everything, sends what can be sent now, and
    /// puts the remaining connections into the handover areas of their regions. Their flows stay in
    /// the directory until [`Engine::forget`]: a flow that the keeper never gets, it resets.
    pub fn hand_over(&mut self, now: Instant) -> Vec<Handover> {
        self.turn(now);
        self.send_all_waiting(now);
        for id in self.env.client_ids() {
            self.close_all(now, id, CloseMode::Orderly);
        }
        let mut fx = Fx::new(&mut self.env, &mut *self.device);
        self.stack.flush(now, &mut fx);
        self.run_deferred(now);
        self.device.flush();
        let mut handovers = Vec::new();
        for id in self.env.client_ids() {
            if let Some(handover) = self.hand_over_client(id).filter(|it| it.images() > 0) {
                self.env.counters.handed_over += u64::from(handover.images());
                handovers.push(handover);
            }
        }
        handovers
    }

    /// Forgets connections that the keeper has taken.
    pub fn forget(&mut self, handover: &Handover) {
        for conn in &handover.conns {
            self.env.flows.close(*conn);
        }
    }

    fn hand_over_client(&mut self, id: ClientId) -> Option<Handover> {
        let client = self.env.client(id)?;
        let sockets: Vec<SockId> = client.sockets();
        let region = client.end.region().clone();
        let area = HandoverArea::new(&region);
        client.end.set_gone();
        let mut area = area?;
        let mut conns = Vec::new();
        for sock in sockets {
            let Some(socket) = self.env.socket(Owner { client: id, sock }) else {
                continue;
            };
            let (role, send) = (socket.role, socket.send);
            let Role::Stream(conn) = role else { continue };
            if let Some(client) = self.env.client(id) {
                send.settle_extents(&client.end, sock);
            }
            if let Some(image) = self.stack.tcp_detach(conn)
                && area.push(&image.to_bytes(), send.ring(), send.acked(), send.head())
            {
                conns.push(conn);
            }
        }
        Some(Handover { region, conns })
    }
}
