//! Encoding of numbers and addresses as plain bytes, for connections that move between engines.

use core::net::IpAddr;

/// Puts numbers one after the other.
pub(super) struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Writer<'a> {
        Writer { bytes, at: 0 }
    }
}

impl Writer<'_> {
    pub(super) fn put(&mut self, field: &[u8]) {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
    }
}

/// Reads numbers and addresses from bytes.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }
}

/// Numbers that can be encoded in an image.
pub(super) trait Number: Sized {
    fn take(bytes: &[u8]) -> Option<(Self, &[u8])>;
}

macro_rules! number {
    ($($t:ty),*) => { $(
        impl Number for $t {
            fn take(bytes: &[u8]) -> Option<($t, &[u8])> {
                let (field, rest) = bytes.split_first_chunk()?;
                Some((<$t>::from_le_bytes(*field), rest))
            }
        }
    )* };
}
number!(u8, u16, u32, u64);

impl Reader<'_> {
    pub(super) fn number<N: Number>(&mut self) -> Option<N> {
        let (value, rest) = N::take(self.bytes)?;
        self.bytes = rest;
        Some(value)
    }

    pub(super) fn address(&mut self) -> Option<IpAddr> {
        let (octets, rest) = self.bytes.split_first_chunk::<16>()?;
        self.bytes = rest;
        Some(core::net::Ipv6Addr::from(*octets).to_canonical())
    }
}
