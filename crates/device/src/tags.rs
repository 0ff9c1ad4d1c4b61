//! The VLANs of a device's port, with their tags.

use slipstack_terms::VlanTag;
use slipstack_wire::TxOffload;
use slipstack_wire::ethernet::EtherType;

/// Headers of a frame at most: Ethernet, IP and TCP with all options.
pub(crate) const HEADER_MAX: usize = 256;
/// Bytes of the Ethernet addresses, before the type.
pub(crate) const ADDRESSES: usize = 12;
pub(crate) const TAG_LEN: usize = 4;
/// The type of a frame, and the type of service of a packet of IPv4 behind it.
const TYPE: usize = ADDRESSES;
const TOS: usize = 15;
/// The VLAN's number in a tag.
const VLAN_MASK: u16 = 0xfff;

/// A frame's headers with a tag.
pub(crate) struct Tagged {
    bytes: [u8; HEADER_MAX],
    len: usize,
}

impl Tagged {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the VLAN that a frame's first tag names, and whether the tag is a provider's.
pub(crate) fn parse(frame: &[u8]) -> Option<(u16, bool)> {
    let tag: &[u8; TAG_LEN] = frame.get(TYPE..)?.first_chunk()?;
    let [a, b, c, d] = *tag;
    let is_provider = match EtherType(u16::from_be_bytes([a, b])) {
        EtherType::TAGGED => false,
        EtherType::PROVIDER_TAGGED => true,
        _ => return None,
    };
    Some((u16::from_be_bytes([c, d]) & VLAN_MASK, is_provider))
}

/// Puts a tag that the kernel has taken out back between the addresses and the type of a frame of
/// this length; returns the length with it. A frame without room for a tag is left as it is.
pub(crate) fn restore(buffer: &mut [u8], len: usize, tag: Option<[u8; TAG_LEN]>) -> usize {
    let Some(tag) = tag.filter(|_| len >= ADDRESSES) else {
        return len;
    };
    let held = len.min(buffer.len().saturating_sub(TAG_LEN));
    if held < ADDRESSES {
        return len;
    }
    buffer.copy_within(ADDRESSES..held, ADDRESSES + TAG_LEN);
    buffer[ADDRESSES..ADDRESSES + TAG_LEN].copy_from_slice(&tag);
    len + TAG_LEN
}

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

    /// Puts the tag of a VLAN between the addresses and the type (IEEE 802.1Q 9), and moves what is
    /// left to the device accordingly. `None` if the headers are too long or too short.
    pub fn insert(
        &self,
        vlan: u16,
        header: &[u8],
        offload: &TxOffload,
    ) -> Option<(Tagged, TxOffload)> {
        let len = header.len() + TAG_LEN;
        let (addresses, rest) = header.split_at_checked(ADDRESSES)?;
        if len > HEADER_MAX {
            return None;
        }
        let (kind, control) = self.tag(vlan, header);
        let ([a, b], [c, d]) = (kind.to_be_bytes(), control.to_be_bytes());
        let mut bytes = [0; HEADER_MAX];
        bytes[..ADDRESSES].copy_from_slice(addresses);
        bytes[ADDRESSES..ADDRESSES + TAG_LEN].copy_from_slice(&[a, b, c, d]);
        bytes[ADDRESSES + TAG_LEN..len].copy_from_slice(rest);
        let tag = TAG_LEN as u16;
        let offload = TxOffload {
            link: vlan,
            checksum: offload.checksum.map(|mut partial| {
                partial.start += tag;
                partial
            }),
            gso: offload.gso.map(|mut gso| {
                gso.header_len += tag;
                gso
            }),
        };
        Some((Tagged { bytes, len }, offload))
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
        let (tagged, _) = tags.insert(20, &ipv4(0x10), &TxOffload::NONE).unwrap();
        assert_eq!(parse(tagged.bytes()), Some((20, true)));
        assert_eq!(parse(&ipv4(0x10)), None);
        assert_eq!(parse(&tagged.bytes()[..15]), None);
    }

    #[test]
    fn a_tag_that_the_kernel_took_out_is_put_back() {
        let mut buffer = [0; 22];
        buffer[12..16].copy_from_slice(&[8, 0, 0x45, 1]);
        assert_eq!(restore(&mut buffer, 16, None), 16);
        assert_eq!(restore(&mut buffer, 11, Some([0x81, 0, 0, 7])), 11);
        assert_eq!(restore(&mut buffer, 16, Some([0x81, 0, 0, 7])), 20);
        assert_eq!(buffer[12..20], [0x81, 0, 0, 7, 8, 0, 0x45, 1]);
        // A frame that is longer than the buffer keeps its whole length.
        assert_eq!(restore(&mut buffer, 30, Some([0x88, 0xa8, 0, 9])), 34);
        assert_eq!(restore(&mut buffer[..13], 13, Some([0x81, 0, 0, 7])), 13);
    }
}
