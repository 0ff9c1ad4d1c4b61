//! TLS handshake, which a worker carries out.

use std::sync::{Arc, Mutex, PoisonError};

use slipstack_service::{Busy, ConnectionId, Context};

use super::keys::Keys;
use super::session::{Broken, Session};
use super::transport::Transport;

/// A session that a worker has advanced.
#[derive(Debug)]
pub struct HandshakeResult {
    session: Box<Session>,
    /// Bytes to be sent, also after an error.
    out: Vec<u8>,
    outcome: Result<(), Broken>,
}

/// The destination of the bytes of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handed {
    /// A worker has the connection's bytes, or will get them.
    On,
    /// The bytes begin no handshake; the transport is plain from now on.
    SomethingElse,
}

impl Transport {
    /// Begins a session if there are keys; `None`: it cannot be had.
    pub fn new(keys: Option<&Keys>) -> Option<Transport> {
        let Some(keys) = keys else {
            return Some(Transport::Plain);
        };
        let session = Session::new(keys)?;
        Some(Transport::Tls(Box::new(session)))
    }

    /// Hands received bytes of a handshake to a worker. `result` wraps its result as one of the
    /// service's, which goes to [`Transport::on_handshake_result`]; `None`: it cannot continue.
    pub fn advance_handshake<R: Send + 'static>(
        &mut self,
        cx: &Context<'_, R>,
        id: ConnectionId,
        result: impl FnOnce(Option<HandshakeResult>) -> R + Send + 'static,
    ) -> Handed {
        let Transport::Tls(session) = self else {
            return Handed::On;
        };
        let bytes = cx.received(id).contiguous(session.room());
        session.take_in(&bytes);
        cx.consume(id, bytes.len());
        if session.is_something_else() {
            *self = Transport::Plain;
            return Handed::SomethingElse;
        }
        let Transport::Tls(session) = std::mem::replace(self, Transport::Away) else {
            return Handed::On;
        };
        // The session stays here if no worker has time.
        let place = Arc::new(Mutex::new(Some(session)));
        let worker = Arc::clone(&place);
        let job = move || {
            let mut session = take(&worker)?;
            let mut out = Vec::new();
            let outcome = session.work(&mut out);
            Some(HandshakeResult {
                session,
                out,
                outcome,
            })
        };
        if let Err(Busy) = cx.submit(id, move || result(job())) {
            if let Some(session) = take(&place) {
                *self = Transport::Tls(session);
            }
            cx.retry(id);
        }
        Handed::On
    }

    /// Continues with a worker's result.
    ///
    /// # Errors
    /// The session is over, and its alert is being sent: the connection is to be closed.
    pub fn on_handshake_result<R>(
        &mut self,
        cx: &Context<'_, R>,
        id: ConnectionId,
        result: HandshakeResult,
    ) -> Result<(), Broken> {
        let is_sent = cx.write(id, &result.out) == result.out.len();
        if result.outcome.is_err() || !is_sent {
            cx.consume(id, usize::MAX);
            return Err(Broken);
        }
        *self = Transport::Tls(result.session);
        Ok(())
    }
}

fn take(place: &Mutex<Option<Box<Session>>>) -> Option<Box<Session>> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}
