//! The engines of a process, and the choice of the one that a thread drives: the rule is in
//! `homes.rs`.

mod absence;
mod crowd;
mod homes;
mod listeners;
mod remote_members;
mod retiring;
mod settling;
mod sole_waits;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use slipstack_channel::{Attach, AttachError, LogLevel, Placement, Rule};
use slipstack_mem::Lock;
use slipstack_mem::thread::{thread_id, with_room};

use crate::addr::stack_addr;
use crate::attachment::Attachment;
use crate::epoll::{FIRST, Set, Target, UNSETTLED};
use crate::kernel::Kernel;
use crate::process::log::Log;
use crate::process::report::Reason;
use crate::process::settings::Settings;
use crate::process::subject::Subject;
use crate::ready::Station;
use crate::socket::description::Description;
use absence::Absence;
use homes::Homes;
pub(crate) use listeners::listen_on_stack;

/// Time for which the end of all engines together waits for neighbours that frames wait for. On a
/// network that is at rest they answer within a millisecond; one that does not exist delays a
/// program's end by this.
const LAST_FRAMES_NS: u64 = 100_000_000;

/// The engines of one process.
pub(crate) struct Engines {
    itself: Weak<Engines>,
    kernel: Arc<dyn Kernel>,
    pub(crate) attach: Arc<dyn Attach>,
    settings: Arc<Settings>,
    log: Arc<Log>,
    /// The station of the first engine, and of no engine.
    pub(crate) station: Arc<Station>,
    /// The first engine.
    pub(crate) place: Lock<Option<Arc<Attachment>>>,
    /// Engines beside the first.
    pub(crate) homes: Homes,
    /// Taken by the thread that attaches.
    pub(crate) attaching: Lock<()>,
    pub(super) attaching_thread: AtomicUsize,
    pub(crate) absence: Absence,
    /// The last reported reason why there is no stack.
    pub(crate) trouble: Lock<Option<AttachError>>,
    /// The parent of this process has the library too.
    pub(crate) is_forked: AtomicBool,
}

impl Engines {
    /// Touches no device and sends no request yet.
    pub(super) fn new(
        kernel: Arc<dyn Kernel>,
        attach: Arc<dyn Attach>,
        settings: Arc<Settings>,
        log: Arc<Log>,
    ) -> Arc<Engines> {
        Arc::new_cyclic(|itself| Engines {
            itself: Weak::clone(itself),
            kernel,
            attach,
            station: Arc::new(new_station(&settings)),
            settings,
            log,
            place: Lock::new(None),
            homes: Homes::default(),
            attaching: Lock::new(()),
            attaching_thread: AtomicUsize::new(0),
            absence: Absence::default(),
            trouble: Lock::new(None),
            is_forked: AtomicBool::new(false),
        })
    }

    /// The first engine, if there is one.
    #[inline]
    pub(crate) fn first(&self) -> Option<Arc<Attachment>> {
        self.place.lock().clone()
    }

    /// Returns the revision of the network as the first engine knows it.
    #[inline]
    pub(crate) fn network_revision(&self) -> Option<u64> {
        let place = self.place.lock();
        let first = place.as_ref();
        first.map(|attachment| attachment.program.network_revision())
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.kernel.now_ns()
    }

    /// Returns whether connections of this program's, or of ended programs, keep a port from a
    /// socket that does not share it: inet_csk_bind_conflict(). Others that run are not asked.
    pub(crate) fn is_port_used(&self, socket: &Description, addr: SocketAddr) -> bool {
        let shares = |name| {
            let cold = socket.cold.lock();
            cold.options.is_on(libc::SOL_SOCKET, name)
        };
        if addr.port() == 0 || shares(libc::SO_REUSEADDR) || shares(libc::SO_REUSEPORT) {
            return false;
        }
        let (local, is_v6_only) = (stack_addr(addr), socket.is_v6_only());
        let mut engines = self.all().into_iter();
        engines.any(|attachment| attachment.has_port(local, is_v6_only))
            || self.attach.is_port_used(local, is_v6_only)
    }

    /// Every engine of this process.
    pub(crate) fn all(&self) -> Vec<Arc<Attachment>> {
        let mut attachments: Vec<Arc<Attachment>> = self.first().into_iter().collect();
        attachments.extend(self.homes.attachments());
        attachments
    }

    /// Wakes every sleeper to check for a change.
    pub(crate) fn wake_all(&self) {
        self.station.sleepers.wake_all();
        for attachment in self.homes.attachments() {
            attachment.station.sleepers.wake_all();
        }
    }

    /// The engine on which the calling thread's new sockets are, if it has one of its own.
    pub(crate) fn own(&self) -> Option<Arc<Attachment>> {
        match self.homes.is_any() {
            true => self.homes.of_thread(self.kernel.thread()),
            false => None,
        }
    }

    /// Returns the station at which the calling thread waits with others.
    pub(crate) fn own_station(&self) -> Arc<Station> {
        match self.own() {
            Some(attachment) => Arc::clone(&attachment.station),
            None => Arc::clone(&self.station),
        }
    }

