//! Inquiries of an operator to a running engine: its sockets, its counters, the closing of
//! connections.
//!
//! The keeper puts a notice into the inbox; the engine fetches the inquiry, answers a part of it at
//! the end of each turn, and gives the complete answer to the keeper.

pub(crate) mod pending;
mod rows;

use std::time::Duration;

use slipstack_channel::control::add_line;
use slipstack_channel::control::net::{Filter, FilterCountRow, FilterStateRow, Inquiry, SocketRow};
use slipstack_channel::{SockId, SocketState, Transport};
use slipstack_stack::{Instant, Stack, Tunable};

use crate::client::{ClientId, Role};
use crate::effects::Fx;
use crate::engine::Engine;
use crate::views::link_rows;
use pending::{Part, PendingInquiry};
use rows::{Subject, end, row, subjects};

/// Time for which ended connections are remembered after an inquiry about them.
const WATCH: Duration = Duration::from_secs(2);
/// Sockets processed in one turn.
const ROWS_PER_TURN: usize = 512;

impl Engine {
    /// Handles the keeper's notice of an inquiry.
    #[cold]
    pub(crate) fn on_inquiry(&mut self, now: Instant) {
        if self.pending_inquiry.is_none() {
            self.take_next_inquiry(now);
            self.renew_chores();
        }
    }

    fn take_next_inquiry(&mut self, now: Instant) {
        let asked = self.ports.as_ref().and_then(|ports| ports.next_inquiry());
        self.pending_inquiry = asked.map(|asked| {
            let left = match &asked.inquiry {
                Inquiry::Sockets { .. } => self.parts(now, true),
                Inquiry::Drop { .. } => self.parts(now, false),
                // Answered as a whole.
                _ => Vec::new(),
            };
            Box::new(PendingInquiry {
                asked,
                left,
                text: Vec::new(),
            })
        });
    }

    fn parts(&self, now: Instant, has_programs: bool) -> Vec<Part> {
        let subjects = subjects(&self.stack, now);
        let mut parts: Vec<Part> = subjects.into_iter().map(Part::OfStack).collect();
        let clients = self.env.clients.iter().enumerate();
        for (id, client) in clients.filter(|_| has_programs) {
            let socks = client.iter().flat_map(|client| client.sockets());
            parts.extend(socks.map(|sock| Part::OfProgram(ClientId(id as u32), sock)));
        }
        parts
    }

    pub(crate) fn run_inquiry(&mut self, now: Instant) -> bool {
        let Some(mut pending_inquiry) = self.pending_inquiry.take() else {
            return false;
        };
        for _ in 0..ROWS_PER_TURN {
            let Some(part) = pending_inquiry.left.pop() else {
                self.finish_inquiry(*pending_inquiry);
                self.take_next_inquiry(now);
                return true;
            };
            self.answer_part(now, &mut pending_inquiry, part);
        }
        self.pending_inquiry = Some(pending_inquiry);
        true
    }

    fn finish_inquiry(&mut self, mut pending_inquiry: PendingInquiry) {
        match &pending_inquiry.asked.inquiry {
            Inquiry::Counters => pending_inquiry.text = counters_text(&self.counter_rows()),
            Inquiry::Sockets { .. } | Inquiry::Drop { .. } => {}
            other => pending_inquiry.text = whole_text(&mut self.stack, self.env.now, other),
        }
        if let Some(ports) = &self.ports {
            ports.answer_inquiry(pending_inquiry.asked.id, &pending_inquiry.text);
        }
    }

    fn answer_part(&mut self, now: Instant, pending_inquiry: &mut PendingInquiry, part: Part) {
        let (filter, has_figures, is_end) = match &pending_inquiry.asked.inquiry {
            Inquiry::Sockets {
                filter,
                has_figures,
            } => (filter, *has_figures, false),
            Inquiry::Drop { filter } => (filter, false, true),
            _ => return,
        };
        let row = match part {
            Part::OfStack(subject) => self.stack_row(now, &subject, has_figures),
            Part::OfProgram(client, sock) => self.program_row(client, sock),
        };
        let Some(row) = row.filter(|row| filter.matches(row)) else {
            return;
        };
        if let (Part::OfStack(subject), true) = (part, is_end) {
            let mut fx = Fx::new(&mut self.env, &mut *self.device);
            if !end(&mut self.stack, now, &subject, &mut fx) {
                return;
            }
            self.run_deferred(now);
        }
        add_line(&mut pending_inquiry.text, &row);
    }

    fn stack_row(
        &mut self,
        now: Instant,
        subject: &Subject,
        has_figures: bool,
    ) -> Option<SocketRow> {
        let mut row = row(&self.stack, now, subject, has_figures)?;
        let Subject::Connection(conn) = *subject else {
            return Some(row);
        };
        let owner = self.env.conn_owner(conn)?;
        let client = self.env.client(owner.client)?;
        if let Some((socket, end)) = client.find(owner.sock) {
            row.is_held = !socket.is_closing;
            row.recv_q = socket.receive.unread(end, owner.sock);
            row.send_q = socket.send.head().saturating_sub(socket.send.acked());
        }
        Some(row)
    }

