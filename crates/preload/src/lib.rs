//! `libslipstack.so`: the functions that an unmodified program reaches when it calls libc.
//!
//! The library interposes the functions in the table of [`symbols`]. A call that does not concern
//! us costs one atomic load and a jump into libc; the others become calls of
//! [`slipstack_posix::Process`]. Only the parts that need C are here: the table, arguments
//! (`slipstack-abi`), signals, forks, new programs and the end of the process.
//!
//! Our own code runs inside a guard ([`thread::InCall`]): signal handlers are deferred, calls of
//! libc are not interposed, memory comes from a heap of our own. A program without `SLIPSTACK_`
//! variables, or with raised privileges, is left alone; in a program without sockets only the table
//! is present.

mod call;
mod cancel;
mod cores;
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
mod namespace;
mod next;
mod privileges;
mod process;
mod programs;
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
