//! A card's spreading of received frames over its queues: key and indirection table of RSS.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};
use slipstack_wire::rss::{ENTRIES_MAX, Input, KEY_LEN};

use super::{Ethtool, sys};

const GET_RSS: u32 = 0x46;
const SET_RSS: u32 = 0x47;
const GET_HASHED_FIELDS: u32 = 0x29;
const SET_HASHED_FIELDS: u32 = 0x2a;
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
/// Transformation of the input: the exclusive or of source and destination in the place of both.
const SYMMETRIC_XOR: u8 = 1;
/// Length of a table that is to stay as it is. A length of 0 asks for the default.
const TABLE_UNCHANGED: u32 = u32::MAX;
/// Words of `struct ethtool_rxnfc`, and where the fields are that the hash covers.
const FIELDS_WORDS: usize = 48;
const FIELDS_AT: usize = 2;
/// Fields that the hash covers: the addresses and ports of source and destination.
const ADDRESSES_AND_PORTS: u32 = 0b1111 << 4;

/// Flows whose hashed fields are set together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flows {
    TcpOverIpv4 = 1,
    TcpOverIpv6 = 5,
}

/// Key and table as the driver tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rss {
    pub key: [u8; KEY_LEN],
    pub input: Input,
    /// The queue of each remainder of the hash by the table's length.
    pub table: Vec<u16>,
}

/// Reason why a driver's answer is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRss {
    /// The driver tells no key or no table.
    Untold,
    /// The card hashes by another function, or changes the hash's input so that it is no sum of
    /// fields.
    OtherHash,
    /// The ports of TCP do not count.
    PortsLeftOut,
}

impl fmt::Display for NoRss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoRss::Untold => "the driver tells no RSS key",
            NoRss::OtherHash => "the card's hash is neither plain nor symmetric Toeplitz",
            NoRss::PortsLeftOut => "the card's hash leaves ports out",
        })
    }
}

impl Ethtool {
    pub(crate) fn rss(&self, interface: &str) -> Result<Rss, NoRss> {
        let words = self.rss_words(interface).map_err(|_| NoRss::Untold)?;
        let rss = parse(&words)?;
        match self.hashes_ports(interface, Flows::TcpOverIpv4) {
            Ok(false) => Err(NoRss::PortsLeftOut),
            // A driver that does not say hashes as all do.
            _ => Ok(rss),
        }
    }

    /// Returns the queue of each entry of the indirection table.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn rss_table(&self, interface: &str) -> io::Result<Vec<u32>> {
        let words = self.rss_words(interface)?;
        let (table, _) = lens(&words).ok_or(io::ErrorKind::InvalidData)?;
        let entries = words.get(HEADER_WORDS..HEADER_WORDS + table);
        let entries = entries.filter(|entries| !entries.is_empty());
        Ok(entries.ok_or(io::ErrorKind::Unsupported)?.to_vec())
    }

    /// Sets the queue of each entry; without entries, the driver's default.
    ///
    /// # Errors
    /// The driver refuses, or CAP_NET_ADMIN is missing.
    pub fn set_rss_table(&self, interface: &str, entries: &[u32]) -> io::Result<()> {
        let now = self.rss_words(interface)?;
        sys::request(self.0.as_fd(), interface, &mut table_change(&now, entries))
    }

    /// Returns the key of the hash.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn rss_key(&self, interface: &str) -> io::Result<Vec<u8>> {
        let words = self.rss_words(interface)?;
        let key = key_of(&words).filter(|key| !key.is_empty());
        Ok(key.ok_or(io::ErrorKind::Unsupported)?)
    }

    /// Sets the key, whose length is the driver's.
    ///
    /// # Errors
    /// The driver refuses, or CAP_NET_ADMIN is missing.
    pub fn set_rss_key(&self, interface: &str, key: &[u8]) -> io::Result<()> {
        let now = self.rss_words(interface)?;
        sys::request(self.0.as_fd(), interface, &mut key_change(&now, key))
    }

    /// Returns whether ports are among the fields that are hashed.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn hashes_ports(&self, interface: &str, flows: Flows) -> io::Result<bool> {
        let fields = self.hashed_fields(interface, flows)?;
        Ok(fields & ADDRESSES_AND_PORTS == ADDRESSES_AND_PORTS)
    }

    /// Returns the fields that are hashed, as bits.
    ///
    /// # Errors
    /// The driver does not say.
    pub fn hashed_fields(&self, interface: &str, flows: Flows) -> io::Result<u32> {
        let mut words = [0; FIELDS_WORDS];
        words[..2].copy_from_slice(&[GET_HASHED_FIELDS, flows as u32]);
        sys::request(self.0.as_fd(), interface, &mut words)?;
        Ok(words[FIELDS_AT])
    }

    /// Sets the fields that are hashed; `None` are addresses and ports.
    ///
    /// # Errors
    /// The driver refuses, or CAP_NET_ADMIN is missing.
    pub fn set_hashed_fields(
        &self,
        interface: &str,
        flows: Flows,
        fields: Option<u32>,
    ) -> io::Result<()> {
        let mut words = [0; FIELDS_WORDS];
        words[..2].copy_from_slice(&[SET_HASHED_FIELDS, flows as u32]);
        words[FIELDS_AT] = fields.unwrap_or(ADDRESSES_AND_PORTS);
        sys::request(self.0.as_fd(), interface, &mut words)
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
}

