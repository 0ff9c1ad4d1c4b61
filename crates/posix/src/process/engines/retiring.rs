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
        let (attachment, descriptors) = {
            // A thread that attaches may be about to take it.
            let _turn = self.attaching.lock();
            let mut closing = self.closing.lock();
            let attachment = self.homes.take_unused(it)?;
            let descriptors = descriptors_of(&attachment);
            closing.extend(&descriptors);
            (attachment, descriptors)
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
                engines.on_closed(slot, &descriptors);
            }
        }))
    }

    fn on_closed(&self, slot: Option<u16>, descriptors: &[i32]) {
        if let Some(slot) = slot {
            self.attach.on_given_back(slot);
        }
        let mut closing = self.closing.lock();
        for descriptor in descriptors {
            if let Some(at) = closing.iter().position(|it| it == descriptor) {
                closing.swap_remove(at);
            }
        }
        drop(closing);
        self.attaching.release();
    }

    /// Forgets, in a forked child, what is closing: those are engines of the parent.
    pub(crate) fn forget_closing(&self) {
        self.closing.lock().clear();
    }

    /// Descriptors of engines that are given back and not closed yet.
    pub(crate) fn closing(&self) -> Vec<i32> {
        self.closing.lock().clone()
    }
}

fn descriptors_of(attachment: &Attachment) -> Vec<i32> {
    let mut all = attachment.driver.descriptors();
    all.extend(attachment.station.sleepers.numbers());
    all
}
