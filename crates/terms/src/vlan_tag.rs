//! The tags of a VLAN's frames (IEEE 802.1Q 9).

use serde::{Deserialize, Serialize};

/// The kind of a VLAN's tags, and the priorities in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VlanTag {
    /// They are a provider's (802.1ad), not a customer's (802.1Q).
    #[serde(default)]
    pub is_provider: bool,
    /// The priority code point, 0 to 7, of packets of each of Linux's classes 0 to 7.
    #[serde(default)]
    pub priorities: [u8; 8],
}

impl VlanTag {
    /// An 802.1Q tag with priority 0.
    pub const PLAIN: Self = Self {
        is_provider: false,
        priorities: [0; 8],
    };

    /// The tag's EtherType.
    pub const fn ethertype(self) -> u16 {
        match self.is_provider {
            true => 0x88a8,
            false => 0x8100,
        }
    }

    /// The tag's control information: priority and number of the VLAN. `tos` is the type of
    /// service of a packet of IPv4, and 0 of any other.
    pub const fn control(self, vlan: u16, tos: u8) -> u16 {
        let priority = self.priorities[class_of(tos) as usize];
        (priority as u16 & 7) << 13 | vlan
    }
}

/// Linux's class of packets with a type of service, as `IP_TOS` sets it.
const fn class_of(tos: u8) -> u8 {
    const THROUGHPUT: u8 = 0x08;
    const LOW_DELAY: u8 = 0x10;
    match (tos & LOW_DELAY != 0, tos & THROUGHPUT != 0) {
        (false, false) => 0,
        (false, true) => 2,
        (true, false) => 6,
        (true, true) => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_the_priority_of_the_packets_class() {
        let tag = VlanTag {
            is_provider: true,
            priorities: [1, 0, 2, 0, 4, 0, 6, 0],
        };
        for (tos, priority) in [(0, 1), (0x08, 2), (0x10, 6), (0x18, 4), (0x02, 1)] {
            assert_eq!(tag.control(10, tos), priority << 13 | 10, "{tos:#x}");
        }
        assert_eq!(tag.ethertype(), 0x88a8);
        assert_eq!(VlanTag::PLAIN.control(4094, 0x10), 4094);
    }
}
