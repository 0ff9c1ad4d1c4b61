//! Engines beside the first that are given back: nothing of the program is on them.
//!
//! The stand-in of an engine that no thread has driven for a second looks. A thread that comes
//! until then takes the engine at once ([`Homes::find_unused`]). Nothing refers to an engine that
//! is given back, so that no thread can be about to open a socket there.
//!
//! [`Homes::find_unused`]: super::homes::Homes::find_unused

use std::sync::{Arc, Weak};

use slipstack_channel::Closed;

use crate::attachment::Attachment;
use crate::process::engines::Engines;

impl Engines {
    /// Has the engine given back once it is without use.
    pub(super) fn give_back_unused(&self, attachment: &Arc<Attachment>) {
        let engines = Weak::clone(&self.itself);
        let it = Arc::downgrade(attachment);
        attachment.driver.set_on_unused(Box::new(move || {
            let engines = engines.upgrade()?;
            engines.on_unused(&it)
        }));
    }

    /// No thread has driven the engine for a while. Runs on its stand-in, for which nobody waits.
    fn on_unused(&self, it: &Weak<Attachment>) -> Option<Closed> {
        if !self.homes.is_unused(it) {
            return None;
        }
        let attachment = {
            // A thread that attaches may be about to take it.
            let _turn = self.attaching.lock();
            self.homes.take_unused(it)?
        };
        let slot = attachment.driver.slot();
        self.kernel.begin_call();
        // The keeper may take its time: meanwhile the program can fork and attach.
        attachment.end_session(self.kernel.now_ns());
        // A process that forks waits until all is closed.
        self.attaching.hold();
        drop(attachment);
        self.kernel.end_call();
        let engines = Weak::clone(&self.itself);
        Some(Box::new(move || {
            if let Some(engines) = engines.upgrade() {
                engines.on_closed(slot);
            }
        }))
    }

    fn on_closed(&self, slot: Option<u16>) {
        if let Some(slot) = slot {
            self.attach.on_given_back(slot);
        }
        self.attaching.release();
    }
}
