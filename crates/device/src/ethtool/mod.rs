//! What drivers say of their interfaces (linux/ethtool.h).

mod sys;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const GET_DRIVER: u32 = 0x03;
const GET_CHANNELS: u32 = 0x3c;

/// Words of `struct ethtool_drvinfo`, and where its strings begin.
const DRIVER_WORDS: usize = 49;
const DRIVER_AT: usize = 4;
const BUS_AT: usize = 100;
const STRING_LEN: usize = 32;
const CHANNELS_WORDS: usize = 9;

/// The interfaces of this network namespace.
#[derive(Debug)]
pub(crate) struct Ethtool(OwnedFd);

/// Who drives an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Driver {
    pub name: String,
    /// Where the hardware is; empty if there is none.
    pub bus: String,
}

impl Ethtool {
    pub(crate) fn new() -> io::Result<Ethtool> {
        let flags = SocketFlags::CLOEXEC;
        Ok(Ethtool(socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            flags,
            None,
        )?))
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
        let mut words = [0; CHANNELS_WORDS];
        words[0] = GET_CHANNELS;
        sys::request(self.0.as_fd(), interface, &mut words)?;
        let [_, _, _, _, _, rx, _, _, combined] = words;
        Ok(rx + combined)
    }
}
