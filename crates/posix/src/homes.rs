//! Engines of one process beside its first: one for each thread that waits on sockets of its own.
//!
//! The rule: the first engine is that of the first thread that waits on sockets. Another thread that waits on an epoll
//! set of its own, with sockets in it that can be served elsewhere, gets an engine with a slot of its own. As many
//! engines are made as the settings and the keeper's slots allow; further threads share them, each the one with the
//! fewest sets. A set keeps its engine, whichever thread waits on it; what a thread listens on and connects is on the
//! engine of that thread. A set may have members on other engines: whoever drives those tells it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use slipstack_channel::Placement;
use slipstack_mem::Lock;
use slipstack_mem::thread::with_room;

use crate::description::{Decided, Description};
use crate::epoll::{Set, Target};
use crate::link::Link;
use crate::process::Process;
use crate::station::Station;
use crate::verbosity::Verbosity;
use crate::wait::Subject;

/// Values of [`Set::home`] that are no engine's number.
const UNSETTLED: u32 = 0;
const FIRST: u32 = 1;

/// A connection from which bytes are taken as often was worth a move.
const LONG_READS: u32 = 16;
/// What a long one makes up for, and how many short ones are remembered; with half of those moves do not pay.
const LONG_IS_WORTH: u32 = 8;
const SHORT_MAX: u32 = 64;

/// Threads whose engine is remembered; beyond it all are asked anew.
const THREADS_MAX: usize = 4096;
/// After an engine was refused none is asked for during this time.
const ASK_AGAIN_NS: u64 = 1_000_000_000;

/// Which engine the threads that wait on an epoll set drive.
#[derive(Debug, Default)]
pub(crate) struct Home(AtomicU32);

impl Home {
    /// In a forked child, and where the engine is gone.
    pub(crate) fn forget(&self) {
        self.0.store(UNSETTLED, Ordering::Relaxed);
    }

    pub(crate) fn is_unsettled(&self) -> bool {
        self.number() == UNSETTLED
    }

    fn number(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Debug)]
struct Engine {
    number: u32,
    link: Arc<Link>,
    /// Sets whose home it is.
    sets: u32,
}

#[derive(Debug, Default)]
struct All {
    engines: Vec<Engine>,
    threads: HashMap<usize, u32>,
    last_number: u32,
    refused_ns: u64,
}

impl All {
    fn of_thread(&self, thread: usize) -> Option<&Engine> {
        let number = *self.threads.get(&thread)?;
        self.engines.iter().find(|engine| engine.number == number)
    }

    fn remember(&mut self, thread: usize, number: u32) {
        if self.threads.len() >= THREADS_MAX {
            self.threads.clear();
        }
        self.threads.insert(thread, number);
    }

    fn emptiest(&self) -> Option<(u32, u32)> {
        let least = self.engines.iter().min_by_key(|engine| engine.sets)?;
        Some((least.number, least.sets))
    }
}

/// The engines beside the first.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    is_any: Arc<AtomicBool>,
    all: Lock<All>,
    /// The thread that the first engine is for; 0 = none has waited yet.
    first_thread: AtomicUsize,
    /// Connections that have ended after few reads, less what long ones make up for.
    short: AtomicU32,
}

