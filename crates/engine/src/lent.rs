//! Connections of a killed program that another program of the instance may go on with.
//!
//! A connection stays open, with all that its peer sends, until it is claimed or its time is over.

use std::collections::HashSet;
use std::net::SocketAddr;

use slipstack_channel::control::LeftFile;
use slipstack_channel::{CloseMode, LeftConnection, Loan, PassedOn, Reply, SockId, SocketError};
use slipstack_mem::Region;
use slipstack_stack::Instant;

use crate::carrying::Carried;
use crate::client::{ClientId, Role};
use crate::commands::Answer;
use crate::engine::Engine;
use crate::owners::{HasAlready, Owner};

/// State of the process that may go on with a connection of a killed program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserState {
    /// Has not asked for the connection yet, and may.
    MayCome,
    /// Known to have ended.
    Ended,
    /// May still run, but has not asked in time, or cannot.
    Late,
}

impl Engine {
    /// The connections of a client whose program was killed that other processes have, too.
    pub(crate) fn lent_of(&mut self, id: ClientId) -> HashSet<SockId> {
        let socks = self.env.client(id).map_or_else(Vec::new, |it| it.sockets());
        let mut lent = HashSet::new();
        for sock in socks {
            if self.loan_of(Owner { client: id, sock }).is_lent() {
                lent.insert(sock);
            }
        }
        lent
    }

    /// A connection that another process may go on with.
    fn left_of(&mut self, owner: Owner) -> Option<LeftConnection> {
        let left = self.in_region(owner, LeftConnection::of).flatten();
        left.filter(|left| left.loan.is_sound())
    }

    /// Whether other processes have a connection, also if none of them can go on with it.
    pub(crate) fn has_users(&mut self, owner: Owner) -> bool {
        self.loan_of(owner).is_lent()
    }

    fn loan_of(&mut self, owner: Owner) -> Loan {
        self.in_region(owner, Loan::of).unwrap_or_default()
    }

    /// Looks at the cell of a connection that is not being closed.
    fn in_region<T>(&mut self, owner: Owner, look: impl FnOnce(&Region, SockId) -> T) -> Option<T> {
        let client = self.env.client(owner.client)?;
        let (socket, end) = client.find(owner.sock)?;
        let is_stream = matches!(socket.role, Role::Stream(_)) && !socket.is_closing;
        is_stream.then(|| look(end.region(), owner.sock))
    }

    /// Whether a client whose program was killed is there still. `channel`: its region.
    pub fn is_left(&self, id: ClientId, channel: &Region) -> bool {
        let client = self.env.clients.get(id.0 as usize).and_then(Option::as_ref);
        client.is_some_and(|client| client.is_leaving && client.end.region().is_same(channel))
    }

    /// Ends the connections of a killed program that nobody can go on with any more, by what is
    /// known of the process that might, and those that have ended themselves. A connection that a
    /// living process may have is not reset by its options: on the kernel it would stay open.
    /// Returns whether some go on waiting.
    pub fn end_lent(
        &mut self,
        now: Instant,
        id: ClientId,
        state_of: impl Fn(Option<u32>) -> UserState,
    ) -> bool {
        let socks = self.env.client(id).map_or_else(Vec::new, |it| it.sockets());
        let mut others_wait = false;
        for sock in socks {
            let owner = Owner { client: id, sock };
            let loan = self.loan_of(owner);
            let state = state_of(loan.user());
            if state == UserState::MayCome && self.left_of(owner).is_some() {
                others_wait = true;
                continue;
            }
            let unread = self.has_unread(owner);
            let has_ended = state == UserState::Ended && loan.sole_user().is_some();
            let mode = match loan.is_lent() && !has_ended {
                true => CloseMode::Orderly,
                false => self.end_mode(owner, CloseMode::Orderly),
            };
            self.on_close(now, owner, mode, unread);
            self.env.offers.retain(|_, (of, _)| *of != owner);
        }
        self.env.forget_withdrawn();
        self.device.flush();
        others_wait
    }

