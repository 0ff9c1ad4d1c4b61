//! The beginning of a connection with TLS: a worker does the handshake.

use std::sync::{Arc, Mutex, PoisonError};

use slipstack_service::{Busy, ConnectionId};

use super::exchange::{Done, Exchange};
use super::server::{Cx, Http};
use super::status::Status;
use crate::tls::{Broken, Session, Transport};

/// A session that a worker has brought on.
#[derive(Debug)]
pub struct Shaken {
    session: Box<Session>,
    /// Bytes to be sent, also after an error.
    out: Vec<u8>,
    outcome: Result<(), Broken>,
}

impl Http {
    /// Begins a session if TLS is served; `None`: it cannot be had.
    pub(super) fn transport(&self) -> Option<Transport> {
        let Some(keys) = &self.options.keys else {
            return Some(Transport::Plain);
        };
        let session = Session::new(keys)?;
        Some(Transport::Tls(Box::new(session)))
    }

    /// Hands what has come of a handshake to a worker.
    pub(super) fn shake(&mut self, cx: &Cx<'_>, id: ConnectionId, state: &mut Exchange) {
        let Transport::Tls(session) = &mut state.transport else {
            return;
        };
        let bytes = cx.received(id).contiguous(session.room());
        session.take_in(&bytes);
        cx.consume(id, bytes.len());
        if session.is_something_else() {
            state.transport = Transport::Plain;
            return self.refuse(cx, id, state, Status::BadRequest);
        }
        let Transport::Tls(session) = std::mem::replace(&mut state.transport, Transport::Away)
        else {
            return;
        };
        // It stays here if no worker has time.
        let place = Arc::new(Mutex::new(Some(session)));
        let worker = Arc::clone(&place);
        let job = move || {
            let mut session = take(&worker)?;
            let mut out = Vec::new();
            let outcome = session.work(&mut out);
            Some(Shaken {
                session,
                out,
                outcome,
            })
        };
        if let Err(Busy) = cx.submit(id, move || Done::Shaken(job())) {
            if let Some(session) = take(&place) {
                state.transport = Transport::Tls(session);
            }
            cx.retry(id);
        }
    }

    /// Goes on with what a worker brings.
    pub(super) fn on_shaken(
        &mut self,
        cx: &Cx<'_>,
        id: ConnectionId,
        state: &mut Exchange,
        shaken: Shaken,
    ) {
        let is_sent = cx.write(id, &shaken.out) == shaken.out.len();
        if shaken.outcome.is_err() || !is_sent {
            // The alert is on its way.
            cx.consume(id, usize::MAX);
            return cx.close(id);
        }
        state.transport = Transport::Tls(shaken.session);
        if state.transport.is_ready() {
            state.is_timed = false;
            cx.set_timer(id, self.options.idle);
            return self.advance(cx, id, state);
        }
        if !cx.received(id).is_empty() {
            return self.shake(cx, id, state);
        }
        if state.has_ended {
            cx.close(id);
        }
    }
}

fn take(place: &Mutex<Option<Box<Session>>>) -> Option<Box<Session>> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}
