//! A connection's bytes for a service: plain or through TLS.

use std::borrow::Cow;
use std::io::IoSlice;
use std::ops::Deref;

use slipstack_service::{ConnectionId, Context};

use super::session::{OVERHEAD, RECORD_MAX, Session};

/// Room in the send ring below which no record is started: shorter ones cost more than they carry.
const ROOM_MIN: usize = 1024;

/// The way between a connection and its service.
#[derive(Debug, Default)]
pub enum Transport {
    #[default]
    Plain,
    Tls(Box<Session>),
    /// A worker has the session.
    Away,
}

/// Bytes that have come, in one piece.
pub enum Lent<'a> {
    Ring(Cow<'a, [u8]>),
    /// Decrypted ones, of which as many are to be seen.
    Plain(Vec<u8>, usize),
}

impl Deref for Lent<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Lent::Ring(bytes) => bytes,
            Lent::Plain(bytes, len) => &bytes[..*len],
        }
    }
}

impl Transport {
    /// Returns whether the service may process bytes: there is no handshake in progress.
    #[inline]
    pub fn is_ready(&self) -> bool {
        match self {
            Transport::Plain => true,
            Transport::Tls(session) => session.is_handshake_done(),
            Transport::Away => false,
        }
    }

    /// Lends up to `max` of the bytes that wait.
    #[inline]
    pub fn lend<'a, R>(
        &mut self,
        cx: &'a Context<'_, R>,
        id: ConnectionId,
        max: usize,
    ) -> Lent<'a> {
        match self {
            Transport::Plain => Lent::Ring(cx.received(id).contiguous(max)),
            Transport::Tls(session) => {
                pull(session, cx, id);
                let bytes = session.lend();
                let len = bytes.len().min(max);
                Lent::Plain(bytes, len)
            }
            Transport::Away => Lent::Ring(Cow::Borrowed(&[])),
        }
    }

    /// Ends [`Transport::lend`].
    #[inline]
    pub fn take_back(&mut self, lent: Lent<'_>) {
        if let (Transport::Tls(session), Lent::Plain(bytes, _)) = (self, lent) {
            session.take_back(bytes);
        }
    }

    /// Takes up to `len` of the bytes that wait, also of lent ones.
    #[inline]
    pub fn consume<R>(&mut self, cx: &Context<'_, R>, id: ConnectionId, len: usize) {
        match self {
            Transport::Tls(session) => session.consume(len),
            Transport::Plain | Transport::Away => cx.consume(id, len),
        }
    }

    /// Drops received bytes.
    pub fn discard<R>(&mut self, cx: &Context<'_, R>, id: ConnectionId) {
        cx.consume(id, usize::MAX);
        if let Transport::Tls(session) = self {
            session.consume(usize::MAX);
        }
    }

    /// Returns whether all that comes of a peer that has ended has been consumed.
    #[inline]
    pub fn is_drained(&self) -> bool {
        match self {
            Transport::Plain => true,
            Transport::Tls(session) => session.waiting() == 0,
            Transport::Away => false,
        }
    }

    /// Returns whether the peer has ended its stream, by TCP or by TLS.
    #[inline]
    pub fn has_ended<R>(&self, cx: &Context<'_, R>, id: ConnectionId) -> bool {
        cx.has_ended(id) || matches!(self, Transport::Tls(session) if session.has_ended())
    }

    /// Returns how many bytes could be written whole now.
    pub fn room<R>(&self, cx: &Context<'_, R>, id: ConnectionId) -> usize {
        match self {
            Transport::Plain => cx.room(id),
            Transport::Tls(_) => cx.room(id).saturating_sub(OVERHEAD),
            Transport::Away => 0,
        }
    }

    /// Writes as many of the bytes as there is room for; [`slipstack_service::Service::on_room`]
    /// follows if those are not all.
    pub fn write<R>(
        &mut self,
        cx: &Context<'_, R>,
        id: ConnectionId,
        pieces: &[IoSlice<'_>],
    ) -> usize {
        match self {
            Transport::Plain => cx.write_vectored(id, pieces),
            Transport::Tls(session) => seal(session, cx, id, pieces),
            Transport::Away => 0,
        }
    }

    /// Writes all of the pieces if there is room for them, and otherwise nothing.
    #[inline]
    pub fn write_whole<R>(
        &mut self,
        cx: &Context<'_, R>,
        id: ConnectionId,
        pieces: &[IoSlice<'_>],
    ) -> bool {
        match self {
            Transport::Plain => cx.write_all(id, pieces).is_ok(),
            Transport::Tls(session) => {
                let len: usize = pieces.iter().map(|piece| piece.len()).sum();
                let records = len.div_ceil(RECORD_MAX);
                len + records * OVERHEAD <= cx.room(id) && seal(session, cx, id, pieces) == len
            }
            Transport::Away => false,
        }
    }

    /// Ends our stream; the peer's data is still received.
    pub fn shutdown<R>(&mut self, cx: &Context<'_, R>, id: ConnectionId) {
        self.notify(cx, id);
        cx.shutdown(id);
    }

    /// Lets go of the connection in order.
    pub fn close<R>(&mut self, cx: &Context<'_, R>, id: ConnectionId) {
        self.notify(cx, id);
        cx.close(id);
    }

    fn notify<R>(&mut self, cx: &Context<'_, R>, id: ConnectionId) {
        if let Transport::Tls(session) = self {
            let mut out = Vec::new();
            // A session that is over has nothing to say.
            let _ = session.close(&mut out);
            cx.write(id, &out);
        }
    }
}

/// Decrypts received bytes. After an error the session is as if the peer had ended.
fn pull<R>(session: &mut Session, cx: &Context<'_, R>, id: ConnectionId) {
    let mut out = Vec::new();
    loop {
        if session.has_ended() {
            // Nothing that comes after the notice counts.
            return cx.consume(id, usize::MAX);
        }
        let bytes = cx.received(id).contiguous(session.room());
        if bytes.is_empty() {
            return;
        }
        session.take_in(&bytes);
        cx.consume(id, bytes.len());
        let outcome = session.work(&mut out);
        let is_sent = cx.write(id, &out) == out.len();
        out.clear();
        if outcome.is_err() || !is_sent {
            return session.give_up();
        }
    }
}

/// Encrypts the pieces into the send ring, as far as there is room.
fn seal<R>(
    session: &mut Session,
    cx: &Context<'_, R>,
    id: ConnectionId,
    pieces: &[IoSlice<'_>],
) -> usize {
    let wanted: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut written = 0;
    let (mut record, mut out) = (Vec::new(), Vec::new());
    while written < wanted {
        let room = cx.room(id);
        let len = (wanted - written).min(RECORD_MAX);
        if room < ROOM_MIN.min(len + OVERHEAD) {
            cx.await_room(id);
            break;
        }
        let len = len.min(room - OVERHEAD.min(room));
        out.clear();
        if session
            .seal(gather(pieces, written, len, &mut record), &mut out)
            .is_err()
        {
            cx.reset(id);
            break;
        }
        if cx.write(id, &out) < out.len() {
            // Half a record is useless.
            cx.reset(id);
            break;
        }
        written += len;
    }
    written
}

/// Returns `len` bytes of the pieces from `at` on, copied to `record` only if they are in several.
fn gather<'a>(
    pieces: &'a [IoSlice<'_>],
    mut at: usize,
    mut len: usize,
    record: &'a mut Vec<u8>,
) -> &'a [u8] {
    record.clear();
    for piece in pieces {
        if at >= piece.len() {
            at -= piece.len();
            continue;
        }
        let rest = &piece[at..];
        if record.is_empty() && rest.len() >= len {
            return &rest[..len];
        }
        let taken = rest.len().min(len);
        record.extend_from_slice(&rest[..taken]);
        (at, len) = (0, len - taken);
        if len == 0 {
            break;
        }
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_assembled_from_pieces() {
        let pieces = [b"abc".as_slice(), b"", b"defg"].map(IoSlice::new);
        let mut record = Vec::new();
        for at in 0..7 {
            for len in 1..=7 - at {
                let gathered = gather(&pieces, at, len, &mut record).to_vec();
                assert_eq!(gathered, b"abcdefg"[at..at + len], "{at} {len}");
            }
        }
    }
}
