//! The program's driver when the engine is in an instance: it polls the rings and rings the
//! doorbell.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use slipstack_channel::control::ControlSocket;
use slipstack_channel::{Command, Driver, Placement, ProgramEnd, TurnOutcome, WaitOn};
use slipstack_mem::Doorbell;

/// An engine in another process.
pub struct Remote {
    end: ProgramEnd,
    engine_bell: Doorbell,
    /// Rung by the engine when events come while this side sleeps.
    own_bell: Doorbell,
    /// Hangs up when the instance dies.
    control: ControlSocket,
    is_dead: AtomicBool,
    is_over: AtomicBool,
    /// Time at which it was last looked whether the instance lives.
    looked_ns: AtomicU64,
}

/// From one such look to the next, at least: a look is a system call.
const LOOK_EVERY_NS: u64 = 2_000_000;

impl Remote {
    pub fn new(
        end: ProgramEnd,
        engine_bell: Doorbell,
        own_bell: Doorbell,
        control: ControlSocket,
    ) -> Remote {
        Remote {
            end,
            engine_bell,
            own_bell,
            control,
            is_dead: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            looked_ns: AtomicU64::new(0),
        }
    }

    /// Returns whether hang-ups have to be polled for: an engine that never sleeps has no sleep
    /// that one could end.
    fn is_look_due(&self, now_ns: u64) -> bool {
        let looked = self.looked_ns.load(Ordering::Relaxed);
        let is_due = now_ns.wrapping_sub(looked) >= LOOK_EVERY_NS;
        if is_due {
            self.looked_ns.store(now_ns, Ordering::Relaxed);
        }
        is_due
    }

    fn check_for_death(&self) {
        let is_gone = self.end.is_engine_gone() || self.control.is_closed();
        if is_gone && !self.is_over.load(Ordering::Acquire) {
            self.is_dead.store(true, Ordering::Release);
        }
    }
}

impl Driver for Remote {
    fn turn(&self, now_ns: u64) -> TurnOutcome {
        self.commands();
        if self.end.has_events() {
            return TurnOutcome::Progress;
        }
        if !self.is_dead() && (self.end.is_engine_gone() || self.is_look_due(now_ns)) {
            self.check_for_death();
        }
        TurnOutcome::Idle
    }

    fn commands(&self) {
        self.end.flush_overflow();
        if self.end.needs_doorbell() {
            self.engine_bell.ring();
        }
    }

    fn may_spin(&self) -> bool {
        !self.end.meet(rustix::thread::sched_getcpu())
    }

    fn prepare_wait(&self, _now_ns: u64, _nap_ns_max: u64) -> Option<WaitOn> {
        if self.is_over.load(Ordering::Acquire) {
            return Some(WaitOn::NOTHING);
        }
        if self.is_dead() || !self.end.prepare_sleep() {
            return None;
        }
        Some(WaitOn {
            fds: [self.own_bell.raw_fd(), self.control.as_fd().as_raw_fd()],
            timeout_ns: None,
        })
    }

    fn finish_wait(&self, [has_rung, has_control]: [bool; 2], _now_ns: u64) {
        self.end.finish_sleep();
        if has_rung {
            self.own_bell.clear();
        }
        if has_control || self.end.is_engine_gone() {
            self.check_for_death();
        }
    }

    fn wake_waiters(&self) {
        self.own_bell.ring();
    }

    fn placement(&self) -> Placement {
        Placement::Instance
    }

    fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Acquire)
    }

    fn end_session(&self, _until_ns: u64) {
        if self.is_over.swap(true, Ordering::AcqRel) || self.is_dead() {
            return;
        }
        self.end.push(Command::EndSession);
        self.commands();
    }
}
