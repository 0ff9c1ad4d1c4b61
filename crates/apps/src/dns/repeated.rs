//! Queries that were answered a moment ago: one that differs from such a query in its id alone is
//! answered without being read again.
//!
//! The response to a query without options and signature is a function of its bytes behind the id,
//! as long as the zones do not change and no rate limit counts.

use super::hash::Hasher;

/// Memos of an engine; a power of two.
const SLOTS: usize = 2048;
const ID_LEN: usize = 2;
/// Longest query and longest response of a memo, without their ids.
const QUERY_MAX: usize = 96;
const RESPONSE_MAX: usize = 288;

#[derive(Clone, Debug)]
struct Slot {
    /// The memo's hash; 0 = there is no memo.
    hash: u64,
    /// The hash of the last query that found another one here: it gets the slot if it comes again.
    candidate: u64,
    qtype: u16,
    query_len: u8,
    response_len: u16,
    query: [u8; QUERY_MAX],
    response: [u8; RESPONSE_MAX],
}

impl Slot {
    const EMPTY: Slot = Slot {
        hash: 0,
        candidate: 0,
        qtype: 0,
        query_len: 0,
        response_len: 0,
        query: [0; QUERY_MAX],
        response: [0; RESPONSE_MAX],
    };
}

/// The answer to a query that is known.
#[derive(Clone, Copy, Debug)]
pub struct Memo<'a> {
    pub qtype: u16,
    /// The response behind its id.
    pub response: &'a [u8],
}

/// All memos of an engine.
#[derive(Debug)]
pub struct Repeated {
    slots: Vec<Slot>,
    hasher: Hasher,
    /// The hash of the query that [`Repeated::find`] has looked for; 0 = it is too long.
    hash: u64,
}

impl Repeated {
    pub fn new(seed: u64) -> Repeated {
        Repeated {
            slots: Vec::new(),
            hasher: Hasher::new(seed),
            hash: 0,
        }
    }

    /// The answer to this message, if a query like it has one.
    #[inline]
    pub fn find(&mut self, message: &[u8]) -> Option<Memo<'_>> {
        let query = message.get(ID_LEN..)?;
        self.hash = 0;
        if query.len() > QUERY_MAX {
            return None;
        }
        self.hash = self.hasher.hash(query) | 1;
        let slot = self.slots.get(self.hash as usize / 2 % SLOTS)?;
        let is_it = slot.hash == self.hash
            && usize::from(slot.query_len) == query.len()
            && slot.query[..query.len()] == *query;
        is_it.then_some(Memo {
            qtype: slot.qtype,
            response: &slot.response[..slot.response_len.into()],
        })
    }

    /// Notes the response to the query that [`Repeated::find`] did not know, if that has come
    /// before.
    pub fn note(&mut self, message: &[u8], response: &[u8], qtype: u16) {
        let (query, response) = (&message[ID_LEN..], &response[ID_LEN..]);
        if self.hash == 0 || response.len() > RESPONSE_MAX {
            return;
        }
        if self.slots.is_empty() {
            self.slots = vec![Slot::EMPTY; SLOTS];
        }
        let slot = &mut self.slots[self.hash as usize / 2 % SLOTS];
        if slot.candidate != self.hash {
            slot.candidate = self.hash;
            return;
        }
        slot.hash = self.hash;
        slot.qtype = qtype;
        slot.query_len = query.len() as u8;
        slot.response_len = response.len() as u16;
        slot.query[..query.len()].copy_from_slice(query);
        slot.response[..response.len()].copy_from_slice(response);
    }

    /// Forgets all: the zones have changed.
    pub fn clear(&mut self) {
        self.slots.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u16 = 1;

    #[test]
    fn a_query_is_cached_from_its_third_time_on_for_any_id() {
        let mut repeated = Repeated::new(7);
        for id in [b"01", b"23"] {
            let query = [&id[..], b"question"].concat();
            assert!(repeated.find(&query).is_none());
            repeated.note(&query, &[&id[..], b"answer"].concat(), A);
        }
        let memo = repeated.find(b"45question").unwrap();
        assert_eq!((memo.response, memo.qtype), (&b"answer"[..], A));
        for other in [&b"45Question"[..], b"45question2", b"45", b"4", b""] {
            assert!(repeated.find(other).is_none(), "{other:?}");
        }
        repeated.clear();
        assert!(repeated.find(b"45question").is_none());
    }

    #[test]
    fn long_answers_are_not_cached() {
        for (query, response) in [(QUERY_MAX + 1, 20), (20, RESPONSE_MAX + 1)] {
            let mut repeated = Repeated::new(7);
            let (query, response) = (vec![b'q'; ID_LEN + query], vec![b'r'; ID_LEN + response]);
            for _ in 0..3 {
                assert!(repeated.find(&query).is_none());
                repeated.note(&query, &response, A);
            }
        }
    }
}
