//! TCP headers (RFC 9293 3.1).

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

/// Length of a header without options.
pub const HEADER_LEN: usize = 20;
pub const OPTIONS_MAX: usize = 40;
/// Offset of the checksum field.
pub const CHECKSUM_AT: u16 = 16;

/// The control bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    pub const NONE: Self = Self(0);
    pub const FIN: Self = Self(0x01);
    pub const SYN: Self = Self(0x02);
    pub const RST: Self = Self(0x04);
    pub const PSH: Self = Self(0x08);
    pub const ACK: Self = Self(0x10);
    pub const URG: Self = Self(0x20);
    pub const ECE: Self = Self(0x40);
    pub const CWR: Self = Self(0x80);

    /// All of `other`'s bits are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Some of `other`'s bits are set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    #[inline]
    pub const fn is_fin(self) -> bool {
        self.contains(Self::FIN)
    }

    #[inline]
    pub const fn is_syn(self) -> bool {
        self.contains(Self::SYN)
    }

    #[inline]
    pub const fn is_rst(self) -> bool {
        self.contains(Self::RST)
    }

    #[inline]
    pub const fn is_ack(self) -> bool {
        self.contains(Self::ACK)
    }

    #[inline]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for TcpFlags {
    type Output = Self;

    #[inline]
    fn bitor(self, rhs: Self) -> Self {
        self.union(rhs)
    }
}

impl BitOrAssign for TcpFlags {
    #[inline]
    fn bitor_assign(&mut self, rhs: Self) {
        *self = *self | rhs;
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, letter) in "FSRPAUEC".chars().enumerate() {
            if self.0 & 1 << bit != 0 {
                write!(f, "{letter}")?;
            }
        }
        if self.0 == 0 {
            f.write_str("-")
        } else {
            Ok(())
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TcpHeader {
    pub src_port: u16,
    pub dst_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: TcpFlags,
    /// As on the wire, not scaled.
    pub window: u16,
    pub urgent: u16,
}

/// A received segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSegment<'a> {
    pub header: TcpHeader,
    pub options: &'a [u8],
    pub payload: &'a [u8],
}

impl<'a> TcpSegment<'a> {
    /// Returns `None` if truncated, or if the data offset is below the header or beyond the
    /// segment. The checksum is not verified.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (h, _) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let header_len = usize::from(h[12] >> 4) * 4;
        let options = bytes.get(HEADER_LEN..header_len)?;
        let payload = bytes.get(header_len..)?;
        let header = TcpHeader {
            src_port: u16::from_be_bytes([h[0], h[1]]),
            dst_port: u16::from_be_bytes([h[2], h[3]]),
            seq: u32::from_be_bytes([h[4], h[5], h[6], h[7]]),
            ack: u32::from_be_bytes([h[8], h[9], h[10], h[11]]),
            flags: TcpFlags(h[13]),
            window: u16::from_be_bytes([h[14], h[15]]),
            urgent: u16::from_be_bytes([h[18], h[19]]),
        };
        Some(Self {
            header,
            options,
            payload,
        })
    }
}

impl TcpHeader {
    /// Writes the first [`HEADER_LEN`] bytes of `out`, with the data offset for `options_len` (a
    /// multiple of 4, at most 40) and a checksum of zero.
    #[inline]
    pub fn emit(&self, options_len: usize, out: &mut [u8]) {
        let out = &mut out[..HEADER_LEN];
        out[..2].copy_from_slice(&self.src_port.to_be_bytes());
        out[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        out[4..8].copy_from_slice(&self.seq.to_be_bytes());
        out[8..12].copy_from_slice(&self.ack.to_be_bytes());
        out[12] = (((HEADER_LEN + options_len) / 4) as u8) << 4;
        out[13] = self.flags.0;
        out[14..16].copy_from_slice(&self.window.to_be_bytes());
        out[16..18].copy_from_slice(&[0, 0]);
        out[18..20].copy_from_slice(&self.urgent.to_be_bytes());
    }
}

/// The first eight bytes of a transport header, the least that an ICMP error quotes (RFC 792).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    pub src_port: u16,
    pub dst_port: u16,
    /// TCP's sequence number; UDP has length and checksum there.
    pub sequence: u32,
}

impl Quoted {
    pub fn parse(bytes: &[u8]) -> Option<Quoted> {
        let (h, _) = bytes.split_first_chunk::<8>()?;
        Some(Quoted {
            src_port: u16::from_be_bytes([h[0], h[1]]),
            dst_port: u16::from_be_bytes([h[2], h[3]]),
            sequence: u32::from_be_bytes([h[4], h[5], h[6], h[7]]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;

    #[test]
    fn a_false_data_offset_is_refused() {
        // RFC 9293 3.1.
        let mut bytes = [0; 40];
        TcpHeader::default().emit(0, &mut bytes);
        assert_eq!(TcpSegment::parse(&bytes).unwrap().payload.len(), 20);
        for offset in [0u8, 4, 11, 15] {
            bytes[12] = offset << 4;
            assert_eq!(TcpSegment::parse(&bytes), None, "offset {offset}");
        }
        bytes[12] = 10 << 4;
        let segment = TcpSegment::parse(&bytes).unwrap();
        assert_eq!((segment.options.len(), segment.payload.len()), (20, 0));
    }

    #[test]
    fn flags_print_as_letters() {
        assert_eq!(format!("{:?}", TcpFlags::SYN | TcpFlags::ACK), "SA");
        assert_eq!(format!("{:?}", TcpFlags::NONE), "-");
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(segment) = TcpSegment::parse(&bytes) {
                let len = HEADER_LEN + segment.options.len() + segment.payload.len();
                prop_assert_eq!(len, bytes.len());
            }
            let _ = Quoted::parse(&bytes);
        }

        #[test]
        fn emit_and_parse_agree(
            src_port: u16,
            dst_port: u16,
            seq: u32,
            ack: u32,
            flags: u8,
            window: u16,
            urgent: u16,
            words in 0usize..=10,
        ) {
            let flags = TcpFlags(flags);
            let header = TcpHeader { src_port, dst_port, seq, ack, flags, window, urgent };
            let mut bytes = [0; HEADER_LEN + OPTIONS_MAX];
            header.emit(words * 4, &mut bytes);
            let segment = TcpSegment::parse(&bytes).unwrap();
            prop_assert_eq!(segment.header, header);
            prop_assert_eq!(segment.options.len(), words * 4);
        }
    }
}
