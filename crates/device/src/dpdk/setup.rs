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
    /// In each direction.
    pub queues: u16,
    /// The port's hash, if it has several queues and tells how they are chosen.
    pub rss: Option<PortRss>,
    /// For people: port, driver, how it waits.
    pub mode: String,
}

/// Key and indirection table of a port's hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRss {
    pub key: Vec<u8>,
    pub table: Vec<u16>,
}

/// Returns which of so many queues a slot sends by, and its frames should come by. Slot 0 is the
/// keeper's, which has little to send.
pub fn queue_of(slot: u16, queues: u16) -> u16 {
    slot.saturating_sub(1) % queues.max(1)
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
    /// Each wakes the thread of a queue.
    pub bells: Vec<Doorbell>,
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
        let order: Order = serde_json::from_slice(&bytes[..len])?;
        let few = || io::Error::from(io::ErrorKind::InvalidData);
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or_else(few);
        let steering = Steering::from_fds([next()?, next()?]).map_err(io::Error::other)?;
        let (life, alive) = (next()?, next()?);
        let queues = order.options.queues;
        let bell = |_| next().map(Doorbell::from_fd);
        let bells = (0..queues).map(bell).collect::<io::Result<_>>()?;
        let mut slots = Vec::new();
        while let (Some(rings), Some(bell)) = (fds.next(), fds.next()) {
            slots.push((Rings::open(rings)?, Doorbell::from_fd(bell)));
        }
        Ok(Setup {
            order,
            steering,
            life,
            alive,
            bells,
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
