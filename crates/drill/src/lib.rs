//! Scripts of packets and socket calls, run on the stack in virtual time.
//!
//! A [`World`](world::World) is one process of the program's side (`posix`) on one engine whose
//! device is a pair of queues and whose clock only moves when it is told to: no root, no network,
//! no sleep. Two things drive it:
//!
//! * `run` reads scripts in packetdrill's language (`script`) and executes them; `make test` runs
//!   those of `tests/packetdrill` this way, without packetdrill.
//! * the `packetdrill` crate exports `packetdrill_interface_init`, so that packetdrill itself can
//!   run scripts written for Linux or FreeBSD against it (`--so_filename`).

#![forbid(unsafe_code)]

pub mod packet;
pub mod run;
pub mod script;
mod sleep;
mod wire;
pub mod world;