impl Homes {
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        if !self.is_any() {
            return Vec::new();
        }
        let all = self.all.lock();
        let links = all.engines.iter().map(|engine| Arc::clone(&engine.link));
        links.collect()
    }

    /// As [`Homes::links`]; none if a thread that was interrupted holds them.
    pub(crate) fn try_links(&self) -> Vec<Arc<Link>> {
        let all = self.all.try_lock();
        let all = all.as_ref().map_or(&[][..], |all| &all.engines);
        all.iter().map(|engine| Arc::clone(&engine.link)).collect()
    }

    /// Forgets an engine that is gone. Whether it was one of these.
    pub(crate) fn forget(&self, gone: &Arc<Link>) -> bool {
        let mut all = self.all.lock();
        let before = all.engines.len();
        all.engines.retain(|it| !Arc::ptr_eq(&it.link, gone));
        before != all.engines.len()
    }

    fn of_thread(&self, thread: usize) -> Option<Arc<Link>> {
        let all = self.all.lock();
        let found = all.of_thread(thread);
        found
            .map(|engine| Arc::clone(&engine.link))
            .filter(|link| !link.is_dead())
    }

    /// A connection ends after so many reads.
    pub(crate) fn note_life(&self, reads: u32) {
        let short = self.short.load(Ordering::Relaxed);
        let short = match reads >= LONG_READS {
            true => short.saturating_sub(LONG_IS_WORTH),
            false => (short + 1).min(SHORT_MAX),
        };
        self.short.store(short, Ordering::Relaxed);
    }

    /// Whether connections last long enough to be moved.
    pub(crate) fn moves_pay(&self) -> bool {
        self.short.load(Ordering::Relaxed) < SHORT_MAX / 2
    }

    /// A set whose connections are not worth an engine.
    pub(crate) fn give_up(&self, set: &Set, thread: usize) {
        self.leave(set);
        set.home.forget();
        self.all.lock().threads.remove(&thread);
    }

    /// A thread waits: whether the first engine is for it.
    fn is_first(&self, thread: usize) -> bool {
        let known = self.first_thread.load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        known == thread
            || known == 0
                && self
                    .first_thread
                    .compare_exchange(0, thread, order, order)
                    .is_ok()
    }

    /// A set is closed.
    pub(crate) fn leave(&self, set: &Set) {
        let number = set.home.number();
        if number > FIRST {
            set.set_engine(None);
            let mut all = self.all.lock();
            if let Some(engine) = all.engines.iter_mut().find(|it| it.number == number) {
                engine.sets = engine.sets.saturating_sub(1);
            }
        }
    }

    /// Settles where a set is at home, unless another thread has done that meanwhile.
    fn settle(&self, set: &Set, number: u32) {
        let mut all = self.all.lock();
        if !set.home.is_unsettled() {
            return;
        }
        if let Some(engine) = all.engines.iter_mut().find(|it| it.number == number) {
            engine.sets += 1;
            set.set_engine(Some(Arc::clone(&engine.link)));
        }
        set.home.0.store(number, Ordering::Release);
    }

    pub(crate) fn hold(&self) {
        self.all.hold();
    }

    pub(crate) fn release(&self) {
        self.all.release();
    }

    /// In a forked child: they are the parent's, and not even their destructors run.
    pub(crate) fn reset(&self) {
        std::mem::forget(std::mem::take(&mut *self.all.lock()));
        self.is_any.store(false, Ordering::Release);
        self.first_thread.store(0, Ordering::Relaxed);
    }
}

