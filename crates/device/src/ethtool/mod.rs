//! Settings of interfaces by their drivers, read and written (linux/ethtool.h).

mod rss;
mod sys;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::{Deserialize, Serialize};

pub use rss::Flows;
pub(crate) use rss::Rss;

const GET_DRIVER: u32 = 0x03;

/// Words of `struct ethtool_drvinfo`, and where its strings begin.
const DRIVER_WORDS: usize = 49;
const DRIVER_AT: usize = 4;
const BUS_AT: usize = 100;
const STRING_LEN: usize = 32;
/// Words of the longest structure with numbers.
const WORDS_MAX: usize = 24;

/// A structure of numbers: the commands that read and write it, and its words.
#[derive(Clone, Copy, Debug)]
struct Table {
    get: u32,
    set: u32,
    words: usize,
}

const CHANNELS: Table = Table {
    get: 0x3c,
    set: 0x3d,
    words: 9,
};
const RINGS: Table = Table {
    get: 0x10,
    set: 0x11,
    words: 9,
};
const COALESCING: Table = Table {
    get: 0x0e,
    set: 0x0f,
    words: 23,
};

/// A structure of one number that is 0 or 1.
const fn feature(get: u32, set: u32) -> Table {
    Table { get, set, words: 2 }
}

/// Declares the fields once: number, name, structure and word.
macro_rules! fields {
    ($($name:ident = $text:literal, $table:expr, $word:literal;)*) => {
        /// One number of a driver's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[allow(non_camel_case_types)]
        pub enum Field {
            $(#[doc = $text] $name,)*
        }

        impl Field {
            /// For people.
            pub fn name(self) -> &'static str {
                match self {
                    $(Field::$name => $text,)*
                }
            }

            fn place(self) -> (Table, usize) {
                match self {
                    $(Field::$name => ($table, $word),)*
                }
            }
        }
    };
}

fields! {
    RX_QUEUES_MAX = "most rx queues", CHANNELS, 1;
    TX_QUEUES_MAX = "most tx queues", CHANNELS, 2;
    COMBINED_MAX = "most combined queues", CHANNELS, 4;
    RX_QUEUES = "rx queues", CHANNELS, 5;
    TX_QUEUES = "tx queues", CHANNELS, 6;
    COMBINED = "combined queues", CHANNELS, 8;
    RX_RING_MAX = "longest rx ring", RINGS, 1;
    TX_RING_MAX = "longest tx ring", RINGS, 4;
    RX_RING = "rx ring", RINGS, 5;
    TX_RING = "tx ring", RINGS, 8;
    RX_USECS = "rx-usecs", COALESCING, 1;
    ADAPTIVE_RX = "adaptive rx-usecs", COALESCING, 10;
    RX_CHECKSUM = "rx checksums", feature(0x14, 0x15), 1;
    TX_CHECKSUM = "tx checksums", feature(0x16, 0x17), 1;
    TSO = "TCP segmentation", feature(0x1e, 0x1f), 1;
    GSO = "generic segmentation", feature(0x23, 0x24), 1;
    GRO = "generic receive offload", feature(0x2b, 0x2c), 1;
}

impl Field {
    /// Offloads that the driver or the kernel does in the stack's place.
    pub const OFFLOADS: [Field; 5] = [
        Field::RX_CHECKSUM,
        Field::TX_CHECKSUM,
        Field::TSO,
        Field::GSO,
        Field::GRO,
    ];
}

/// The interfaces of this network namespace.
#[derive(Debug)]
pub struct Ethtool(OwnedFd);

/// The driver of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Driver {
    pub name: String,
    /// Bus address of the hardware; empty if there is none.
    pub bus: String,
}

impl Ethtool {
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Ethtool> {
        let flags = SocketFlags::CLOEXEC;
        Ok(Ethtool(socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            flags,
            None,
        )?))
    }

    /// Number of this network namespace, which no other one has until the machine is restarted.
    ///
    /// # Errors
    /// The kernel is older than Linux 5.14.
    pub fn namespace(&self) -> io::Result<u64> {
        sys::namespace(self.0.as_fd())
    }

    /// # Errors
    /// The driver does not say.
    pub fn read(&self, interface: &str, field: Field) -> io::Result<u32> {
        let (table, word) = field.place();
        Ok(self.table(interface, table)?[word])
    }

    /// Changes one number and leaves the others of its structure.
    ///
    /// # Errors
    /// The driver refuses, or CAP_NET_ADMIN is missing.
    pub fn write(&self, interface: &str, field: Field, value: u32) -> io::Result<()> {
        let (table, word) = field.place();
        let mut words = self.table(interface, table)?;
        words[0] = table.set;
        words[word] = value;
        sys::request(self.0.as_fd(), interface, &mut words[..table.words])
    }

    fn table(&self, interface: &str, table: Table) -> io::Result<[u32; WORDS_MAX]> {
        let mut words = [0; WORDS_MAX];
        words[0] = table.get;
        sys::request(self.0.as_fd(), interface, &mut words[..table.words])?;
        Ok(words)
    }

    pub(crate) fn driver(&self, interface: &str) -> io::Result<Driver> {
        let mut words = [0; DRIVER_WORDS];
        words[0] = GET_DRIVER;
        sys::request(self.0.as_fd(), interface, &mut words)?;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let text = |at: usize| {
            let bytes = &bytes[at..at + STRING_LEN];
            let len = bytes.iter().position(|&b| b == 0).unwrap_or(STRING_LEN);
            String::from_utf8_lossy(&bytes[..len]).into_owned()
        };
        Ok(Driver {
            name: text(DRIVER_AT),
            bus: text(BUS_AT),
        })
    }

    /// Receive queues in use.
    pub(crate) fn receive_queues(&self, interface: &str) -> io::Result<u32> {
        let words = self.table(interface, CHANNELS)?;
        let of = |field: Field| words[field.place().1];
        Ok(of(Field::RX_QUEUES) + of(Field::COMBINED))
    }
}
