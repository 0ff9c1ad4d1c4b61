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

/// Where the engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In this process; whoever waits drives it.
    InProcess,
    /// In an instance.
    Instance,
}

/// How a process ends or gives its engine up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// In order: what was sent is still delivered.
    Orderly,
    /// The program image is replaced.
    Exec,
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

/// An attached engine as the program's side sees it.
pub trait Driver: Send + Sync {
    /// Lets the engine work: in-process runs one turn (RX burst, commands, timers, flush) if no
    /// other thread does; remote looks whether events have come.
    fn turn(&self) -> TurnOutcome;

    /// Lets what was pushed take effect, at once or, if another thread owns the engine, as soon as
    /// that one lets go of it: in-process runs only commands and the flush; remote rings the
    /// engine's doorbell if it sleeps. Cheap when there is nothing.
    fn commands(&self);

    /// Returns whether spinning can bring anything: not when it keeps the engine from the
    /// processor.
    fn may_spin(&self) -> bool {
        true
    }

    /// Returns whether a thread that would rather find several frames had better sleep a moment
    /// before it looks.
    fn would_nap(&self) -> bool {
        false
    }

    /// Returns whether somebody drives the engine while no thread of the program does.
    fn has_stand_in(&self) -> bool {
        true
    }

    /// Sets the call that the stand-in makes after it brought events that no thread of the program
    /// knows of. Set once.
    fn set_relief(&self, _call: Box<dyn Fn() + Send + Sync>) {}

    /// Returns whether another thread owns the engine, and keeps it for some microseconds:
    /// [`Driver::prepare_wait`] would wait for it.
    fn is_busy(&self) -> bool {
        false
    }

    /// Before blocking: arms the wake-ups. `None` = something came meanwhile, do not sleep.
    /// Every `Some` is followed by one [`Driver::finish_wait`]. Frames may wait for others for
    /// `nap_ns_max`; 0 = not at all.
    fn prepare_wait(&self, nap_ns_max: u64) -> Option<WaitOn>;

    /// After blocking: which descriptors of [`WaitOn`] were found readable.
    fn finish_wait(&self, ready: [bool; 2]);

    /// Moves a connection to another engine of this process, as a socket that was opened there.
    /// Returns false if it stays: it is at its end, something of what was sent has not been
    /// acknowledged, or there is no place for it.
    fn carry_to(&self, _sock: SockId, _to: &dyn Driver, _as_sock: SockId) -> bool {
        false
    }

    /// Takes a connection that nobody has used out, for an engine of another process: the bytes are
    /// what [`Driver::carry_in`] takes there. Its frames wait until [`Driver::carried`] tells where
    /// it is, or it comes back.
    ///
    /// `None`: it stays where it is.
    fn carry_out(&self, _sock: SockId) -> Option<Vec<u8>> {
        None
    }

    /// Takes a connection in from another process, as a socket that was opened here or that it has
    /// left.
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

    /// Wakes the threads that block in what `prepare_wait` gave them.
    fn wake_waiters(&self);

    fn placement(&self) -> Placement;

    /// The engine is gone for good; sockets answer with [`crate::Reason::NetDown`]. Not after
    /// [`Driver::goodbye`]: other threads of a process that ends hear nothing more.
    fn is_dead(&self) -> bool;

    /// The process ends or is replaced: in-process hands the connections to the keeper; remote
    /// tells the instance. Nothing may be asked afterwards.
    fn goodbye(&self, why: Exit);

    /// Descriptors that the program must not close.
    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }
}
