//! The stack's addresses as the eBPF programs look them up: a hash set with bounded probing.
//!
//! The set has two halves. A change is written into the half that is not in use, with a multiplier
//! under which every address finds a place near its own; then one store switches to it. So each
//! frame sees either the old addresses or the new ones.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use super::hash::{self, MULTIPLIER_1};
use super::layout;
use super::raw::Table;
use super::table::Writer;
use crate::error::DeviceError;

/// Multipliers that are tried for one under which all addresses find a place.
const ATTEMPTS: u64 = 256;
/// Places of the smallest set.
const PLACES_MIN: usize = 64;
/// Places for each address: the fewer, the longer the way to a free one.
const PLACES_PER_ADDRESS: usize = 4;

/// Position of the halves and their sets, for readers and the writer alike.
#[derive(Clone, Copy)]
struct Half {
    at: usize,
    multiplier: u64,
    shift: u32,
}

impl Half {
    fn in_use(table: &Table) -> Half {
        let at = at_of(table.load_u32(layout::HALF_IN_USE) & 1);
        Half {
            at,
            multiplier: table.load_u64(at + layout::MULTIPLIER),
            shift: table.load_u64(at + layout::SHIFT) as u32,
        }
    }

    fn v4_place(&self, word: u32) -> usize {
        place(u64::from(word).wrapping_mul(self.multiplier), self.shift)
    }

    fn v6_place(&self, halves: [u64; 2]) -> usize {
        let mut hash = halves[0].wrapping_mul(self.multiplier);
        hash ^= hash >> hash::SHIFT;
        hash ^= halves[1];
        hash ^= hash >> hash::SHIFT;
        place(hash.wrapping_mul(self.multiplier), self.shift)
    }
}

fn at_of(half: u32) -> usize {
    layout::ADDRESSES + half as usize * layout::HALF_LEN
}

fn place(hash: u64, shift: u32) -> usize {
    (hash >> (shift & 63)) as usize & (layout::PLACES_MAX - 1)
}

/// Returns whether the stack has this address.
pub(super) fn is_own(table: &Table, ip: IpAddr) -> bool {
    let half = Half::in_use(table);
    match ip {
        IpAddr::V4(ip) => {
            let first = half.v4_place(word(ip));
            let mut places = first..first + layout::PLACES_TRIED;
            let at = |place| half.at + layout::OWN + 4 * place;
            !ip.is_unspecified() && places.any(|place| table.load_u32(at(place)) == word(ip))
        }
        IpAddr::V6(ip) => {
            let wanted = hash::halves(ip.into());
            let first = half.v6_place(wanted);
            let is_here = |place| {
                let at = half.at + layout::OWN6 + 16 * place;
                [table.load_u64(at), table.load_u64(at + 8)] == wanted
            };
            !ip.is_unspecified() && (first..first + layout::PLACES_TRIED).any(is_here)
        }
    }
}

/// The sets of one configuration, in memory order.
struct Sets {
    own: BTreeSet<u32>,
    broadcasts: BTreeSet<u32>,
    own6: BTreeSet<[u64; 2]>,
}

impl Sets {
    fn of(addresses: &[(IpAddr, u8)]) -> Sets {
        let mut sets = Sets {
            own: BTreeSet::new(),
            broadcasts: BTreeSet::new(),
            own6: BTreeSet::new(),
        };
        for &(ip, prefix) in addresses {
            match ip {
                IpAddr::V4(ip) => {
                    sets.own.insert(word(ip));
                    let broadcast = broadcast(ip, prefix).filter(|ip| !ip.is_unspecified());
                    sets.broadcasts.extend(broadcast.map(word));
                }
                IpAddr::V6(_) => _ = sets.own6.insert(hash::halves(ip)),
            }
        }
        sets
    }

    fn places(&self) -> usize {
        let most = self.own.len().max(self.own6.len()) * PLACES_PER_ADDRESS;
        let places = most.next_power_of_two();
        places.clamp(PLACES_MIN, layout::PLACES_MAX)
    }

    /// The three sets with every address in one of its places; `None`: this multiplier does not do.
    fn laid_out(&self, half: &Half) -> Option<LaidOut> {
        let len = self.places() + layout::PLACES_TRIED;
        let v4 = |set: &BTreeSet<u32>| fill(set.iter().map(|ip| (half.v4_place(*ip), *ip)), len);
        let v6 = self.own6.iter().map(|ip| (half.v6_place(*ip), *ip));
        Some(LaidOut {
            own: v4(&self.own)?,
            broadcasts: v4(&self.broadcasts)?,
            own6: fill(v6, len)?,
        })
    }
}

