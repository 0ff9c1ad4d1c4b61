//! `libslipstack.so`: what an unmodified program gets to when it calls libc.
//!
//! The library stands in for the functions of [`symbols`]' table. A call that does not
//! concern us costs one atomic load and a jump into libc; the others become calls of
//! [`slipstack_posix::Process`]. Here is only what needs C: the table, arguments
//! (`slipstack-abi`), signals, forks, new programs and the end of the process.
//!
//! Our own code runs inside a guard ([`thread::InCall`]): signal handlers are put off,
//! libc's functions are their plain selves, memory comes from a heap of our own.
//! A program without `SLIPSTACK_` variables, and one with raised privileges, is left
//! alone; one without sockets is not touched beyond the table.

mod call;
mod cancel;
mod descriptors;
pub mod exec;
mod heap;
mod interfaces;
mod io;
mod kernel;
mod kqueue;
mod life;
pub mod loading;
mod lock;
mod messages;
mod next;
mod privileges;
mod process;
mod readiness;
mod signals;
mod sockets;
mod start;
pub mod stdio;
pub mod symbols;
mod syscall;
mod terminals;
mod thread;

use slipstack_abi::{abi, raw};