/// Entries of the table and bytes of the key.
fn lens(words: &[u32]) -> Option<(usize, usize)> {
    let (table, key) = (words[TABLE_LEN_AT] as usize, words[KEY_LEN_AT] as usize);
    (table <= ENTRIES_MAX && key <= KEY_LEN_MAX).then_some((table, key))
}

fn key_of(words: &[u32]) -> Option<Vec<u8>> {
    let (table, key) = lens(words)?;
    let words = words.get(HEADER_WORDS + table..)?;
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    (bytes.len() >= key).then(|| {
        bytes.truncate(key);
        bytes
    })
}

fn parse(words: &[u32]) -> Result<Rss, NoRss> {
    let (table, _) = lens(words).ok_or(NoRss::Untold)?;
    let [function, transformation, ..] = words[FUNCTION_AT].to_ne_bytes();
    let input = match (function, transformation) {
        (0 | TOEPLITZ, 0) => Input::Plain,
        (0 | TOEPLITZ, SYMMETRIC_XOR) => Input::Symmetric,
        _ => return Err(NoRss::OtherHash),
    };
    let entries = words.get(HEADER_WORDS..HEADER_WORDS + table);
    let entries = entries.unwrap_or_default().iter();
    let entries = entries.map(|queue| u16::try_from(*queue));
    let entries = entries.collect::<Result<Vec<u16>, _>>();
    let key = key_of(words).and_then(|key| key.get(..KEY_LEN)?.try_into().ok());
    match (key, entries) {
        (Some(key), Ok(table)) if !table.is_empty() && key != [0; KEY_LEN] => {
            Ok(Rss { key, input, table })
        }
        _ => Err(NoRss::Untold),
    }
}

/// The request for a change of table or key. The transformation of the input goes with it as it
/// is; function 0 leaves the function.
fn change(now: &[u32], table_len: u32, key_len: u32) -> Vec<u32> {
    let [_, transformation, ..] = now[FUNCTION_AT].to_ne_bytes();
    let mut words = vec![0; HEADER_WORDS];
    words[0] = SET_RSS;
    words[TABLE_LEN_AT] = table_len;
    words[KEY_LEN_AT] = key_len;
    words[FUNCTION_AT] = u32::from_ne_bytes([0, transformation, 0, 0]);
    words
}

fn table_change(now: &[u32], entries: &[u32]) -> Vec<u32> {
    let mut words = change(now, entries.len() as u32, 0);
    words.extend_from_slice(entries);
    words
}

fn key_change(now: &[u32], key: &[u8]) -> Vec<u32> {
    let mut words = change(now, TABLE_UNCHANGED, key.len() as u32);
    let whole = key.chunks(4).map(|bytes| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        u32::from_ne_bytes(word)
    });
    words.extend(whole);
    words
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
    fn symmetric_input_is_reported_and_survives_changes_of_table_and_key() {
        let mut now = answer();
        now[FUNCTION_AT] = u32::from_ne_bytes([TOEPLITZ, SYMMETRIC_XOR, 0, 0]);
        assert_eq!(parse(&now).expect("it is sound").input, Input::Symmetric);
        let kept = u32::from_ne_bytes([0, SYMMETRIC_XOR, 0, 0]);
        let table = table_change(&now, &[1, 0, 1, 0]);
        assert_eq!(table, [SET_RSS, 0, 4, 0, kept, 0, 1, 0, 1, 0]);
        assert_eq!(table_change(&now, &[]), [SET_RSS, 0, 0, 0, kept, 0]);
        let key = key_change(&now, &[1, 2, 3, 4, 5]);
        let words = [[1, 2, 3, 4], [5, 0, 0, 0]].map(u32::from_ne_bytes);
        assert_eq!(key[..HEADER_WORDS], [SET_RSS, 0, u32::MAX, 5, kept, 0]);
        assert_eq!(key[HEADER_WORDS..], words);
        assert_eq!(key_of(&answer()).map(|key| key.len()), Some(52));
    }

    #[test]
    fn other_hash_functions_and_missing_keys_are_ignored() {
        let with = |at: usize, word: u32| {
            let mut words = answer();
            words[at] = word;
            parse(&words)
        };
        let xor = u32::from_ne_bytes([2, 0, 0, 0]);
        let with_or = u32::from_ne_bytes([TOEPLITZ, 2, 0, 0]);
        assert_eq!(with(FUNCTION_AT, xor), Err(NoRss::OtherHash));
        assert_eq!(with(FUNCTION_AT, with_or), Err(NoRss::OtherHash));
        assert_eq!(with(KEY_LEN_AT, 0), Err(NoRss::Untold));
        assert_eq!(with(KEY_LEN_AT, u32::MAX), Err(NoRss::Untold));
        assert_eq!(with(TABLE_LEN_AT, 0), Err(NoRss::Untold));
        assert_eq!(with(HEADER_WORDS, 70_000), Err(NoRss::Untold));
        assert_eq!(parse(&answer()[..12]), Err(NoRss::Untold));
    }
}
