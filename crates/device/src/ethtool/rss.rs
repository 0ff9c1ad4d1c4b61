//! A card's spreading of received frames over its queues: key and indirection table of RSS.

use std::fmt;
use std::io;

use slipstack_wire::rss::{ENTRIES_MAX, KEY_LEN};

use super::{Ethtool, sys};
use std::os::fd::AsFd;

const GET_RSS: u32 = 0x46;
const GET_HASHED_FIELDS: u32 = 0x29;
/// Words of `struct ethtool_rxfh` before the table and the key.
const HEADER_WORDS: usize = 6;
const TABLE_LEN_AT: usize = 2;
const KEY_LEN_AT: usize = 3;
/// Hash function and transformation of its input, a byte each.
const FUNCTION_AT: usize = 4;
/// Longest key that drivers have.
const KEY_LEN_MAX: usize = 256;
/// The hash function Toeplitz.
const TOEPLITZ: u8 = 1;
/// Words of `struct ethtool_rxnfc`, and where the fields are that the hash covers.
const FIELDS_WORDS: usize = 48;
const FIELDS_AT: usize = 2;
/// Both addresses and both ports.
const ADDRESSES_AND_PORTS: u32 = 0b1111 << 4;
const TCP_OVER_IPV4: u32 = 1;

/// Key and table as the driver tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rss {
    pub key: [u8; KEY_LEN],
    /// The queue of each value of the hash's low bits.
    pub table: Vec<u16>,
}

/// Why a driver's answer is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRss {
    /// It tells no key or no table.
    Untold,
    /// It hashes by another function, or changes the hash's input.
    OtherHash,
    /// The ports of TCP do not count.
    PortsLeftOut,
}

impl fmt::Display for NoRss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoRss::Untold => "the driver tells no RSS key",
            NoRss::OtherHash => "the card's hash is not plain Toeplitz",
            NoRss::PortsLeftOut => "the card's hash leaves ports out",
        })
    }
}

impl Ethtool {
    pub(crate) fn rss(&self, interface: &str) -> Result<Rss, NoRss> {
        let words = self.rss_words(interface).map_err(|_| NoRss::Untold)?;
        let rss = parse(&words)?;
        match self.hashed_fields(interface) {
            Ok(fields) if fields & ADDRESSES_AND_PORTS != ADDRESSES_AND_PORTS => {
                Err(NoRss::PortsLeftOut)
            }
            // A driver that does not say hashes as all do.
            _ => Ok(rss),
        }
    }

    /// The structure with table and key, whose lengths the driver says first.
    fn rss_words(&self, interface: &str) -> io::Result<Vec<u32>> {
        let mut words = vec![0; HEADER_WORDS];
        words[0] = GET_RSS;
        sys::request(self.0.as_fd(), interface, &mut words)?;
        let (table, key) = lens(&words).ok_or(io::ErrorKind::InvalidData)?;
        words.resize(HEADER_WORDS + table + key.div_ceil(4), 0);
        words[0] = GET_RSS;
        sys::request(self.0.as_fd(), interface, &mut words)?;
        Ok(words)
    }

    fn hashed_fields(&self, interface: &str) -> io::Result<u32> {
        let mut words = [0; FIELDS_WORDS];
        words[..2].copy_from_slice(&[GET_HASHED_FIELDS, TCP_OVER_IPV4]);
        sys::request(self.0.as_fd(), interface, &mut words)?;
        Ok(words[FIELDS_AT])
    }
}

/// Entries of the table and bytes of the key.
fn lens(words: &[u32]) -> Option<(usize, usize)> {
    let (table, key) = (words[TABLE_LEN_AT] as usize, words[KEY_LEN_AT] as usize);
    (table <= ENTRIES_MAX && key <= KEY_LEN_MAX).then_some((table, key))
}

fn parse(words: &[u32]) -> Result<Rss, NoRss> {
    let (table, key) = lens(words).ok_or(NoRss::Untold)?;
    let [function, transformation, ..] = words[FUNCTION_AT].to_ne_bytes();
    if transformation != 0 || !matches!(function, 0 | TOEPLITZ) {
        return Err(NoRss::OtherHash);
    }
    let body = words.get(HEADER_WORDS..).unwrap_or_default();
    let (entries, key_words) = body.split_at_checked(table).ok_or(NoRss::Untold)?;
    let key_bytes: Vec<u8> = key_words
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let key = key_bytes
        .get(..key.min(KEY_LEN))
        .and_then(|key| key.try_into().ok());
    let entries = entries.iter().map(|queue| u16::try_from(*queue));
    let entries = entries.collect::<Result<Vec<u16>, _>>();
    match (key, entries) {
        (Some(key), Ok(table)) if !table.is_empty() && key != [0; KEY_LEN] => {
            Ok(Rss { key, table })
        }
        _ => Err(NoRss::Untold),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with four entries and a key of 52 bytes, as several cards have it.
    fn answer() -> Vec<u32> {
        let mut words = vec![
            GET_RSS,
            0,
            4,
            52,
            u32::from_ne_bytes([TOEPLITZ, 0, 0, 0]),
            0,
        ];
        words.extend([0, 1, 0, 1]);
        words.extend((1..=13u8).map(|word| u32::from_ne_bytes([word; 4])));
        words
    }

    #[test]
    fn table_and_key_are_read_where_the_kernel_puts_them() {
        let rss = parse(&answer()).expect("it is sound");
        assert_eq!(rss.table, [0, 1, 0, 1]);
        assert_eq!((rss.key[0], rss.key[39]), (1, 10));
    }

    #[test]
    fn other_hashes_and_missing_keys_are_not_believed() {
        let with = |at: usize, word: u32| {
            let mut words = answer();
            words[at] = word;
            parse(&words)
        };
        let xor = u32::from_ne_bytes([2, 0, 0, 0]);
        let symmetric = u32::from_ne_bytes([TOEPLITZ, 1, 0, 0]);
        assert_eq!(with(FUNCTION_AT, xor), Err(NoRss::OtherHash));
        assert_eq!(with(FUNCTION_AT, symmetric), Err(NoRss::OtherHash));
        assert_eq!(with(KEY_LEN_AT, 0), Err(NoRss::Untold));
        assert_eq!(with(KEY_LEN_AT, u32::MAX), Err(NoRss::Untold));
        assert_eq!(with(TABLE_LEN_AT, 0), Err(NoRss::Untold));
        assert_eq!(with(HEADER_WORDS, 70_000), Err(NoRss::Untold));
        assert_eq!(parse(&answer()[..12]), Err(NoRss::Untold));
    }
}
