//! Answers that were given once, kept ready: a table of fixed size in which a newer answer takes
//! the place of an older one.

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

/// A kept answer: its key and its bytes lie behind each other.
#[derive(Debug)]
struct Place {
    hash: u64,
    key_len: u16,
    rcode: u8,
    kind: Kind,
    source_len: u8,
    bytes: Box<[u8]>,
}

/// What is asked for, in the form in which answers are kept.
pub struct Key {
    bytes: [u8; KEY_MAX],
    len: usize,
    hash: u64,
}

/// An answer as it is found.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    pub bytes: &'a [u8],
    pub kind: Kind,
    pub source_len: u8,
    pub rcode: u8,
}

/// See the module.
#[derive(Debug)]
pub struct Ready {
    places: Vec<Option<Place>>,
    hasher: Hasher,
    /// See [`Ready::is_new`].
    seen: Box<[u32]>,
}

impl Ready {
    pub fn new(seed: u64) -> Ready {
        Ready {
            places: Vec::new(),
            hasher: Hasher::new(seed),
            seen: Box::default(),
        }
    }

    /// The key of a query whose answer may have `room` bytes.
    #[inline]
    pub fn key(&self, query: &Query<'_>, room: usize) -> Key {
        let mut bytes = [0; KEY_MAX];
        let len = query.question.len();
        bytes[..len].copy_from_slice(query.question);
        bytes[..len].make_ascii_lowercase();
        // The type's and class's bytes, in which case is no matter of letters.
        let tail = len.saturating_sub(4);
        bytes[tail..len].copy_from_slice(&query.question[tail..]);
        let is_dnssec_ok = query.edns.is_some_and(|edns| edns.is_dnssec_ok);
        let [high, low] = (room as u16).to_be_bytes();
        bytes[len..len + 3].copy_from_slice(&[high, low, u8::from(is_dnssec_ok)]);
        let len = len + 3;
        Key {
            hash: self.hasher.hash(&bytes[..len]),
            bytes,
            len,
        }
    }

    #[inline]
    pub fn find(&self, key: &Key) -> Option<Hit<'_>> {
        let at = key.hash as usize & (PLACES - 1);
        let place = self.places.get(at)?.as_ref()?;
        let (own, bytes) = place.bytes.split_at_checked(place.key_len.into())?;
        (place.hash == key.hash && own == &key.bytes[..key.len]).then_some(Hit {
            bytes,
            kind: place.kind,
            source_len: place.source_len,
            rcode: place.rcode,
        })
    }

    /// Whether the question has not been asked before, as far as fingerprints tell: such ones may
    /// never be asked again.
    pub fn is_new(&mut self, key: &Key) -> bool {
        if self.seen.is_empty() {
            self.seen = vec![0; SEEN].into();
        }
        let print = (key.hash >> 32) as u32 | 1;
        let place = &mut self.seen[key.hash as usize % SEEN];
        std::mem::replace(place, print) != print
    }

    pub fn keep(&mut self, key: &Key, rendered: &Rendered) {
        if self.places.is_empty() {
            self.places.resize_with(PLACES, || None);
        }
        self.places[key.hash as usize & (PLACES - 1)] = Some(Place {
            hash: key.hash,
            key_len: key.len as u16,
            rcode: rendered.rcode,
            kind: rendered.kind,
            source_len: rendered.source_len,
            bytes: [&key.bytes[..key.len], &rendered.bytes].concat().into(),
        });
    }

    /// Forgets all: the zones have changed.
    pub fn clear(&mut self) {
        self.places.clear();
    }
}
