//! The keeper: one process per device and network namespace, off the data path.
//!
//! The keeper opens the device with all its slots and never closes one; engines lease slots, blocks
//! of outgoing ports and listening ports ([`leases`]). It answers ARP and ICMP ([`net`]), completes
//! the connections of programs that have ended, resets those of programs that died, and reports its
//! clients. A standby holds the same resources and takes over when the keeper is killed
//! ([`standby`], [`journal`]).

mod autoconf;
mod claims;
mod conflict;
mod device_state;
mod directory;
mod error;
mod interfaces;
mod journal;
mod kernel_flows;
pub mod leases;
mod limits;
mod local_ports;
pub mod log;
mod maps;
mod neighbours;
mod net;
mod network;
mod notices;
mod orphans;
mod pair;
mod port_bits;
pub mod process;
mod random;
mod regions;
mod resources;
mod routes;
mod run;
pub mod runtime;
mod server;
mod slots;
mod standby;
mod steer;

pub use claims::find_remaining;
pub use error::KeeperError;
pub use leases::{ports_beside, system_ports};
pub use limits::LimitTable;
pub use neighbours::Neighbours;
pub use regions::{Inboxes, SLOTS_MAX, SlotWords};
pub use resources::{DeviceChoice, Options};
pub use run::run;
pub use steer::Spread;
