//! TLS state of one connection: decrypts records into bytes and encrypts bytes into records.

use std::fmt;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, WriteTraffic};

use super::keys::Keys;

/// Longest piece that becomes a record.
pub const RECORD_MAX: usize = 16 * 1024;
/// Bytes of a record beside its content, and of a whole alert.
pub const OVERHEAD: usize = 64;
/// Bytes that wait for the rest of their record or handshake message: the longest of those, which
/// is 64 KiB, with its records' heads.
pub const INCOMING_MAX: usize = 80 * 1024;
/// Decrypted bytes beyond which nothing more is taken from the receive ring.
const PLAIN_MAX: usize = 64 * 1024;

/// The peer has violated TLS; the output has the alert.
#[derive(Debug)]
pub struct Broken;

/// State of a session, about 1 KiB between two requests.
pub struct Session {
    connection: UnbufferedServerConnection,
    /// Records that are not complete.
    incoming: Vec<u8>,
    /// Decrypted bytes; those before `taken` are consumed.
    plain: Vec<u8>,
    taken: usize,
    /// Number of connections that are lent.
    lent: Option<usize>,
    is_begun: bool,
    is_handshake_done: bool,
    /// The peer's close_notify has come.
    has_ended: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("incoming", &self.incoming.len())
            .field("plain", &self.waiting())
            .field("is_handshake_done", &self.is_handshake_done)
            .finish_non_exhaustive()
    }
}

/// Data that a session sends of its own accord.
enum Send<'a> {
    Nothing,
    Bytes(&'a [u8]),
    Close,
}

impl Session {
    /// Begins a session; `None` if the configuration allows none.
    pub fn new(keys: &Keys) -> Option<Session> {
        Some(Session {
            connection: UnbufferedServerConnection::new(keys.config()).ok()?,
            incoming: Vec::new(),
            plain: Vec::new(),
            taken: 0,
            lent: None,
            is_begun: false,
            is_handshake_done: false,
            has_ended: false,
        })
    }

    /// Returns whether the handshake is over.
    pub fn is_handshake_done(&self) -> bool {
        self.is_handshake_done
    }

    /// Returns whether the peer has ended its stream.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Bytes that [`Session::take_in`] takes now.
    pub fn room(&self) -> usize {
        match self.waiting() < PLAIN_MAX && !self.has_ended {
            true => INCOMING_MAX - self.incoming.len().min(INCOMING_MAX),
            false => 0,
        }
    }

    /// Adds records, or parts of them; [`Session::work`] processes them.
    pub fn take_in(&mut self, bytes: &[u8]) {
        self.incoming.extend_from_slice(bytes);
    }

    /// Returns whether the first byte does not begin a handshake.
    pub fn is_something_else(&self) -> bool {
        const HANDSHAKE: u8 = 22;
        !self.is_begun && self.incoming.first().is_some_and(|it| *it != HANDSHAKE)
    }

    /// Processes received bytes, and appends output to `out`.
    ///
    /// # Errors
    /// The session is over.
    pub fn work(&mut self, out: &mut Vec<u8>) -> Result<(), Broken> {
        self.is_begun |= !self.incoming.is_empty();
        self.drive(out, Send::Nothing)?;
        match self.incoming.len() < INCOMING_MAX || self.waiting() >= PLAIN_MAX {
            true => Ok(()),
            false => Err(Broken),
        }
    }

    /// Puts bytes behind `out` as records.
    ///
    /// # Errors
    /// The session is over, or its handshake is not.
    pub fn seal(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
        self.drive(out, Send::Bytes(bytes))
    }

    /// Puts the notice behind `out` that nothing more is sent.
    ///
    /// # Errors
    /// As [`Session::seal`].
    pub fn close(&mut self, out: &mut Vec<u8>) -> Result<(), Broken> {
        self.drive(out, Send::Close)
    }

