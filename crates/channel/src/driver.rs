//! The trait that differs between the two placements: it runs the engine, or waits for it.

use std::any::Any;
use std::os::fd::RawFd;

use crate::ids::SockId;

/// The result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnOutcome {
    /// Something was done: events may have come.
    Progress,
    Idle,
    /// Another thread owns the engine at this moment.
    Busy,
}

/// Placement of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In this process; the thread that waits drives it.
    InProcess,
    /// In an instance.
    Instance,
}

/// The descriptors and the time that a blocking thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitOn {
    /// Descriptors to poll for reading; −1 = none.
    pub fds: [RawFd; 2],
    /// Longest sleep until the engine needs a turn.
    pub timeout_ns: Option<u64>,
}

impl WaitOn {
    /// Nothing will come.
    pub const NOTHING: WaitOn = WaitOn {
        fds: [-1, -1],
        timeout_ns: None,
    };
}

/// Ends the session of an engine without use. Returns what is left to do once the engine is closed.
pub type OnUnused = Box<dyn Fn() -> Option<Closed> + Send + Sync>;

/// Called once an engine is closed.
pub type Closed = Box<dyn FnOnce() + Send>;

/// An attached engine as the program's side sees it.
pub trait Driver: Send + Sync {
    /// Lets the engine work: in-process runs one turn (RX burst, commands, timers, flush) if no
    /// other thread does; remote looks whether events have come.
    /// `now_ns`: the clock as the caller has just read it.
    fn turn(&self, now_ns: u64) -> TurnOutcome;

    /// Carries out pushed commands, at once or, if another thread owns the engine, when that thread
    /// releases it: in-process runs only commands and the flush; remote rings the engine's doorbell
    /// if it sleeps. Cheap when there is nothing.
    fn commands(&self);

    /// Sees to it that something that was pushed, and is held for more to follow, leaves soon also
    /// if the program does not come back: who carries it out then is awake, or it leaves now.
    fn note_held(&self) {
        self.commands();
    }

    /// Returns whether spinning is useful: not when it keeps the engine from the processor.
    fn may_spin(&self) -> bool {
        true
    }

    /// Returns whether a thread that would rather find several frames had better sleep a moment
    /// before it looks.
    fn would_nap(&self) -> bool {
        false
    }

    /// Returns whether a stand-in drives the engine while no thread of the program does.
    fn has_stand_in(&self) -> bool {
        true
    }

    /// Sets the function that the stand-in calls after a turn with events that no thread of the
    /// program has seen. Set once.
    fn set_on_unseen_events(&self, _call: Box<dyn Fn() + Send + Sync>) {}

    /// Sets the function that the stand-in calls, on its own thread, now and then while no thread
    /// of the program drives the engine: it may end the session. Set once.
    fn set_on_unused(&self, _call: OnUnused) {}

    /// Returns whether the engine has no sockets and no connections, except those in TIME-WAIT,
    /// which the keeper takes over.
    fn has_nothing_left(&self) -> bool {
        false
    }

    /// Arms the wake-ups before blocking. Returns `None` if there is an event already: do not
    /// sleep. Every `Some` is followed by one [`Driver::finish_wait`]. A nap of up to `nap_ns_max`
    /// is allowed; 0 = none. `now_ns`: the clock when the caller last read it.
    fn prepare_wait(&self, now_ns: u64, nap_ns_max: u64) -> Option<WaitOn>;

    /// After blocking: which descriptors of [`WaitOn`] were found readable, and the clock then.
    fn finish_wait(&self, ready: [bool; 2], now_ns: u64);

    /// Moves a connection to another engine of this process, as a socket that was opened there.
    /// Returns false if it stays: it is ending, sent data has not been acknowledged, or there is no
    /// room for it.
    fn carry_to(&self, _sock: SockId, _to: &dyn Driver, _as_sock: SockId) -> bool {
        false
    }

    /// Removes a connection for an engine of another process: the bytes are input of
    /// [`Driver::carry_in`] there. Its frames wait until [`Driver::carried`] names its new place,
    /// or it comes back.
    ///
    /// Returns `None` if it stays where it is, as it does if a thread has written bytes behind
    /// `upto`: the other process has a copy of those before.
    fn carry_out(&self, _sock: SockId, _upto: u64) -> Option<Vec<u8>> {
        None
    }

    /// Takes a connection in from another process, as a socket that was opened here or that it has
    /// left. The program has put the sent bytes that were not acknowledged into the new socket's
    /// send ring.
    ///
    /// `false`: there is no place for it, or these are no connection's bytes.
    fn carry_in(&self, _sock: SockId, _connection: &[u8]) -> bool {
        false
    }

    /// Tells that the connection of [`Driver::carry_out`] is on the engine of this slot now.
    fn carried(&self, _connection: &[u8], _slot: u16) {}

    /// The device's slot that the engine has.
    fn slot(&self) -> Option<u16> {
        None
    }

    /// For [`Driver::carry_to`]: the other engine, if it is of a kind that takes connections.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }

    /// Wakes the threads that block on the descriptors of `prepare_wait`.
    fn wake_waiters(&self);

    fn placement(&self) -> Placement;

    /// Returns whether the engine is gone for good; sockets then fail with
    /// [`crate::Reason::NetDown`]. Not after [`Driver::end_session`]: other threads of a process
    /// that ends get no further event.
    fn is_dead(&self) -> bool;

    /// Ends the use of the engine because the process ends or is replaced: in-process hands the
    /// connections to the keeper, after frames that wait for a neighbour have left, or it is
    /// `until_ns`; remote informs the instance. No other method may be called afterwards.
    fn end_session(&self, until_ns: u64);
}
