//! The virtio-net header (VIRTIO 1.2, 5.1.6) that TAP and AF_PACKET put before every frame.
//!
//! ```text
//! 0 flags  1 gso_type  2 hdr_len  4 gso_size  6 csum_start  8 csum_offset  (10 num_buffers)
//! ```
//! All fields are in host order; TAP's header is 12 bytes long, AF_PACKET's 10.

use slipstack_wire::{PartialChecksum, RxChecksum, RxMeta, TxOffload, protocol};

/// Length of the header before frames of AF_PACKET.
pub(crate) const PACKET_LEN: usize = 10;
/// Length of the header before frames of TAP.
pub(crate) const TAP_LEN: usize = 12;

const FLAG_NEEDS_CSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const ETHERTYPE_TAG: [u8; 2] = [0x81, 0];
const ETHERTYPE_PROVIDER_TAG: [u8; 2] = [0x88, 0xa8];

/// The header of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// One frame, or coalesced TCP segments or datagrams, for the stack as it is.
    Frame(RxMeta),
    /// Another offload that was not requested.
    Unknown,
}

/// Reads a header; `None` when it is cut short.
pub(crate) fn parse(header: &[u8]) -> Option<Received> {
    let fixed: &[u8; PACKET_LEN] = header.first_chunk()?;
    let checksum = match fixed[0] {
        flags if flags & FLAG_NEEDS_CSUM != 0 => RxChecksum::Partial,
        flags if flags & FLAG_DATA_VALID != 0 => RxChecksum::Verified,
        _ => RxChecksum::Unknown,
    };
    Some(match fixed[1] & !GSO_ECN {
        GSO_NONE => Received::Frame(meta(checksum, false)),
        GSO_TCPV4 | GSO_TCPV6 | GSO_UDP_L4 => Received::Frame(RxMeta {
            segment: u16::from_ne_bytes([fixed[4], fixed[5]]),
            ..meta(checksum, true)
        }),
        _ => Received::Unknown,
    })
}

fn meta(checksum: RxChecksum, gso: bool) -> RxMeta {
    RxMeta {
        checksum,
        gso,
        ..RxMeta::UNKNOWN
    }
}

/// The checksum that a frame's sender left to the device.
pub(crate) fn left_checksum(header: &[u8; PACKET_LEN]) -> Option<PartialChecksum> {
    let [flags, _, _, _, _, _, start_0, start_1, offset_0, offset_1] = *header;
    (flags & FLAG_NEEDS_CSUM != 0).then_some(PartialChecksum {
        start: u16::from_ne_bytes([start_0, start_1]),
        offset: u16::from_ne_bytes([offset_0, offset_1]),
    })
}

/// The header for a frame that begins with `header` and leaves `offload` to the kernel. The last
/// two bytes are TAP's.
#[inline]
pub(crate) fn build(header: &[u8], offload: &TxOffload) -> [u8; TAP_LEN] {
    let mut out = [0; TAP_LEN];
    if let Some(partial) = offload.checksum {
        out[0] = FLAG_NEEDS_CSUM;
        out[6..8].copy_from_slice(&partial.start.to_ne_bytes());
        out[8..10].copy_from_slice(&partial.offset.to_ne_bytes());
    }
    if let Some(gso) = offload.gso {
        out[1] = gso_type(header);
        // RFC 3168 6.1.2: CWR goes with the first piece alone, which not every device that cuts
        // knows.
        if out[1] != GSO_UDP_L4 && has_cwr(header, offload) {
            out[1] |= GSO_ECN;
        }
        out[2..4].copy_from_slice(&gso.header_len.to_ne_bytes());
        out[4..6].copy_from_slice(&gso.mss.to_ne_bytes());
    }
    out
}

/// Returns the GSO type of a frame that is to be segmented: a super-frame has no extension headers.
fn gso_type(header: &[u8]) -> u8 {
    const PROTOCOL_AT: usize = 23;
    const NEXT_HEADER_AT: usize = 20;
    let is_tag = |at: &usize| {
        let tags = [ETHERTYPE_TAG, ETHERTYPE_PROVIDER_TAG];
        let kind = header.get(12 + at..14 + at);
        kind.is_some_and(|kind| tags.iter().any(|tag| tag == kind))
    };
    // A VLAN within a VLAN has two.
    let tag = 4 * [0, 4].iter().take_while(|at| is_tag(at)).count();
    let is_ipv6 = header.get(12 + tag..14 + tag) == Some(&ETHERTYPE_IPV6[..]);
    let at = tag + if is_ipv6 { NEXT_HEADER_AT } else { PROTOCOL_AT };
    match (header.get(at).copied(), is_ipv6) {
        (Some(protocol::UDP), _) => GSO_UDP_L4,
        (_, true) => GSO_TCPV6,
        (_, false) => GSO_TCPV4,
    }
}

