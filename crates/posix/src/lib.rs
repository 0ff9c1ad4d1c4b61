//! The program's side: what Linux's socket calls mean on the stack.
//!
//! [`Process`] is everything of one process. The preload layer asks [`Process::is_ours`] first (one
//! atomic load) and calls the method of the same name as the libc function; the answer is an
//! [`Outcome`]. No unsafe code, no statics; blocking goes through the [`Kernel`] that the preload
//! layer gives.
//!
//! A socket begins *undecided*: its number is a copy of an anchor, and options, flags and epoll
//! registrations are recorded. `bind` and `connect` decide (`place.rs`): a socket of the kernel's
//! takes the number over, or the stack carries it, or both do. Waiting is in `wait.rs`, sets are in
//! `epoll/`.

#![forbid(unsafe_code)]

mod absence;
pub mod addr;
mod alone;
mod ancillary;
mod batch;
mod calls;
mod carved;
mod cede;
mod chosen;
mod description;
mod engine_death;
mod epoll;
pub mod errno;
mod fork;
mod homes;
mod idhash;
mod idle;
mod in_place;
mod interfaces;
pub mod kernel;
pub mod kqueue;
mod lending;
mod link;
mod options;
pub mod outcome;
mod owner;
mod place;
mod policy;
mod poll;
pub mod process;
mod ready;
mod report;
mod reuse;
mod seen;
mod select;
mod sigio;
mod socket;
mod sole_waits;
mod spin;
mod stamping;
mod station;
mod strangers;
mod strict;
mod table;
mod verbosity;
mod wait;

pub use addr::AddrBytes;
pub use calls::Splice;
pub use carved::{CARVED_MAX, Carved};
pub use errno::Errno;
pub use in_place::Kept;
pub use interfaces::OwnAddress;
pub use kernel::{Interruptions, Kernel};
pub use lending::{Gift, Leaving, Passing, is_passed};
pub use options::SO_SETFIB;
pub use outcome::{Divert, Outcome};
pub use process::{Accepted, Exit, Process, Received, Settings};
pub use slipstack_channel::{Heuristics, LogLevel, Spin};
pub use slipstack_mem::OURS_USUALLY_FROM;
pub use slipstack_mem::thread::{own as own_threads, spawn_quiet};
