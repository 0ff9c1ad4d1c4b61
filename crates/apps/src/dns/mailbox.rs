//! Messages from engines and threads to the engine that handles transfers and notices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Messages that wait; further ones are dropped, as on a wire.
const WAITING_MAX: usize = 4096;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneMessage {
    /// A primary has announced a change of the zone with this apex.
    Changed(Vec<u8>),
    /// A secondary has acknowledged a NOTIFY with this id.
    Heard(u16, Vec<u8>),
    /// A transfer has been made a zone, or why not.
    Installed(Vec<u8>, Result<u32, String>),
}

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub struct Mailbox {
    is_any: AtomicBool,
    messages: Mutex<Vec<ZoneMessage>>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Vec<ZoneMessage>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn post(&self, message: ZoneMessage) {
        let mut messages = self.lock();
        let is_known = messages.contains(&message);
        if !is_known && messages.len() < WAITING_MAX {
            messages.push(message);
            self.is_any.store(true, Ordering::Release);
        }
    }

    pub fn take(&self) -> Vec<ZoneMessage> {
        if !self.is_any.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.lock())
    }
}
