//! Slots of the device, opened for the keeper itself.

use slipstack_device::{Device, Slots, open_slot};

use crate::error::KeeperError;
use crate::leases::KEEPER_SLOT;
use crate::regions::SlotWords;

/// The keeper's own slot as a device. One at a time may read from it.
pub fn open_keeper_slot(slots: &Slots, words: &SlotWords) -> Result<Box<dyn Device>, KeeperError> {
    open_any_slot(slots, words, KEEPER_SLOT)
}

/// Any slot as a device, for its own engine or after that has died.
pub fn open_any_slot(
    slots: &Slots,
    words: &SlotWords,
    slot: u16,
) -> Result<Box<dyn Device>, KeeperError> {
    let missing = || KeeperError::Io {
        doing: "open a slot",
        error: std::io::ErrorKind::NotFound.into(),
    };
    let parts = slots.parts(slot).map_err(KeeperError::io("open a slot"))?;
    let position = words.position(slot).ok_or_else(missing)?;
    Ok(open_slot(parts, position)?)
}
