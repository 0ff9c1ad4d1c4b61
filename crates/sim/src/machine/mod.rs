//! A host of several engines: stacks that share an address, steering between them, and a keeper.
//!
//! Slot 0 is the keeper's. It answers ARP and ICMP, finds the engine for a stray segment, completes
//! the connections of programs that have ended and resets those of programs that have died. The
//! stacks, their images and their probes are the real ones; steering, inboxes and the keeper's
//! search are models with the same tables, because the real ones are shared memory (`device`,
//! `keeper`).

mod flow;
mod inbox;
mod keeper;
mod place;
mod search;
mod steering;

use std::collections::BTreeMap;

use slipstack_stack::{ConnId, TimeWaitImage};

pub use flow::{Flow, KEEPER};
pub use inbox::{Inbox, Message};
pub use keeper::{FrameSource, Keeper};
pub use place::{Engine, Participant};
pub use steering::Steering;

use crate::host::Host;
use crate::moving_connection::MovingConnection;

/// Which host of a world has which slot, and which flow.
#[derive(Debug)]
pub struct Machine {
    pub station: usize,
    /// The hosts of the slots; a slot whose engine is gone has none.
    pub slots: Vec<Option<usize>>,
    /// The keeper's directory of each host's flows, which outlives the host.
    pub directory: BTreeMap<Flow, usize>,
    /// Connections of engines that end in order, until the keeper gets them.
    pub handovers: Vec<(usize, MovingConnection)>,
    /// The hosts' TIME-WAIT entries, which outlive them too.
    pub time_waits: Vec<(usize, TimeWaitImage)>,
    /// Time for which a message is on its way, at most.
    pub post_ns: u64,
    /// The flow of each connection that the directory has.
    pub ends: BTreeMap<(usize, ConnId), Flow>,
    /// Frames of engines that are gone, put into the keeper's inbox.
    pub moved_frames: u64,
    /// Connections that have left an engine, and those that have arrived at one.
    pub detached: u64,
    pub adopted: u64,
    /// TIME-WAIT entries that the keeper has continued.
    pub former: u64,
    pub half_open: HalfOpens,
}

/// Outcomes of handshakes that left an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HalfOpens {
    pub left: u64,
    pub taken: u64,
    /// Without a listener, or where the flow was known already.
    pub refused: u64,
}

impl Machine {
    pub fn new(station: usize, keeper: usize, post_ns: u64) -> Self {
        Self {
            station,
            slots: vec![Some(keeper)],
            directory: BTreeMap::new(),
            handovers: Vec::new(),
            time_waits: Vec::new(),
            post_ns,
            ends: BTreeMap::new(),
            moved_frames: 0,
            detached: 0,
            adopted: 0,
            former: 0,
            half_open: HalfOpens::default(),
        }
    }

    pub fn keeper(&self) -> usize {
        self.slots[0].unwrap_or_default()
    }

    pub fn host(&self, slot: u16) -> Option<usize> {
        *self.slots.get(usize::from(slot))?
    }

    pub fn slot(&self, host: usize) -> Option<u16> {
        let at = self.slots.iter().position(|of| *of == Some(host))?;
        u16::try_from(at).ok()
    }

    pub fn hosts(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().flatten().copied()
    }

    /// A place for another engine; one that is free is used again.
    pub fn take_slot(&mut self, host: usize) -> u16 {
        match self.slots.iter().position(Option::is_none) {
            Some(at) => self.slots[at] = Some(host),
            None => self.slots.push(Some(host)),
        }
        self.slot(host).unwrap_or_default()
    }

    /// The living flows of a port, with their slots.
    pub fn flows_of(&self, port: u16) -> Vec<(Flow, u16)> {
        let all = self.directory.iter();
        all.filter(|(flow, _)| flow.local.port() == port)
            .filter_map(|(flow, host)| Some((*flow, self.slot(*host)?)))
            .collect()
    }

    /// Returns whether every message is on its way, taken or lost for want of room, and every
    /// connection somewhere.
    pub fn balance(&self, hosts: &[Host]) -> Result<(), String> {
        let ours = || hosts.iter().filter(|host| host.station == self.station);
        let put_in: u64 = ours().map(|host| host.fx.passed_on).sum();
        let posted: u64 = ours().map(|host| host.post.tally.posted).sum();
        if put_in + self.moved_frames != posted {
            let all = put_in + self.moved_frames;
            return Err(format!("{all} frames were passed on, {posted} posted"));
        }
        let coming: usize = ours().map(|host| host.post.connections()).sum();
        let coming = coming + self.handovers.len();
        if self.detached != self.adopted + coming as u64 {
            return Err(format!(
                "{} connections left their engines, {} came to others, {coming} are on their way",
                self.detached, self.adopted
            ));
        }
        let coming: usize = ours().map(|host| host.post.half_open()).sum();
        let HalfOpens {
            left,
            taken,
            refused,
        } = self.half_open;
        if left != taken + refused + coming as u64 {
            return Err(format!(
                "{left} handshakes left their engines, {taken} came to others, {refused} to none, \
                 {coming} are on their way"
            ));
        }
        ours().try_for_each(|host| host.post.balance())
    }
}
