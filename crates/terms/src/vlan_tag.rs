//! The tags of a VLAN's frames (IEEE 802.1Q 9).

use serde::{Deserialize, Serialize};

/// A VLAN's tag: its kind, the VLAN's number and the priorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VlanTag {
    /// The tags are a provider's (802.1ad), not a customer's (802.1Q).
    #[serde(default)]
    pub is_provider: bool,
    /// The VLAN's number; 0 = no VLAN.
    #[serde(default)]
    pub id: u16,
    /// The priority code point, 0 to 7, of packets of each of Linux's classes 0 to 7.
    #[serde(default)]
    pub priorities: [u8; 8],
}

/// The tags of the frames of one of a device's links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTags {
    /// The link's number.
    pub link: u16,
    /// The tag behind the addresses, if the link is a VLAN.
    pub outer: VlanTag,
    /// The tag behind that of a VLAN within a VLAN.
    pub inner: Option<VlanTag>,
}

impl LinkTags {
    /// A link whose frames have one tag.
    pub const fn single(link: u16, outer: VlanTag) -> Self {
        Self {
            link,
            outer,
            inner: None,
        }
    }
}

impl VlanTag {
    /// No VLAN's.
    pub const NONE: Self = Self::plain(0);

    /// An 802.1Q tag with priority 0.
    pub const fn plain(id: u16) -> Self {
        Self {
            is_provider: false,
            id,
            priorities: [0; 8],
        }
    }

    /// The tag's EtherType.
    pub const fn ethertype(self) -> u16 {
        match self.is_provider {
            true => 0x88a8,
            false => 0x8100,
        }
    }

    /// The tag's control information: priority and number of the VLAN. `class` is the class of the
    /// packet's sender plus one; with 0 it follows from `tos`, the type of service of a packet of
    /// IPv4, 0 of any other. A class that the map does not have gets priority 0, as on Linux.
    pub const fn control(self, class: u8, tos: u8) -> u16 {
        let class = match class {
            0 => class_of(tos),
            class => class - 1,
        };
        let priority = match class as usize {
            at if at < self.priorities.len() => self.priorities[at],
            _ => 0,
        };
        (priority as u16 & 7) << 13 | self.id
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
            id: 10,
            priorities: [1, 0, 2, 0, 4, 0, 6, 0],
        };
        for (tos, priority) in [(0, 1), (0x08, 2), (0x10, 6), (0x18, 4), (0x02, 1)] {
            assert_eq!(tag.control(0, tos), priority << 13 | 10, "{tos:#x}");
        }
        for (class, priority) in [(0, 1), (2, 2), (5, 0), (7, 0), (8, 0), (254, 0)] {
            assert_eq!(tag.control(class + 1, 0x10), priority << 13 | 10, "{class}");
        }
        assert_eq!(tag.ethertype(), 0x88a8);
        assert_eq!(VlanTag::plain(4094).control(0, 0x10), 4094);
    }
}
