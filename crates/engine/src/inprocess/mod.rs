//! The in-process placement: the program's waiting thread drives the engine.
//!
//! The engine is owned through one lock word; the thread that takes it runs a turn. While the
//! program waits, its thread does; while the program is away, the [`ticker`] stands in.

mod asleep;
mod carrying;
mod length;
mod nap;
mod pace;
mod ticker;

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use slipstack_channel::{Driver, OnUnused, Placement, SockId, TurnOutcome, WaitOn};
use slipstack_mem::{Doorbell, Guard, Lock, now_ns};
use slipstack_stack::Instant;

use crate::engine::{Engine, Turn};
use crate::supervisor::Supervisor;
use asleep::Asleep;
use nap::Naps;
use ticker::Ticker;

/// Age of the last turn at which a program that sends, and so is not away, runs a whole turn. It
/// has to be well below the ticker's.
const LONG_BATCH_NS: u64 = 1_500_000;

/// Interval of the looks for neighbours that frames wait for at the end.
const NEIGHBOURS_LOOK: Duration = Duration::from_micros(200);

/// An engine in this process.
pub struct InProcess {
    shared: Arc<Shared>,
    ticker: Option<Ticker>,
    naps: Naps,
    slot: Option<u16>,
}

/// State that the driving threads and the ticker share.
struct Shared {
    engine: Lock<Engine>,
    supervisor: Arc<dyn Supervisor>,
    /// Wakes sleepers of this process; other engines ring it when they put a frame in our inbox.
    bell: Doorbell,
    /// Time at which the program last ran the engine.
    driven_at: AtomicU64,
    /// Threads between `prepare_wait` and `finish_wait`.
    sleepers: Asleep,
    /// The deadline for which the latest sleeper's timeout was computed.
    armed_until: AtomicU64,
    /// The deadline until which the ticker sleeps in the program's place; 0 = it does not.
    ticker_until: AtomicU64,
    /// No keeper is to be reached.
    is_alone: AtomicBool,
    is_over: AtomicBool,
    /// A thread has pushed commands and did not wait for the engine: the thread that releases it
    /// runs them.
    is_asked: AtomicBool,
    /// [`Driver::set_on_unseen_events`].
    on_unseen_events: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// [`Driver::set_on_unused`].
    on_unused: OnceLock<OnUnused>,
}

impl InProcess {
    /// `bell` is the doorbell of the engine's inbox.
    ///
    /// Creates the ticker; a program that may have no more threads (RLIMIT_NPROC) is without one.
    ///
    /// # Errors
    /// No memory or descriptor could be had for the ticker.
    pub fn new(
        engine: Engine,
        bell: Doorbell,
        supervisor: Arc<dyn Supervisor>,
    ) -> std::io::Result<InProcess> {
        let slot = engine.slot();
        let shared = Arc::new(Shared {
            engine: Lock::new(engine),
            supervisor,
            bell,
            driven_at: AtomicU64::new(now_ns()),
            sleepers: Asleep::default(),
            armed_until: AtomicU64::new(u64::MAX),
            ticker_until: AtomicU64::new(0),
            is_alone: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            is_asked: AtomicBool::new(false),
            on_unseen_events: OnceLock::new(),
            on_unused: OnceLock::new(),
        });
        let ticker = match Ticker::start(Arc::clone(&shared)) {
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
            started => started.ok(),
        };
        Ok(InProcess {
            shared,
            ticker,
            naps: Naps::new(),
            slot,
        })
    }

    fn unpark(&self) {
        if let Some(ticker) = &self.ticker {
            ticker.unpark();
        }
    }
}

impl Shared {
    /// Runs one whole turn; `None` if another thread owns the engine.
    fn turn(&self, now_ns: u64, run: fn(&mut Engine, Instant) -> Turn) -> Option<Turn> {
        let mut engine = self.engine.try_lock()?;
        if self.is_over() {
            return None;
        }
        let turn = run(&mut engine, Instant(now_ns));
        let is_stale = self.is_stale(&mut engine);
        drop(engine);
        if is_stale {
            self.bell.ring();
        }
        self.settle();
        Some(turn)
    }