impl Process {
    /// Every engine of this process.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        let mut links: Vec<Arc<Link>> = self.link().into_iter().collect();
        links.extend(self.homes.links());
        links
    }

    /// Something changed that every sleeper has to look at.
    pub(crate) fn wake_all(&self) {
        self.station.sleepers.wake_all();
        for link in self.homes.links() {
            link.station.sleepers.wake_all();
        }
    }

    /// The engine on which the calling thread's new sockets are, if it has one of its own.
    pub(crate) fn own_engine(&self) -> Option<Arc<Link>> {
        match self.homes.is_any() {
            true => self.homes.of_thread(self.kernel.thread()),
            false => None,
        }
    }

    /// What the calling thread waits at with others.
    pub(crate) fn own_station(&self) -> Arc<Station> {
        match self.own_engine() {
            Some(link) => Arc::clone(&link.station),
            None => Arc::clone(&self.station),
        }
    }

    /// The engine that a thread drives while it waits for `subject`, if there is one.
    pub(crate) fn link_for(&self, subject: Subject<'_>) -> Option<Arc<Link>> {
        if self.homes.is_any()
            && let Some(link) = self.elsewhere(subject)
        {
            return Some(link);
        }
        self.living_link()
    }

    /// The engine that whoever waits on a set drives; `None` if that is not settled.
    pub(crate) fn home_of(&self, set: &Set) -> Option<Arc<Link>> {
        match set.home.number() {
            UNSETTLED => None,
            FIRST => self.link(),
            _ => set.engine(),
        }
    }

    /// What those who wait for `subject` have in common.
    pub(crate) fn station_of(&self, subject: Subject<'_>) -> Arc<Station> {
        let elsewhere = match self.homes.is_any() {
            true => self.elsewhere(subject),
            false => None,
        };
        Arc::clone(elsewhere.as_ref().map_or(&self.station, |it| &it.station))
    }

    /// `None`: it is the first.
    fn elsewhere(&self, subject: Subject<'_>) -> Option<Arc<Link>> {
        match subject {
            Subject::Socket(socket) => socket.link().filter(|link| !link.is_dead()),
            Subject::Set(set) => match set.home.number() {
                UNSETTLED | FIRST => None,
                _ => set.engine(),
            },
            Subject::Many(targets) => targets.iter().find_map(|target| match target {
                Target::Socket(socket) => self.elsewhere(Subject::Socket(socket)),
                Target::Set(set) => self.elsewhere(Subject::Set(set)),
            }),
        }
    }

    /// A thread is about to wait for something that an engine brings.
    #[inline]
    pub(crate) fn settle_home(&self, set: &Arc<Set>) {
        if set.home.number() == UNSETTLED && set.is_look_due() && !set.is_kernel_only() {
            self.settle_unsettled(set);
        }
    }

    #[cold]
    fn settle_unsettled(&self, set: &Arc<Set>) {
        let thread = self.kernel.thread();
        if self.homes.is_first(thread) {
            return self.homes.settle(set, FIRST);
        }
        let own = self.own_engine();
        let is_own = |link: Arc<Link>| own.as_ref().is_some_and(|own| Arc::ptr_eq(own, &link));
        let moves_pay = self.homes.moves_pay();
        let is_worth = |socket: &Arc<Description>| match socket.decided() {
            Some(Decided::Stream(stream)) if moves_pay && stream.may_move() => true,
            _ => may_be_elsewhere(socket) || socket.link().is_some_and(is_own),
        };
        if !set.sockets().iter().any(is_worth) {
            return;
        }
        if let Some(number) = self.number_of(thread) {
            return self.homes.settle(set, number);
        }
        if self.settle_anew(set, thread).is_none() {
            self.homes.settle(set, FIRST);
        }
    }

    fn number_of(&self, thread: usize) -> Option<u32> {
        let all = self.homes.all.lock();
        all.of_thread(thread).map(|engine| engine.number)
    }

    /// For a thread that has no engine: one that nobody uses, a new one, or one that is shared.
    fn settle_anew(&self, set: &Set, thread: usize) -> Option<()> {
        let first = self.attached_first().ok()?;
        if first.placement() != Placement::InProcess {
            return None;
        }
        let _turn = self.attaching.lock();
        let emptiest = self.homes.all.lock().emptiest();
        let number = match emptiest {
            Some((number, 0)) => number,
            _ => self.one_more().or(emptiest.map(|it| it.0))?,
        };
        self.homes.all.lock().remember(thread, number);
        self.homes.settle(set, number);
        Some(())
    }

    /// `None`: there are as many as there may be, or no slot is free.
    fn one_more(&self) -> Option<u32> {
        let now_ns = self.now_ns();
        {
            let all = self.homes.all.lock();
            let is_refused = all.refused_ns != 0 && now_ns < all.refused_ns + ASK_AGAIN_NS;
            if is_refused || all.engines.len() + 1 >= self.attach.engines_max() {
                return None;
            }
        }
        let attached = with_room(|| {
            self.kernel.begin_call();
            let attached = self.attach.attach_another();
            self.kernel.end_call();
            attached
        });
        let Ok(attachment) = attached else {
            self.homes.all.lock().refused_ns = now_ns;
            return None;
        };
        let station = Arc::new(Station::new(self.settings.spin, self.settings.gather_us));
        let link = Arc::new(Link::new(attachment, station));
        self.say(Verbosity::Info, &link.describe);
        self.equip(&link);
        let mut all = self.homes.all.lock();
        all.last_number = all.last_number.max(FIRST) + 1;
        let number = all.last_number;
        all.engines.push(Engine {
            number,
            link,
            sets: 0,
        });
        self.homes.is_any.store(true, Ordering::Release);
        Some(number)
    }

    /// Tells those who wait at an engine who stands in for them, and the stand-in whom to call.
    pub(crate) fn equip(&self, link: &Arc<Link>) {
        let station = &link.station;
        station.batch.set_net(link.has_ticker());
        station.sleepers.lead.set_net(link.has_ticker());
        let sleepers = Arc::clone(&station.sleepers);
        let are_several = Arc::clone(&self.homes.is_any);
        let it = Arc::downgrade(link);
        link.set_relief(Box::new(move || {
            // Whoever waits for it may drive another engine.
            if are_several.load(Ordering::Acquire)
                && sleepers.is_empty()
                && let Some(link) = it.upgrade()
            {
                link.pump();
            }
            sleepers.replace_leader();
        }));
    }
}

/// Whether what it listens on is not on an engine yet, and has its share on another one.
fn may_be_elsewhere(socket: &Arc<Description>) -> bool {
    let is_intent = match socket.decided() {
        Some(Decided::Listener(listener)) => listener.is_intent(),
        Some(Decided::Dgram(dgram)) => dgram.is_intent(),
        _ => false,
    };
    is_intent
        && socket
            .cold
            .lock()
            .options
            .is_on(libc::SOL_SOCKET, libc::SO_REUSEPORT)
}
