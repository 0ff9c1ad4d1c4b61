//! Dispatch of the commands of programs.

use slipstack_channel::{
    CloseMode, Coded, Command, Everyday, Reply, SockId, SocketError, State, Ticket, Transport,
};
use slipstack_stack::{Instant, UdpOptions};

use crate::client::{ClientId, Role, UDP_LIMITS};
use crate::effects::Fx;
use crate::engine::{COMMAND_BUDGET, Engine};
use crate::owners::{Deferred, Owner};
use crate::streams::LOOKS_BEFORE_RESET_MAX;

/// The answer to a request.
pub(crate) type Answer = Result<Reply, SocketError>;

impl Engine {
    /// Takes commands from every client, bounded each. Whether there were any.
    pub(crate) fn run_commands(&mut self, now: Instant) -> bool {
        let mut progress = false;
        for at in 0..self.env.clients.len() {
            let Some(Some(client)) = self.env.clients.get(at) else {
                continue;
            };
            if client.end.has_commands() {
                progress |= self.run_commands_of(now, ClientId(at as u32));
            }
        }
        progress
    }

    /// Separate from the check whether there are any, because in most turns a client has none.
    /// When its resets have taken all their looks, the rest waits for the next turn: it would lose
    /// bytes.
    #[inline(never)]
    fn run_commands_of(&mut self, now: Instant, id: ClientId) -> bool {
        let mut looks = LOOKS_BEFORE_RESET_MAX;
        for done in 0..COMMAND_BUDGET {
            let Some(client) = self.env.client(id) else {
                return done > 0;
            };
            if client.is_leaving || client.end.contradiction().is_some() {
                return done > 0;
            }
            let Some(coded) = client.end.next_coded() else {
                return done > 0;
            };
            self.env.counters.commands += 1;
            let of = |sock: SockId| Owner { client: id, sock };
            match coded.everyday() {
                Some(Everyday::Send { sock }) => self.on_send(now, of(sock)),
                Some(Everyday::Consumed { sock }) => self.on_consumed(now, of(sock)),
                Some(Everyday::Close { sock, mode, unread }) => {
                    if mode == CloseMode::Abort || unread {
                        self.send_before_reset(now, of(sock), &mut looks);
                    }
                    self.on_close(now, of(sock), mode, unread);
                    if looks == 0 {
                        return true;
                    }
                }
                None => self.on_command(now, id, &coded),
            }
        }
        true
    }

    /// Does work left over from earlier turns. The stack learns how many connections have been
    /// accepted, which makes room in the backlogs: this happens before new ones arrive, so that no
    /// turn checks what no program can have done yet.
    #[inline]
    pub(crate) fn take_rest(&mut self, now: Instant) {
        if self.env.has_rest {
            self.take_all_rest(now);
        }
    }

    #[inline(never)]
    fn take_all_rest(&mut self, now: Instant) {
        let Engine { stack, env, .. } = self;
        env.has_rest = false;
        env.left_at = Instant::FAR_FUTURE;
        for client in env.clients.iter_mut().flatten() {
            let left_at =
                client.look_at_queues(now, |listener, total| stack.tcp_accepted(listener, total));
            env.left_at = env.left_at.min(left_at);
            env.has_rest |= client.has_waiting;
        }
        env.left_at = env.left_at.min(env.shared.due_at);
        env.has_rest |= env.shared.due_at != Instant::FAR_FUTURE;
        if !env.waiting.is_empty() {
            self.send_unsent(now);
        }
    }

    /// A command that comes more rarely.
    #[inline(never)]
    fn on_command(&mut self, now: Instant, client: ClientId, coded: &Coded) {
        let of = |sock: SockId| Owner { client, sock };
        let end = self.env.client(client).map(|client| &mut client.end);
        let Some((command, ticket)) = end.and_then(|end| end.decode(coded)) else {
            return;
        };
        match command {
            Command::Open { sock, kind } => self.on_open(of(sock), kind),
            Command::Shutdown { sock, is_full } => self.on_shutdown(now, of(sock), is_full),
            Command::Urgent { sock, upto } => self.on_urgent(of(sock), upto),
            Command::Record { sock, upto } => self.on_record(of(sock), upto),
            Command::TellSent { sock } => self.on_tell_sent(now, of(sock)),
            Command::Extent {
                sock,
                at,
                place,
                len,
            } => self.on_extent(now, of(sock), (at, place, len)),
            Command::EndSession => self.on_end_session(now, client),
            other => self.answer_request(now, client, other, ticket),
        }
    }