    /// Returns the engine that threads waiting on a set drive; `None` if there is no home.
    pub(crate) fn home_of(&self, set: &Set) -> Option<Arc<Attachment>> {
        match set.home.number() {
            UNSETTLED => None,
            FIRST => self.first(),
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
    pub(super) fn elsewhere(&self, subject: Subject<'_>) -> Option<Arc<Attachment>> {
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
            Subject::Wire => None,
        }
    }

    /// The engine on which a connection of the calling thread is made, which is `attached` unless
    /// each thread has one of its own: it gets it here.
    pub(super) fn to_connect(&self, attached: Arc<Attachment>) -> Arc<Attachment> {
        let thread = self.kernel.thread();
        if !self.attach.is_engine_each()
            || self.own().is_some()
            || self.homes.is_first(thread)
            || attached.driver.placement() != Placement::InProcess
        {
            return attached;
        }
        let _turn = self.attaching.lock();
        let shared = || self.homes.emptiest().map(|it| it.0);
        if let Some(number) = self.one_more().or_else(shared) {
            self.homes.remember(thread, number);
        }
        self.own().unwrap_or(attached)
    }

    /// `None`: there are as many as there may be, or no slot is free.
    pub(crate) fn one_more(&self) -> Option<u32> {
        let now_ns = self.kernel.now_ns();
        if !self.homes.may_ask(now_ns, || self.attach.engines_max()) {
            return None;
        }
        let id = thread_id();
        let attached = with_room(|| {
            self.kernel.begin_call();
            let attached = self.attach.attach_another(id);
            self.kernel.end_call();
            attached
        });
        let Ok(attachment) = attached else {
            self.homes.note_refusal(now_ns);
            return None;
        };
        let station = Arc::new(new_station(&self.settings).numbered(self.homes.engines_so_far()));
        let attachment = Arc::new(Attachment::new(attachment, station));
        self.log.say(LogLevel::Info, &attachment.describe);
        self.equip(&attachment);
        self.give_back_unused(&attachment);
        self.take_core(&attachment);
        Some(self.homes.add(attachment))
    }

    /// Finds an engine for the calling thread alone: an unused or a new one.
    pub(crate) fn find_engine(&self) -> Option<u32> {
        let Some(unused) = self.homes.find_unused() else {
            return self.one_more();
        };
        self.take_core(&unused.1);
        Some(unused.0)
    }

    /// Binds the calling thread, whose engine this is, to the engine's processor.
    pub(crate) fn take_core(&self, attachment: &Attachment) {
        if let Some(core) = attachment.core {
            self.kernel.take_core(core);
        }
    }

    /// Ends the use of engines, because the process ends, is replaced or goes on without them.
    pub(crate) fn end_sessions(&self, attachments: &[Arc<Attachment>]) {
        let until_ns = self.kernel.now_ns() + LAST_FRAMES_NS;
        for attachment in attachments {
            attachment.end_session(until_ns);
        }
    }

    /// Whether connections last long enough to be moved.
    pub(crate) fn moves_pay(&self) -> bool {
        self.homes.moves_pay() || !self.settings.heuristics.has(Rule::Moves)
    }

    /// Connects the sleepers of an engine with its stand-in.
    pub(crate) fn equip(&self, attachment: &Arc<Attachment>) {
        let station = &attachment.station;
        station.batch.set_net(attachment.has_ticker());
        let sleepers = Arc::clone(&station.sleepers);
        // An instance replaces no leader.
        sleepers.set_stand_in(attachment.has_ticker());
        let are_several = Arc::clone(&self.homes.is_any);
        let it = Arc::downgrade(attachment);
        attachment.driver.set_on_unseen_events(Box::new(move || {
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

    /// Returns whether intents may be carried out now.
    pub(crate) fn may_realize(&self) -> bool {
        !self.absence.is_now() || self.absence.may_ask(self.kernel.now_ns())
    }

    /// Returns whether an intent that failed stays an intent: the engine that was `asked` has
    /// ended, or none was available, unless another thread has one meanwhile.
    pub(crate) fn is_put_off(&self, asked: Option<&Arc<Attachment>>) -> bool {
        match asked {
            Some(attachment) => attachment.is_dead(),
            None => self.absence.is_now() || self.first().is_some(),
        }
    }

    /// Whether the calling thread is in the middle of attaching (which may fork).
    pub(crate) fn is_attaching(&self) -> bool {
        self.attaching_thread.load(Ordering::Relaxed) == self.kernel.thread()
    }

    /// Handles a missing stack. Under `--strict` the socket that needed it fails.
    pub(crate) fn on_trouble(&self, error: &AttachError, begun_ns: u64) {
        // With --strict a program gets the error at once, and does not wait for a slot.
        let is_refused = self.settings.strict && error.why == Reason::NoSlot;
        let asked = AttachError {
            may_pass: error.may_pass && !is_refused,
            ..error.clone()
        };
        self.absence
            .on_trouble(&asked, begun_ns, self.kernel.now_ns());
        *self.trouble.lock() = Some(error.clone());
        if !self.settings.strict {
            // The first worker beyond the slots reports for the others.
            let is_reported = error.is_known && self.is_forked.load(Ordering::Relaxed);
            let level = match is_reported {
                true => LogLevel::Info,
                false => LogLevel::Error,
            };
            self.log.say_once(level, &error.sentence);
        }
    }

    /// Returns the last sentence about the missing stack.
    pub(crate) fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock();
        trouble.as_ref().map(|error| error.sentence.clone())
    }

    /// Returns the reason for `slipstack why`.
    pub(crate) fn why_no_stack(&self) -> Reason {
        let trouble = self.trouble.lock();
        trouble.as_ref().map_or(Reason::NoStack, |error| error.why)
    }
}

fn new_station(settings: &Settings) -> Station {
    Station::new(settings.spin, settings.gather_us, settings.heuristics)
}
