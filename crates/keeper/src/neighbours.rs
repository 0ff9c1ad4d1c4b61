//! The table of neighbours that all engines read: link-layer addresses by IP address (IPv4 mapped).
//!
//! Only the keeper writes; a sequence word guards each entry. An engine that finds no entry sends a
//! request itself; the answer reaches the keeper, which enters it here.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use slipstack_mem::{PAGE, Region};

/// Entries of the table.
const ENTRIES: usize = 1024;
/// Places that one address may be at.
const PROBES: usize = 8;
const ENTRY_LEN: usize = 32;
/// Position of the count of moves, in the page before the entries.
const MOVES: usize = 0;
/// Place of the number of changes.
const CHANGES: usize = 8;
const LEN: usize = PAGE + ENTRIES * ENTRY_LEN;
/// Number of a reader's attempts when it meets the writer.
const TRIES: usize = 8;

/// Stands in a place that was given up.
const NOBODY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// The words of one entry.
struct Entry<'a> {
    sequence: &'a AtomicU64,
    high: &'a AtomicU64,
    low: &'a AtomicU64,
    mac: &'a AtomicU64,
}

/// A view of the shared table.
#[derive(Clone, Debug)]
pub struct Neighbours {
    region: Region,
}

impl Neighbours {
    pub fn create() -> io::Result<Neighbours> {
        Ok(Neighbours {
            region: Region::create("slipstack-neighbours", LEN)?,
        })
    }

