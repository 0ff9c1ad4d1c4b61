//! Cache of complete responses: a table of fixed size in which a newer response replaces an older
//! one.

use super::answer::{Kind, Rendered};
use super::hash::Hasher;
use super::message::Query;
use super::name::NAME_MAX;

/// Answers that each engine keeps; a power of two.
const PLACES: usize = 1 << 16;
/// Questions that have been seen, by fingerprint.
const SEEN: usize = 8192;
/// Question, room, and whether signatures are wanted.
const KEY_MAX: usize = NAME_MAX + 4 + 3;

/// A cached answer: its key and its bytes are contiguous.
#[derive(Debug)]
struct CachedAnswer {
    hash: u64,
    key_len: u16,
    rcode: u8,
    kind: Kind,
    source_len: u8,
    bytes: Box<[u8]>,
}

/// An answer as it is found.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    pub bytes: &'a [u8],
    pub kind: Kind,
    pub source_len: u8,
    pub rcode: u8,
}

/// See the [module documentation](self).
#[derive(Debug)]
pub struct Ready {
    places: Vec<Option<CachedAnswer>>,
    hasher: Hasher,
    /// The key of [`Ready::look_for`], and its hash.
    key: [u8; KEY_MAX],
    key_len: usize,
    hash: u64,
    /// See [`Ready::is_new`].
    seen: Box<[u32]>,
}

impl Ready {
    pub fn new(seed: u64) -> Ready {
        Ready {
            places: Vec::new(),
            hasher: Hasher::new(seed),
            key: [0; KEY_MAX],
            key_len: 0,
            hash: 0,
            seen: Box::default(),
        }
    }

    /// Records the query: the question in lower case, the room for its answer, and whether
    /// signatures are wanted. The methods below work on that query.
    #[inline]
    pub fn look_for(&mut self, query: &Query<'_>, room: usize) {
        let len = query.question.len();
        let name_len = query.qname.len();
        let bytes = &mut self.key[..len + 3];
        bytes[..len].copy_from_slice(query.question);
        bytes[..name_len].make_ascii_lowercase();
        let is_dnssec_ok = query.edns.is_some_and(|edns| edns.is_dnssec_ok);
        let [high, low] = (room as u16).to_be_bytes();
        bytes[len..].copy_from_slice(&[high, low, u8::from(is_dnssec_ok)]);
        self.hash = self.hasher.hash(bytes);
        self.key_len = len + 3;
    }

    #[inline]
    pub fn find(&self) -> Option<Hit<'_>> {
        let at = self.hash as usize & (PLACES - 1);
        let place = self.places.get(at)?.as_ref()?;
        let (own, bytes) = place.bytes.split_at_checked(place.key_len.into())?;
        let is_it = place.hash == self.hash && own == &self.key[..self.key_len];
        is_it.then_some(Hit {
            bytes,
            kind: place.kind,
            source_len: place.source_len,
            rcode: place.rcode,
        })
    }

    /// Returns whether the question is new, as far as fingerprints show: it may never be repeated.
    pub fn is_new(&mut self) -> bool {
        if self.seen.is_empty() {
            self.seen = vec![0; SEEN].into();
        }
        let print = (self.hash >> 32) as u32 | 1;
        let place = &mut self.seen[self.hash as usize % SEEN];
        std::mem::replace(place, print) != print
    }

    pub fn keep(&mut self, rendered: &Rendered) {
        if self.places.is_empty() {
            self.places.resize_with(PLACES, || None);
        }
        let key = &self.key[..self.key_len];
        self.places[self.hash as usize & (PLACES - 1)] = Some(CachedAnswer {
            hash: self.hash,
            key_len: self.key_len as u16,
            rcode: rendered.rcode,
            kind: rendered.kind,
            source_len: rendered.source_len,
            bytes: [key, &rendered.bytes].concat().into(),
        });
    }

    /// Forgets all: the zones have changed.
    pub fn clear(&mut self) {
        self.places.clear();
    }
}
