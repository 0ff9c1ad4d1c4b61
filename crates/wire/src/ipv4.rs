//! IPv4 headers (RFC 791).

use core::net::Ipv4Addr;

use crate::checksum;

/// Length of a header without options.
pub const HEADER_LEN: usize = 20;
/// Length of a header with all the options that it has room for.
pub const HEADER_LEN_MAX: usize = 60;
/// With a router alert.
pub const ALERT_HEADER_LEN: usize = 24;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// The defect of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv4Error {
    /// Truncated, or version or lengths wrong.
    Malformed,
    Checksum,
}

/// The fields that we choose when we send. Headers that we send have no options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header {
    pub tos: u8,
    pub total_len: u16,
    pub identification: u16,
    pub dont_fragment: bool,
    pub ttl: u8,
    pub protocol: u8,
    pub src: Ipv4Addr,
    pub dst: Ipv4Addr,
}

/// A received packet, cut to its total length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Packet<'a> {
    pub header: Ipv4Header,
    /// Whether this is a fragment, by the fragment field.
    pub is_fragment: bool,
    pub has_more: bool,
    pub fragment_offset: u16,
    pub options: &'a [u8],
    pub payload: &'a [u8],
}

impl<'a> Ipv4Packet<'a> {
    /// Parses and verifies the header checksum. Bytes beyond the total length (Ethernet padding)
    /// are ignored.
    // One of a few calls in the crate above; left to itself the compiler makes it a call at some of
    // them.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Ipv4Error> {
        let packet = Self::parse_unverified(bytes)?;
        let is_valid = match bytes.first_chunk::<HEADER_LEN>() {
            // Nearly every header has the length without options.
            Some(header) if packet.options.is_empty() => checksum::is_valid(header),
            _ => checksum::is_valid(&bytes[..HEADER_LEN + packet.options.len()]),
        };
        if is_valid {
            Ok(packet)
        } else {
            Err(Ipv4Error::Checksum)
        }
    }

    #[inline]
    fn parse_unverified(bytes: &'a [u8]) -> Result<Self, Ipv4Error> {
        let (packet, total_len) = Self::parse_header(bytes)?;
        let header_len = HEADER_LEN + packet.options.len();
        let payload = bytes
            .get(header_len..total_len)
            .ok_or(Ipv4Error::Malformed)?;
        Ok(Self { payload, ..packet })
    }

    /// Parses the packet quoted by an ICMP error: truncated anywhere after its header, checksum not
    /// verified (routers rewrite the TTL). `payload` is the present part of it.
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Self, Ipv4Error> {
        let (packet, total_len) = Self::parse_header(bytes)?;
        let header_len = HEADER_LEN + packet.options.len();
        let end = total_len.min(bytes.len());
        let payload = bytes.get(header_len..end).ok_or(Ipv4Error::Malformed)?;
        Ok(Self { payload, ..packet })
    }

    /// Everything but the payload, and the total length, which is at least the header's.
    #[inline]
    fn parse_header(bytes: &'a [u8]) -> Result<(Self, usize), Ipv4Error> {
        let (h, _) = bytes
            .split_first_chunk::<HEADER_LEN>()
            .ok_or(Ipv4Error::Malformed)?;
        let header_len = usize::from(h[0] & 0x0f) * 4;
        let total_len = u16::from_be_bytes([h[2], h[3]]);
        if h[0] >> 4 != 4 || header_len < HEADER_LEN || usize::from(total_len) < header_len {
            return Err(Ipv4Error::Malformed);
        }
        let options = bytes
            .get(HEADER_LEN..header_len)
            .ok_or(Ipv4Error::Malformed)?;
        let flags = u16::from_be_bytes([h[6], h[7]]);
        let header = Ipv4Header {
            tos: h[1],
            total_len,
            identification: u16::from_be_bytes([h[4], h[5]]),
            dont_fragment: flags & DONT_FRAGMENT != 0,
            ttl: h[8],
            protocol: h[9],
            src: Ipv4Addr::new(h[12], h[13], h[14], h[15]),
            dst: Ipv4Addr::new(h[16], h[17], h[18], h[19]),
        };
        let packet = Self {
            header,
            is_fragment: flags & (MORE_FRAGMENTS | OFFSET_MASK) != 0,
            has_more: flags & MORE_FRAGMENTS != 0,
            fragment_offset: (flags & OFFSET_MASK) * 8,
            options,
            payload: &[],
        };
        Ok((packet, usize::from(total_len)))
    }
}