struct LaidOut {
    own: Vec<u32>,
    broadcasts: Vec<u32>,
    own6: Vec<[u64; 2]>,
}

/// Puts each value at the first free place from its own on; the default marks a free place.
fn fill<T: Copy + Default + PartialEq>(
    values: impl Iterator<Item = (usize, T)>,
    len: usize,
) -> Option<Vec<T>> {
    let mut places = vec![T::default(); len];
    for (first, value) in values {
        let tried = places.get_mut(first..first + layout::PLACES_TRIED)?;
        *tried.iter_mut().find(|place| **place == T::default())? = value;
    }
    Some(places)
}

/// Makes these the stack's addresses, all at once.
pub(super) fn set(
    writer: Writer<'_>,
    table: &Table,
    addresses: &[(IpAddr, u8)],
) -> Result<(), DeviceError> {
    let sets = Sets::of(addresses);
    let most = sets.own.len().max(sets.own6.len());
    let out_of_range = DeviceError::OutOfRange {
        what: "number of addresses",
        value: most,
    };
    if most > layout::OWN_MAX {
        return Err(out_of_range);
    }
    let spare = 1 - (table.load_u32(layout::HALF_IN_USE) & 1);
    let candidate = |attempt: u64| Half {
        at: at_of(spare),
        multiplier: MULTIPLIER_1.wrapping_mul(2 * attempt + 1),
        shift: u64::BITS - sets.places().trailing_zeros(),
    };
    let mut halves = (0..ATTEMPTS).map(candidate);
    let found = halves.find_map(|half| Some((half, sets.laid_out(&half)?)));
    let (half, laid_out) = found.ok_or(out_of_range)?;
    writer.u64(half.at + layout::MULTIPLIER, half.multiplier);
    writer.u64(half.at + layout::SHIFT, u64::from(half.shift));
    for (place, ip) in laid_out.own.iter().enumerate() {
        writer.u32(half.at + layout::OWN + 4 * place, *ip);
    }
    for (place, ip) in laid_out.broadcasts.iter().enumerate() {
        writer.u32(half.at + layout::BROADCAST + 4 * place, *ip);
    }
    for (place, [first, last]) in laid_out.own6.iter().enumerate() {
        let at = half.at + layout::OWN6 + 16 * place;
        writer.u64(at, *first);
        writer.u64(at + 8, *last);
    }
    writer.u32(layout::HALF_IN_USE, spare);
    Ok(())
}

pub(super) fn word(ip: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(ip.octets())
}

/// RFC 3021: point-to-point prefixes have no broadcast address.
fn broadcast(ip: Ipv4Addr, prefix: u8) -> Option<Ipv4Addr> {
    let host = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
    (prefix < 31).then(|| Ipv4Addr::from_bits(ip.to_bits() | host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    #[test]
    fn point_to_point_prefixes_have_no_broadcast_address() {
        let ip = Ipv4Addr::new(10, 1, 2, 3);
        assert_eq!(broadcast(ip, 24), Some(Ipv4Addr::new(10, 1, 2, 255)));
        assert_eq!(broadcast(ip, 31), None);
        assert_eq!(broadcast(ip, 32), None);
    }

    #[test]
    fn the_largest_number_of_addresses_fits_the_map() {
        let v4 = (0..layout::OWN_MAX as u32).map(|n| Ipv4Addr::from_bits(0x0a00_0001 + n).into());
        let net = u128::from(0x2001_0db8u32) << 96;
        let v6 = (0..layout::OWN_MAX as u128)
            .map(|n| Ipv6Addr::from_bits(net | (n >> 6) << 64 | (n + 1)).into());
        let addresses: Vec<(IpAddr, u8)> = v4.chain(v6).map(|ip: IpAddr| (ip, 24)).collect();
        let sets = Sets::of(&addresses);
        let half = |attempt: u64| Half {
            at: 0,
            multiplier: MULTIPLIER_1.wrapping_mul(2 * attempt + 1),
            shift: u64::BITS - sets.places().trailing_zeros(),
        };
        assert!((0..ATTEMPTS).any(|attempt| sets.laid_out(&half(attempt)).is_some()));
    }
}