    fn drive(&mut self, out: &mut Vec<u8>, mut send: Send<'_>) -> Result<(), Broken> {
        loop {
            let status = self.connection.process_tls_records(&mut self.incoming);
            let mut discard = status.discard;
            let goes_on = match status.state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(|_| Broken)?;
                        discard += record.discard;
                        self.plain.extend_from_slice(record.payload);
                    }
                    true
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    fill(out, |room| data.encode(room).map_err(need_of_encode))?;
                    true
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    true
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.has_ended = true;
                    true
                }
                Ok(ConnectionState::WriteTraffic(traffic)) => {
                    self.is_handshake_done = true;
                    send.write(traffic, out)?;
                    false
                }
                Ok(ConnectionState::BlockedHandshake | ConnectionState::Closed) => false,
                Ok(_) => return Err(Broken),
                Err(_) => {
                    self.tell_alert(out);
                    return Err(Broken);
                }
            };
            self.incoming.drain(..discard.min(self.incoming.len()));
            if !goes_on {
                break;
            }
        }
        if self.incoming.is_empty() {
            self.incoming = Vec::new();
        }
        match send {
            Send::Bytes(left) if !left.is_empty() => Err(Broken),
            _ => Ok(()),
        }
    }

    /// Appends the alert after an error.
    fn tell_alert(&mut self, out: &mut Vec<u8>) {
        let mut nothing = [];
        while let Ok(ConnectionState::EncodeTlsData(mut data)) =
            self.connection.process_tls_records(&mut nothing).state
        {
            if fill(out, |room| data.encode(room).map_err(need_of_encode)).is_err() {
                return;
            }
        }
    }

    // Decrypted bytes.

    /// Number of decrypted bytes that wait.
    pub fn waiting(&self) -> usize {
        let len = self.lent.unwrap_or(self.plain.len());
        len.saturating_sub(self.taken)
    }

    /// Consumes up to `len` decrypted bytes, also while they are lent.
    pub fn consume(&mut self, len: usize) {
        self.taken = self.taken.saturating_add(len);
        if self.lent.is_none() {
            self.settle();
        }
    }

    /// Lends the decrypted bytes until [`Session::take_back`].
    pub(super) fn lend(&mut self) -> Vec<u8> {
        debug_assert!(self.lent.is_none());
        self.plain.drain(..std::mem::take(&mut self.taken));
        self.lent = Some(self.plain.len());
        std::mem::take(&mut self.plain)
    }

    pub(super) fn take_back(&mut self, lent: Vec<u8>) {
        debug_assert!(self.lent.is_some() && self.plain.is_empty());
        self.plain = lent;
        self.lent = None;
        self.settle();
    }

    /// An idle session keeps no buffer.
    fn settle(&mut self) {
        if self.taken >= self.plain.len() {
            (self.plain, self.taken) = (Vec::new(), 0);
        }
    }

    /// The session has broken: nothing more comes.
    pub(super) fn give_up(&mut self) {
        self.has_ended = true;
        self.incoming = Vec::new();
    }
}

impl Send<'_> {
    /// Writes it once.
    fn write<T>(&mut self, mut to: WriteTraffic<'_, T>, out: &mut Vec<u8>) -> Result<(), Broken> {
        match self {
            Send::Nothing => return Ok(()),
            Send::Bytes(bytes) => {
                let records = bytes.len().div_ceil(RECORD_MAX).max(1);
                out.reserve(bytes.len() + records * OVERHEAD);
                fill(out, |room| to.encrypt(bytes, room).map_err(need_of_encrypt))?;
            }
            Send::Close => {
                fill(out, |room| {
                    to.queue_close_notify(room).map_err(need_of_encrypt)
                })?;
            }
        }
        *self = Send::Nothing;
        Ok(())
    }
}

/// Bytes that are needed; `None`: more would not help.
type Need = Option<usize>;

fn need_of_encode(error: EncodeError) -> Need {
    match error {
        EncodeError::InsufficientSize(size) => Some(size.required_size),
        EncodeError::AlreadyEncoded => None,
    }
}

fn need_of_encrypt(error: EncryptError) -> Need {
    match error {
        EncryptError::InsufficientSize(size) => Some(size.required_size),
        EncryptError::EncryptExhausted => None,
    }
}

/// Has `write` write behind `out`, with as much room as it wants.
fn fill(
    out: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Need>,
) -> Result<(), Broken> {
    let at = out.len();
    let mut room = (out.capacity() - at).max(OVERHEAD);
    for _ in 0..2 {
        out.resize(at + room, 0);
        match write(&mut out[at..]) {
            Ok(len) => {
                out.truncate(at + len);
                return Ok(());
            }
            Err(Some(need)) => room = need,
            Err(None) => break,
        }
    }
    out.truncate(at);
    Err(Broken)
}
