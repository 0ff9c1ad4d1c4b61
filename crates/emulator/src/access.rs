//! Access ports: an interface that has the frames of one VLAN, without their tags (IEEE 802.1Q).

use slipstack_wire::ethernet::{EtherType, EthernetHeader, HEADER_LEN};

/// Bytes of the Ethernet addresses, before the tag.
const ADDRESSES: usize = 12;
const TAG_LEN: usize = 4;
/// The VLAN's number in a tag; the rest is priority.
const VLAN_MASK: u16 = 0x0fff;

/// Returns a frame of the interface with the tag of its VLAN; `None` if it has one already, or is
/// shorter than a header.
pub fn tagged(frame: &[u8], vlan: u16) -> Option<Vec<u8>> {
    let (header, _) = EthernetHeader::parse(frame)?;
    if matches!(
        header.ethertype,
        EtherType::TAGGED | EtherType::PROVIDER_TAGGED
    ) {
        return None;
    }
    let mut tagged = Vec::with_capacity(frame.len() + TAG_LEN);
    tagged.extend_from_slice(&frame[..ADDRESSES]);
    tagged.extend_from_slice(&EtherType::TAGGED.0.to_be_bytes());
    tagged.extend_from_slice(&vlan.to_be_bytes());
    tagged.extend_from_slice(&frame[ADDRESSES..]);
    Some(tagged)
}

/// Returns a frame of the VLAN without its tag; `None` if it is of another VLAN, or of none.
pub fn untagged(frame: &[u8], vlan: u16) -> Option<Vec<u8>> {
    let (header, payload) = EthernetHeader::parse(frame)?;
    let control = payload.first_chunk().map(|tci| u16::from_be_bytes(*tci))?;
    if header.ethertype != EtherType::TAGGED || control & VLAN_MASK != vlan {
        return None;
    }
    let mut untagged = frame.to_vec();
    untagged.drain(ADDRESSES..ADDRESSES + TAG_LEN);
    (untagged.len() >= HEADER_LEN).then_some(untagged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_the_vlan_alone_pass_an_access_port() {
        let frame = [&[2; 12][..], &[8, 0, 0x45, 0]].concat();
        let inside = tagged(&frame, 7).unwrap();
        assert_eq!(inside[12..], [0x81, 0, 0, 7, 8, 0, 0x45, 0]);
        assert_eq!(tagged(&inside, 7), None);
        assert_eq!(untagged(&inside, 7), Some(frame.clone()));
        assert_eq!(untagged(&inside, 8), None);
        assert_eq!(untagged(&frame, 7), None);
        assert_eq!(untagged(&inside[..16], 7), None);
        assert_eq!(tagged(&frame[..13], 7), None);
    }
}
