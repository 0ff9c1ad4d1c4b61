//! An active open with Fast Open, as a part of the flight.

use slipstack_wire::fast_open::Cookie;

/// An active open with Fast Open, until the SYN-ACK comes.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// `None` asks for one.
    pub(super) cookie: Option<Cookie>,
    /// MSS that the server announced last time.
    pub(super) mss: u16,
    /// The SYN waits for data; the program thinks that it is connected.
    pub is_deferred: bool,
    /// The program has been told.
    pub is_told: bool,
    /// The last SYN went out plain, since one with option or data got no answer.
    pub(super) is_plain: bool,
    /// Bytes that a SYN has carried.
    pub(super) sent: u32,
}

impl Attempt {
    /// Bytes that the peer may acknowledge together with the SYN.
    pub fn sent(&self) -> u32 {
        self.sent
    }
}
