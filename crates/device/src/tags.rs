//! The VLANs of a device's port, with their tags.

use slipstack_terms::VlanTag;
use slipstack_wire::ethernet::EtherType;

/// The type of a frame, and the type of service of a packet of IPv4 behind it.
const TYPE: usize = 12;
const TOS: usize = 15;

#[derive(Debug, Default)]
pub(crate) struct Tags {
    /// In order of their numbers.
    all: Vec<(u16, VlanTag)>,
}

impl Tags {
    pub fn set(&mut self, vlans: &[(u16, VlanTag)]) {
        self.all = vlans.to_vec();
        self.all.sort_unstable_by_key(|(vlan, _)| *vlan);
    }

    /// Returns whether frames with such a tag are wanted.
    pub fn is_wanted(&self, vlan: u16, is_provider: bool) -> bool {
        let found = self.find(vlan);
        found.is_some_and(|tag| tag.is_provider == is_provider)
    }

    /// The EtherType of a tag and its control information, for a frame with this header.
    pub fn tag(&self, vlan: u16, header: &[u8]) -> (u16, u16) {
        let tag = self.find(vlan).unwrap_or(VlanTag::PLAIN);
        let ipv4 = EtherType::IPV4.0.to_be_bytes();
        let is_ipv4 = header.get(TYPE..TYPE + 2) == Some(&ipv4);
        let tos = header.get(TOS).filter(|_| is_ipv4);
        let control = tag.control(vlan, tos.copied().unwrap_or(0));
        (tag.ethertype(), control)
    }

    fn find(&self, vlan: u16) -> Option<VlanTag> {
        let found = self.all.binary_search_by_key(&vlan, |(vlan, _)| *vlan);
        found.ok().map(|at| self.all[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_tagged_as_its_vlan_and_its_packet_say() {
        let mut tags = Tags::default();
        let provider = VlanTag {
            is_provider: true,
            priorities: [3, 0, 0, 0, 0, 0, 6, 0],
        };
        tags.set(&[(20, provider), (10, VlanTag::PLAIN)]);
        let ipv4 = |tos: u8| [&[0; 12][..], &[8, 0, 0x45, tos]].concat();
        let arp = [&[0; 12][..], &[8, 6, 0, 0x10]].concat();
        assert_eq!(tags.tag(10, &ipv4(0x10)), (0x8100, 10));
        assert_eq!(tags.tag(20, &ipv4(0x10)), (0x88a8, 6 << 13 | 20));
        assert_eq!(tags.tag(20, &arp), (0x88a8, 3 << 13 | 20));
        assert_eq!(tags.tag(30, &[]), (0x8100, 30));
        assert!(tags.is_wanted(20, true) && !tags.is_wanted(20, false));
        assert!(tags.is_wanted(10, false) && !tags.is_wanted(30, false));
    }
}
