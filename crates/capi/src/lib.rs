//! `libfstack`: Slipstack as a C library, with the functions of F-Stack's interface (`ff_*`).
//!
//! A program calls `ff_init`, makes sockets and gives its work to `ff_run`. Each function is a call
//! of [`slipstack_posix::Process`]; what only C has (pointers, `errno`, symbols) is in the `abi.rs`
//! of the function's family. The headers are in `include/`.
//!
//! Sockets made here are the stack's alone: the program's own sockets keep the kernel's ports.
//! Functions of this library take the kernel's descriptors too.

mod arguments;
mod call;
mod descriptors;
mod dispatcher;
mod freebsd;
mod host;
mod io;
mod kernel;
mod kqueue;
mod life;
mod log;
mod network;
mod readiness;
mod run;
mod signals;
mod sockets;
mod thread;
mod traffic;
mod zero_copy;
