//! The TCP Fast Open option (RFC 7413 4.1.1): a cookie, or a request for one. Only SYNs carry it,
//! so it is parsed apart from the other options.

use crate::tcp::OPTIONS_MAX;

const END: u8 = 0;
const NOP: u8 = 1;
const FAST_OPEN: u8 = 34;
/// RFC 7413 4.1.1: 4 to 16 bytes, and even.
pub const COOKIE_MIN: usize = 4;
pub const COOKIE_MAX: usize = 16;

/// A cookie as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    bytes: [u8; COOKIE_MAX],
    len: u8,
}

impl Cookie {
    /// `None`: a length that no cookie has.
    pub fn new(bytes: &[u8]) -> Option<Cookie> {
        let len = bytes.len();
        if !(COOKIE_MIN..=COOKIE_MAX).contains(&len) || !len.is_multiple_of(2) {
            return None;
        }
        let mut cookie = Cookie {
            bytes: [0; COOKIE_MAX],
            len: len as u8,
        };
        cookie.bytes[..len].copy_from_slice(bytes);
        Some(cookie)
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The option of a SYN or SYN-ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastOpen {
    /// A client requests a cookie.
    Request,
    Cookie(Cookie),
}

impl FastOpen {
    /// Finds the option; one with a wrong length is no option (RFC 7413 4.1.1). At most 40 steps.
    pub fn find(mut options: &[u8]) -> Option<FastOpen> {
        loop {
            match *options {
                [] | [END, ..] | [_] => return None,
                [NOP, ref rest @ ..] => options = rest,
                [kind, len, ..] => {
                    let (option, rest) = options.split_at_checked(usize::from(len).max(2))?;
                    if len < 2 {
                        return None;
                    }
                    match (kind, &option[2..]) {
                        (FAST_OPEN, []) => return Some(FastOpen::Request),
                        (FAST_OPEN, body) => return Cookie::new(body).map(FastOpen::Cookie),
                        _ => options = rest,
                    }
                }
            }
        }
    }

    /// Appends the option after `at` bytes of others and gives the new length, a multiple of 4;
    /// without room nothing is written.
    pub fn append(&self, out: &mut [u8; OPTIONS_MAX], at: usize) -> usize {
        let body: &[u8] = match self {
            FastOpen::Request => &[],
            FastOpen::Cookie(cookie) => cookie.as_slice(),
        };
        let len = 2 + body.len();
        let end = at + len.next_multiple_of(4);
        let Some(room) = out.get_mut(at..end) else {
            return at;
        };
        // Linux's order: the padding stands behind it.
        room.fill(NOP);
        room[0] = FAST_OPEN;
        room[1] = len as u8;
        room[2..len].copy_from_slice(body);
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp_options::TcpOptions;
    use proptest::prelude::*;

    #[test]
    fn an_option_with_an_invalid_cookie_length_is_ignored() {
        // RFC 7413 4.1.1.
        let cookie = |bytes| Cookie::new(bytes).map(FastOpen::Cookie);
        let table: [(&[u8], Option<FastOpen>); 9] = [
            (&[34, 2], Some(FastOpen::Request)),
            (&[1, 1, 34, 6, 1, 2, 3, 4], cookie(&[1, 2, 3, 4])),
            (&[34, 4, 1, 2], None),
            (&[34, 7, 1, 2, 3, 4, 5], None),
            (&[34, 6, 1, 2], None),
            (&[34, 0], None),
            (&[34, 1], None),
            (&[34], None),
            (&[0, 34, 2], None),
        ];
        for (bytes, want) in table {
            assert_eq!(FastOpen::find(bytes), want, "{bytes:?}");
        }
    }

    #[test]
    fn the_padding_stands_behind_the_option_as_on_linux() {
        let mut out = [0; OPTIONS_MAX];
        assert_eq!(FastOpen::Request.append(&mut out, 4), 8);
        assert_eq!(out[4..8], [FAST_OPEN, 2, NOP, NOP]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_searched_without_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..=40),
        ) {
            let _ = FastOpen::find(&bytes);
        }

        #[test]
        fn an_appended_cookie_is_found_and_other_options_are_unchanged(
            mss: u16,
            half in 2usize..=8,
            fill: u8,
        ) {
            let cookie = Cookie::new(&[fill; 16][..2 * half]).map(FastOpen::Cookie).unwrap();
            let others = TcpOptions { mss: Some(mss), sack_permitted: true, ..Default::default() };
            let mut out = [0; OPTIONS_MAX];
            let len = others.emit(&mut out);
            let len = cookie.append(&mut out, len);
            prop_assert_eq!(len % 4, 0);
            prop_assert_eq!(FastOpen::find(&out[..len]), Some(cookie));
            prop_assert_eq!(TcpOptions::parse(&out[..len]), others);
            prop_assert_eq!(cookie.append(&mut out, 36), 36);
        }
    }
}