    fn answer_request(&mut self, now: Instant, id: ClientId, command: Command, ticket: Ticket) {
        let answer = self.on_request(now, id, command);
        if answer.is_err() {
            self.env.counters.commands_refused += 1;
        }
        if let Some(client) = self.env.client(id) {
            client.end.reply(ticket, answer);
        }
    }

    fn on_request(&mut self, now: Instant, client: ClientId, command: Command) -> Answer {
        let of = |sock: SockId| Owner { client, sock };
        match command {
            Command::Bind {
                sock,
                addr,
                reuse_addr,
                reuse_port,
                v6_only,
            } => match self.kind(of(sock))? {
                Transport::Tcp => self.bind_stream(of(sock), addr, v6_only, reuse_addr, reuse_port),
                Transport::Udp => {
                    let asked = UdpOptions {
                        is_shared: reuse_addr || reuse_port,
                        reuse_port,
                        is_v6_only: v6_only,
                        ..UdpOptions::default()
                    };
                    self.bind_datagram(of(sock), addr, asked)
                }
            },
            Command::Listen { sock, backlog } => self.on_listen(of(sock), backlog),
            Command::Unlisten { sock } => self.on_unlisten(of(sock)),
            Command::Resume { sock } => self.on_resume(of(sock)),
            Command::Connect { sock, remote } => match self.kind(of(sock))? {
                Transport::Tcp => self.on_connect(now, of(sock), remote),
                Transport::Udp => self.connect_datagram(of(sock), Some(remote)),
            },
            Command::UdpConnect { sock, remote } => self.connect_datagram(of(sock), remote),
            Command::SetOption { sock, option } => self.on_set_option(now, of(sock), option),
            Command::Info { sock } => self.on_info(now, of(sock)),
            Command::TakeSyn { sock } => self.on_take_syn(of(sock)),
            Command::FindPort { local, v6_only } => match self.has_port(local, v6_only) {
                true => Err(SocketError::AddrInUse),
                false => Ok(Reply::Done),
            },
            Command::Offer { sock, key, upto } => self.on_offer(of(sock), key, upto),
            Command::Claim { sock, key } => self.on_claim(now, of(sock), key),
            Command::Open { .. }
            | Command::Send { .. }
            | Command::Consumed { .. }
            | Command::Shutdown { .. }
            | Command::Close { .. }
            | Command::Urgent { .. }
            | Command::Record { .. }
            | Command::Extent { .. }
            | Command::TellSent { .. }
            | Command::EndSession => Err(SocketError::InvalidState),
        }
    }

    fn kind(&mut self, owner: Owner) -> Result<Transport, SocketError> {
        let socket = self.env.socket(owner).ok_or(SocketError::UnknownId)?;
        if socket.is_closing {
            return Err(SocketError::UnknownId);
        }
        Ok(socket.kind)
    }

    fn on_open(&mut self, owner: Owner, kind: Transport) {
        let limits = match kind {
            Transport::Tcp => self.env.initial,
            Transport::Udp => UDP_LIMITS,
        };
        let Some(client) = self.env.client(owner.client) else {
            return;
        };
        // A cell that is still in use is not opened again by an honest program.
        if !client.end.begin(owner.sock, limits) {
            return;
        }
        if client.begin(owner.sock, kind).is_none() {
            client.end.note_reopened();
        }
    }

