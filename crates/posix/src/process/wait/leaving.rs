//! Ends of waits: a thread that sleeps no more, one that was interrupted, and events that a
//! listener still has for a thread that begins to wait.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::attachment::Attachment;
use crate::epoll::Target;
use crate::process::Process;
use crate::process::subject::Subject;
use crate::ready::Station;
use crate::ready::{Awaited, Sleeper};
use crate::socket::description::Description;

impl Process {
    /// A thread does not sleep any more.
    pub(crate) fn leave(&self, sleeper: Sleeper) {
        sleeper.unsubscribe(&mut |left: Arc<dyn Awaited>| {
            let left: Arc<dyn Any + Send + Sync> = left;
            if let Ok(socket) = left.downcast::<Description>() {
                self.end_if_closed(&socket);
            }
        });
    }

    /// Ends a socket that the last thread has left, if its last number was closed meanwhile. A lent
    /// socket is still held by a child.
    pub(crate) fn end_if_closed(&self, socket: &Arc<Description>) {
        if socket.may_close()
            && !socket.lent.is_lent()
            && socket.cold.lock().numbers.is_empty()
            && socket.decided().is_some()
        {
            self.end(socket);
        }
    }

    /// Prepares the subject of a wait that begins: sockets whose connections or datagrams went to
    /// others take them again, and intents of other threads are carried out.
    pub(crate) fn come_back_to(&self, subject: Subject<'_>) {
        let come_back = |socket: &Arc<Description>| {
            fence(Ordering::SeqCst);
            socket.come_back();
            if socket.is_intent() {
                self.realize_for_wait(socket);
            }
        };
        match subject {
            Subject::Socket(socket) => come_back(socket),
            Subject::Set(set) => {
                fence(Ordering::SeqCst);
                if set.has_intents.load(Ordering::SeqCst) {
                    self.realize_set(set);
                }
            }
            Subject::Many(targets) => {
                for target in targets {
                    match target {
                        Target::Socket(socket) => come_back(socket),
                        Target::Set(set) => self.realize_for_sleepers(set),
                    }
                }
            }
            Subject::Wire => {}
        }
    }

    /// Cleans up after an abandoned sleep: a thread that begins a wait sleeps in none, so an old
    /// subscription was left by a jump out of a signal handler. (A handler that waits looks the
    /// same; the wait it interrupted subscribes again.)
    pub(crate) fn undo_abandoned(
        &self,
        station: &Station,
        attachment: Option<&Attachment>,
        thread: usize,
    ) {
        let sleepers = &station.sleepers;
        if sleepers.is_empty() {
            return;
        }
        if sleepers.stop_leading_of(thread)
            && let Some(attachment) = attachment
        {
            // The cause that ended that sleep is unknown.
            attachment
                .driver
                .finish_wait([true; 2], self.kernel.now_ns());
        }
        while let Some(waiter) = sleepers.waiter_of(thread) {
            waiter.notify();
            if let Some(sleeper) = sleepers.remove(&waiter) {
                self.leave(sleeper);
            }
        }
    }
}
