//! Simulated worlds: several stacks on an emulated link, in virtual time.
//!
//! A world is a function of its seed: the same seed gives the same run, frame by frame. Checkers
//! watch while it runs (every byte once and in order, nothing after close, acknowledged data was
//! received, every received frame is accepted or dropped for a counted reason, no segment beyond
//! window, FIN or abort) and when it has come to rest (nothing left over). A seed that fails is run
//! again with a recorder, which writes a pcap. `tests/checkers.rs` and `tests/machines.rs` make
//! each of them fail.

pub mod balance;
pub mod checks;
pub mod crowd;
pub mod flows;
pub mod forge;
pub mod gso;
pub mod host;
pub mod link;
pub mod machine;
mod moving_connection;
mod nat;
pub mod network;
pub mod pcap;
pub mod program;
mod running;
pub mod scenario;
mod schedule;
mod second_port;
pub mod streams;
pub mod vlan;
mod watch;
pub mod world;
pub mod worlds;

pub use link::LinkParams;
pub use scenario::{Options, Report, run_seed};
pub use world::{Failure, World};