    #[inline]
    pub(crate) fn on_send(&mut self, now: Instant, owner: Owner) {
        let Some(client) = self.env.client(owner.client) else {
            return;
        };
        let Some((socket, end)) = client.find(owner.sock) else {
            return;
        };
        match socket.role {
            Role::Stream(conn) => {
                let sent = socket.send.look(end, owner.sock);
                // The window that the program has read free meanwhile goes with the same segment.
                let before = socket.receive.notified_until();
                let consumed = socket.receive.look(end, owner.sock);
                if consumed != before
                    && let Some(rcvbuf) = self.stack.tcp_consumed(now, conn, consumed)
                {
                    self.note_rcvbuf(owner, rcvbuf);
                }
                self.stack.tcp_written(conn, sent.upto, sent.more);
            }
            Role::None if socket.kind == Transport::Udp => {
                socket.send.look(end, owner.sock);
                self.send_unbound(now, owner);
            }
            Role::Datagram(id) => {
                socket.send.look(end, owner.sock);
                if !socket.waits_to_send {
                    self.send_datagrams(now, owner, id, i64::MAX);
                }
            }
            // The connection has ended: the bytes will not be read.
            Role::None | Role::Listener(_) => {
                socket.send.look(end, owner.sock);
            }
        }
    }

    /// Handles bytes outside the ring: the head that covers them may have been seen already.
    fn on_extent(&mut self, now: Instant, owner: Owner, (at, place, len): (u64, u64, u64)) {
        let Some(client) = self.env.client(owner.client) else {
            return;
        };
        if let Some((_, end)) = client.find(owner.sock) {
            end.add_extent(owner.sock, at, place, len);
            self.on_send(now, owner);
        }
    }

    fn on_urgent(&mut self, owner: Owner, upto: u64) {
        let role = self.env.socket(owner).map(|socket| socket.role);
        if let Some(Role::Stream(conn)) = role {
            self.stack.tcp_mark_urgent(conn, upto);
        }
    }

    fn on_record(&mut self, owner: Owner, upto: u64) {
        let role = self.env.socket(owner).map(|socket| socket.role);
        if let Some(Role::Stream(conn)) = role {
            self.stack.tcp_end_record(conn, upto);
        }
    }

    fn on_tell_sent(&mut self, now: Instant, owner: Owner) {
        let Some(socket) = self.env.socket(owner) else {
            return;
        };
        let Role::Stream(conn) = socket.role else {
            return;
        };
        // With the flush that is due.
        if !self.stack.has_dirty() {
            self.tell_sent(now, conn);
        } else if !socket.is_tell_due {
            socket.is_tell_due = true;
            self.env.deferred.push(Deferred::TellSent(conn));
        }
    }

    fn on_consumed(&mut self, now: Instant, owner: Owner) {
        let Some(client) = self.env.client(owner.client) else {
            return;
        };
        let Some((socket, end)) = client.find(owner.sock) else {
            return;
        };
        let step = socket.step;
        let consumed = socket.receive.on_consumed(end, owner.sock, step);
        let role = socket.role;
        if socket.receive.has_ring() && !socket.is_listed {
            client.list_holder(owner.sock);
        }
        if let Role::Stream(conn) = role
            && let Some(rcvbuf) = self.stack.tcp_consumed(now, conn, consumed)
        {
            self.note_rcvbuf(owner, rcvbuf);
        }
    }

    /// Records a larger receive buffer, for getsockopt.
    #[cold]
    pub(crate) fn note_rcvbuf(&mut self, owner: Owner, bytes: u32) {
        if let Some(client) = self.env.client(owner.client) {
            client.end.set_rcvbuf(owner.sock, bytes);
        }
    }

    fn on_shutdown(&mut self, now: Instant, owner: Owner, is_full: bool) {
        self.on_send(now, owner);
        let Some(socket) = self.env.socket(owner) else {
            return;
        };
        let Role::Stream(conn) = socket.role else {
            return;
        };
        if is_full {
            self.stack.tcp_stop_reading(conn);
        }
        if !socket.state.contains(State::SHUT) {
            let both = socket.state.contains(State::RDHUP);
            let mut fx = Fx::new(&mut self.env, &mut *self.device);
            self.stack.tcp_shutdown(now, conn, &mut fx);
            let bits = if both {
                State::SHUT | State::HUP
            } else {
                State::SHUT
            };
            self.env.set_bits(owner, bits, State::NONE);
        }
    }

    /// As `on_send`, for a socket that is about to be closed; bytes that cannot be sent are
    /// dropped.
    pub(crate) fn on_send_before_close(&mut self, now: Instant, owner: Owner) {
        let is_closing = self
            .env
            .socket(owner)
            .is_none_or(|socket| socket.is_closing);
        if !is_closing {
            self.on_send(now, owner);
            self.send_all_of(now, owner);
        }
    }
}
