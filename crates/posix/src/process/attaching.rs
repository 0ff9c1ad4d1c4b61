//! Attaching a process to an engine, and recovery when its engine ends: an instance was killed or
//! stopped.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstack_channel::{AttachError, LogLevel};
use slipstack_mem::thread::{thread_id, with_room};

use crate::attachment::Attachment;
use crate::errno::Errno;
use crate::process::Process;
use crate::process::subject::Subject;
use crate::process::table::Entry;
use crate::socket::description::Decided;

impl Process {
    /// Returns the engine, unless it has died: then its sockets are notified, once, and it is
    /// forgotten.
    pub(crate) fn living_attachment(&self) -> Option<Arc<Attachment>> {
        let attachment = self.engines.first()?;
        if !attachment.is_dead() {
            return Some(attachment);
        }
        self.on_engine_death(&attachment);
        None
    }

    /// The engine that a thread drives while it waits for `subject`, if there is one.
    pub(crate) fn attachment_for(&self, subject: Subject<'_>) -> Option<Arc<Attachment>> {
        if self.engines.homes.is_any()
            && let Some(attachment) = self.engines.elsewhere(subject)
        {
            if !attachment.is_dead() {
                return Some(attachment);
            }
            self.on_engine_death(&attachment);
        }
        self.living_attachment()
    }

    /// The attachment that the calling thread's sockets are on, made now if need be. Not under the
    /// lock of a socket's part: a dead one is forgotten.
    pub(crate) fn attached(&self) -> Result<Arc<Attachment>, Errno> {
        match self.engines.own() {
            Some(attachment) => Ok(attachment),
            None => self.attached_first(),
        }
    }

    /// As [`Process::attached`], the first one.
    pub(crate) fn attached_first(&self) -> Result<Arc<Attachment>, Errno> {
        self.attach_first(|error, begun| self.engines.on_trouble(error, begun))
    }

    /// As [`Process::attached`], for callers that can do without an engine: no sentence is logged
    /// if there is none.
    pub(crate) fn attached_quietly(&self) -> Option<Arc<Attachment>> {
        match self.engines.own() {
            Some(attachment) => Some(attachment),
            None => self.attach_first(|_, _| {}).ok(),
        }
    }

    fn attach_first(
        &self,
        on_trouble: impl FnOnce(&AttachError, u64),
    ) -> Result<Arc<Attachment>, Errno> {
        if let Some(attachment) = self.living_attachment() {
            return Ok(attachment);
        }
        // Not under the lock of `attachment`: attaching may start a keeper, and a fork takes it.
        let _turn = self.engines.attaching.lock();
        if let Some(attachment) = self.living_attachment() {
            return Ok(attachment);
        }
        let begun = self.kernel.now_ns();
        let id = thread_id();
        let attached = with_room(|| {
            let thread = self.kernel.thread();
            self.engines
                .attaching_thread
                .store(thread, Ordering::Relaxed);
            // A keeper that is started here is no program of the program's.
            self.kernel.begin_call();
            let attached = self.engines.attach.attach(id);
            self.kernel.end_call();
            self.engines.attaching_thread.store(0, Ordering::Relaxed);
            attached
        });
        match attached {
            Ok(attachment) => {
                let is_unattended = !attachment.driver.has_stand_in();
                let attachment = Arc::new(Attachment::new(
                    attachment,
                    Arc::clone(&self.engines.station),
                ));
                self.log.say(LogLevel::Info, &attachment.describe);
                self.engines.equip(&attachment);
                self.engines.take_core(&attachment);
                if is_unattended {
                    self.log.warn_once(
                        "no thread may be started here (RLIMIT_NPROC): while the program computes \
                         or sleeps elsewhere, its peers hear nothing",
                    );
                }
                {
                    let mut place = self.engines.place.lock();
                    *place = Some(Arc::clone(&attachment));
                    self.engines.absence.end();
                    self.lending.is_confined.store(false, Ordering::Relaxed);
                }
                if let Some(table) = self.report.table() {
                    self.engines.attach.report(table.fd());
                }
                // Threads that sleep without an engine may lead now.
                self.engines.station.sleepers.wake_all();
                Ok(attachment)
            }
            Err(error) => {
                self.report.tell_again();
                on_trouble(&error, begun);
                Err(Errno::ENETDOWN)
            }
        }
    }

    /// The attachment that a connection of the calling thread is made on. Where each thread has an
    /// engine, it gets it here.
    pub(crate) fn attached_to_connect(&self) -> Result<Arc<Attachment>, Errno> {
        let attached = self.attached()?;
        Ok(self.engines.to_connect(attached))
    }

    /// Forgets a dead engine. Its connections answer with their errors and hang-ups; listeners and
    /// bound datagram sockets become intents again, for the next engine that can be had.
    pub(crate) fn on_engine_death(&self, dead: &Arc<Attachment>) {
        if !self.engines.homes.forget(dead) {
            let mut place = self.engines.place.lock();
            match &*place {
                Some(attachment) if Arc::ptr_eq(attachment, dead) => *place = None,
                _ => return,
            }
            // Done while the place is still taken: once it is free another thread may attach at
            // once, and its engine is not away.
            if !dead.is_left() {
                self.engines.absence.begin();
            }
        }
        // A thread that sleeps while the program ends sees it too.
        if !dead.is_left() {
            self.log.say_once(
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
        self.engines.wake_all();
    }
}
