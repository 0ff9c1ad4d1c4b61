//! `libfstack`: Slipstack as a C library, with the functions of F-Stack's interface (`ff_*`).
//!
//! A program calls `ff_init`, makes sockets and passes its loop function to `ff_run`. Each function
//! is a call of [`slipstack_posix::Process`]; the parts that only C has (pointers, `errno`,
//! symbols) are in the `abi.rs` of the function's family. The headers are in `include/`.
//!
//! Sockets made here are only the stack's: the kernel's ports stay free for the program's own
//! sockets. Functions of this library take kernel descriptors too.

mod arguments;
mod call;
mod descriptors;
mod dispatcher;
mod freebsd;
mod host;
mod interfaces;
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
