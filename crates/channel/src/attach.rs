//! The trait by which the program's side gets an engine, whatever the placement.

use core::fmt;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::control::{LeftFile, PassedOn};
use crate::driver::Driver;
use crate::policy::Policy;
use crate::program::ProgramEnd;
use crate::report::Why;
use slipstack_terms::Transport;

/// An engine and the channel to it.
pub struct EngineHandle {
    pub program: ProgramEnd,
    pub driver: Arc<dyn Driver>,
    /// One line for the user that describes the attachment.
    pub describe: String,
    /// The processor for the thread that drives the engine, if the user has named several.
    pub core: Option<usize>,
}

impl fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineHandle")
            .field("describe", &self.describe)
            .finish_non_exhaustive()
    }
}

/// Reason why no engine could be had: one sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachError {
    pub sentence: String,
    /// The reason as `slipstack why` reports it.
    pub why: Why,
    /// The engine belongs to an instance that is down but may restart.
    pub may_pass: bool,
    /// Another process that was forked from the same program has the same sentence.
    pub is_known: bool,
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for AttachError {}

/// The answer about a connection of a killed process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftBehind {
    /// No connection that this process may have.
    Nothing,
    /// The connection of a process that has not been found dead yet.
    NotYet,
    /// No answer: this process could not ask, as it has no descriptors left, perhaps.
    Unasked,
    /// The connection, without bytes if the question was whether it is there.
    Here(Box<LeftFile>),
}

/// Access to an engine. Does nothing until [`Attach::attach`] is called.
pub trait Attach: Send + Sync {
    /// One more engine for this process. `thread`: the kernel's id of the thread that it is for.
    fn attach(&self, thread: u32) -> Result<EngineHandle, AttachError>;

    /// One more engine for this process, beside those that it has: for a thread of its own.
    ///
    /// # Errors
    /// There may be no more.
    fn attach_another(&self, _thread: u32) -> Result<EngineHandle, AttachError> {
        Err(AttachError {
            sentence: "there is one engine for all threads".to_owned(),
            why: Why::NoStack,
            may_pass: false,
            is_known: false,
        })
    }

    /// The process has given the engine of this slot back, one of [`Attach::attach_another`].
    fn on_given_back(&self, _slot: u16) {}

    /// Number of engines that the threads of this process may have together.
    fn engines_max(&self) -> usize {
        1
    }

    /// Number of engines that threads share, if each waits for one connection and there are more of
    /// them than engines.
    fn engines_shared(&self) -> usize {
        self.engines_max()
    }

    /// Returns whether each thread has an engine from its first connection on, not only where it
    /// pays.
    fn is_engine_each(&self) -> bool {
        false
    }

    /// Returns the policy. May have to ask the keeper, once.
    fn policy(&self) -> Result<Policy, AttachError>;

    /// Returns whether connections of programs that have ended, or the TIME-WAIT of some, have this
    /// local port. May have to ask the keeper.
    fn is_port_used(&self, _local: SocketAddr, _is_v6_only: bool) -> bool {
        false
    }

    /// Returns whether a program has bound this port that uses the instance which this process
    /// uses first.
    fn is_port_of_instance(&self, _transport: Transport, _port: u16) -> bool {
        false
    }

    /// Returns the current policy, if it may have changed.
    ///
    /// # Errors
    /// Neither keeper nor instance can be reached now.
    fn policy_by_now(&self) -> Result<Policy, AttachError> {
        self.policy()
    }

    /// Takes the connection with these ends whose process, with that secret of its heirs, was
    /// killed while this one might use it, or asks whether it is there if `unread` is none: the
    /// bytes that this one has not read.
    fn take_left(
        &self,
        _ends: (SocketAddr, SocketAddr),
        _heirs: u64,
        _has: PassedOn,
        _unread: Option<&[u8]>,
    ) -> LeftBehind {
        LeftBehind::Nothing
    }

    /// In a forked child: the parent's attachments are not ours; forget them without touching
    /// them, so that `attach` starts again.
    fn after_fork_child(&self);

    /// Returns whether other processes of the program may use engines of other instances, with
    /// which they share ports.
    fn is_spread(&self) -> bool {
        false
    }

    /// Returns a secret by which programs that have connections of this process go on with them if
    /// it is killed.
    fn heirs(&self) -> u64 {
        0
    }

    /// Returns a secret that names the processes with which this one shares ports: it goes to
    /// programs that inherit its listeners.
    fn family(&self) -> u64 {
        0
    }

    /// Notes that the calling process has inherited listeners of that family.
    fn join(&self, family: u64) {
        let _ = family;
    }

    /// Passes on the region in which this process describes its sockets, for `slipstack why`.
    fn report(&self, region: BorrowedFd<'_>) {
        let _ = region;
    }
}
