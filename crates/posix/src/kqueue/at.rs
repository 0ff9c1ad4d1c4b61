//! The kqueue of a change or a wait, with its process.

use std::sync::Arc;

use slipstack_mem::PrivateFd;

use crate::epoll::{Set, Target};
use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::kqueue::queue::Queue;
use crate::outcome::Outcome;

/// The process as its kqueues need it.
pub(crate) trait Host {
    fn kernel(&self) -> &dyn Kernel;

    /// Returns whether the number is one of ours.
    fn is_ours(&self, fd: i32) -> bool;

    /// Returns the socket or the set behind a number of ours.
    fn target(&self, fd: i32) -> Option<Target>;

    /// `epoll_ctl` on the set below a kqueue.
    fn set_ctl(
        &self,
        number: i32,
        operation: i32,
        fd: i32,
        event: Option<libc::epoll_event>,
    ) -> Outcome<()>;

    /// Returns the eventfd that watched signals ring, which the process has one of.
    fn signal_bell(&self) -> Result<&PrivateFd, Errno>;
}

/// A kqueue under one of its numbers.
#[derive(Clone, Copy)]
pub(crate) struct KqueueRef<'a> {
    pub(crate) host: &'a dyn Host,
    pub(crate) number: i32,
    pub(crate) set: &'a Arc<Set>,
    pub(crate) queue: &'a Queue,
}
