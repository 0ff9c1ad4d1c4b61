//! Users of a channel that run on the engine's own thread.
//!
//! A program in another thread or process learns of events by a doorbell. An [`Owner`] is called by
//! the engine itself, within the turn in which they happened, and its commands are carried out
//! before that turn's frames leave.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::engine_end::EngineEnd;
use crate::ids::SockId;
use crate::layout::REGION_BYTES;
use crate::outgoing::Outgoing;
use crate::program::ProgramEnd;

/// A datagram on arrival: its payload lies in the received frame.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub payload: &'a [u8],
}

/// A user of a channel that its engine calls.
pub trait Owner: Send {
    /// Takes the events that wait and sends commands. Called in each turn in which there are
    /// events, [`Owner::has_work`] or the deadline has come.
    fn run(&mut self, now_ns: u64);

    /// Handles a datagram while its frame is being received, without the socket's ring; `false`:
    /// it is to wait there. Afterwards [`Owner::has_work`] holds.
    fn on_datagram(&mut self, now_ns: u64, sock: SockId, arrived: &Arrived<'_>) -> bool {
        let _ = (now_ns, sock, arrived);
        false
    }

    /// Exchanges the responses of [`Owner::on_datagram`] for an empty list. Called after each
    /// [`Owner::run`], before the commands.
    fn take_outgoing(&mut self, empty: &mut Outgoing) {
        let _ = empty;
    }

    /// Returns whether there is work other than an event, such as a worker's result. Called in each
    /// turn and before the engine sleeps; later work has to ring the engine's doorbell.
    fn has_work(&self) -> bool;

    /// Time at which [`Owner::run`] is to be called although nothing comes.
    fn next_deadline_ns(&self) -> Option<u64>;
}

/// The engine's end of a channel together with its owner, ready to be attached to an engine.
///
/// Engine and owner run on one thread: while the owner runs, nothing else touches the rings.
pub struct Inside {
    end: EngineEnd,
    owner: Box<dyn Owner>,
}

impl Inside {
    /// Makes a channel. `make` gets the program's end of it and returns the owner.
    ///
    /// # Errors
    /// There is no memory for the channel.
    pub fn new<O: Owner + 'static>(make: impl FnOnce(ProgramEnd) -> O) -> io::Result<Inside> {
        Inside::of_length(REGION_BYTES, make)
    }

    /// As [`Inside::new`], with a region of `len` bytes (as [`EngineEnd::create_of`] clamps them).
    ///
    /// # Errors
    /// There is no memory for the channel.
    pub fn of_length<O: Owner + 'static>(
        len: usize,
        make: impl FnOnce(ProgramEnd) -> O,
    ) -> io::Result<Inside> {
        let end = EngineEnd::create_of(len)?;
        let program = ProgramEnd::open(end.region().clone())?;
        Ok(Inside {
            end,
            owner: Box::new(make(program)),
        })
    }

    /// The two parts, for the engine.
    pub fn into_parts(self) -> (EngineEnd, Box<dyn Owner>) {
        (self.end, self.owner)
    }
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inside").finish_non_exhaustive()
    }
}
