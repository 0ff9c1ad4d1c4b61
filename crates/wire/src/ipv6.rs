//! IPv6 headers (RFC 8200 3).

use core::net::Ipv6Addr;

use crate::zone;

/// Length of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Every link carries packets of this size (RFC 8200 5).
pub const MTU_MIN: u16 = 1280;
/// The flow label has 20 bits.
pub const FLOW_LABEL_MASK: u32 = 0x000f_ffff;

/// The fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    pub traffic_class: u8,
    /// 20 bits; higher bits are cut off.
    pub flow_label: u32,
    /// Length of everything after this header, extension headers included.
    pub payload_len: u16,
    pub next_header: u8,
    pub hop_limit: u8,
    pub src: Ipv6Addr,
    pub dst: Ipv6Addr,
}

/// A received packet, cut to its payload length. The payload begins with the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Packet<'a> {
    pub header: Ipv6Header,
    pub payload: &'a [u8],
}

impl<'a> Ipv6Packet<'a> {
    /// Returns `None` if truncated, or of another version. Bytes beyond the payload length
    /// (Ethernet padding) are ignored. A payload length of 0 means no payload: jumbograms (RFC
    /// 2675) are not supported.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = Self::parse_header(bytes)?;
        let payload = rest.get(..usize::from(header.payload_len))?;
        Some(Self { header, payload })
    }

    /// The packet quoted by an ICMP error: cut off anywhere after its header.
    pub fn parse_quoted(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = Self::parse_header(bytes)?;
        let payload = &rest[..rest.len().min(usize::from(header.payload_len))];
        Some(Self { header, payload })
    }

    #[inline]
    fn parse_header(bytes: &'a [u8]) -> Option<(Ipv6Header, &'a [u8])> {
        let (h, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let first = u32::from_be_bytes([h[0], h[1], h[2], h[3]]);
        if first >> 28 != 6 {
            return None;
        }
        let (_, addresses) = h.split_first_chunk::<8>()?;
        let (src, dst) = addresses.split_first_chunk::<16>()?;
        let header = Ipv6Header {
            traffic_class: (first >> 20) as u8,
            flow_label: first & FLOW_LABEL_MASK,
            payload_len: u16::from_be_bytes([h[4], h[5]]),
            next_header: h[6],
            hop_limit: h[7],
            src: Ipv6Addr::from(*src),
            dst: Ipv6Addr::from(*dst.first_chunk::<16>()?),
        };
        Some((header, rest))
    }
}

impl Ipv6Header {
    /// Writes the first [`HEADER_LEN`] bytes of `out`, which must be that long, with addresses
    /// without their links ([`zone`]).
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out = &mut out[..HEADER_LEN];
        let first =
            6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & FLOW_LABEL_MASK;
        out[..4].copy_from_slice(&first.to_be_bytes());
        out[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        out[6] = self.next_header;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&zone::plain(self.src).octets());
        out[24..40].copy_from_slice(&zone::plain(self.dst).octets());
    }
}

/// RFC 4291 2.7.1: returns the group in which the owner of an address receives solicitations.
pub const fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = ip.octets();
    Ipv6Addr::new(
        0xff02,
        0,
        0,
        0,
        0,
        1,
        0xff00 | a as u16,
        (b as u16) << 8 | c as u16,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    fn header(payload_len: u16) -> Ipv6Header {
        Ipv6Header {
            traffic_class: 0xb8,
            flow_label: 0x12345,
            payload_len,
            next_header: 6,
            hop_limit: 64,
            src: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
            dst: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
        }
    }

    #[test]
    fn padding_after_the_payload_is_cut_off() {
        let mut bytes = [0xee; 70];
        header(10).emit(&mut bytes);
        let packet = Ipv6Packet::parse(&bytes).unwrap();
        assert_eq!(packet.header, header(10));
        assert_eq!(packet.payload, &[0xee; 10]);
    }

    #[test]
    fn a_header_has_the_layout_of_rfc_8200() {
        // RFC 8200 3.
        let mut bytes = [0; HEADER_LEN];
        header(0x0102).emit(&mut bytes);
        assert_eq!(bytes[..8], [0x6b, 0x81, 0x23, 0x45, 1, 2, 6, 64]);
        assert_eq!((bytes[8], bytes[23], bytes[39]), (0xfd, 1, 2));
    }

    #[test]
    fn malformed_packets_do_not_parse() {
        let mut good = [0; 50];
        header(10).emit(&mut good);
        assert!(Ipv6Packet::parse(&good).is_some());
        assert_eq!(Ipv6Packet::parse(&good[..39]), None, "cut in the header");
        assert_eq!(Ipv6Packet::parse(&good[..49]), None, "cut in the payload");
        for first in [0x45, 0x50, 0x70, 0x00, 0xff] {
            let mut bad = good;
            bad[0] = first;
            assert_eq!(Ipv6Packet::parse(&bad), None, "version {first:x}");
        }
        assert_eq!(
            Ipv6Packet::parse_quoted(&good[..44]).unwrap().payload.len(),
            4
        );
    }

    #[test]
    fn the_solicited_node_group_ends_in_the_last_three_bytes() {
        // RFC 4291 2.7.1.
        let ip: Ipv6Addr = "2001:db8::1:800:200e:8c6c".parse().unwrap();
        assert_eq!(solicited_node(ip).to_string(), "ff02::1:ff0e:8c6c");
    }

    use std::string::ToString;

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..90)) {
            let _ = Ipv6Packet::parse(&bytes);
            let _ = Ipv6Packet::parse_quoted(&bytes);
        }

        #[test]
        fn emit_and_parse_agree(
            traffic_class: u8,
            label in 0u32..=FLOW_LABEL_MASK,
            next_header: u8,
            hop_limit: u8,
            src: u128,
            dst: u128,
            len in 0u16..200,
        ) {
            let header = Ipv6Header {
                traffic_class, next_header, hop_limit,
                flow_label: label,
                payload_len: len,
                src: zone::plain(src.into()), dst: zone::plain(dst.into()),
            };
            let mut bytes = vec![0; HEADER_LEN + usize::from(len)];
            header.emit(&mut bytes);
            prop_assert_eq!(Ipv6Packet::parse(&bytes).unwrap().header, header);
        }
    }
}
