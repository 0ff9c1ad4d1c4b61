//! The request that starts the DPDK process, and its reply.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};
use slipstack_mem::Doorbell;

use super::options::Options;
use super::rings::Rings;
use crate::packets;
use crate::steering::Steering;

/// A message between the two at most.
pub(super) const MESSAGE_MAX: usize = 16_384;

/// The words of the first message.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    pub options: Options,
    /// Address of the stack, when it has one already: a former process had the port.
    pub mac: Option<[u8; 6]>,
}

/// The port, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Ready(PortDescription),
    Failed(String),
}

/// A port that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortDescription {
    pub mac: [u8; 6],
    pub mtu: u16,
    pub has_checksum: bool,
    pub has_tso: bool,
    /// For people: port, driver, how it waits.
    pub mode: String,
}

/// Everything that process has of us.
#[derive(Debug)]
pub struct Setup {
    pub order: Order,
    pub steering: Steering,
    /// Readable when no process holds the device any more.
    pub life: OwnedFd,
    /// Held while it runs; nothing is written.
    pub alive: OwnedFd,
    /// Wakes it.
    pub bell: Doorbell,
    /// Memory and bell of each slot.
    pub slots: Vec<(Rings, Doorbell)>,
}

impl Setup {
    /// Takes the first message from a socket.
    ///
    /// # Errors
    /// There is none, or it makes no sense.
    pub fn receive(from: impl AsFd) -> io::Result<Setup> {
        let mut bytes = vec![0; MESSAGE_MAX];
        let (len, fds) = packets::receive(from, &mut bytes)?;
        let order = serde_json::from_slice(&bytes[..len])?;
        let few = || io::Error::from(io::ErrorKind::InvalidData);
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or_else(few);
        let steering = Steering::from_fds([next()?, next()?]).map_err(io::Error::other)?;
        let (life, alive) = (next()?, next()?);
        let bell = Doorbell::from_fd(next()?);
        let mut slots = Vec::new();
        while let (Some(rings), Some(bell)) = (fds.next(), fds.next()) {
            slots.push((Rings::open(rings)?, Doorbell::from_fd(bell)));
        }
        Ok(Setup {
            order,
            steering,
            life,
            alive,
            bell,
            slots,
        })
    }
}

/// Sends the first message: the descriptors in the order of [`Setup`]'s fields.
pub(super) fn send(to: impl AsFd, order: &Order, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    packets::send(to, &serde_json::to_vec(order)?, fds)
}

impl Answer {
    /// # Errors
    /// The kernel's refusal.
    pub fn send(&self, to: impl AsFd) -> io::Result<()> {
        packets::send(to, &serde_json::to_vec(self)?, &[])
    }
}
