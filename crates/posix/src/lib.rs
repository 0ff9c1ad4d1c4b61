//! The program's side: Linux's socket calls, implemented on the stack.
//!
//! [`Process`] holds everything of one process. The preload layer asks [`Process::is_ours`] first
//! (one atomic load) and calls the method of the same name as the libc function; the result is an
//! [`Outcome`]. There is no unsafe code and there are no statics; blocking goes through the
//! [`Kernel`] that the preload layer provides.
//!
//! A socket begins *undecided*: its number is a copy of an anchor, and options, flags and epoll
//! registrations are recorded. `bind` and `connect` decide (`process/place.rs`): a kernel socket
//! takes the number over, or the stack serves it, or both do. Waiting is in `process/wait`, sets
//! are in `epoll`.
//!
//! The modules from the bottom up, each of which uses only those before it: `errno`, `addr`,
//! `kernel`, `outcome`; `ready`; `attachment`; `socket`; `epoll`, `poll` and `kqueue`; `lending`;
//! `process`; `calls`.

#![forbid(unsafe_code)]

pub mod addr;
mod attachment;
mod calls;
mod epoll;
pub mod errno;
mod idhash;
mod interfaces;
pub mod kernel;
pub mod kqueue;
mod lending;
pub mod outcome;
mod poll;
pub mod process;
mod ready;
mod socket;

pub use addr::AddrBytes;
pub use calls::{CARVED_MAX, Carved, Give, Kept, Splice, Take};
pub use errno::Errno;
pub use interfaces::OwnAddress;
pub use kernel::{Interruptions, Kernel, Owner, OwnerKind};
pub use outcome::{Divert, Outcome};
pub use process::lending::{
    BorrowedEnd, End, EndHandover, ForkLending, HelperHandover, LentToShell, Passing, SpawnLending,
    is_passed,
};
pub use process::{Accepted, Process, Received, Settings};
pub use slipstack_channel::{Heuristics, LogLevel, Spin};
pub use slipstack_mem::thread::{
    at_begin as at_begin_of_threads, await_begun as await_begun_threads,
    await_settled as await_settled_threads, own as own_threads, spawn_quiet,
};
pub use slipstack_mem::{Descriptor, OURS_USUALLY_FROM, is_parents, is_private};
pub use socket::options::SO_SETFIB;