impl Ipv4Header {
    /// Writes the first [`HEADER_LEN`] bytes of `out` with their checksum.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let flags = if self.dont_fragment { DONT_FRAGMENT } else { 0 };
        self.emit_with(flags, out);
    }

    /// The header of a part of a packet that begins at `offset`, a multiple of eight.
    pub fn emit_fragment(&self, offset: u16, has_more: bool, out: &mut [u8]) {
        let more = if has_more { MORE_FRAGMENTS } else { 0 };
        self.emit_with((offset / 8) | more, out);
    }

    /// As [`Ipv4Header::emit_fragment`], for a packet with options; returns the length, at most
    /// [`HEADER_LEN_MAX`].
    ///
    /// RFC 791 3.1: after the first fragment only options with the copied flag remain. As on Linux
    /// the others become no-operation, so that all headers have one length.
    pub fn emit_fragment_with(
        &self,
        (offset, has_more): (u16, bool),
        options: &[u8],
        out: &mut [u8],
    ) -> usize {
        self.emit_fragment(offset, has_more, out);
        let len = HEADER_LEN + options.len();
        if !options.is_empty() {
            let header = &mut out[..len];
            header[0] = 0x40 | (len / 4) as u8;
            header[HEADER_LEN..].copy_from_slice(options);
            if offset != 0 {
                keep_copied(&mut header[HEADER_LEN..]);
            }
            header[10..12].fill(0);
            let sum = checksum::of(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        len
    }

    /// A header with a router alert (RFC 2113): [`ALERT_HEADER_LEN`] bytes.
    pub fn emit_with_alert(&self, out: &mut [u8]) {
        let out = &mut out[..ALERT_HEADER_LEN];
        self.emit(out);
        out[0] = 0x46;
        out[HEADER_LEN..].copy_from_slice(&[0x94, 4, 0, 0]);
        set_ttl(out, self.ttl);
    }

    #[inline]
    fn emit_with(&self, flags: u16, out: &mut [u8]) {
        let out = &mut out[..HEADER_LEN];
        out[0] = 0x45;
        out[1] = self.tos;
        out[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        out[4..6].copy_from_slice(&self.identification.to_be_bytes());
        out[6..8].copy_from_slice(&flags.to_be_bytes());
        out[8] = self.ttl;
        out[9] = self.protocol;
        out[10..12].copy_from_slice(&[0, 0]);
        out[12..16].copy_from_slice(&self.src.octets());
        out[16..20].copy_from_slice(&self.dst.octets());
        let sum = checksum::of(out);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Changes the time to live of a header, which is given with its options and no more.
pub fn set_ttl(header: &mut [u8], ttl: u8) {
    header[8] = ttl;
    header[10..12].copy_from_slice(&[0, 0]);
    let sum = checksum::of(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The verdict on the options of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionsVerdict {
    /// Nothing that concerns a host.
    Harmless,
    /// Loose or strict source routing (RFC 7126 4.3, 4.4: drop).
    SourceRoute,
    /// Lengths that do not add up.
    Malformed,
}

/// Walks the options; at most 40 bytes, at least one per step.
pub fn check_options(mut options: &[u8]) -> OptionsVerdict {
    loop {
        match *options {
            [] | [0, ..] => return OptionsVerdict::Harmless,
            [1, ref rest @ ..] => options = rest,
            [kind, len, ..] => {
                let Some(rest) = options.get(usize::from(len)..).filter(|_| len >= 2) else {
                    return OptionsVerdict::Malformed;
                };
                if kind == 131 || kind == 137 {
                    return OptionsVerdict::SourceRoute;
                }
                options = rest;
            }
            [_] => return OptionsVerdict::Malformed,
        }
    }
}

/// Overwrites options that later fragments of a packet do not have. Malformed options stay.
fn keep_copied(options: &mut [u8]) {
    const NO_OPERATION: u8 = 1;
    const COPIED: u8 = 0x80;
    let mut at = 0;
    while let Some(&[kind, len]) = options.get(at..).and_then(|rest| rest.first_chunk()) {
        match kind {
            0 => return,
            NO_OPERATION => at += 1,
            _ => {
                let end = at + usize::from(len);
                if len < 2 || end > options.len() {
                    return;
                }
                if kind & COPIED == 0 {
                    options[at..end].fill(NO_OPERATION);
                }
                at = end;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    fn header(payload_len: u16) -> Ipv4Header {
        Ipv4Header {
            tos: 0x10,
            total_len: HEADER_LEN as u16 + payload_len,
            identification: 7,
            dont_fragment: true,
            ttl: 64,
            protocol: 6,
            src: Ipv4Addr::new(10, 0, 0, 1),
            dst: Ipv4Addr::new(10, 0, 0, 2),
        }
    }

    #[test]
    fn padding_after_the_total_length_is_cut_off() {
        let mut bytes = [0xee; 60];
        header(10).emit(&mut bytes);
        let packet = Ipv4Packet::parse(&bytes).unwrap();
        assert_eq!(packet.payload, &[0xee; 10]);
        assert_eq!(packet.header, header(10));
        assert!(!packet.is_fragment);
    }

    #[test]
    fn wrong_version_lengths_and_checksum_are_distinguished() {
        let mut good = [0; 40];
        header(20).emit(&mut good);
        let with = |at: usize, value: u8| {
            let mut bad = good;
            bad[at] = value;
            Ipv4Packet::parse(&bad).unwrap_err()
        };
        assert_eq!(with(0, 0x65), Ipv4Error::Malformed, "version 6");
        assert_eq!(with(0, 0x44), Ipv4Error::Malformed, "header of 16 bytes");
        assert_eq!(with(2, 0xff), Ipv4Error::Malformed, "longer than the frame");
        assert_eq!(with(3, 19), Ipv4Error::Malformed, "shorter than the header");
        assert_eq!(with(8, 63), Ipv4Error::Checksum);
        assert_eq!(Ipv4Packet::parse(&good[..19]), Err(Ipv4Error::Malformed));
    }

    #[test]
    fn later_fragments_have_only_options_with_the_copied_flag() {
        // RFC 791 3.1: a timestamp is not copied, a router alert is.
        let options = [68, 4, 5, 0, 1, 148, 4, 0, 0, 0, 0, 0];
        for (offset, want) in [(0, options), (8, [1, 1, 1, 1, 1, 148, 4, 0, 0, 0, 0, 0])] {
            let mut bytes = [0; HEADER_LEN_MAX];
            let part = Ipv4Header {
                total_len: 32,
                ..header(0)
            };
            let len = part.emit_fragment_with((offset, true), &options, &mut bytes);
            let packet = Ipv4Packet::parse(&bytes[..len]).unwrap();
            assert_eq!(
                (packet.options, packet.fragment_offset),
                (&want[..], offset)
            );
        }
        for malformed in [&mut [7, 9, 0, 0][..], &mut [1, 1, 1, 7], &mut [7, 1, 7, 0]] {
            let before = malformed.to_vec();
            keep_copied(malformed);
            assert_eq!(malformed, before);
        }
    }

    #[test]
    fn ipv4_options_are_judged_as_rfc_7126_recommends() {
        // RFC 7126 4.3 and 4.4.
        let table: [(&[u8], OptionsVerdict); 8] = [
            (&[], OptionsVerdict::Harmless),
            (&[1, 1, 0, 0], OptionsVerdict::Harmless),
            (&[148, 4, 0, 0], OptionsVerdict::Harmless),
            (&[131, 3, 4, 0], OptionsVerdict::SourceRoute),
            (&[1, 137, 3, 4], OptionsVerdict::SourceRoute),
            (&[7, 0, 0, 0], OptionsVerdict::Malformed),
            (&[7, 9, 0, 0], OptionsVerdict::Malformed),
            (&[1, 1, 1, 7], OptionsVerdict::Malformed),
        ];
        for (options, want) in table {
            assert_eq!(check_options(options), want, "{options:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(packet) = Ipv4Packet::parse(&bytes) {
                prop_assert!(packet.payload.len() + HEADER_LEN <= bytes.len());
            }
            if let Ok(packet) = Ipv4Packet::parse_quoted(&bytes) {
                let _ = check_options(packet.options);
            }
        }

        #[test]
        fn emit_and_parse_agree(
            tos: u8,
            identification: u16,
            dont_fragment: bool,
            ttl: u8,
            protocol: u8,
            src: u32,
            dst: u32,
            len in 0u16..200,
        ) {
            let header = Ipv4Header {
                tos, identification, dont_fragment, ttl, protocol,
                total_len: HEADER_LEN as u16 + len,
                src: src.into(), dst: dst.into(),
            };
            let mut bytes = vec![0; usize::from(header.total_len)];
            header.emit(&mut bytes);
            prop_assert_eq!(Ipv4Packet::parse(&bytes).unwrap().header, header);
        }
    }
}
