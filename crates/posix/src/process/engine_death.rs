//! An engine that ends under its program: an instance was killed or stopped.

use std::sync::Arc;

use crate::attachment::Attachment;
use crate::process::Process;
use crate::process::table::Entry;
use crate::socket::description::Decided;
use slipstack_channel::LogLevel;

impl Process {
    /// Forgets a dead engine. Its connections answer with their errors and hang-ups; listeners and
    /// bound datagram sockets become intents again, for the next engine that can be had.
    pub(crate) fn on_engine_death(&self, dead: &Arc<Attachment>) {
        if !self.homes.forget(dead) {
            let mut place = self.attachment.lock();
            match &*place {
                Some(attachment) if Arc::ptr_eq(attachment, dead) => *place = None,
                _ => return,
            }
            // With the place still taken: another thread may attach at once, and the next engine is
            // not away.
            if !dead.is_left() {
                self.absence.begin();
            }
        }
        // A thread that sleeps while the program ends sees it too.
        if !dead.is_left() {
            self.say_once(
                LogLevel::Error,
                "the engine of this program is gone; its connections are reset",
            );
        }
        for (_, entry) in self.table.all() {
            let socket = match entry {
                Entry::Socket(socket) => socket,
                Entry::Set(set) => {
                    set.forget_home(dead);
                    continue;
                }
                Entry::Routes(_) => continue,
            };
            match socket.decided() {
                Some(Decided::Stream(_)) => socket.on_change(),
                Some(Decided::Listener(listener)) => {
                    listener.forget_stack(dead);
                    self.on_intent(&socket);
                }
                Some(Decided::Dgram(dgram)) => {
                    dgram.forget_stack(dead);
                    socket.notify(dgram.readiness());
                    self.on_intent(&socket);
                }
                Some(Decided::Foreign(_)) | None => {}
            }
        }
        dead.station.sleepers.wake_all();
        self.wake_all();
    }
}
