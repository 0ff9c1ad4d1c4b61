//! Spreading of received frames over a card's queues (RSS), as texts that can be shown, written
//! down and read back.

use std::fmt::Write;
use std::io;

use slipstack_device::ethtool::{Ethtool, Field, Flows};

/// Bits of the hashed fields, and their names.
const FIELDS: [(u32, &str); 2] = [(0x30, "addresses"), (0xf0, "addresses and ports")];
/// Repeated, it gives both directions of a flow one hash: the two halves of the input meet the same
/// words of the key, because it repeats after 16 bits.
const SYMMETRIC: [u8; 2] = [0x6d, 0x5a];

/// Part of RSS that is set alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Rss {
    Table,
    Key,
    Fields(Flows),
}

impl Rss {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Rss::Table => "RSS table",
            Rss::Key => "RSS key",
            Rss::Fields(Flows::TcpOverIpv4) => "RSS fields of TCP over IPv4",
            Rss::Fields(Flows::TcpOverIpv6) => "RSS fields of TCP over IPv6",
        }
    }

    /// # Errors
    /// The driver does not say.
    pub fn read(self, interface: &str) -> io::Result<String> {
        let ethtool = Ethtool::new()?;
        Ok(match self {
            Rss::Table => text_of_table(&ethtool.rss_table(interface)?),
            Rss::Key => text_of_key(&ethtool.rss_key(interface)?),
            Rss::Fields(flows) => text_of_fields(ethtool.hashed_fields(interface, flows)?),
        })
    }

    /// # Errors
    /// The driver refuses, or this is no text of [`Rss::read`].
    pub fn write(self, interface: &str, text: &str) -> io::Result<()> {
        let ethtool = Ethtool::new()?;
        let wrong = io::ErrorKind::InvalidData;
        match self {
            Rss::Table => {
                let len = ethtool.rss_table(interface)?.len();
                let queues = receive_queues(&ethtool, interface);
                let table = table_of_text(text, len).ok_or(wrong)?;
                // A default is set as one, because it then follows the number of queues.
                let is_default = text == equal(queues);
                ethtool.set_rss_table(interface, if is_default { &[] } else { &table })
            }
            Rss::Key => ethtool.set_rss_key(interface, &key_of_text(text).ok_or(wrong)?),
            Rss::Fields(flows) => {
                let fields = fields_of_text(text).ok_or(wrong)?;
                ethtool.set_hashed_fields(interface, flows, Some(fields))
            }
        }
    }
}

/// Returns the better table if a queue of the interface is in no entry of this one.
pub fn better_table(interface: &str, now: &str) -> Option<String> {
    let ethtool = Ethtool::new().ok()?;
    let queues = receive_queues(&ethtool, interface);
    let table = ethtool.rss_table(interface).ok()?;
    let is_named = |queue: u32| table.contains(&queue);
    let is_better = now != equal(queues) && !(0..queues).all(is_named);
    (is_better && queues as usize <= table.len()).then(|| equal(queues))
}

/// Returns the better fields.
pub fn better_fields(now: &str) -> Option<String> {
    (now == FIELDS[0].1).then(|| FIELDS[1].1.to_owned())
}

/// Returns the key that gives both directions of a flow one hash, as long as this one.
pub fn symmetric_key(now: &str) -> Option<String> {
    let len = key_of_text(now)?.len();
    let key: Vec<u8> = SYMMETRIC.into_iter().cycle().take(len).collect();
    Some(text_of_key(&key))
}

fn receive_queues(ethtool: &Ethtool, interface: &str) -> u32 {
    let read = |field| ethtool.read(interface, field).unwrap_or(0);
    read(Field::RX_QUEUES) + read(Field::COMBINED)
}

fn equal(queues: u32) -> String {
    format!("equal {queues}")
}

fn text_of_table(table: &[u32]) -> String {
    let queues = table.iter().max().map_or(0, |max| max + 1);
    if table
        .iter()
        .zip(0..)
        .all(|(queue, at)| *queue == at % queues)
    {
        return equal(queues);
    }
    let entries: Vec<String> = table.iter().map(u32::to_string).collect();
    entries.join(",")
}

fn table_of_text(text: &str, len: usize) -> Option<Vec<u32>> {
    if let Some(queues) = text.strip_prefix("equal ") {
        let queues: u32 = queues.parse().ok().filter(|queues| *queues > 0)?;
        return Some((0..queues).cycle().take(len).collect());
    }
    let entries = text.split(',').map(|entry| entry.parse().ok());
    entries
        .collect::<Option<Vec<u32>>>()
        .filter(|table| table.len() == len)
}

fn text_of_key(key: &[u8]) -> String {
    key.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn key_of_text(text: &str) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(byte).collect()
}

fn text_of_fields(fields: u32) -> String {
    let known = FIELDS.iter().find(|(bits, _)| *bits == fields);
    known.map_or_else(|| format!("{fields:#x}"), |(_, name)| (*name).to_owned())
}

fn fields_of_text(text: &str) -> Option<u32> {
    match FIELDS.iter().find(|(_, name)| *name == text) {
        Some((bits, _)) => Some(*bits),
        None => u32::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rss_tables_keys_and_fields_round_trip() {
        for (table, text) in [
            (vec![0, 1, 2, 0, 1, 2], "equal 3"),
            (vec![0, 0, 0], "equal 1"),
            (vec![2, 1, 0], "2,1,0"),
            (vec![0, 2, 0, 2], "0,2,0,2"),
        ] {
            assert_eq!(text_of_table(&table), text);
            assert_eq!(table_of_text(text, table.len()), Some(table));
        }
        for wrong in ["equal 0", "equal", "1,2", "a,b,c", ""] {
            assert_eq!(table_of_text(wrong, 3), None, "{wrong}");
        }
        let key = [0u8, 0x6d, 255];
        assert_eq!(text_of_key(&key), "006dff");
        assert_eq!(key_of_text("006dff").as_deref(), Some(&key[..]));
        assert_eq!((key_of_text("0"), key_of_text("xy")), (None, None));
        for fields in [0x30, 0xf0, 0x8000_0030] {
            assert_eq!(fields_of_text(&text_of_fields(fields)), Some(fields));
        }
    }

    #[test]
    fn the_symmetric_rss_key_is_as_long_as_the_cards_key() {
        assert_eq!(symmetric_key("0102030405").as_deref(), Some("6d5a6d5a6d"));
        assert_eq!(
            better_fields("addresses").as_deref(),
            Some("addresses and ports")
        );
        assert_eq!(better_fields("addresses and ports"), None);
    }
}
