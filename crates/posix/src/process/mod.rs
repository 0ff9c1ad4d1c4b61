//! The state of one process: its sockets, epoll sets and attachments.

mod attaching;
pub(crate) mod chosen;
pub(crate) mod engines;
mod ids;
pub(crate) mod lending;
mod log;
pub(crate) mod network;
mod numbers;
mod owners;
pub(crate) mod place;
mod programs;
pub(crate) mod renewal;
pub(crate) mod report;
pub(crate) mod reuse;
mod rows;
mod settings;
mod signalling;
pub(crate) mod strict;
pub(crate) mod subject;
pub(crate) mod table;
mod verbosity;
pub(crate) mod wait;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use slipstack_channel::Attach;
use slipstack_mem::{Descriptor, Lock};

use crate::addr::AddrBytes;
use crate::kernel::Kernel;
use crate::kqueue::Kqueues;
use crate::lending::Lending;
use crate::poll::PollLooks;
use crate::process::chosen::ChosenSockets;
use crate::process::engines::Engines;
use crate::process::ids::Ids;
use crate::process::log::Log;
use crate::process::network::Network;
use crate::process::numbers::Numbers;
use crate::process::owners::Owners;
use crate::process::programs::Programs;
use crate::process::report::Report;
pub use crate::process::settings::Settings;
use crate::process::table::{Entry, Table};
use crate::ready::Spinners;
use crate::socket::description::{Decided, Description, Kind};

/// An accepted connection.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    pub fd: i32,
    pub peer: AddrBytes,
}

/// The result of `recvmsg` and its relatives.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// The call's result (with MSG_TRUNC, a datagram's full length).
    pub len: usize,
    /// Bits for `msg_flags` (MSG_TRUNC, …).
    pub flags: i32,
    /// The sender of a datagram; `None` for streams.
    pub from: Option<AddrBytes>,
    /// Bytes of control messages written.
    pub control_len: usize,
}

