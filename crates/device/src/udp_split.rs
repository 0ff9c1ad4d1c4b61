//! Splits coalesced UDP datagrams (UDP GSO of a sender on this machine, or UDP GRO) into the
//! frames that they stand for, because the border of a datagram is part of its meaning.

use slipstack_wire::{RxChecksum, RxMeta};

const ETHERNET_LEN: usize = 14;
const UDP_LEN: usize = 8;
const PROTOCOL_UDP: u8 = 17;
/// The largest frame that coming apart yields: what is longer is no datagram of an Ethernet.
const FRAME_MAX: usize = 65_535 + ETHERNET_LEN;

/// Hands each datagram of `frame` as a frame of its own to `on_frame`; returns how many, 0 when
/// the frame is not what its header claims.
pub(crate) fn split(
    frame: &[u8],
    size: u16,
    checksum: RxChecksum,
    scratch: &mut Vec<u8>,
    on_frame: &mut dyn FnMut(&[u8], RxMeta),
) -> usize {
    let Some(header_len) = header_len(frame) else {
        return 0;
    };
    let size = usize::from(size);
    let payload = &frame[header_len..];
    if size == 0 || payload.is_empty() || header_len + size > FRAME_MAX {
        return 0;
    }
    // The checksum of the whole was either left out or already verified; a part has neither a
    // field that fits nor a need for one.
    let checksum = match checksum {
        RxChecksum::Unknown => RxChecksum::Unknown,
        RxChecksum::Verified | RxChecksum::Partial => RxChecksum::Partial,
    };
    let meta = RxMeta {
        checksum,
        ..RxMeta::UNKNOWN
    };
    let first_id = u16::from_be_bytes([frame[18], frame[19]]);
    let mut count = 0;
    for (part, id) in payload.chunks(size).zip(0u16..) {
        scratch.clear();
        scratch.extend_from_slice(&frame[..header_len]);
        scratch.extend_from_slice(part);
        rewrite(scratch, header_len, part.len(), first_id.wrapping_add(id));
        on_frame(scratch, meta);
        count += 1;
    }
    count
}

/// Length of Ethernet, IPv4 and UDP header, if the frame has them.
fn header_len(frame: &[u8]) -> Option<usize> {
    let ip = frame.get(ETHERNET_LEN..)?;
    let ihl = usize::from(*ip.first()? & 0x0f) * 4;
    let is_udp = frame[12..14] == [0x08, 0x00] && *ip.get(9)? == PROTOCOL_UDP;
    let len = ETHERNET_LEN + ihl + UDP_LEN;
    (is_udp && ihl >= 20 && frame.len() >= len).then_some(len)
}

fn rewrite(frame: &mut [u8], header_len: usize, payload_len: usize, id: u16) {
    let udp = header_len - UDP_LEN;
    let be16 = |value: usize| u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes();
    frame[udp + 4..udp + 6].copy_from_slice(&be16(UDP_LEN + payload_len));
    frame[16..18].copy_from_slice(&be16(header_len - ETHERNET_LEN + payload_len));
    frame[18..20].copy_from_slice(&id.to_be_bytes());
    frame[24..26].copy_from_slice(&[0, 0]);
    let mut sum: u32 = frame[ETHERNET_LEN..udp]
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let complement = !u16::try_from(sum).unwrap_or(0);
    frame[24..26].copy_from_slice(&complement.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coalesced(payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0u8; 42];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14] = 0x45;
        frame[18..20].copy_from_slice(&0xfffe_u16.to_be_bytes());
        frame[23] = PROTOCOL_UDP;
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn every_datagram_comes_out_with_its_own_lengths_and_identification() {
        let payload: Vec<u8> = (0..25).collect();
        let mut seen = Vec::new();
        let count = split(
            &coalesced(&payload),
            10,
            RxChecksum::Verified,
            &mut Vec::new(),
            &mut |frame, meta| {
                assert_eq!(meta.checksum, RxChecksum::Partial);
                let total = u16::from_be_bytes([frame[16], frame[17]]);
                let id = u16::from_be_bytes([frame[18], frame[19]]);
                let udp = u16::from_be_bytes([frame[38], frame[39]]);
                seen.push((total, id, udp, frame[42..].to_vec()));
            },
        );
        assert_eq!(count, 3);
        assert_eq!(seen[0], (38, 0xfffe, 18, payload[..10].to_vec()));
        assert_eq!(seen[2], (33, 0, 13, payload[20..].to_vec()));
    }

    #[test]
    fn a_frame_that_is_not_udp_or_is_cut_short_yields_nothing() {
        let none = &mut |_: &[u8], _: RxMeta| panic!("no frame expected");
        let mut tcp = coalesced(&[1, 2, 3]);
        tcp[23] = 6;
        let scratch = &mut Vec::new();
        assert_eq!(split(&tcp, 1, RxChecksum::Partial, scratch, none), 0);
        let whole = coalesced(&[1]);
        for len in 0..whole.len() {
            let cut = &whole[..len];
            assert_eq!(split(cut, 1, RxChecksum::Partial, scratch, none), 0);
        }
        assert_eq!(split(&whole, 0, RxChecksum::Partial, scratch, none), 0);
    }
}