    /// A socket that is no connection.
    fn program_row(&mut self, client: ClientId, sock: SockId) -> Option<SocketRow> {
        let (socket, end) = self.env.client(client)?.find(sock)?;
        let bound = socket.bound().map(|bound| bound.addr)?;
        let plain = SocketRow {
            is_held: !socket.is_closing,
            ..SocketRow::between(SocketState::Closed, bound, None)
        };
        Some(match socket.role {
            Role::Listener(id) => SocketRow {
                state: SocketState::Listen,
                recv_q: socket.queue.as_ref().map_or(0, |queue| queue.waiting()),
                send_q: self.stack.tcp_backlog(id).into(),
                ..plain
            },
            Role::Datagram(id) => {
                let remote = self.stack.udp_remote(id);
                SocketRow {
                    protocol: Transport::Udp,
                    state: match remote {
                        Some(_) => SocketState::Established,
                        None => SocketState::Closed,
                    },
                    remote,
                    local: self.stack.udp_local(id).unwrap_or(bound),
                    recv_q: socket.receive.unread(end, sock),
                    rcvbuf: Some(socket.datagrams_max()),
                    ..plain
                }
            }
            Role::None if socket.kind == Transport::Tcp => plain,
            Role::None | Role::Stream(_) => return None,
        })
    }
}

/// Returns the answer of a stack without programs, the keeper's.
pub fn answer_of_stack(
    stack: &mut Stack,
    now: Instant,
    inquiry: &Inquiry,
    fx: &mut impl slipstack_stack::Effects,
) -> Vec<u8> {
    let mut text = Vec::new();
    let (filter, has_figures, is_end): (&Filter, bool, bool) = match inquiry {
        Inquiry::Sockets {
            filter,
            has_figures,
        } => (filter, *has_figures, false),
        Inquiry::Drop { filter } => (filter, false, true),
        Inquiry::Counters => {
            let counters = stack.counters().iter();
            let rows = counters.map(|(counter, value)| (counter.name().to_owned(), value));
            let rows = rows.chain(link_rows(stack));
            let rows: Vec<(String, u64)> = rows.filter(|(_, value)| *value > 0).collect();
            return counters_text(&rows);
        }
        other => return whole_text(stack, now, other),
    };
    for subject in subjects(stack, now) {
        let row = row(stack, now, &subject, has_figures).filter(|row| filter.matches(row));
        if let Some(row) = row
            && (!is_end || end(stack, now, &subject, fx))
        {
            add_line(&mut text, &row);
        }
    }
    text
}

/// Answers an inquiry that the stack answers alone and as a whole.
fn whole_text(stack: &mut Stack, now: Instant, inquiry: &Inquiry) -> Vec<u8> {
    match inquiry {
        Inquiry::FilterCounts => filter_text(stack),
        Inquiry::Tunables => tunables_text(stack),
        Inquiry::FilterStates => states_text(stack, now),
        Inquiry::ZeroFilter { ids, is_log_only } => {
            stack.zero_filter(ids.as_deref(), *is_log_only);
            Vec::new()
        }
        Inquiry::Ended {
            filter,
            has_figures,
            age_ms,
        } => {
            stack.tcp_watch_ended(now + WATCH);
            let age = Duration::from_millis((*age_ms).into());
            let since = Instant(now.as_nanos().saturating_sub(age.as_nanos() as u64));
            ended_text(stack, since, filter, *has_figures)
        }
        Inquiry::Counters | Inquiry::Sockets { .. } | Inquiry::Drop { .. } => Vec::new(),
    }
}

fn ended_text(stack: &Stack, since: Instant, filter: &Filter, has_figures: bool) -> Vec<u8> {
    let mut text = Vec::new();
    for it in stack.tcp_ended_since(since) {
        let row = rows::ended(it, has_figures);
        if filter.matches(&row.row) {
            add_line(&mut text, &row);
        }
    }
    text
}

fn filter_text(stack: &Stack) -> Vec<u8> {
    let mut text = Vec::new();
    for (id, count) in stack.filter_counts().filter(|(_, count)| count.packets > 0) {
        let row = FilterCountRow {
            id,
            packets: count.packets,
            bytes: count.bytes,
            last_ns: count.last.as_nanos(),
        };
        add_line(&mut text, &row);
    }
    text
}

fn tunables_text(stack: &Stack) -> Vec<u8> {
    let mut text = Vec::new();
    for tunable in Tunable::ALL {
        add_line(&mut text, &(tunable.name(), stack.tunable(*tunable)));
    }
    text
}

fn states_text(stack: &Stack, now: Instant) -> Vec<u8> {
    let mut text = Vec::new();
    for state in stack.filter_states(now) {
        let row = FilterStateRow {
            rule: state.rule,
            is_limited: state.is_limited,
            protocol: state.protocol,
            src: state.src,
            dst: state.dst,
            packets: state.packets,
            bytes: state.bytes,
            left_ms: state.left.as_millis() as u64,
        };
        add_line(&mut text, &row);
    }
    text
}

fn counters_text(rows: &[(String, u64)]) -> Vec<u8> {
    let mut text = Vec::new();
    for row in rows {
        add_line(&mut text, row);
    }
    text
}
