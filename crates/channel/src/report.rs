//! The table in which a program describes its sockets, for `slipstack why`.
//!
//! A region of its own with one row per descriptor. The program writes a row when a socket is
//! placed and clears it when the socket is closed; the process that answers `why` reads. The reader
//! trusts nothing: every field is checked, and a row that changes while it is read is skipped.

use core::sync::atomic::{AtomicU64, Ordering, fence};
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};

use slipstack_mem::Region;
use slipstack_terms::coded;

use crate::control::SocketReport;

/// Descriptors from here on are not described.
pub const ROWS: usize = 65_536;
const ROW_BYTES: usize = 64;
/// Rows begin after a page that is kept for a header.
const ROWS_AT: usize = 4096;
/// Length of the region.
pub const REPORT_BYTES: usize = ROWS_AT + ROWS * ROW_BYTES;

/// [`SocketReport::place`] of a socket of the kernel.
pub const ON_KERNEL: &str = "kernel";

coded! {
    /// Place of a socket.
    Place {
        Undecided = 1,
        Stack = 2,
        Kernel = 3,
        /// Kernel and stack on one descriptor.
        Both = 4,
    }
}

coded! {
    /// Reason why it is there.
    Why {
        /// The stack has the address, or reaches it.
        Stack = 1,
        /// Listener on the stack from this process's first wait on it; until then only others
        /// may.
        Intent = 2,
        Loopback = 3,
        /// The destination is not reached by the stack.
        Route = 4,
        /// The local address is one of the kernel's.
        LocalAddress = 5,
        Family = 6,
        /// SO_BINDTODEVICE.
        Device = 7,
        /// No stack is available.
        NoStack = 8,
        /// The stack refused.
        Refused = 9,
        /// The process this one was forked from drives it.
        Foreign = 10,
        /// `--strict`, and the kernel would have been next.
        Strict = 11,
        /// The instance has ended or is not there yet.
        Away = 12,
        /// RLIMIT_AS leaves no room for an engine.
        NoAddresses = 13,
        /// Every slot of the device is taken.
        NoSlot = 14,
    }
}

impl Why {
    /// A sentence for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Why::Stack => "its address belongs to the stack or is reached by it",
            Why::Intent => {
                "not served by this process yet: it listens on the stack in each process that \
                 waits on it"
            }
            Why::Loopback => "127.0.0.0/8 and ::1 stay with the kernel",
            Why::Route => "the stack has no route to the destination",
            Why::LocalAddress => "the local address is the kernel's",
            Why::Family => {
                "it was bound to an address that is neither IPv4 nor IPv6 (the kernel has rules \
                 for these)"
            }
            Why::Device => "SO_BINDTODEVICE names a device of the kernel's",
            Why::NoStack => "no engine could be had (see the program's standard error)",
            Why::NoAddresses => {
                "no engine could be had: the program's address space is too small (raise ulimit \
                 -v, RLIMIT_AS)"
            }
            Why::NoSlot => {
                "not served by this process: all slots of the device are taken (start with more \
                 --slots); it waits for one"
            }
            Why::Refused => "the stack refused it (see the program's standard error)",
            Why::Strict => {
                "--strict: refused instead of left to the kernel (see the program's standard error)"
            }
            Why::Away => {
                "its instance is away; on the stack again as soon as one of that name runs"
            }
            Why::Foreign => {
                "the process this one was forked from drives it, and passes its bytes on"
            }
        }
    }
}

/// One socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub place: Place,
    pub why: Why,
    pub is_udp: bool,
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
}

/// A program's table.
#[derive(Clone, Debug)]
pub struct ReportTable {
    region: Region,
}

impl ReportTable {
    pub fn create() -> io::Result<ReportTable> {
        let region = Region::create("slipstack-report", REPORT_BYTES)?;
        Ok(ReportTable { region })
    }

    /// Opens a table that another process writes.
    pub fn open(fd: OwnedFd) -> io::Result<ReportTable> {
        let region = Region::open(fd, REPORT_BYTES)?;
        if region.len() < REPORT_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(ReportTable { region })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.region.fd()
    }

    fn words(&self, fd: i32) -> Option<[&AtomicU64; 6]> {
        let index = usize::try_from(fd).ok().filter(|index| *index < ROWS)?;
        let at = ROWS_AT + index * ROW_BYTES;
        let word = |n: usize| self.region.u64(at + n * 8);
        Some([word(0)?, word(1)?, word(2)?, word(3)?, word(4)?, word(5)?])
    }