    /// Returns the client that has the connection with these ends, and whether its program lives.
    pub fn find_user(&mut self, ends: (SocketAddr, SocketAddr)) -> Option<(ClientId, bool)> {
        let owner = self.find_ends(ends)?;
        let client = self.env.client(owner.client)?;
        Some((owner.client, !client.is_leaving))
    }

    fn find_ends(&self, (local, remote): (SocketAddr, SocketAddr)) -> Option<Owner> {
        let conn = self.stack.tcp_find(local, remote)?;
        self.env.conns.find(conn.index, conn.generation)
    }

    fn find_lent(&mut self, id: ClientId, ends: (SocketAddr, SocketAddr)) -> Option<Owner> {
        self.find_ends(ends).filter(|owner| owner.client == id)
    }

    /// Looks for a connection of a killed program that the process `user` may go on with.
    pub fn look_at_lent(
        &mut self,
        id: ClientId,
        ends: (SocketAddr, SocketAddr),
        user: u32,
    ) -> Option<LeftFile> {
        let owner = self.find_lent(id, ends)?;
        let left = self.left_of(owner)?;
        let is_its = left.loan.user().is_none_or(|its| its == user);
        is_its.then(|| left.told())
    }

    /// Lets a program that knows `key` take a connection over of which it has these bytes, instead
    /// of those that could before. Returns the sent bytes that it needs.
    pub fn offer_lent(
        &mut self,
        (id, key): (ClientId, u128),
        ends: (SocketAddr, SocketAddr),
        has: PassedOn,
        unread: Vec<u8>,
    ) -> Option<Vec<u8>> {
        let owner = self.find_lent(id, ends)?;
        let left = self.left_of(owner)?;
        let (_, end) = self.env.client(id)?.find(owner.sock)?;
        let unacked = left.unsent.to_vec(end.region());
        // The bytes are kept of one attempt a connection.
        let (lent, offers) = (&self.env.lent_offers, &mut self.env.offers);
        offers.retain(|key, (of, _)| *of != owner || !lent.contains_key(key));
        self.on_offer(owner, key, Some(left.unsent.head)).ok()?;
        self.env.forget_withdrawn();
        self.env.lent_offers.insert(key, HasAlready { has, unread });
        Some(unacked)
    }

    /// As [`Engine::on_claim`], for a connection of a killed program. If it cannot come, it waits
    /// for another attempt.
    pub(crate) fn on_claim_lent(
        &mut self,
        now: Instant,
        (owner, from): (Owner, Owner),
        upto: Option<u64>,
        has: HasAlready,
    ) -> Answer {
        let moved = self.move_lent(now, (owner, from), upto, has);
        // Nobody else closes what is left of it.
        if self.left_of(from).is_none() {
            self.on_close(now, from, CloseMode::Abort, false);
        }
        moved.map(|()| Reply::Done)
    }

    fn move_lent(
        &mut self,
        now: Instant,
        (owner, from): (Owner, Owner),
        upto: Option<u64>,
        has: HasAlready,
    ) -> Result<(), SocketError> {
        let taken = self.take_out_lent(now, (owner, from), upto, has.has);
        let taken = taken.ok_or(SocketError::InvalidState)?;
        let put = match taken.after(has.unread) {
            Some(carried) => self
                .put_in(now, owner, carried)
                .map_err(|_| SocketError::LimitReached),
            None => Err(SocketError::InvalidState),
        };
        if put.is_err() {
            let _ = self.put_in(now, from, taken);
        }
        put.map(|_| ())
    }

    fn take_out_lent(
        &mut self,
        now: Instant,
        (owner, from): (Owner, Owner),
        upto: Option<u64>,
        has: PassedOn,
    ) -> Option<Box<Carried>> {
        let left = self.left_of(from)?.read_by(has)?;
        let (_, written) = self.env.look_at_taker(owner)?;
        let (_, end) = self.env.client(from.client)?.find(from.sock)?;
        end.set_read(from.sock, left.read);
        self.take_out(now, from, written, upto)
    }
}
