//! Values as words of shared memory.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

/// Words of the longest value.
pub const WORDS: usize = 5;

/// A value in shared memory. Its reader trusts nothing: words that no program of this version
/// writes are no value.
pub trait Words: Sized {
    fn to_words(self) -> [u64; WORDS];

    /// Returns the value; `None` if the words encode none.
    fn from_words(words: [u64; WORDS]) -> Option<Self>;
}

/// Returns the words of a value that needs one.
pub(crate) const fn one(word: u64) -> [u64; WORDS] {
    [word, 0, 0, 0, 0]
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Words for $number {
            fn to_words(self) -> [u64; WORDS] {
                one(self.into())
            }

            fn from_words([word, ..]: [u64; WORDS]) -> Option<Self> {
                word.try_into().ok()
            }
        }

        /// 0 is none.
        impl Words for Option<$number> {
            fn to_words(self) -> [u64; WORDS] {
                self.unwrap_or(0).to_words()
            }

            fn from_words(words: [u64; WORDS]) -> Option<Self> {
                <$number>::from_words(words).map(|number| (number != 0).then_some(number))
            }
        }
    )*};
}
numbers!(u8 u16 u32);

impl Words for u64 {
    fn to_words(self) -> [u64; WORDS] {
        one(self)
    }

    fn from_words([word, ..]: [u64; WORDS]) -> Option<Self> {
        Some(word)
    }
}

impl Words for bool {
    fn to_words(self) -> [u64; WORDS] {
        one(self.into())
    }

    fn from_words([word, ..]: [u64; WORDS]) -> Option<Self> {
        match word {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

/// In milliseconds; longer times are limited to 32 bits.
impl Words for Duration {
    fn to_words(self) -> [u64; WORDS] {
        one(self.as_millis().min(u32::MAX.into()) as u64)
    }

    fn from_words(words: [u64; WORDS]) -> Option<Self> {
        let ms = u32::from_words(words)?;
        Some(Duration::from_millis(ms.into()))
    }
}

/// A bit of its own distinguishes none from zero.
const NO_TIME: u64 = 1 << 32;

impl Words for Option<Duration> {
    fn to_words(self) -> [u64; WORDS] {
        self.map_or(one(NO_TIME), Words::to_words)
    }

    fn from_words(words: [u64; WORDS]) -> Option<Self> {
        match words {
            [NO_TIME, ..] => Some(None),
            words => Duration::from_words(words).map(Some),
        }
    }
}

/// Returns sixteen bytes of address, IPv4 mapped into IPv6.
#[inline]
pub const fn ip_words(ip: IpAddr) -> [u64; 2] {
    match ip {
        // As `to_ipv6_mapped` would have it.
        IpAddr::V4(v4) => [0, 0xffff_0000_0000 | v4.to_bits() as u64],
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            [(bits >> 64) as u64, bits as u64]
        }
    }
}

/// Returns the address of [`ip_words`].
#[inline]
pub fn ip_of([high, low]: [u64; 2]) -> IpAddr {
    if high == 0 && low >> 32 == 0xffff {
        return IpAddr::V4(Ipv4Addr::from_bits(low as u32));
    }
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into()
}
