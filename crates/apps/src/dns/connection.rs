//! One TCP connection: queries, a transfer out, or a transfer in.

use std::io::IoSlice;
use std::net::IpAddr;
use std::sync::Arc;

use slipstack_service::{ConnectionId, Context};

use super::install;
use super::message::TCP_MAX;
use super::responder::{Arrival, unix_now};
use super::server::Dns;
use super::transfer::{Incoming, Outgoing, Progress};

/// See the [module documentation](self).
#[derive(Debug)]
pub enum Connection {
    /// From this address.
    Queries(IpAddr),
    TransferOut(IpAddr, Box<Outgoing>),
    /// With the manager's tag.
    TransferIn(u64, Box<Incoming>),
    /// Nothing more is wanted.
    Done,
}

/// Messages that are answered in one go: then it is the turn of other connections.
const MESSAGES_MAX: usize = 256;

impl Dns {
    pub(super) fn begin_transfer_in(
        &mut self,
        cx: &Context<'_>,
        id: ConnectionId,
        tag: u64,
    ) -> Option<Connection> {
        let zones = Arc::clone(self.responder.zones());
        let Some(mut incoming) = self.manager.begin(tag, &zones) else {
            let why = "the zone or the primary's key is gone".to_owned();
            self.finish(cx, tag, Err(why), &zones);
            return None;
        };
        let query = incoming.probe(unix_now());
        send(cx, id, &query).then(|| Connection::TransferIn(tag, Box::new(incoming)))
    }

    /// Processes received messages, and sends as much as there is room for.
    pub(super) fn read(&mut self, cx: &Context<'_>, id: ConnectionId, connection: &mut Connection) {
        for _ in 0..MESSAGES_MAX {
            if let Connection::TransferOut(ip, outgoing) = connection {
                if !put_messages(cx, id, outgoing) {
                    return;
                }
                self.transfer_is_over();
                *connection = Connection::Queries(*ip);
            }
            let received = cx.received(id);
            let bytes = received.contiguous(2 + TCP_MAX);
            let Some((length, rest)) = bytes.split_first_chunk::<2>() else {
                return;
            };
            let length = usize::from(u16::from_be_bytes(*length));
            let Some(message) = rest.get(..length) else {
                return;
            };
            let is_taken = match connection {
                Connection::Queries(ip) => {
                    let ip = *ip;
                    self.answer(cx, id, ip, message, connection)
                }
                Connection::TransferIn(..) => {
                    self.take(cx, id, message, connection);
                    true
                }
                Connection::TransferOut(..) | Connection::Done => return,
            };
            if !is_taken {
                return;
            }
            cx.consume(id, 2 + length);
            if matches!(connection, Connection::Done) {
                return cx.close(id);
            }
        }
        cx.retry(id);
    }

    /// Answers a query. `false`: it stays in the ring until there is room for its answer.
    fn answer(
        &mut self,
        cx: &Context<'_>,
        id: ConnectionId,
        ip: IpAddr,
        message: &[u8],
        connection: &mut Connection,
    ) -> bool {
        let arrival = Arrival {
            ip,
            is_tcp: true,
            now_ns: cx.now_ns(),
        };
        let Some(reply) = self.responder.respond(message, arrival) else {
            // A response or an unreadable header gets no answer.
            match self.responder.take_transfer() {
                Some(outgoing) if self.may_transfer() => {
                    *connection = Connection::TransferOut(ip, outgoing);
                    return true;
                }
                _ => cx.reset(id),
            }
            return false;
        };
        send(cx, id, reply)
    }

    /// Takes a message of a transfer in.
    fn take(
        &mut self,
        cx: &Context<'_>,
        id: ConnectionId,
        message: &[u8],
        connection: &mut Connection,
    ) {
        let Connection::TransferIn(tag, incoming) = connection else {
            return;
        };
        let tag = *tag;
        let outcome = match incoming.take(message, unix_now()) {
            Ok(Progress::More) => return,
            Ok(Progress::Ask(query)) if send(cx, id, &query) => return,
            Ok(Progress::Ask(_)) => Err("there is no room for a query".to_owned()),
            Ok(Progress::Current) => Ok(None),
            Ok(Progress::Done) => {
                let whole = std::mem::replace(connection, Connection::Done);
                if let Connection::TransferIn(_, incoming) = whole {
                    install::start(&self.options.common, *incoming, self.options.log);
                }
                return;
            }
            Err(error) => Err(error.to_string()),
        };
        *connection = Connection::Done;
        let zones = Arc::clone(self.responder.zones());
        self.finish(cx, tag, outcome, &zones);
    }
}

/// Writes a message with its length. `false`: there is no room for it yet.
fn send(cx: &Context<'_>, id: ConnectionId, message: &[u8]) -> bool {
    let prefix = (message.len() as u16).to_be_bytes();
    let pieces = [IoSlice::new(&prefix), IoSlice::new(message)];
    cx.write_all(id, &pieces).is_ok()
}

/// Writes messages of a transfer as long as there is room. `true`: all are written.
fn put_messages(cx: &Context<'_>, id: ConnectionId, outgoing: &mut Outgoing) -> bool {
    loop {
        let waiting = outgoing.waiting.take();
        let Some(message) = waiting.or_else(|| outgoing.next_message(unix_now())) else {
            return true;
        };
        if !send(cx, id, &message) {
            outgoing.waiting = Some(message);
            return false;
        }
    }
}
