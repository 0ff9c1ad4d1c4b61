//! Path MTU discovery of datagrams and connections.

use crate::words::{WORDS, Words};

crate::coded! {
    /// Treatment of a packet larger than its path takes, by the numbers of `IP_MTU_DISCOVER`.
    #[derive(Default)]
    MtuDiscovery {
        /// Large datagrams are cut here; smaller ones may be cut on their way.
        Dont = 0,
        /// Large datagrams are fragmented here; smaller ones may not be fragmented on the way, so
        /// that the path MTU is discovered.
        #[default]
        Want = 1,
        /// Large datagrams are refused.
        Do = 2,
        /// As `Do`, by the link's MTU, whatever the path MTU.
        Probe = 3,
        /// Datagrams above the link's MTU are refused; smaller ones may be cut on their way.
        Interface = 4,
        /// Datagrams are cut here by the link's MTU, and may be cut again on their way.
        Omit = 5,
    }
}

impl MtuDiscovery {
    /// Returns whether ICMP errors about the path count.
    pub const fn heeds_path(self) -> bool {
        matches!(self, Self::Dont | Self::Want | Self::Do)
    }

    pub const fn may_fragment(self) -> bool {
        matches!(self, Self::Dont | Self::Want | Self::Omit)
    }

    pub const fn forbids_fragments(self) -> bool {
        matches!(self, Self::Want | Self::Do | Self::Probe)
    }

    /// Returns whether the segments of a connection over IPv4 may not be fragmented on their way. A
    /// probe may be, as on Linux (ip_dont_fragment()).
    pub const fn marks_segments(self) -> bool {
        matches!(self, Self::Want | Self::Do)
    }

    /// Returns whether ICMP errors may lower the path MTU.
    pub const fn learns(self) -> bool {
        !matches!(self, Self::Interface | Self::Omit)
    }
}

impl Words for MtuDiscovery {
    fn to_words(self) -> [u64; WORDS] {
        self.code().to_words()
    }

    fn from_words(words: [u64; WORDS]) -> Option<Self> {
        u8::from_words(words).and_then(Self::from_code)
    }
}
