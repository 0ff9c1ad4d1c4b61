//! Parameters of keep-alive.

use core::time::Duration;

use crate::words::{WORDS, Words, one};

/// TCP keep-alive (RFC 9293 3.8.4). By default a socket has the stack's numbers, whatever they are
/// when they are needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepAlive {
    pub enabled: bool,
    /// Silence before the first probe; zero = the stack's.
    pub idle: Duration,
    /// Zero = the stack's.
    pub interval: Duration,
    /// Unanswered probes before the connection is given up; 0 = the stack's.
    pub probes: u8,
}

impl KeepAlive {
    /// A stack's own, as Linux has them.
    pub const LINUX: Self = Self {
        enabled: false,
        idle: Duration::from_secs(7200),
        interval: Duration::from_secs(75),
        probes: 9,
    };
}

impl Words for KeepAlive {
    fn to_words(self) -> [u64; WORDS] {
        let ([idle, ..], [interval, ..]) = (self.idle.to_words(), self.interval.to_words());
        [self.enabled.into(), idle, interval, self.probes.into(), 0]
    }

    fn from_words([enabled, idle, interval, probes, _]: [u64; WORDS]) -> Option<Self> {
        Some(KeepAlive {
            enabled: bool::from_words(one(enabled))?,
            idle: Duration::from_words(one(idle))?,
            interval: Duration::from_words(one(interval))?,
            probes: u8::from_words(one(probes))?,
        })
    }
}
