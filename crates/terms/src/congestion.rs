//! Congestion control algorithms.

use crate::words::{WORDS, Words};

crate::coded! {
    /// The congestion control of a connection.
    #[derive(Default)]
    Congestion {
        #[default]
        Cubic = 0,
        NewReno = 1,
        Dctcp = 2,
        Bbr = 3,
    }
}

impl Congestion {
    /// Linux's names, in order.
    pub const NAMES: &'static [&'static str] = &["cubic", "reno", "dctcp", "bbr"];

    /// Returns Linux's name (`TCP_CONGESTION`).
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns whether it uses marks as a measure, so that the handshake offers ECN whatever the
    /// configuration says (RFC 8257 3).
    pub const fn needs_ecn(self) -> bool {
        matches!(self, Self::Dctcp)
    }
}

impl Words for Congestion {
    fn to_words(self) -> [u64; WORDS] {
        self.code().to_words()
    }

    fn from_words(words: [u64; WORDS]) -> Option<Self> {
        u8::from_words(words).and_then(Self::from_code)
    }
}