    /// Locks the engine, or returns `None` if another thread has it, which then runs the pushed
    /// commands.
    fn ask(&self) -> Option<Guard<'_, Engine>> {
        self.engine.try_lock().or_else(|| {
            self.is_asked.store(true, Ordering::Release);
            fence(Ordering::SeqCst);
            self.engine.try_lock()
        })
    }

    /// Runs commands that other threads have pushed without waiting, after the engine was released.
    #[inline]
    fn settle(&self) {
        fence(Ordering::SeqCst);
        while self.is_asked.load(Ordering::Acquire) {
            // The thread that holds the engine settles it in its own turn.
            let Some(engine) = self.engine.try_lock() else {
                return;
            };
            self.is_asked.store(false, Ordering::Relaxed);
            self.run_commands(engine);
            fence(Ordering::SeqCst);
        }
    }

    fn run_commands(&self, mut engine: Guard<'_, Engine>) {
        if self.is_over() {
            return;
        }
        let now = now_ns();
        let driven_at = self.driven_at.load(Ordering::Relaxed);
        if now.saturating_sub(driven_at) < LONG_BATCH_NS {
            engine.commands(Instant(now));
        } else {
            self.driven_at.store(now, Ordering::Relaxed);
            engine.turn(Instant(now));
        }
        // A command can have consequences for another thread's socket of this engine.
        let has_news = self.sleepers.is_any() && engine.has_unread_events();
        let is_stale = self.is_stale(&mut engine);
        drop(engine);
        if has_news || is_stale {
            self.bell.ring();
        }
    }

    /// The engine's connections are others': nothing of it may reach the device any more. Known for
    /// certain under its lock.
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Sends datagrams that wait for a neighbour or for room, as the kernel does after the end of a
    /// program. Connections need no such time: the keeper goes on with them.
    fn send_waiting(&self, until_ns: u64) {
        loop {
            let now = now_ns();
            let mut engine = self.engine.lock();
            engine.turn(Instant(now));
            let is_waiting = engine.has_waiting_frames();
            drop(engine);
            if !is_waiting || now >= until_ns {
                return;
            }
            std::thread::sleep(NEIGHBOURS_LOOK);
        }
    }

    fn note_keeper(&self, is_alone: bool) {
        if self.is_alone.load(Ordering::Relaxed) != is_alone {
            self.is_alone.store(is_alone, Ordering::Relaxed);
            self.engine.lock().set_alone(is_alone);
            self.settle();
        }
    }

    /// Clears the doorbell for the ticker, which does not run a turn for every ring. A sleeper that
    /// has not seen the ring yet is woken again; a sleeper that comes later finds the work, because
    /// it checks under the lock.
    fn clear_bell(&self) {
        self.bell.clear();
        let engine = self.engine.lock();
        let has_sleepers = self.sleepers.is_any();
        drop(engine);
        if has_sleepers {
            self.bell.ring();
        }
        self.settle();
    }

    /// Returns whether a sleeper has to be woken because of work done in its absence: its timeout
    /// may have been computed before a deadline existed, and a turn ends the announcement of sleep.
    /// If no thread of the program sleeps, it is the ticker that may sleep too long.
    fn is_stale(&self, engine: &mut Engine) -> bool {
        let armed_until = match self.sleepers.is_any() {
            false => self.ticker_until.load(Ordering::Acquire),
            true => self.armed_until.load(Ordering::Acquire),
        };
        if armed_until == 0 {
            return false;
        }
        engine.announce_sleep()
            || engine
                .next_deadline()
                .is_some_and(|deadline| deadline.0 < armed_until)
    }
}

impl InProcess {
    #[inline]
    fn drive(&self, now_ns: u64, run: fn(&mut Engine, Instant) -> Turn) -> TurnOutcome {
        self.shared.driven_at.store(now_ns, Ordering::Relaxed);
        let Some(turn) = self.shared.turn(now_ns, run) else {
            return TurnOutcome::Busy;
        };
        self.naps.on_turn(turn.frames);
        match turn.progress {
            true => TurnOutcome::Progress,
            false => TurnOutcome::Idle,
        }
    }
}

impl Driver for InProcess {
    fn turn(&self, now_ns: u64) -> TurnOutcome {
        self.drive(now_ns, Engine::turn)
    }

    fn commands(&self) {
        if let Some(engine) = self.shared.ask() {
            self.shared.run_commands(engine);
            self.shared.settle();
        }
    }