/// Does a TCP header say that the window was reduced?
fn has_cwr(header: &[u8], offload: &TxOffload) -> bool {
    const FLAGS_AT: usize = 13;
    const CWR: u8 = 0x80;
    offload.checksum.is_some_and(|partial| {
        let flags = header.get(usize::from(partial.start) + FLAGS_AT);
        flags.is_some_and(|flags| flags & CWR != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use slipstack_wire::{Gso, PartialChecksum};

    #[test]
    fn a_built_header_reads_back_as_requested() {
        let offload = TxOffload {
            checksum: Some(PartialChecksum {
                start: 34,
                offset: 16,
            }),
            gso: Some(Gso {
                mss: 1448,
                header_len: 66,
            }),
            ..TxOffload::NONE
        };
        let header = build(&[0; 66], &offload);
        let expected = RxMeta {
            segment: 1448,
            ..meta(RxChecksum::Partial, true)
        };
        assert_eq!(parse(&header), Some(Received::Frame(expected)));
        assert_eq!(u16::from_ne_bytes([header[6], header[7]]), 34);
        assert_eq!(u16::from_ne_bytes([header[4], header[5]]), 1448);
    }

    #[test]
    fn segments_of_a_super_frame_have_its_protocol() {
        let mut header = [0; 42];
        header[12..14].copy_from_slice(&[0x08, 0]);
        header[23] = protocol::UDP;
        assert_eq!(gso_type(&header), GSO_UDP_L4);
        header[23] = protocol::TCP;
        assert_eq!(gso_type(&header), GSO_TCPV4);
        header[12..14].copy_from_slice(&ETHERTYPE_IPV6);
        header[20] = protocol::UDP;
        assert_eq!(gso_type(&header), GSO_UDP_L4);
        header[20] = protocol::TCP;
        assert_eq!(gso_type(&header), GSO_TCPV6);
        header[12..22].copy_from_slice(&[0x88, 0xa8, 0, 10, 0x81, 0, 0, 20, 8, 0]);
        header[31] = protocol::UDP;
        assert_eq!(gso_type(&header), GSO_UDP_L4);
    }

    #[test]
    fn only_the_first_piece_carries_cwr() {
        let offload = TxOffload {
            checksum: Some(PartialChecksum {
                start: 34,
                offset: 16,
            }),
            gso: Some(Gso {
                mss: 1448,
                header_len: 66,
            }),
            ..TxOffload::NONE
        };
        let mut frame = [0; 66];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[23] = protocol::TCP;
        assert_eq!(build(&frame, &offload)[1], GSO_TCPV4);
        frame[34 + 13] = 0x90;
        assert_eq!(build(&frame, &offload)[1], GSO_TCPV4 | GSO_ECN);
        // A datagram has no flags.
        frame[23] = protocol::UDP;
        assert_eq!(build(&frame, &offload)[1], GSO_UDP_L4);
    }

    #[test]
    fn a_frame_without_offloads_has_an_all_zero_header() {
        assert_eq!(build(&[0; 60], &TxOffload::NONE), [0; TAP_LEN]);
        assert_eq!(
            parse(&[0; PACKET_LEN]),
            Some(Received::Frame(RxMeta::UNKNOWN))
        );
        assert_eq!(parse(&[0; 9]), None);
    }

    #[test]
    fn coalesced_datagrams_and_unknown_offloads_are_distinguished() {
        let mut header = [0; PACKET_LEN];
        header[0] = FLAG_DATA_VALID;
        header[1] = GSO_UDP_L4;
        header[4..6].copy_from_slice(&700u16.to_ne_bytes());
        let expected = RxMeta {
            gso: true,
            segment: 700,
            ..RxMeta::VERIFIED
        };
        assert_eq!(parse(&header), Some(Received::Frame(expected)));
        header[1] = 3;
        assert_eq!(parse(&header), Some(Received::Unknown));
    }
}
