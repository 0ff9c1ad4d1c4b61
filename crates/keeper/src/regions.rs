//! Memory that the keeper shares with all engines.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use slipstack_channel::control::Refusal;
use slipstack_channel::{INBOX_BYTES, INBOX_CELLS, InboxMessage};
use slipstack_device::{PORTS_MAX, RingPosition};
use slipstack_mem::{Doorbell, MpscInbox, PAGE, Region};

use crate::leases::ClientId;
use crate::limits::LimitTable;

/// Most slots of a device, the keeper's own included.
pub const SLOTS_MAX: u16 = slipstack_device::SLOTS_MAX as u16;

/// A channel region, by its client and the client's number for it.
pub type RegionKey = (ClientId, u64);

/// Bytes of a slot: a word for each port of the device, and the name of its dispatcher queue.
const LINE: usize = 128;

/// Position of the name of a slot's dispatcher queue in its line.
const QUEUE_NAME: usize = 64;
const _: () = assert!(QUEUE_NAME / size_of::<u32>() >= PORTS_MAX);

/// Start of the counts of limited flows, behind the words of all slots.
const LIMITS_AT: usize = (SLOTS_MAX as usize * LINE).next_multiple_of(PAGE);

/// Shared words of every slot: where its receive ring stands, and which queue of a family of
/// programs it is. Behind them is the table of limited flows of all slots.
#[derive(Clone, Debug)]
pub struct SlotWords(Region);

impl SlotWords {
    pub fn create() -> io::Result<SlotWords> {
        let len = LIMITS_AT + LimitTable::LEN;
        Ok(SlotWords(Region::create("slipstack-slots", len)?))
    }

    pub fn open(fd: OwnedFd) -> io::Result<SlotWords> {
        let region = Region::open(fd, LIMITS_AT + LimitTable::LEN)?;
        Ok(SlotWords(region))
    }

    /// The counts of limited flows, as the stack of one slot changes them.
    pub fn limits(&self, slot: u16) -> LimitTable {
        LimitTable::new(self.0.clone(), LIMITS_AT, slot)
    }

    pub fn region(&self) -> &Region {
        &self.0
    }

    /// Returns the position word of a slot, followed by those of further ports; `None` if there is
    /// no such slot.
    pub fn position(&self, slot: u16) -> Option<RingPosition> {
        RingPosition::new(self.0.clone(), usize::from(slot) * LINE)
    }

    /// Names the queue that the engine of a slot is to others; 0: it is none.
    pub fn set_queue(&self, slot: u16, name: u64) {
        if let Some(word) = self.0.u64(usize::from(slot) * LINE + QUEUE_NAME) {
            word.store(name, Ordering::Release);
        }
    }

    pub fn is_queue(&self, slot: u16, name: u64) -> bool {
        let word = self.0.u64(usize::from(slot) * LINE + QUEUE_NAME);
        word.is_some_and(|word| word.load(Ordering::Acquire) == name)
    }
}

/// The inboxes of all slots and the doorbells of their owners.
#[derive(Clone, Debug)]
pub struct Inboxes {
    region: Region,
    bells: Vec<Doorbell>,
}

impl Inboxes {
    pub fn create(slots: u16) -> io::Result<Inboxes> {
        let len = usize::from(slots) * INBOX_BYTES;
        let bells = (0..slots)
            .map(|_| Doorbell::new())
            .collect::<io::Result<_>>()?;
        Ok(Inboxes {
            region: Region::create("slipstack-inboxes", len)?,
            bells,
        })
    }

    /// Opens the inboxes of a lease, with one doorbell per slot.
    pub fn open(fd: OwnedFd, bells: Vec<OwnedFd>) -> io::Result<Inboxes> {
        let len_max = usize::from(SLOTS_MAX) * INBOX_BYTES;
        let region = Region::open(fd, len_max)?;
        if bells.len() * INBOX_BYTES > region.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "region of inboxes is too short",
            ));
        }
        Ok(Inboxes {
            region,
            bells: bells.into_iter().map(Doorbell::from_fd).collect(),
        })
    }

    pub fn region(&self) -> &Region {
        &self.region
    }

    pub fn slots(&self) -> u16 {
        self.bells.len() as u16
    }

    pub fn bells(&self) -> &[Doorbell] {
        &self.bells
    }

    pub fn inbox(&self, slot: u16) -> Option<MpscInbox> {
        let at = usize::from(slot) * INBOX_BYTES;
        (usize::from(slot) < self.bells.len())
            .then(|| MpscInbox::new(&self.region, at, INBOX_CELLS))?
    }

    /// Wakes the owner of a slot, whether it sleeps or not.
    pub fn wake(&self, slot: u16) {
        if let Some(bell) = self.bells.get(usize::from(slot)) {
            bell.ring();
        }
    }

    /// Puts a message into a slot's inbox and wakes its owner. Returns `false` if the inbox has no
    /// room, and the message is lost.
    pub fn post(&self, slot: u16, message: &InboxMessage<'_>) -> bool {
        let Some(inbox) = self.inbox(slot) else {
            return false;
        };
        let is_taken = message.put(|parts| inbox.push(parts));
        if is_taken && inbox.take_sleeping() {
            self.bells[usize::from(slot)].ring();
        }
        is_taken
    }
}

/// Explains why a program's channel cannot be mapped.
pub fn refusal(error: &io::Error, interface: &str) -> (Refusal, String) {
    if error.kind() != io::ErrorKind::OutOfMemory {
        let message = "the channel is not a sealed region of the right length".to_owned();
        return (Refusal::BadRequest, message);
    }
    let message = format!(
        "the keeper of {interface} has no room for the program's channel: it was started where the \
         address space was limited (ulimit -v, RLIMIT_AS) and may not lift that; end it (slipstack \
         stop {interface}) and start it without a limit"
    );
    (Refusal::Exhausted, message)
}