    /// An engine's view, which cannot write.
    pub fn open(fd: OwnedFd) -> io::Result<Neighbours> {
        let region = Region::open_read_only(fd, 2 * LEN)?;
        if region.len() < LEN {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "table of neighbours is too short",
            ));
        }
        Ok(Neighbours { region })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.region.fd()
    }

    pub fn find(&self, address: IpAddr) -> Option<[u8; 6]> {
        places(address).find_map(|place| {
            let (found, mac) = self.read(place)?;
            (found == address).then_some(mac)
        })
    }

    /// Changes with every answer of this neighbour.
    pub fn answers(&self, address: IpAddr) -> Option<u64> {
        let place = places(address).find(|place| {
            let found = self.read(*place);
            found.is_some_and(|(found, _)| found == address)
        })?;
        let entry = self.entry(place)?;
        Some(entry.sequence.load(Ordering::Acquire))
    }

    /// Changes whenever a neighbour is found at another link-layer address than before.
    pub fn moves(&self) -> u64 {
        let moves = self.region.u64(MOVES);
        moves.map_or(0, |moves| moves.load(Ordering::Acquire))
    }

    /// Changes whenever a neighbour comes, goes, or is found at another link-layer address.
    pub fn changes(&self) -> u64 {
        let changes = self.region.u64(CHANGES);
        changes.map_or(0, |changes| changes.load(Ordering::Acquire))
    }

    fn note_change(&self) {
        if let Some(changes) = self.region.u64(CHANGES) {
            changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Enters or changes an address. Only the keeper writes. When all its places are taken, one of
    /// them is given up.
    pub fn publish(&self, address: IpAddr, mac: [u8; 6]) {
        let before = self.find(address);
        let has_moved = before.is_some_and(|before| before != mac);
        self.enter(address, mac);
        if before != Some(mac) {
            self.note_change();
        }
        if has_moved && let Some(moves) = self.region.u64(MOVES) {
            moves.fetch_add(1, Ordering::Release);
        }
    }

    fn enter(&self, address: IpAddr, mac: [u8; 6]) {
        let found = |place| self.read(place).map(|(found, _)| found);
        let place = places(address)
            .find(|place| found(*place) == Some(address))
            .or_else(|| places(address).find(|place| found(*place).is_none_or(|ip| ip == NOBODY)))
            .or_else(|| places(address).next());
        if let Some(place) = place {
            self.write(place, address, mac);
        }
    }

    /// Removes an address: it is resolved again.
    pub fn forget(&self, address: IpAddr) {
        let is_there = |place: &usize| self.read(*place).is_some_and(|(ip, _)| ip == address);
        if let Some(place) = places(address).find(is_there) {
            self.write(place, NOBODY, [0; 6]);
            self.note_change();
        }
    }

    /// All neighbours, for a list.
    pub fn entries(&self) -> Vec<(IpAddr, [u8; 6])> {
        let all = (0..ENTRIES).filter_map(|place| self.read(place));
        all.filter(|(ip, _)| *ip != NOBODY).collect()
    }

    fn entry(&self, place: usize) -> Option<Entry<'_>> {
        let offset = PAGE + place * ENTRY_LEN;
        Some(Entry {
            sequence: self.region.u64(offset)?,
            high: self.region.u64(offset + 8)?,
            low: self.region.u64(offset + 16)?,
            mac: self.region.u64(offset + 24)?,
        })
    }

    fn read(&self, place: usize) -> Option<(IpAddr, [u8; 6])> {
        let entry = self.entry(place)?;
        for _ in 0..TRIES {
            let before = entry.sequence.load(Ordering::Acquire);
            if before == 0 {
                return None;
            }
            let high = entry.high.load(Ordering::Relaxed);
            let low = entry.low.load(Ordering::Relaxed);
            let bytes = entry.mac.load(Ordering::Relaxed).to_le_bytes();
            fence(Ordering::Acquire);
            if before & 1 == 0 && entry.sequence.load(Ordering::Relaxed) == before {
                let [a, b, c, d, e, f, ..] = bytes;
                let bits = u128::from(high) << 64 | u128::from(low);
                let ip = Ipv6Addr::from_bits(bits).to_canonical();
                return Some((ip, [a, b, c, d, e, f]));
            }
        }
        None
    }

    fn write(&self, place: usize, ip: IpAddr, bytes: [u8; 6]) {
        let Some(entry) = self.entry(place) else {
            return;
        };
        let bits = bits(ip);
        let before = entry.sequence.load(Ordering::Relaxed) & !1;
        entry
            .sequence
            .store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        entry.high.store((bits >> 64) as u64, Ordering::Relaxed);
        entry.low.store(bits as u64, Ordering::Relaxed);
        let [a, b, c, d, e, f] = bytes;
        entry.mac.store(
            u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
            Ordering::Relaxed,
        );
        entry
            .sequence
            .store(before.wrapping_add(2), Ordering::Release);
    }
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn places(address: IpAddr) -> impl Iterator<Item = usize> {
    let bits = bits(address);
    let word = (bits >> 96 ^ bits >> 64 ^ bits >> 32 ^ bits) as u32;
    let hash = word.wrapping_mul(0x9e37_79b1) >> 16;
    (0..PROBES).map(move |i| (hash as usize + i) % ENTRIES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn values_that_the_keeper_publishes_are_read_by_engines() {
        let ours = Neighbours::create().expect("table");
        let theirs = Neighbours::open(ours.fd().try_clone_to_owned().expect("fd")).expect("open");
        let address = IpAddr::from([10, 254, 0, 1]);
        assert_eq!(theirs.find(address), None);
        ours.publish(address, [2, 0, 0, 0, 0, 1]);
        assert_eq!(theirs.find(address), Some([2, 0, 0, 0, 0, 1]));
        ours.publish(address, [2, 0, 0, 0, 0, 9]);
        assert_eq!(theirs.find(address), Some([2, 0, 0, 0, 0, 9]));
    }

    #[test]
    fn a_neighbour_that_is_forgotten_is_found_no_longer() {
        let table = Neighbours::create().expect("table");
        let ip = IpAddr::from([10, 0, 0, 9]);
        table.publish(ip, [2; 6]);
        table.forget(ip);
        assert_eq!(table.find(ip), None);
        assert!(table.entries().is_empty());
        table.publish(ip, [3; 6]);
        assert_eq!(table.find(ip), Some([3; 6]));
    }

    #[test]
    fn more_neighbours_than_places_push_old_ones_out_and_never_mix() {
        let table = Neighbours::create().expect("table");
        let mac = |i: u32| {
            let [a, b, c, d] = i.to_be_bytes();
            [2, 0, a, b, c, d]
        };
        for i in 0..5000 {
            table.publish(Ipv4Addr::from(0x0a00_0000 + i).into(), mac(i));
        }
        assert_eq!(
            table.find(Ipv4Addr::from(0x0a00_0000 + 4999).into()),
            Some(mac(4999))
        );
        for i in 0..5000 {
            assert!(
                table
                    .find(Ipv4Addr::from(0x0a00_0000 + i).into())
                    .is_none_or(|found| found == mac(i))
            );
        }
    }
}
