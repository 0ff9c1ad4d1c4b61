//! Readiness: which objects are ready, their watchers, and the threads that wait.
//!
//! The layer lies below sockets. A socket notifies its [`Watch`]es of changes and knows nothing of
//! epoll, poll and kqueue; an engine's events reach it as a [`Recipient`]; threads sleep on
//! whatever is [`Awaited`].

mod answers;
mod batch;
mod credit;
mod lead;
mod look;
mod looks;
mod sleepers;
mod spin;
mod station;
mod waiter;
mod watch;

pub(crate) use look::{Ask, Look};
pub(crate) use looks::KernelLooks;
pub(crate) use sleepers::{Kept, NUDGED_SLEEP_NS, Sleeper, Sleepers};
pub(crate) use spin::{Spinner, Spinners};
pub(crate) use station::Station;
pub(crate) use waiter::{BLIND_SLEEP_NS, Rings, Waiter};
pub(crate) use watch::{Awaited, Recipient, Watch, Watcher, notify_all, notify_one_thread};

/// Epoll's bits as Linux's poll functions give them.
pub(crate) mod bits {
    pub(crate) const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
    pub(crate) const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
    pub(crate) const PRI: u32 = libc::EPOLLPRI as u32;
    pub(crate) const RDHUP: u32 = libc::EPOLLRDHUP as u32;
    pub(crate) const HUP: u32 = libc::EPOLLHUP as u32;
    pub(crate) const ERR: u32 = libc::EPOLLERR as u32;
}
