//! An active open with Fast Open, as a part of the flight.

use slipstack_wire::fast_open::{Cookie, FastOpen};

use super::cache::Known;

/// Most TCP options of a SYN, which reduce the room for data.
const OPTIONS_LEN: u32 = 40;

/// An active open with Fast Open, until the SYN-ACK comes.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// `None` requests one.
    cookie: Option<Cookie>,
    /// MSS that the server announced last time.
    mss: u16,
    /// The SYN waits for data; the program thinks that it is connected.
    is_deferred: bool,
    /// The program has been notified.
    is_reported: bool,
    /// The last SYN was sent without data and option, because one with them got no answer.
    is_plain: bool,
    /// Bytes that a SYN has carried.
    sent: u32,
}

impl Attempt {
    /// Makes an attempt with the cached state of the server; its SYN waits for data if it may carry
    /// some.
    pub fn new(known: Option<Known>, mss_default: u16, may_lack_cookie: bool) -> Attempt {
        Attempt {
            cookie: known.map(|server| server.cookie),
            mss: known.map_or(mss_default, |server| server.mss),
            is_deferred: known.is_some() || may_lack_cookie,
            is_reported: false,
            is_plain: false,
            sent: 0,
        }
    }

    /// Bytes that the peer may acknowledge together with the SYN.
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// Returns whether the SYN waits for data.
    pub fn is_deferred(&self) -> bool {
        self.is_deferred
    }

    /// Returns whether the last SYN was sent without data and option.
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Returns `true`, once, if the program has to be notified that it may write.
    pub fn take_word(&mut self) -> bool {
        !core::mem::replace(&mut self.is_reported, true)
    }

    /// Sends the SYN with as many of the `written` bytes as fit, in a segment of at most `mss`.
    pub fn load(&mut self, written: u64, mss: u16) {
        let room = u32::from(self.mss.min(mss)).saturating_sub(OPTIONS_LEN);
        self.is_deferred = false;
        self.sent = written.min(u64::from(room)) as u32;
    }

    /// RFC 7413 4.1.3.1: an unanswered SYN is repeated without data and option.
    pub fn on_timeout(&mut self) {
        self.is_plain = true;
    }

    /// The bytes and the option of the next SYN.
    pub fn on_board(&self) -> (u32, Option<FastOpen>) {
        if self.is_plain {
            return (0, None);
        }
        let option = match self.cookie {
            Some(cookie) => Some(FastOpen::Cookie(cookie)),
            // Data without a cookie is a matter of configuration on both sides; then no cookie is
            // requested.
            None if self.sent > 0 => None,
            None => Some(FastOpen::Request),
        };
        (self.sent, option)
    }
}
