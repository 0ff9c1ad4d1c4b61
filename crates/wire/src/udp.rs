//! UDP headers (RFC 768).

pub const HEADER_LEN: usize = 8;
/// Offset of the checksum field.
pub const CHECKSUM_AT: u16 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpDatagram<'a> {
    pub src_port: u16,
    pub dst_port: u16,
    /// 0 = the sender computed none.
    pub checksum: u16,
    /// Header and payload by the length field, covered by the checksum.
    pub covered: &'a [u8],
    pub payload: &'a [u8],
}

impl<'a> UdpDatagram<'a> {
    /// `None`: truncated, or a length field smaller than the header or larger than the packet.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, _) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let [s0, s1, d0, d1, l0, l1, c0, c1] = *header;
        let covered = bytes.get(..usize::from(u16::from_be_bytes([l0, l1])))?;
        let payload = covered.get(HEADER_LEN..)?;
        Some(Self {
            src_port: u16::from_be_bytes([s0, s1]),
            dst_port: u16::from_be_bytes([d0, d1]),
            checksum: u16::from_be_bytes([c0, c1]),
            covered,
            payload,
        })
    }
}

/// Writes a header whose checksum is left to be filled in. The payload fits in an IP packet.
#[inline]
pub fn header(src_port: u16, dst_port: u16, payload_len: usize) -> [u8; HEADER_LEN] {
    let [s0, s1] = src_port.to_be_bytes();
    let [d0, d1] = dst_port.to_be_bytes();
    let [l0, l1] = ((HEADER_LEN + payload_len) as u16).to_be_bytes();
    [s0, s1, d0, d1, l0, l1, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_false_length_field_is_refused() {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&header(1, 2, 12));
        assert_eq!(UdpDatagram::parse(&bytes).unwrap().payload.len(), 12);
        for len in [0u16, 7, 21, u16::MAX] {
            bytes[4..6].copy_from_slice(&len.to_be_bytes());
            assert_eq!(UdpDatagram::parse(&bytes), None, "length {len}");
        }
    }

    #[test]
    fn bytes_after_the_length_are_not_payload() {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&header(1, 2, 3));
        assert_eq!(UdpDatagram::parse(&bytes).unwrap().payload.len(), 3);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = UdpDatagram::parse(&bytes);
        }
    }
}
