//! The table of neighbours that all engines read: link-layer addresses by IPv4 address.
//!
//! One writer, the keeper; entries are guarded by a sequence word each. An engine that finds nothing
//! asks the wire itself; the answer reaches the keeper, which enters it here.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use slipstack_mem::{PAGE, Region};

/// Entries of the table.
const ENTRIES: usize = 1024;
/// Places that one address may be at.
const PROBES: usize = 8;
const ENTRY_LEN: usize = 32;
const LEN: usize = PAGE + ENTRIES * ENTRY_LEN;
/// How often a reader tries again when it meets the writer.
const TRIES: usize = 8;

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

    pub fn open(fd: OwnedFd) -> io::Result<Neighbours> {
        let region = Region::open(fd, 2 * LEN)?;
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

    pub fn find(&self, address: Ipv4Addr) -> Option<[u8; 6]> {
        places(address).find_map(|place| {
            let (found, mac) = self.read(place)?;
            (found == address).then_some(mac)
        })
    }

    /// Enters or changes an address. Only the keeper writes. When all its places are taken, one of
    /// them is given up.
    pub fn publish(&self, address: Ipv4Addr, mac: [u8; 6]) {
        let entry = |place| self.read(place).map(|(found, _)| found);
        let place = places(address)
            .find(|place| entry(*place) == Some(address))
            .or_else(|| places(address).find(|place| entry(*place).is_none()))
            .or_else(|| places(address).next());
        if let Some(place) = place {
            self.write(place, address, mac);
        }
    }

    fn words(&self, place: usize) -> Option<(&AtomicU64, &AtomicU64, &AtomicU64)> {
        let offset = PAGE + place * ENTRY_LEN;
        Some((
            self.region.u64(offset)?,
            self.region.u64(offset + 8)?,
            self.region.u64(offset + 16)?,
        ))
    }

    fn read(&self, place: usize) -> Option<(Ipv4Addr, [u8; 6])> {
        let (sequence, address, mac) = self.words(place)?;
        for _ in 0..TRIES {
            let before = sequence.load(Ordering::Acquire);
            if before == 0 {
                return None;
            }
            let (ip, bytes) = (
                address.load(Ordering::Relaxed),
                mac.load(Ordering::Relaxed).to_le_bytes(),
            );
            fence(Ordering::Acquire);
            if before & 1 == 0 && sequence.load(Ordering::Relaxed) == before {
                let [a, b, c, d, e, f, ..] = bytes;
                return Some((Ipv4Addr::from(ip as u32), [a, b, c, d, e, f]));
            }
        }
        None
    }

    fn write(&self, place: usize, ip: Ipv4Addr, bytes: [u8; 6]) {
        let Some((sequence, address, mac)) = self.words(place) else {
            return;
        };
        let before = sequence.load(Ordering::Relaxed) & !1;
        sequence.store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        address.store(u64::from(u32::from(ip)), Ordering::Relaxed);
        let [a, b, c, d, e, f] = bytes;
        mac.store(
            u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
            Ordering::Relaxed,
        );
        sequence.store(before.wrapping_add(2), Ordering::Release);
    }
}

fn places(address: Ipv4Addr) -> impl Iterator<Item = usize> {
    let hash = u32::from(address).wrapping_mul(0x9e37_79b1) >> 16;
    (0..PROBES).map(move |i| (hash as usize + i) % ENTRIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_keeper_publishes_is_found_by_the_others() {
        let ours = Neighbours::create().expect("table");
        let theirs = Neighbours::open(ours.fd().try_clone_to_owned().expect("fd")).expect("open");
        let address = Ipv4Addr::new(10, 254, 0, 1);
        assert_eq!(theirs.find(address), None);
        ours.publish(address, [2, 0, 0, 0, 0, 1]);
        assert_eq!(theirs.find(address), Some([2, 0, 0, 0, 0, 1]));
        ours.publish(address, [2, 0, 0, 0, 0, 9]);
        assert_eq!(theirs.find(address), Some([2, 0, 0, 0, 0, 9]));
    }

    #[test]
    fn more_neighbours_than_places_push_old_ones_out_and_never_mix() {
        let table = Neighbours::create().expect("table");
        let mac = |i: u32| {
            let [a, b, c, d] = i.to_be_bytes();
            [2, 0, a, b, c, d]
        };
        for i in 0..5000 {
            table.publish(Ipv4Addr::from(0x0a00_0000 + i), mac(i));
        }
        assert_eq!(
            table.find(Ipv4Addr::from(0x0a00_0000 + 4999)),
            Some(mac(4999))
        );
        for i in 0..5000 {
            assert!(
                table
                    .find(Ipv4Addr::from(0x0a00_0000 + i))
                    .is_none_or(|found| found == mac(i))
            );
        }
    }
}
