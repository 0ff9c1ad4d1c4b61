//! Which engine a thread drives, and when it gets one of its own: the rule is in
//! [`crate::process::homes`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipstack_channel::{Placement, Rule};
use slipstack_mem::thread::with_room;

use crate::attachment::Attachment;
use crate::epoll::{FIRST, Set, Target, UNSETTLED};
use crate::errno::Errno;
use crate::process::Process;
use crate::process::wait::Subject;
use crate::ready::Station;
use slipstack_channel::LogLevel;

impl Process {
    /// Every engine of this process.
    pub(crate) fn attachments(&self) -> Vec<Arc<Attachment>> {
        let mut attachments: Vec<Arc<Attachment>> = self.attachment().into_iter().collect();
        attachments.extend(self.homes.attachments());
        attachments
    }

    /// Something changed that every sleeper has to look at.
    pub fn wake_all(&self) {
        self.station.sleepers.wake_all();
        for attachment in self.homes.attachments() {
            attachment.station.sleepers.wake_all();
        }
    }

    /// The engine on which the calling thread's new sockets are, if it has one of its own.
    pub(crate) fn own_engine(&self) -> Option<Arc<Attachment>> {
        match self.homes.is_any() {
            true => self.homes.of_thread(self.kernel.thread()),
            false => None,
        }
    }

    /// Returns the station at which the calling thread waits with others.
    pub(crate) fn own_station(&self) -> Arc<Station> {
        match self.own_engine() {
            Some(attachment) => Arc::clone(&attachment.station),
            None => Arc::clone(&self.station),
        }
    }

    /// The engine that a thread drives while it waits for `subject`, if there is one.
    pub(crate) fn attachment_for(&self, subject: Subject<'_>) -> Option<Arc<Attachment>> {
        if self.homes.is_any()
            && let Some(attachment) = self.elsewhere(subject)
        {
            if !attachment.is_dead() {
                return Some(attachment);
            }
            self.on_engine_death(&attachment);
        }
        self.living_attachment()
    }

    /// The engine that whoever waits on a set drives; `None` if that is not settled.
    pub(crate) fn home_of(&self, set: &Set) -> Option<Arc<Attachment>> {
        match set.home.number() {
            UNSETTLED => None,
            FIRST => self.attachment(),
            _ => set.engine(),
        }
    }

    /// Returns the station of threads that wait for `subject`.
    pub(crate) fn station_of(&self, subject: Subject<'_>) -> Arc<Station> {
        let elsewhere = match self.homes.is_any() {
            true => self.elsewhere(subject),
            false => None,
        };
        Arc::clone(elsewhere.as_ref().map_or(&self.station, |it| &it.station))
    }

    /// `None`: it is the first. One that is elsewhere may be dead.
    fn elsewhere(&self, subject: Subject<'_>) -> Option<Arc<Attachment>> {
        match subject {
            Subject::Socket(socket) => socket.attachment(),
            Subject::Set(set) => match set.home.number() {
                UNSETTLED | FIRST => None,
                _ => set.last_engine(),
            },
            Subject::Many(targets) => targets.iter().find_map(|target| {
                let found = match target {
                    Target::Socket(socket) => self.elsewhere(Subject::Socket(socket)),
                    Target::Set(set) => self.elsewhere(Subject::Set(set)),
                };
                found.filter(|attachment| !attachment.is_dead())
            }),
        }
    }

    /// The attachment that a connection of the calling thread is made on. Where each thread has an
    /// engine, it gets it here.
    pub(crate) fn attached_to_connect(&self) -> Result<Arc<Attachment>, Errno> {
        let attached = self.attached()?;
        let thread = self.kernel.thread();
        if !self.attach.is_engine_each()
            || self.own_engine().is_some()
            || self.homes.is_first(thread)
            || attached.driver.placement() != Placement::InProcess
        {
            return Ok(attached);
        }
        let _turn = self.attaching.lock();
        let shared = || self.homes.emptiest().map(|it| it.0);
        if let Some(number) = self.one_more().or_else(shared) {
            self.homes.remember(thread, number);
        }
        Ok(self.own_engine().unwrap_or(attached))
    }

    /// `None`: there are as many as there may be, or no slot is free.
    pub(crate) fn one_more(&self) -> Option<u32> {
        let now_ns = self.now_ns();
        if !self.homes.may_ask(self.attach.engines_max(), now_ns) {
            return None;
        }
        let attached = with_room(|| {
            self.kernel.begin_call();
            let attached = self.attach.attach_another();
            self.kernel.end_call();
            attached
        });
        let Ok(attachment) = attached else {
            self.homes.note_refusal(now_ns);
            return None;
        };
        let station = Arc::new(self.new_station().numbered(self.homes.engines_so_far()));
        let attachment = Arc::new(Attachment::new(attachment, station));
        self.say(LogLevel::Info, &attachment.describe);
        self.equip(&attachment);
        Some(self.homes.add(attachment))
    }

    fn new_station(&self) -> Station {
        let settings = &self.settings;
        Station::new(settings.spin, settings.gather_us, settings.heuristics)
    }

    /// Whether connections last long enough to be moved.
    pub(crate) fn moves_pay(&self) -> bool {
        self.homes.moves_pay() || !self.settings.heuristics.has(Rule::Moves)
    }

    /// Tells those who wait at an engine who stands in for them, and the stand-in whom to call.
    pub(crate) fn equip(&self, attachment: &Arc<Attachment>) {
        let station = &attachment.station;
        station.batch.set_net(attachment.has_ticker());
        let may_lead = self.settings.heuristics.has(Rule::Lead);
        station
            .sleepers
            .lead
            .set_net(attachment.has_ticker() && may_lead);
        let sleepers = Arc::clone(&station.sleepers);
        let are_several = Arc::clone(&self.homes.is_any);
        let it = Arc::downgrade(attachment);
        attachment.driver.set_relief(Box::new(move || {
            // The thread that waits for it may drive another engine.
            if are_several.load(Ordering::Acquire)
                && sleepers.is_empty()
                && let Some(attachment) = it.upgrade()
            {
                attachment.pump();
            }
            sleepers.replace_leader();
        }));
    }
}
