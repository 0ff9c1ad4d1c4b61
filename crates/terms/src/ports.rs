//! Ranges of ports.

use crate::words::{WORDS, Words, one};

/// Ports that may be picked, inclusive; 0 as a bound: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

impl PortRange {
    /// Returns a socket's range within its stack's, as inet_sk_get_local_port_range(): a bound
    /// outside of the stack's is none.
    #[must_use]
    pub fn within(self, stack: PortRange) -> PortRange {
        let of = |bound: u16, default| if stack.has(bound) { bound } else { default };
        PortRange {
            first: of(self.first, stack.first),
            last: of(self.last, stack.last),
        }
    }

    #[inline]
    #[must_use]
    pub fn has(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// Number of ports.
    #[must_use]
    pub fn count(self) -> u32 {
        u32::from(self.last.saturating_sub(self.first)) + 1
    }
}

impl Words for PortRange {
    fn to_words(self) -> [u64; WORDS] {
        [self.first.into(), self.last.into(), 0, 0, 0]
    }

    fn from_words([first, last, ..]: [u64; WORDS]) -> Option<Self> {
        Some(PortRange {
            first: u16::from_words(one(first))?,
            last: u16::from_words(one(last))?,
        })
    }
}