/// One process's sockets, epoll sets and attachment.
pub struct Process {
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) log: Arc<Log>,
    pub(crate) engines: Arc<Engines>,
    pub(crate) table: Table,
    pub(crate) spinners: Spinners,
    pub(crate) report: Report,
    pub(crate) lending: Lending,
    /// The process itself, which its steward may get something from in the midst of a call.
    pub(crate) this: OnceLock<&'static Process>,
    /// The entries that a fork which is under way keeps locked.
    pub(crate) held: Lock<Vec<Entry>>,
    pub(crate) kqueues: Kqueues,
    pub(crate) poll_looks: PollLooks,
    /// Taken while a set comes into another.
    pub(crate) nesting: Lock<()>,
    pub(crate) owners: Owners,
    pub(crate) network: Network,
    pub(crate) numbers: Numbers,
    pub(crate) ids: Arc<Ids>,
    /// Set if a `bind` or `listen` of some socket has not taken effect yet.
    pub(crate) has_intents: AtomicBool,
    /// Kernel sockets of the program's choice.
    pub(crate) chosen: ChosenSockets,
    /// Programs that may choose a socket of a group.
    pub(crate) programs: Programs,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Process {
    /// Touches no device and sends no request yet.
    #[must_use]
    pub fn new(kernel: Box<dyn Kernel>, attach: Arc<dyn Attach>, settings: Settings) -> Self {
        let kernel: Arc<dyn Kernel> = kernel.into();
        let settings = Arc::new(settings);
        let log = Arc::new(Log::new(Arc::clone(&kernel), settings.verbosity));
        let engines = Engines::new(
            Arc::clone(&kernel),
            attach,
            Arc::clone(&settings),
            Arc::clone(&log),
        );
        Process {
            kernel,
            log,
            network: Network::new(Arc::clone(&engines)),
            engines,
            spinners: Spinners::new(),
            table: Table::new(),
            report: Report::new(settings.journal),
            lending: Lending::default(),
            this: OnceLock::new(),
            held: Lock::new(Vec::new()),
            nesting: Lock::new(()),
            kqueues: Kqueues::default(),
            poll_looks: PollLooks::default(),
            owners: Owners::default(),
            numbers: Numbers::default(),
            ids: Arc::new(Ids::new()),
            has_intents: AtomicBool::new(false),
            chosen: ChosenSockets::default(),
            programs: Programs::default(),
            settings,
        }
    }

    /// Returns whether a call on `fd` must come here (a socket that is undecided or on the stack,
    /// or an epoll descriptor): reads one word of the table.
    #[inline]
    #[must_use]
    pub fn is_ours(&self, fd: i32) -> bool {
        self.table.is_ours(fd)
    }

    /// Whether `fd` is a socket of ours.
    #[must_use]
    pub fn is_socket(&self, fd: i32) -> bool {
        self.table.socket_of(fd).is_ok()
    }

    /// Whether `fd` is a stream of ours: it discards bytes without a place for them (MSG_TRUNC,
    /// tcp(7)).
    #[must_use]
    pub fn is_stream(&self, fd: i32) -> bool {
        self.table
            .socket_of(fd)
            .is_ok_and(|socket| socket.kind == Kind::Stream)
    }

    /// Whether `fd` is one of our own descriptors, which the program may not close or dup over.
    #[must_use]
    pub fn is_private(&self, fd: i32) -> bool {
        self.lending.is_private(fd)
    }

    /// Returns whether this process has an engine whose connections need an orderly end.
    #[must_use]
    pub fn owns_sockets(&self) -> bool {
        self.engines
            .first()
            .is_some_and(|attachment| !attachment.is_dead())
    }

    /// Wakes every sleeper to check for a change.
    pub fn wake_all(&self) {
        self.engines.wake_all();
    }

    /// The process is where it stays until the program ends.
    pub fn stay(&'static self) {
        let _ = self.this.set(self);
    }

    /// Puts a socket under a number that the kernel has just given us.
    pub(crate) fn install(&self, number: Descriptor, socket: &Arc<Description>) {
        let number = number.number();
        self.kqueues.forget_number(number);
        socket.cold.lock().numbers.push(number);
        if let Some(stale) = self.table.put(number, Entry::Socket(Arc::clone(socket))) {
            self.let_go(number, stale);
        }
    }

    // Batches.

    /// Sends data that was held too long, before a call that moves bytes.
    #[inline]
    pub(crate) fn let_overdue_leave(&self) {
        let thread = || self.kernel.thread();
        if !self.engines.homes.is_any() && self.engines.station.batch.take_overdue(thread) {
            self.let_leave();
        }
    }

    /// As [`Process::let_overdue_leave`], where threads have engines of their own.
    #[inline]
    pub(crate) fn let_overdue_leave_at(&self, socket: &Description) {
        if self.engines.homes.is_any()
            && let Some(Decided::Stream(stream)) = socket.decided()
            && let attachment = stream.attachment()
            && attachment
                .station
                .batch
                .take_overdue(|| self.kernel.thread())
        {
            attachment.commands();
            attachment.station.sleepers.nudge(|| self.kernel.now_ns());
        }
    }

    #[cold]
    fn let_leave(&self) {
        if let Some(attachment) = self.engines.own().or_else(|| self.engines.first()) {
            attachment.commands();
            attachment.station.sleepers.nudge(|| self.kernel.now_ns());
        }
    }

    /// Begins the messages of one sendmmsg, which leave together; [`Process::end_burst`] has to
    /// follow.
    pub fn begin_burst(&self) {
        let thread = self.kernel.thread();
        self.engines.own_station().batch.begin_burst(thread);
    }

    /// Ends the messages of one sendmmsg, of which `count` were sent on `fd`.
    pub fn end_burst(&self, fd: i32, count: usize) {
        let thread = self.kernel.thread();
        self.engines.own_station().batch.end_burst(thread);
        let socket = self.table.socket(fd);
        let dgram = socket.as_ref().and_then(|it| match it.decided() {
            Some(Decided::Dgram(dgram)) => Some((it.id, dgram.part()?)),
            _ => None,
        });
        match dgram {
            Some((id, (attachment, sock))) => {
                attachment.after_datagrams(&*self.kernel, (id, sock), count);
            }
            None => self.let_leave(),
        }
    }

    /// Notes that one recvmmsg has returned `count` messages of `fd`, which will be answered.
    pub fn note_received(&self, fd: i32, count: usize) {
        if let Some(socket) = self.table.socket(fd)
            && let Some(Decided::Dgram(dgram)) = socket.decided()
            && let Some((attachment, _)) = dgram.part()
        {
            let answers = &attachment.station.answers;
            answers.on_received(self.kernel.thread(), count);
        }
    }
}
