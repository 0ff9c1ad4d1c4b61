//! Parameters of keep-alive.

use core::time::Duration;

use crate::words::{WORDS, Words, one};

/// TCP keep-alive (RFC 9293 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    pub enabled: bool,
    /// Silence before the first probe.
    pub idle: Duration,
    pub interval: Duration,
    /// Unanswered probes before the connection is given up.
    pub probes: u8,
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self {
            enabled: false,
            idle: Duration::from_secs(7200),
            interval: Duration::from_secs(75),
            probes: 9,
        }
    }
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
