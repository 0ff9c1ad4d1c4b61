//! Messages signed with a shared key (TSIG, RFC 8945).

use std::collections::HashMap;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};

use super::edns::add_additional;
use super::message::{u16_at, u32_at};
use super::name;
use super::types::{CLASS_ANY, TSIG};

/// Seconds by which clocks may differ.
const FUDGE: u16 = 300;
/// RFC 8945 5.3.1: messages of a transfer that may go unsigned between signed ones.
const UNSIGNED_MAX: u32 = 99;
/// RFC 8945 5.2.2.1: a shorter code is no proof.
const MAC_MIN: usize = 10;

/// Codes of the error field.
pub mod error {
    pub const NONE: u16 = 0;
    pub const BAD_SIGNATURE: u16 = 16;
    pub const BAD_KEY: u16 = 17;
    pub const BAD_TIME: u16 = 18;
}

/// Hash functions by which keys sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

impl Algorithm {
    pub const ALL: [Algorithm; 4] = [
        Algorithm::Sha1,
        Algorithm::Sha256,
        Algorithm::Sha384,
        Algorithm::Sha512,
    ];

    pub fn text(self) -> &'static str {
        match self {
            Algorithm::Sha1 => "hmac-sha1",
            Algorithm::Sha256 => "hmac-sha256",
            Algorithm::Sha384 => "hmac-sha384",
            Algorithm::Sha512 => "hmac-sha512",
        }
    }

    fn wire_name(self) -> Vec<u8> {
        let text = self.text().as_bytes();
        [&[text.len() as u8], text, &[0]].concat()
    }

    /// The code over some bytes.
    fn code(self, secret: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
        fn of<M: Mac + KeyInit>(secret: &[u8], pieces: &[&[u8]]) -> Vec<u8> {
            // HMAC takes keys of any length.
            let Ok(mut mac) = <M as KeyInit>::new_from_slice(secret) else {
                return Vec::new();
            };
            pieces.iter().for_each(|piece| mac.update(piece));
            mac.finalize().into_bytes().to_vec()
        }
        match self {
            Algorithm::Sha1 => of::<Hmac<Sha1>>(secret, pieces),
            Algorithm::Sha256 => of::<Hmac<Sha256>>(secret, pieces),
            Algorithm::Sha384 => of::<Hmac<Sha384>>(secret, pieces),
            Algorithm::Sha512 => of::<Hmac<Sha512>>(secret, pieces),
        }
    }
}

/// A key that both sides know.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// In wire format and lower case.
    pub name: Vec<u8>,
    pub algorithm: Algorithm,
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key")
            .field("name", &name::text(&self.name))
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// Keys by name.
pub type Keys = HashMap<Vec<u8>, Arc<Key>>;

/// A parsed TSIG record.
struct Fields<'a> {
    name: Vec<u8>,
    algorithm: Vec<u8>,
    time: u64,
    fudge: u16,
    mac: &'a [u8],
    original_id: u16,
    error: u16,
    other: &'a [u8],
}

fn fields(message: &[u8], at: usize) -> Option<Fields<'_>> {
    let (owner, fixed) = name::expand(message, at)?;
    let (algorithm, at) = name::expand(message, fixed + 10)?;
    let time = u64::from(u16_at(message, at)?) << 32 | u64::from(u32_at(message, at + 2)?);
    let mac_len = usize::from(u16_at(message, at + 8)?);
    let after = at + 10 + mac_len;
    Some(Fields {
        name: name::lower(&owner),
        algorithm: name::lower(&algorithm),
        time,
        fudge: u16_at(message, at + 6)?,
        mac: message.get(at + 10..after)?,
        original_id: u16_at(message, after)?,
        error: u16_at(message, after + 2)?,
        other: message.get(after + 6..after + 6 + usize::from(u16_at(message, after + 4)?))?,
    })
}

/// The time field and the fudge, which later messages of a transfer sign as well.
fn timers(time: u64, fudge: u16) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(&time.to_be_bytes()[2..]);
    bytes[6..].copy_from_slice(&fudge.to_be_bytes());
    bytes
}

