//! Memos of recent requests: a connection that repeats its request's head byte for byte is answered
//! without parsing it again.
//!
//! The answer to a plain request is a function of its head and the file, so a memo is valid for as
//! long as the cache considers its file unchanged. Each engine has its own memos.

use std::sync::Arc;

use super::files::Content;

/// Memos of an engine.
const SLOTS: usize = 64;
/// Longest head, and longest content, of a memo.
const HEAD_MAX: usize = 2048;
const CONTENT_MAX: usize = 16 * 1024;

/// A head as a connection remembers it; 0 = none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen(u32);

/// The answer to a head.
#[derive(Debug)]
pub struct Memo {
    seen: Seen,
    request: Box<[u8]>,
    pub content: Arc<Content>,
    /// The response's head from Content-Type on.
    pub head: Arc<[u8]>,
    /// Time at which the file is to be checked again.
    until_ns: u64,
}

impl Memo {
    pub fn request_len(&self) -> usize {
        self.request.len()
    }
}

/// All memos of an engine.
#[derive(Debug)]
pub struct Memos {
    slots: Vec<Option<Memo>>,
}

impl Memos {
    pub fn new() -> Memos {
        Memos {
            slots: (0..SLOTS).map(|_| None).collect(),
        }
    }

    /// Returns the answer to the received bytes, if they begin with the head that the connection
    /// has seen.
    #[inline]
    pub fn find(&self, seen: Seen, bytes: &[u8], now_ns: u64) -> Option<&Memo> {
        if seen == Seen::default() {
            return None;
        }
        let memo = self.slots[seen.0 as usize % SLOTS].as_ref()?;
        let is_it = memo.seen == seen && now_ns < memo.until_ns && bytes.starts_with(&memo.request);
        is_it.then_some(memo)
    }

    /// Notes the answer to a head that a connection sends for the second time.
    pub fn note(
        &mut self,
        seen: &mut Seen,
        request: &[u8],
        (content, head): (&Arc<Content>, &Arc<[u8]>),
        until_ns: u64,
    ) {
        if request.len() > HEAD_MAX || content.bytes.len() > CONTENT_MAX {
            return;
        }
        let before = std::mem::replace(seen, hashed(request));
        if before == *seen {
            self.slots[seen.0 as usize % SLOTS] = Some(Memo {
                seen: *seen,
                request: request.into(),
                content: Arc::clone(content),
                head: Arc::clone(head),
                until_ns,
            });
        }
    }
}

/// Hash without a secret: heads are compared too, and memos are few.
fn hashed(head: &[u8]) -> Seen {
    let mix =
        |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    let (words, rest) = head.as_chunks::<8>();
    let hash = words
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .fold(0, mix);
    let hash = rest.iter().map(|byte| u64::from(*byte)).fold(hash, mix);
    Seen((hash >> 32) as u32 | 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::files::About;

    fn content(len: usize) -> (Arc<Content>, Arc<[u8]>) {
        let about = About {
            len: len as u64,
            modified: None,
            etag: String::new(),
            mime: "text/plain".to_owned(),
        };
        let bytes = vec![b'c'; len];
        (Arc::new(Content { about, bytes }), Arc::from(&b"head"[..]))
    }

    #[test]
    fn a_repeated_request_head_is_cached_until_its_file_is_checked_again() {
        let mut memos = Memos::new();
        let (file, head) = content(5);
        let (one, other) = (
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /b HTTP/1.1\r\n\r\n",
        );
        let mut seen = Seen::default();
        for is_known in [false, true] {
            memos.note(&mut seen, one, (&file, &head), 100);
            let mut more = one.to_vec();
            more.extend(other);
            let found = memos.find(seen, &more, 99);
            assert_eq!(found.map(Memo::request_len), is_known.then_some(one.len()));
        }
        assert!(memos.find(seen, one, 100).is_none(), "its time is over");
        assert!(
            memos.find(seen, &one[..20], 0).is_none(),
            "not all of it is there"
        );
        assert!(memos.find(seen, other, 0).is_none());
        assert!(memos.find(Seen::default(), one, 0).is_none());
        memos.note(&mut seen, other, (&file, &head), 100);
        assert!(memos.find(seen, other, 0).is_none(), "for the first time");
    }

    #[test]
    fn long_heads_and_long_files_are_not_kept() {
        let mut memos = Memos::new();
        for (request, len) in [
            (vec![b'x'; HEAD_MAX + 1], 5),
            (vec![b'x'; 9], CONTENT_MAX + 1),
        ] {
            let (file, head) = content(len);
            let mut seen = Seen::default();
            for _ in 0..2 {
                memos.note(&mut seen, &request, (&file, &head), 100);
            }
            assert_eq!(seen, Seen::default());
        }
    }
}
