//! Everything of one process: its sockets, epoll sets and attachment.

mod absence;
pub(crate) mod chosen;
mod engine_death;
mod engines;
mod homes;
pub(crate) mod lending;
mod network;
mod owners;
pub(crate) mod place;
mod policy;
pub(crate) mod report;
mod reuse;
mod rows;
mod seeking;
mod settling;
mod signalling;
mod sole_waits;
mod strangers;
mod strict;
pub(crate) mod table;
mod verbosity;
pub(crate) mod wait;

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use slipstack_channel::{Attach, AttachError, Heuristics, Rule};
use slipstack_mem::thread::with_room;
use slipstack_mem::{Descriptor, Lock, raised};

use crate::addr::AddrBytes;
use crate::attachment::Attachment;
use crate::epoll::Set;
use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::lending::Lending;
use crate::outcome::{Divert, Outcome};
use crate::process::absence::Absence;
use crate::process::chosen::Chosen;
use crate::process::homes::Homes;
use crate::process::owners::Owners;
use crate::process::policy::Known;
use crate::process::report::{Reason, Report};
use crate::process::table::{Entry, Table};
use crate::ready::Spinners;
use crate::ready::Station;
use crate::socket::description::{Decided, Description, Kind};
use slipstack_channel::LogLevel;
use slipstack_channel::Spin;

/// How this process was started.
#[derive(Clone, Debug)]
pub struct Settings {
    pub spin: Spin,
    /// With spinning off, how long frames may gather under load; 0 = not at all.
    pub gather_us: u32,
    /// The rules of thumb that are in force.
    pub heuristics: Heuristics,
    /// A socket that policy gives to the stack fails where it cannot be had, instead of going to
    /// the kernel.
    pub strict: bool,
    /// How much is said by [`Kernel::warn`].
    pub verbosity: LogLevel,
    /// Is given a line for each socket that is placed.
    pub journal: Option<fn(&str)>,
    /// The program's name, for messages and reports.
    pub program: String,
}

/// An accepted connection.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    pub fd: i32,
    pub peer: AddrBytes,
}

/// The result of `recvmsg` and its relatives.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// The call's result (with MSG_TRUNC asked for, a datagram's full length).
    pub len: usize,
    /// For `msg_flags` (MSG_TRUNC, …).
    pub flags: i32,
    /// The sender of a datagram; `None` for streams.
    pub from: Option<AddrBytes>,
    /// Bytes of control messages written.
    pub control_len: usize,
}

/// Different messages that one process writes.
const SENTENCES_MAX: usize = 32;

/// Bytes of one write from which on it pays to look for acknowledgements: a largest frame.
const BULK: usize = 64 << 10;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// `exit`, `_exit` or return from main.
    Orderly,
    /// A signal whose default action ends the process.
    Signal(i32),
}

