//! Tables of prefixes with values, and their form in a file.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Bytes of a prefix in a file: the address, mapped if it is of IPv4; its length; 4 or 6; two that
/// are zero; the value.
const ENTRY_LEN: usize = 24;
const LEN_AT: usize = 16;
const FAMILY_AT: usize = 17;
const VALUE_AT: usize = 20;

/// A prefix with its value.
pub type TableEntry = ((IpAddr, u8), u32);

/// One table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterTable {
    /// A number is a name like any other.
    pub name: String,
    /// Unique over all tables: a table with a known revision has not changed.
    pub revision: u64,
    /// In the order of family, address and length.
    pub entries: Vec<TableEntry>,
}

/// Returns the address of a prefix, with bits beyond the length set to zero.
pub fn masked((ip, len): (IpAddr, u8)) -> (IpAddr, u8) {
    match ip {
        IpAddr::V4(ip) => {
            let len = len.min(32);
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            (IpAddr::V4((ip.to_bits() & mask).into()), len)
        }
        IpAddr::V6(ip) => {
            let len = len.min(128);
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            (IpAddr::V6((ip.to_bits() & mask).into()), len)
        }
    }
}

impl FilterTable {
    /// The longest prefix that an address is in.
    pub fn lookup(&self, ip: IpAddr) -> Option<TableEntry> {
        let of_it = self.entries.iter().filter(|((net, len), _)| {
            net.is_ipv4() == ip.is_ipv4() && masked((ip, *len)).0 == *net
        });
        of_it.max_by_key(|((_, len), _)| *len).copied()
    }
}

/// Appends prefixes as bytes.
pub fn write_prefixes(entries: &[TableEntry], bytes: &mut Vec<u8>) {
    for ((ip, len), value) in entries {
        let (mapped, family) = match ip {
            IpAddr::V4(ip) => (ip.to_ipv6_mapped(), 4),
            IpAddr::V6(ip) => (*ip, 6),
        };
        bytes.extend(mapped.octets());
        bytes.extend([*len, family, 0, 0]);
        bytes.extend(value.to_le_bytes());
    }
}

/// Reads so many prefixes from the front of bytes. `None`: there are fewer, or they are none.
pub fn read_prefixes(bytes: &mut &[u8], count: usize) -> Option<Vec<TableEntry>> {
    let len = count.checked_mul(ENTRY_LEN)?;
    let (these, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    these.chunks_exact(ENTRY_LEN).map(read_entry).collect()
}

fn read_entry(bytes: &[u8]) -> Option<TableEntry> {
    let octets: [u8; 16] = bytes.first_chunk().copied()?;
    let ip = Ipv6Addr::from(octets);
    let ip = match bytes[FAMILY_AT] {
        4 => IpAddr::V4(ip.to_ipv4_mapped()?),
        6 => IpAddr::V6(ip),
        _ => return None,
    };
    let value = bytes[VALUE_AT..].first_chunk().copied()?;
    Some(((ip, bytes[LEN_AT]), u32::from_le_bytes(value)))
}