    fn note_held(&self) {
        // A ticker that sleeps on the device sees a program that has come back with the next frame.
        fence(Ordering::SeqCst);
        if self.ticker.is_none() || self.shared.ticker_until.load(Ordering::Acquire) != 0 {
            self.commands();
        }
    }

    fn would_nap(&self) -> bool {
        self.naps.may_nap()
    }

    fn prepare_wait(&self, now_ns: u64, nap_ns_max: u64) -> Option<WaitOn> {
        let mut engine = self.shared.engine.lock();
        self.shared.sleepers.enter();
        if self.shared.is_over() {
            return Some(WaitOn::NOTHING);
        }
        engine.set_sleeping(true);
        engine.pause(Instant(now_ns));
        let nap = self.naps.begin(now_ns, nap_ns_max);
        // Events of a turn that the ticker has just run count: nothing else would wake this thread.
        // A nap is meant to gather frames.
        if (nap.is_none() && engine.has_work()) || engine.has_unread_events() {
            engine.set_sleeping(false);
            self.shared.sleepers.turn_back();
            drop(engine);
            self.shared.settle();
            self.unpark();
            return None;
        }
        let deadline = engine.next_deadline();
        let device = nap.unwrap_or_else(|| engine.poll_fd());
        // Published before the lock is released: a later turn by another thread sees it.
        self.shared
            .armed_until
            .store(deadline.map_or(u64::MAX, |at| at.0), Ordering::Release);
        drop(engine);
        self.shared.settle();
        Some(WaitOn {
            fds: [device, self.shared.bell.raw_fd()],
            timeout_ns: deadline.map(|at| at.0.saturating_sub(now_ns)),
        })
    }

    fn finish_wait(&self, [has_come, has_rung]: [bool; 2], now_ns: u64) {
        self.naps.end(has_come, now_ns);
        self.shared.sleepers.leave(has_rung, &self.shared.bell);
        self.unpark();
    }

    fn carry_to(&self, sock: SockId, to: &dyn Driver, as_sock: SockId) -> bool {
        let there = to.as_any().and_then(|it| it.downcast_ref::<InProcess>());
        there.is_some_and(|there| self.shared.carry_to(sock, &there.shared, as_sock))
    }

    fn carry_out(&self, sock: SockId, upto: u64) -> Option<Vec<u8>> {
        self.shared.carry_off(sock, upto)
    }

    fn carry_in(&self, sock: SockId, connection: &[u8]) -> bool {
        self.shared.carry_on(sock, connection)
    }

    fn carried(&self, connection: &[u8], slot: u16) {
        self.shared.on_carried(connection, slot);
    }

    fn slot(&self) -> Option<u16> {
        self.slot
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn set_on_unseen_events(&self, call: Box<dyn Fn() + Send + Sync>) {
        let _ = self.shared.on_unseen_events.set(call);
    }

    fn set_on_unused(&self, call: OnUnused) {
        let _ = self.shared.on_unused.set(call);
    }

    fn has_nothing_left(&self) -> bool {
        let engine = self.shared.engine.try_lock();
        engine.is_some_and(|mut engine| engine.has_nothing_left(Instant(now_ns())))
    }

    fn wake_waiters(&self) {
        self.shared.bell.ring();
    }

    fn has_stand_in(&self) -> bool {
        self.ticker.is_some()
    }

    fn placement(&self) -> Placement {
        Placement::InProcess
    }

    fn is_dead(&self) -> bool {
        false
    }

    fn end_session(&self, until_ns: u64) {
        if self.shared.is_over.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.send_waiting(until_ns);
        let handovers = self.shared.engine.lock().hand_over(Instant(now_ns()));
        // One program, one channel. Connections that the keeper does not take are reset when this
        // process is gone.
        for handover in handovers {
            if self.shared.supervisor.hand_over(handover.images()) {
                self.shared.engine.lock().forget(&handover);
            }
        }
        let entries = self.shared.engine.lock().time_waits(Instant(now_ns()));
        self.shared.supervisor.pass_on_time_waits(&entries);
        self.shared.supervisor.end_session();
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        if let Some(ticker) = self.ticker.take() {
            ticker.end();
        }
    }
}