/// Reasons for rejecting a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distrust {
    Malformed,
    BadKey,
    BadSignature,
    BadTime,
    /// A message of a transfer that should have been signed.
    Unsigned,
    /// The other side rejects our message, with this code.
    Refused(u16),
}

impl Distrust {
    fn code(self) -> u16 {
        match self {
            Distrust::BadKey => error::BAD_KEY,
            Distrust::BadTime => error::BAD_TIME,
            _ => error::BAD_SIGNATURE,
        }
    }
}

/// An exchange under one key: each message signs the code of the one before.
#[derive(Clone, Debug)]
pub struct Session {
    key: Arc<Key>,
    prior: Vec<u8>,
    /// Messages that have come unsigned.
    unsigned: Vec<u8>,
    unsigned_count: u32,
    is_first: bool,
}

/// A rejected request, and the signer of the response, if there is one.
#[derive(Debug)]
pub struct Rejected {
    pub why: Distrust,
    session: Option<Session>,
    key_name: Vec<u8>,
    algorithm: Vec<u8>,
    time: u64,
}

impl Session {
    fn new(key: Arc<Key>) -> Session {
        Session {
            key,
            prior: Vec::new(),
            unsigned: Vec::new(),
            unsigned_count: 0,
            is_first: true,
        }
    }

    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Verifies a request whose TSIG record begins at `at` (RFC 8945 5.2).
    ///
    /// # Errors
    /// The signature is not valid.
    pub fn accept(
        message: &[u8],
        at: usize,
        keys: &Keys,
        now: u64,
    ) -> Result<Session, Box<Rejected>> {
        let Some(fields) = fields(message, at) else {
            return Err(Box::new(Rejected::malformed()));
        };
        let rejected = |why, session| {
            Box::new(Rejected {
                why,
                session,
                key_name: fields.name.clone(),
                algorithm: fields.algorithm.clone(),
                time: fields.time,
            })
        };
        let key = keys.get(&fields.name);
        let key = key.filter(|key| key.algorithm.wire_name() == fields.algorithm);
        let Some(key) = key else {
            return Err(rejected(Distrust::BadKey, None));
        };
        let mut session = Session::new(Arc::clone(key));
        if !session.matches(message, at, &fields) {
            return Err(rejected(Distrust::BadSignature, None));
        }
        session.prior = fields.mac.to_vec();
        // RFC 8945 5.2.3: a response about the time is signed.
        match now.abs_diff(fields.time) <= fields.fudge.into() {
            true => Ok(session),
            false => Err(rejected(Distrust::BadTime, Some(session))),
        }
    }

    /// Signs a request.
    pub fn request(key: Arc<Key>, message: &mut Vec<u8>, now: u64) -> Session {
        let mut session = Session::new(key);
        session.sign(message, now);
        session.is_first = true;
        session
    }

    /// Returns whether the code in the record is that of the message before it.
    fn matches(&self, message: &[u8], at: usize, fields: &Fields<'_>) -> bool {
        let mut header = [0; 12];
        header.copy_from_slice(&message[..12]);
        header[..2].copy_from_slice(&fields.original_id.to_be_bytes());
        let count = u16_at(message, 10).unwrap_or(0).wrapping_sub(1);
        header[10..].copy_from_slice(&count.to_be_bytes());
        let code = self.code(
            &[&self.unsigned, &header, &message[12..at]],
            fields.time,
            fields.fudge,
            (fields.error, fields.other),
        );
        let given = fields.mac;
        // RFC 8945 5.2.2.1: a code may be cut to half its length.
        let is_long_enough = given.len() >= MAC_MIN.max(code.len() / 2);
        is_long_enough && given.len() <= code.len() && is_equal(&code[..given.len()], given)
    }

