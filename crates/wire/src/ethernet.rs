//! Ethernet II frames.

use core::net::{Ipv4Addr, Ipv6Addr};

pub const HEADER_LEN: usize = 14;
pub const BROADCAST: [u8; 6] = [0xff; 6];

/// The type field, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    pub const IPV4: Self = Self(0x0800);
    pub const ARP: Self = Self(0x0806);
    pub const IPV6: Self = Self(0x86dd);
    /// A tag of IEEE 802.1Q precedes the type.
    pub const TAGGED: Self = Self(0x8100);
    /// A tag of IEEE 802.1ad precedes the type.
    pub const PROVIDER_TAGGED: Self = Self(0x88a8);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetHeader {
    pub dst: [u8; 6],
    pub src: [u8; 6],
    pub ethertype: EtherType,
}

impl EthernetHeader {
    /// Splits a frame into header and payload; `None` if it is shorter than a header.
    #[inline]
    pub fn parse(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (header, payload) = frame.split_first_chunk::<HEADER_LEN>()?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
        let header = Self {
            dst: [d0, d1, d2, d3, d4, d5],
            src: [s0, s1, s2, s3, s4, s5],
            ethertype: EtherType(u16::from_be_bytes([t0, t1])),
        };
        Some((header, payload))
    }

    /// Writes the first [`HEADER_LEN`] bytes of `out`, which must be that long.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..HEADER_LEN];
        out[..6].copy_from_slice(&self.dst);
        out[6..12].copy_from_slice(&self.src);
        out[12..].copy_from_slice(&self.ethertype.0.to_be_bytes());
    }
}

/// Returns the EtherType and payload behind a priority tag; `None` if it is cut short or names a
/// VLAN.
pub fn parse_priority_tag(payload: &[u8]) -> Option<(EtherType, &[u8])> {
    const VLAN: u16 = 0x0fff;
    let ([t0, t1, e0, e1], rest) = payload.split_first_chunk::<4>()?;
    let is_priority = u16::from_be_bytes([*t0, *t1]) & VLAN == 0;
    is_priority.then_some((EtherType(u16::from_be_bytes([*e0, *e1])), rest))
}

/// VLAN tags that are looked behind: a provider's and a customer's (IEEE 802.1ad).
const TAGS_MAX: usize = 2;

/// Returns the EtherType and payload behind the tags of a frame, if it has any; `None` if one is
/// cut short.
pub fn parse_tags(mut ethertype: EtherType, mut payload: &[u8]) -> Option<(EtherType, &[u8])> {
    for _ in 0..TAGS_MAX {
        if !matches!(ethertype, EtherType::TAGGED | EtherType::PROVIDER_TAGGED) {
            break;
        }
        let ([_, _, e0, e1], rest) = payload.split_first_chunk::<4>()?;
        (ethertype, payload) = (EtherType(u16::from_be_bytes([*e0, *e1])), rest);
    }
    Some((ethertype, payload))
}

/// Multicast or broadcast.
#[inline]
pub const fn is_group(mac: [u8; 6]) -> bool {
    mac[0] & 1 == 1
}

/// RFC 2464 7: the station address of an IPv6 group.
pub const fn multicast_v6(group: Ipv6Addr) -> [u8; 6] {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

/// RFC 1112 6.4: the station address of an IPv4 group.
pub const fn multicast_v4(group: Ipv4Addr) -> [u8; 6] {
    let [_, b, c, d] = group.octets();
    [0x01, 0x00, 0x5e, b & 0x7f, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_frame_shorter_than_its_header_does_not_parse() {
        for len in 0..HEADER_LEN {
            assert!(EthernetHeader::parse(&[0; 64][..len]).is_none());
        }
        assert!(EthernetHeader::parse(&[0; HEADER_LEN]).is_some());
    }

    #[test]
    fn the_station_address_of_a_group_is_made_of_its_last_bytes() {
        // RFC 2464 7, RFC 1112 6.4.
        let of_v6 = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff12, 0x3456);
        assert_eq!(multicast_v6(of_v6), [0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
        let of_v4 = Ipv4Addr::new(239, 129, 2, 3);
        assert_eq!(multicast_v4(of_v4), [0x01, 0x00, 0x5e, 1, 2, 3]);
    }

    #[test]
    fn the_ethertype_behind_two_tags_is_found() {
        let inner = [0, 7, 8, 0, 0x45];
        let outer = [&[0, 20, 0x81, 0][..], &inner].concat();
        let ipv4 = Some((EtherType::IPV4, &[0x45][..]));
        assert_eq!(parse_tags(EtherType::IPV4, &[0x45]), ipv4);
        assert_eq!(parse_tags(EtherType::TAGGED, &inner), ipv4);
        assert_eq!(parse_tags(EtherType::PROVIDER_TAGGED, &outer), ipv4);
        assert_eq!(parse_tags(EtherType::TAGGED, &inner[..3]), None);
    }

    #[test]
    fn the_ethertype_behind_a_priority_tag_is_found() {
        let tagged = [0xa0, 0, 0x08, 0, 0x45];
        assert_eq!(
            parse_priority_tag(&tagged),
            Some((EtherType::IPV4, &tagged[4..]))
        );
        assert_eq!(parse_priority_tag(&[0xa0, 7, 0x08, 0, 0x45]), None);
        assert_eq!(parse_priority_tag(&tagged[..3]), None);
    }

    proptest! {
        #[test]
        fn emit_and_parse_agree(dst: [u8; 6], src: [u8; 6], ethertype: u16) {
            let header = EthernetHeader { dst, src, ethertype: EtherType(ethertype) };
            let mut bytes = [0; 20];
            header.emit(&mut bytes);
            let (parsed, rest) = EthernetHeader::parse(&bytes).unwrap();
            prop_assert_eq!(parsed, header);
            prop_assert_eq!(rest.len(), 6);
        }
    }
}