    pub fn write(&self, fd: i32, row: Row) {
        let Some([head, words @ ..]) = self.words(fd) else {
            return;
        };
        let (local, local_port) = words_of(row.local);
        let (remote, remote_port) = words_of(row.remote);
        head.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in words.iter().zip([
            local[0],
            local[1],
            remote[0],
            remote[1],
            u64::from(local_port) << 16 | u64::from(remote_port),
        ]) {
            word.store(value, Ordering::Relaxed);
        }
        let head_word = u64::from(row.place.code())
            | u64::from(row.why.code()) << 8
            | u64::from(row.is_udp) << 16;
        head.store(head_word, Ordering::Release);
    }

    pub fn clear(&self, fd: i32) {
        if let Some([head, ..]) = self.words(fd)
            && head.load(Ordering::Relaxed) != 0
        {
            head.store(0, Ordering::Release);
        }
    }

    pub fn read(&self, fd: i32) -> Option<Row> {
        let [head, words @ ..] = self.words(fd)?;
        let before = head.load(Ordering::Acquire);
        let place = Place::from_code(before as u8)?;
        let why = Why::from_code((before >> 8) as u8)?;
        let [local_high, local_low, remote_high, remote_low, ports] =
            words.map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if head.load(Ordering::Relaxed) != before {
            return None;
        }
        Some(Row {
            place,
            why,
            is_udp: before >> 16 & 1 == 1,
            local: addr_of([local_high, local_low], (ports >> 16) as u16),
            remote: addr_of([remote_high, remote_low], ports as u16),
        })
    }

    /// All sockets with their descriptors.
    pub fn rows(&self) -> Vec<(i32, Row)> {
        let rows = (0..ROWS as i32).filter_map(|fd| Some((fd, self.read(fd)?)));
        rows.collect()
    }

    /// The first `max` sockets, as `why` shows them, and the number of all.
    pub fn sockets(&self, max: usize) -> (Vec<SocketReport>, usize) {
        let rows = self.rows();
        let shown = rows
            .iter()
            .take(max)
            .map(|(fd, row)| SocketReport {
                fd: Some(*fd),
                place: match row.place {
                    Place::Undecided => "undecided",
                    Place::Stack => "stack",
                    Place::Kernel => ON_KERNEL,
                    Place::Both => "both",
                }
                .to_owned(),
                kind: if row.is_udp { "udp" } else { "tcp" }.to_owned(),
                local: row.local,
                remote: row.remote,
                why: row.why.sentence().to_owned(),
            })
            .collect();
        (shown, rows.len())
    }
}

/// An address as words; absent is all ones (no address of a socket).
fn words_of(addr: Option<SocketAddr>) -> ([u64; 2], u16) {
    let Some(addr) = addr else {
        return ([u64::MAX; 2], 0);
    };
    let ip = match addr.ip() {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        std::net::IpAddr::V6(v6) => v6,
    };
    let bits = ip.to_bits();
    ([(bits >> 64) as u64, bits as u64], addr.port())
}

fn addr_of(words: [u64; 2], port: u16) -> Option<SocketAddr> {
    if words == [u64::MAX; 2] {
        return None;
    }
    let bits = u128::from(words[0]) << 64 | u128::from(words[1]);
    let ip = Ipv6Addr::from_bits(bits).to_canonical();
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let table = ReportTable::create().unwrap();
        let row = Row {
            place: Place::Both,
            why: Why::Intent,
            is_udp: false,
            local: Some("0.0.0.0:80".parse().unwrap()),
            remote: None,
        };
        table.write(7, row);
        let other = ReportTable::open(table.fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(other.read(7), Some(row));
        assert_eq!(other.sockets(64).0.len(), 1);
        assert_eq!(other.sockets(0), (Vec::new(), 1));
        table.clear(7);
        assert_eq!(other.read(7), None);
    }

    #[test]
    fn descriptors_without_a_row_are_passed_over() {
        let table = ReportTable::create().unwrap();
        assert_eq!(table.read(-1), None);
        assert_eq!(table.read(ROWS as i32), None);
        table.clear(ROWS as i32);
    }
}