    fn code(&self, message: &[&[u8]], time: u64, fudge: u16, error: (u16, &[u8])) -> Vec<u8> {
        let prior_len = (self.prior.len() as u16).to_be_bytes();
        let mut pieces: Vec<&[u8]> = Vec::with_capacity(8);
        if !self.prior.is_empty() {
            pieces.extend([&prior_len[..], &self.prior]);
        }
        pieces.extend(message);
        let (timers, variables) = (timers(time, fudge), self.variables(error));
        if self.is_first {
            pieces.extend([&variables.before[..], &timers, &variables.after]);
        } else {
            pieces.push(&timers);
        }
        self.key.algorithm.code(&self.key.secret, &pieces)
    }

    fn variables(&self, (error, other): (u16, &[u8])) -> Variables {
        let mut before = self.key.name.clone();
        before.extend_from_slice(&CLASS_ANY.to_be_bytes());
        before.extend_from_slice(&[0; 4]);
        before.extend_from_slice(&self.key.algorithm.wire_name());
        let mut after = error.to_be_bytes().to_vec();
        after.extend_from_slice(&(other.len() as u16).to_be_bytes());
        after.extend_from_slice(other);
        Variables { before, after }
    }

    /// Signs the next message of the exchange.
    pub fn sign(&mut self, message: &mut Vec<u8>, now: u64) {
        self.sign_error(message, now, error::NONE, &[]);
    }

    fn sign_error(&mut self, message: &mut Vec<u8>, time: u64, error: u16, other: &[u8]) {
        let code = self.code(&[message], time, FUDGE, (error, other));
        let algorithm = self.key.algorithm.wire_name();
        put_record(
            message,
            &self.key.name,
            &algorithm,
            (time, &code),
            (error, other),
        );
        self.prior = code;
        self.is_first = false;
    }

    /// Length of the record that [`Session::sign`] adds, at most.
    pub fn record_len(&self) -> usize {
        const FIXED: usize = 10 + 6 + 2 + 2 + 2 + 2 + 2 + 6;
        self.key.name.len() + self.key.algorithm.wire_name().len() + FIXED + 64
    }

    /// Verifies the next response, whose TSIG record begins at `at` if it has one (RFC 8945 5.3.1).
    ///
    /// # Errors
    /// The signature is not valid.
    pub fn verify(&mut self, message: &[u8], at: Option<usize>, now: u64) -> Result<(), Distrust> {
        let Some(at) = at else {
            self.unsigned.extend_from_slice(message);
            self.unsigned_count += 1;
            let may_be = !self.is_first && self.unsigned_count <= UNSIGNED_MAX;
            return may_be.then_some(()).ok_or(Distrust::Unsigned);
        };
        let fields = fields(message, at).ok_or(Distrust::Malformed)?;
        if matches!(fields.error, error::BAD_KEY | error::BAD_SIGNATURE) {
            return Err(Distrust::Refused(fields.error));
        }
        if fields.name != self.key.name || !self.matches(message, at, &fields) {
            return Err(Distrust::BadSignature);
        }
        if fields.error != error::NONE {
            return Err(Distrust::Refused(fields.error));
        }
        if now.abs_diff(fields.time) > fields.fudge.into() {
            return Err(Distrust::BadTime);
        }
        self.prior = fields.mac.to_vec();
        self.unsigned.clear();
        self.unsigned_count = 0;
        self.is_first = false;
        Ok(())
    }

    /// Returns whether the last message was signed: a transfer may not end without.
    pub fn is_settled(&self) -> bool {
        self.unsigned_count == 0
    }
}

struct Variables {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Rejected {
    fn malformed() -> Rejected {
        Rejected {
            why: Distrust::Malformed,
            session: None,
            key_name: Vec::new(),
            algorithm: Vec::new(),
            time: 0,
        }
    }