/// One process's sockets, epoll sets and attachment.
pub struct Process {
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) attach: Arc<dyn Attach>,
    pub(crate) settings: Settings,
    pub(crate) table: Table,
    /// The station of the first engine, and of no engine.
    pub(crate) station: Arc<Station>,
    pub(crate) spinners: Spinners,
    /// Engines beside the first.
    pub(crate) homes: Homes,
    pub(crate) report: Report,
    pub(crate) attachment: Lock<Option<Arc<Attachment>>>,
    pub(crate) attaching: Lock<()>,
    pub(crate) lending: Lending,
    /// The entries that a fork which is under way keeps locked.
    pub(crate) held: Lock<Vec<Entry>>,
    /// Sets that are kqueues.
    pub(crate) kqueues: Lock<Vec<Weak<Set>>>,
    pub(crate) has_kqueues: AtomicBool,
    /// Rung by signals that a kqueue watches.
    pub(crate) signal_bell: OnceLock<OwnedFd>,
    /// Taken while a set comes into another.
    pub(crate) nesting: Lock<()>,
    pub(crate) owners: Owners,
    attaching_thread: AtomicUsize,
    pub(crate) policy: Known,
    /// The descriptor from which others are dup'd.
    anchor: OnceLock<OwnedFd>,
    /// Taken while that is made.
    pub(crate) anchoring: Lock<()>,
    /// Makes room, for a moment, where the program may have no more descriptors.
    spare: Lock<Option<OwnedFd>>,
    ids: AtomicU64,
    /// This process's number.
    pub(crate) pid: AtomicU32,
    /// Its parent has the library too.
    pub(crate) is_forked: AtomicBool,
    /// Some socket's listening or binding is not real yet.
    pub(crate) has_intents: AtomicBool,
    /// Kernel sockets of the program's choice.
    pub(crate) chosen: Lock<Vec<Chosen>>,
    pub(crate) absence: Absence,
    /// Why there is no stack, as it was said last.
    pub(crate) trouble: Lock<Option<AttachError>>,
    /// Sentences already said.
    said: Lock<Vec<String>>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Process {
    /// Touches no device and speaks to nobody yet.
    #[must_use]
    pub fn new(kernel: Box<dyn Kernel>, attach: Arc<dyn Attach>, settings: Settings) -> Self {
        Process {
            kernel: kernel.into(),
            attach,
            spinners: Spinners::new(),
            station: Arc::new(Station::new(
                settings.spin,
                settings.gather_us,
                settings.heuristics,
            )),
            homes: Homes::default(),
            table: Table::new(),
            report: Report::new(settings.journal),
            attachment: Lock::new(None),
            attaching: Lock::new(()),
            lending: Lending::default(),
            held: Lock::new(Vec::new()),
            nesting: Lock::new(()),
            kqueues: Lock::new(Vec::new()),
            has_kqueues: AtomicBool::new(false),
            signal_bell: OnceLock::new(),
            owners: Owners::default(),
            attaching_thread: AtomicUsize::new(0),
            policy: Known::default(),
            anchor: OnceLock::new(),
            anchoring: Lock::new(()),
            spare: Lock::new(None),
            ids: AtomicU64::new(1),
            pid: AtomicU32::new(std::process::id()),
            is_forked: AtomicBool::new(false),
            has_intents: AtomicBool::new(false),
            chosen: Lock::new(Vec::new()),
            absence: Absence::default(),
            trouble: Lock::new(None),
            said: Lock::new(Vec::new()),
            settings,
        }
    }

    /// Whether a call on `fd` must come here (a socket that is undecided or on the stack, or an
    /// epoll descriptor): one look at a word of the table.
    #[inline]
    #[must_use]
    pub fn is_ours(&self, fd: i32) -> bool {
        self.table.is_ours(fd)
    }

    /// Whether `fd` is a socket of ours.
    #[must_use]
    pub fn is_socket(&self, fd: i32) -> bool {
        self.socket_of(fd).is_ok()
    }

    /// Whether `fd` is a stream of ours: it discards bytes without a place for them (MSG_TRUNC,
    /// tcp(7)).
    #[must_use]
    pub fn is_stream(&self, fd: i32) -> bool {
        self.socket_of(fd)
            .is_ok_and(|socket| socket.kind == Kind::Stream)
    }

    /// Whether `fd` is one of our own descriptors, which the program may not close or dup over.
    #[must_use]
    pub fn is_private(&self, fd: i32) -> bool {
        self.privates().contains(&fd)
    }

    /// Whether this process has an engine whose connections want an orderly end.
    #[must_use]
    pub fn owns_sockets(&self) -> bool {
        self.attachment()
            .is_some_and(|attachment| !attachment.is_dead())
    }

    pub(crate) fn privates(&self) -> Vec<i32> {
        let mut all = self.attach.descriptors();
        for attachment in self.homes.attachments() {
            all.extend(attachment.station.sleepers.numbers());
        }
        all.extend(
            self.attachments()
                .iter()
                .flat_map(|attachment| attachment.driver.descriptors()),
        );
        all.extend(self.station.sleepers.numbers());
        all.extend(self.anchor.get().map(AsRawFd::as_raw_fd));
        all.extend(self.signal_bell.get().map(AsRawFd::as_raw_fd));
        let spare = self.spare.try_lock();
        all.extend(spare.and_then(|spare| spare.as_ref().map(AsRawFd::as_raw_fd)));
        all.extend(self.report.number());
        all.extend(self.lending.descriptors());
        all.retain(|fd| *fd >= 0);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The attachment, if there is one.
    #[inline]
    pub(crate) fn attachment(&self) -> Option<Arc<Attachment>> {
        self.attachment.lock().clone()
    }

    /// The attachment that the calling thread's sockets are on, made now if need be. Not under the
    /// lock of a socket's part: a dead one is forgotten.
    pub(crate) fn attached(&self) -> Result<Arc<Attachment>, Errno> {
        match self.own_engine() {
            Some(attachment) => Ok(attachment),
            None => self.attached_first(),
        }
    }

    /// As [`Process::attached`], the first one.
    pub(crate) fn attached_first(&self) -> Result<Arc<Attachment>, Errno> {
        self.attach_first(|error, begun| self.on_trouble(error, begun))
    }

    /// As [`Process::attached`], where the program can do without: nothing is said if there is
    /// none.
    pub(crate) fn attached_quietly(&self) -> Option<Arc<Attachment>> {
        match self.own_engine() {
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
        let _turn = self.attaching.lock();
        if let Some(attachment) = self.living_attachment() {
            return Ok(attachment);
        }
        let begun = self.now_ns();
        let attached = with_room(|| {
            let thread = self.kernel.thread();
            self.attaching_thread.store(thread, Ordering::Relaxed);
            // A keeper that is started here is no program of the program's.
            self.kernel.begin_call();
            let attached = self.attach.attach();
            self.kernel.end_call();
            self.attaching_thread.store(0, Ordering::Relaxed);
            attached
        });
        match attached {
            Ok(attachment) => {
                let is_unattended = !attachment.driver.has_stand_in();
                let attachment = Arc::new(Attachment::new(attachment, Arc::clone(&self.station)));
                self.say(LogLevel::Info, &attachment.describe);
                self.equip(&attachment);
                if is_unattended {
                    self.warn_once(
                        "no thread may be started here (RLIMIT_NPROC): while the program computes or sleeps elsewhere, \
                         its peers hear nothing",
                    );
                }
                {
                    let mut place = self.attachment.lock();
                    *place = Some(Arc::clone(&attachment));
                    self.absence.end();
                    self.lending.is_confined.store(false, Ordering::Relaxed);
                }
                if let Some(table) = self.report.table() {
                    self.attach.report(table.fd());
                }
                // Threads that sleep without an engine may lead now.
                self.station.sleepers.wake_all();
                Ok(attachment)
            }
            Err(error) => {
                self.tell_report_again();
                on_trouble(&error, begun);
                Err(Errno::ENETDOWN)
            }
        }
    }

    /// Whether the calling thread is in the middle of attaching (which may fork).
    pub(crate) fn is_attaching(&self) -> bool {
        self.attaching_thread.load(Ordering::Relaxed) == self.kernel.thread()
    }

    /// There is no stack. Under `--strict` the socket that wanted it says so.
    pub(crate) fn on_trouble(&self, error: &AttachError, begun_ns: u64) {
        // With --strict a program is told at once, and does not wait for a slot.
        let is_refused = self.settings.strict && error.why == Reason::NoSlot;
        let asked = AttachError {
            may_pass: error.may_pass && !is_refused,
            ..error.clone()
        };
        self.absence.on_trouble(&asked, begun_ns, self.now_ns());
        *self.trouble.lock() = Some(error.clone());
        if !self.settings.strict {
            // The first worker beyond the slots speaks for the others, by way of the keeper.
            let level = match error.why {
                Reason::NoSlot if self.is_forked.load(Ordering::Relaxed) => LogLevel::Info,
                _ => LogLevel::Error,
            };
            self.say_once(level, &error.sentence);
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

    /// Says a sentence if the level asks for it.
    pub(crate) fn say(&self, level: LogLevel, sentence: &str) {
        if self.settings.verbosity >= level {
            self.kernel.warn(sentence);
        }
    }

    pub(crate) fn warn_once(&self, sentence: &str) {
        self.say_once(LogLevel::Warn, sentence);
    }

    /// A fallback is never silent, and never a flood.
    pub(crate) fn say_once(&self, level: LogLevel, sentence: &str) {
        let Some(mut said) = self.said.try_lock() else {
            return;
        };
        if said.len() < SENTENCES_MAX && !said.iter().any(|other| other == sentence) {
            said.push(sentence.to_owned());
            self.say(level, sentence);
        }
    }

    /// The inode of a socket of ours.
    pub(crate) fn inode_of(&self, socket: &Description) -> u64 {
        socket.inode(self.pid.load(Ordering::Relaxed))
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn anchor(&self) -> rustix::io::Result<&OwnedFd> {
        if let Some(anchor) = self.anchor.get() {
            return Ok(anchor);
        }
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let fresh = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        let anchor = {
            let _anchoring = self.anchoring.lock();
            self.anchor.get_or_init(|| raised(fresh))
        };
        self.keep_spare();
        Ok(anchor)
    }

    /// Has a spare descriptor again, if one can be had.
    pub(crate) fn keep_spare(&self) {
        if let Some(mut spare) = self.spare.try_lock()
            && spare.is_none()
            && let Some(anchor) = self.anchor.get()
        {
            *spare = rustix::io::fcntl_dupfd_cloexec(anchor, 0).ok().map(raised);
        }
    }

    /// Gives `make`, which found no descriptor free, the spare's place. [`Process::keep_spare`] has
    /// to follow when what it made is closed.
    pub(crate) fn with_spare<T>(
        &self,
        make: impl Fn() -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        match make() {
            Err(rustix::io::Errno::MFILE) => {}
            made => return made,
        }
        self.keep_spare();
        // A fork may have left it locked for ever.
        let Some(mut spare) = self.spare.try_lock() else {
            return Err(rustix::io::Errno::MFILE);
        };
        drop(spare.take());
        make()
    }

    /// A number for a socket of ours: the lowest free one, as the kernel would take.
    pub(crate) fn new_number(&self, is_cloexec: bool) -> Result<Descriptor, Errno> {
        let anchor = self.anchor()?;
        let fd = if is_cloexec {
            rustix::io::fcntl_dupfd_cloexec(anchor, 0)?
        } else {
            rustix::io::dup(anchor)?
        };
        Ok(Descriptor::give(fd))
    }

    /// Puts a socket under a number that the kernel has just given us.
    pub(crate) fn install(&self, number: Descriptor, socket: &Arc<Description>) {
        let number = number.number();
        self.forget_in_kqueues(number);
        socket.cold.lock().numbers.push(number);
        if let Some(stale) = self.table.put(number, Entry::Socket(Arc::clone(socket))) {
            self.let_go(number, stale);
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.kernel.now_ns()
    }

    /// The socket behind a number; `Kernel` if the number is not ours any more.
    #[inline]
    pub(crate) fn socket_of(&self, fd: i32) -> Outcome<Arc<Description>> {
        self.table.socket(fd).ok_or(Divert::Kernel)
    }

    // Batches.

    /// Something for the wire was pushed on this socket: it leaves now or with the batch.
    pub(crate) fn after_push(&self, attachment: &Attachment, socket: u64) {
        let thread = self.kernel.thread();
        let Station {
            batch, sleepers, ..
        } = &*attachment.station;
        if batch.is_due(thread, socket, || self.now_ns()) {
            sleepers
                .lead
                .while_sending(thread, || attachment.commands());
            sleepers.nudge(|| self.now_ns());
        }
    }

    /// Before a call that moves bytes: what was held for too long leaves.
    #[inline]
    pub(crate) fn let_overdue_leave(&self) {
        let thread = || self.kernel.thread();
        if !self.homes.is_any() && self.station.batch.take_overdue(thread) {
            self.let_leave();
        }
    }

    /// As [`Process::let_overdue_leave`], where threads have engines of their own.
    #[inline]
    pub(crate) fn let_overdue_leave_at(&self, socket: &Description) {
        if self.homes.is_any()
            && let Some(Decided::Stream(stream)) = socket.decided()
            && let attachment = stream.attachment()
            && attachment
                .station
                .batch
                .take_overdue(|| self.kernel.thread())
        {
            attachment.commands();
            attachment.station.sleepers.nudge(|| self.now_ns());
        }
    }

    #[cold]
    fn let_leave(&self) {
        if let Some(attachment) = self.own_engine().or_else(|| self.attachment()) {
            attachment.commands();
            attachment.station.sleepers.nudge(|| self.now_ns());
        }
    }

    /// Before the messages of one sendmmsg, which leave together. `true`: [`Process::end_burst`]
    /// has to follow.
    pub fn begin_burst(&self) -> bool {
        let thread = self.kernel.thread();
        self.own_station().batch.begin_burst(thread)
    }

    pub fn end_burst(&self) {
        self.own_station().batch.end(self.kernel.thread());
        self.let_leave();
    }

    /// As [`Process::after_push`], of `count` bytes. A program that writes much without waiting
    /// is brought its acknowledgements meanwhile: what they free is written again while it is
    /// still in the processor's cache, and the send ring stays small.
    pub(crate) fn after_push_of(&self, attachment: &Attachment, socket: u64, count: usize) {
        if count >= BULK && self.settings.heuristics.has(Rule::Bulk) {
            self.turn(attachment);
        }
        self.after_push(attachment, socket);
    }
}
