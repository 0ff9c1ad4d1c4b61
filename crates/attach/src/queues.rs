//! Access of the engines of one program's processes to each other's receive queues.

use slipstack_channel::InboxMessage;
use slipstack_device::hooked::FrameHook;
use slipstack_keeper::{Inboxes, SlotWords};
use slipstack_mem::Doorbell;

/// Makes the hook that sees the frames of an engine, from the engine's doorbell and the other
/// queues.
pub type HookMaker = dyn Fn(Doorbell, Queues) -> Box<dyn FrameHook> + Send + Sync;

/// The way of one engine's dispatcher to those of others on the same device.
#[derive(Debug)]
pub struct Queues {
    words: SlotWords,
    inboxes: Inboxes,
    slot: u16,
    /// Last known places of names, by queue.
    found: Vec<u16>,
}

impl Queues {
    pub(crate) fn new(words: SlotWords, inboxes: Inboxes, slot: u16) -> Queues {
        // The queue of a former engine of the slot.
        words.set_queue(slot, 0);
        Queues {
            words,
            inboxes,
            slot,
            found: Vec::new(),
        }
    }

    /// Is `queue` of a family from now on.
    pub fn join(&self, family: u64, queue: u16) {
        self.words.set_queue(self.slot, name(family, queue));
    }

    /// Hands a frame to the stack of another queue of the family; `false`: it is not there, or has
    /// no room.
    pub fn post(&mut self, family: u64, queue: u16, frame: &[u8]) -> bool {
        let name = name(family, queue);
        let at = usize::from(queue);
        if self.found.len() <= at {
            self.found.resize(at + 1, 0);
        }
        if !self.words.is_queue(self.found[at], name) {
            let slots = &mut (0..self.inboxes.slots());
            match slots.find(|slot| self.words.is_queue(*slot, name)) {
                Some(slot) => self.found[at] = slot,
                None => return false,
            }
        }
        self.inboxes
            .post(self.found[at], &InboxMessage::Frame { link: 0, frame })
    }
}

/// Never 0, which is no queue.
fn name(family: u64, queue: u16) -> u64 {
    family << 16 | u64::from(queue).wrapping_add(1) & 0xffff
}