    /// Adds the record with the reason to a response with code NOTAUTH.
    pub fn put_record(self, message: &mut Vec<u8>, now: u64) {
        if self.key_name.is_empty() {
            return;
        }
        match self.session {
            Some(mut session) => {
                let other = &now.to_be_bytes()[2..];
                session.sign_error(message, self.time, error::BAD_TIME, other);
            }
            None => put_record(
                message,
                &self.key_name,
                &self.algorithm,
                (self.time, &[]),
                (self.why.code(), &[]),
            ),
        }
    }
}

fn put_record(
    message: &mut Vec<u8>,
    owner: &[u8],
    algorithm: &[u8],
    (time, code): (u64, &[u8]),
    (error, other): (u16, &[u8]),
) {
    let id = [message[0], message[1]];
    let mut data = algorithm.to_vec();
    data.extend_from_slice(&timers(time, FUDGE));
    data.extend_from_slice(&(code.len() as u16).to_be_bytes());
    data.extend_from_slice(code);
    data.extend_from_slice(&id);
    data.extend_from_slice(&error.to_be_bytes());
    data.extend_from_slice(&(other.len() as u16).to_be_bytes());
    data.extend_from_slice(other);
    message.extend_from_slice(owner);
    message.extend_from_slice(&TSIG.to_be_bytes());
    message.extend_from_slice(&CLASS_ANY.to_be_bytes());
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(&(data.len() as u16).to_be_bytes());
    message.extend_from_slice(&data);
    add_additional(message);
}

/// Compares in constant time, so that the time does not reveal the first difference.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: &[u8]) -> Arc<Key> {
        Arc::new(Key {
            name: b"\x01k\0".to_vec(),
            algorithm: Algorithm::Sha256,
            secret: secret.to_vec(),
        })
    }

    fn keys(key: &Arc<Key>) -> Keys {
        HashMap::from([(key.name.clone(), Arc::clone(key))])
    }

    const QUERY: &[u8] = b"\0\x07\0\0\0\x01\0\0\0\0\0\0\x01a\0\0\x06\0\x01";

    #[test]
    fn a_signed_request_and_its_responses_verify() {
        let key = key(b"secret");
        let mut request = QUERY.to_vec();
        let mut client = Session::request(Arc::clone(&key), &mut request, 1000);
        let mut server = Session::accept(&request, QUERY.len(), &keys(&key), 1300).unwrap();
        for number in 0..3 {
            let mut response = QUERY.to_vec();
            response[2] = 0x80;
            response[14] = b'a' + number;
            server.sign(&mut response, 1300);
            client.verify(&response, Some(QUERY.len()), 1300).unwrap();
        }
        // An unsigned message may be between signed ones, and is covered by the next signature.
        assert_eq!(client.verify(QUERY, None, 1300), Ok(()));
        assert!(!client.is_settled());
        let mut response = QUERY.to_vec();
        server.sign(&mut response, 1300);
        let verified = client.verify(&response, Some(QUERY.len()), 1300);
        assert_eq!(
            verified,
            Err(Distrust::BadSignature),
            "the server signed less"
        );
    }

    #[test]
    fn changed_late_or_wrongly_keyed_messages_do_not_verify() {
        let own = key(b"secret");
        let mut request = QUERY.to_vec();
        Session::request(Arc::clone(&own), &mut request, 1000);
        let at = QUERY.len();
        let why = |request: &[u8], keys: &Keys, now| {
            let accepted = Session::accept(request, at, keys, now);
            accepted.map(|_| ()).map_err(|rejected| rejected.why)
        };
        let known = keys(&own);
        assert_eq!(why(&request, &known, 1000), Ok(()));
        assert_eq!(why(&request, &known, 1301), Err(Distrust::BadTime));
        let other = keys(&key(b"other"));
        assert_eq!(why(&request, &other, 1000), Err(Distrust::BadSignature));
        assert_eq!(why(&request, &Keys::new(), 1000), Err(Distrust::BadKey));
        for place in 2..at {
            let mut changed = request.clone();
            changed[place] ^= 1;
            if place != 11 {
                let found = why(&changed, &known, 1000);
                assert_eq!(found, Err(Distrust::BadSignature), "{place}");
            }
        }
    }
}
