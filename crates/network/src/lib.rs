//! The network of a stack as one value: interfaces with their addresses, routes, rules, neighbours,
//! what routers have told, and a revision ([`NetworkState`]).
//!
//! Options build it, a [`Change`] makes another of it, the keeper publishes it, every stack goes by
//! it whole, and programs are told of it. No other type says what the network is.
#![no_std]
#![forbid(unsafe_code)]

#[cfg_attr(test, macro_use)]
extern crate alloc;

mod change;
mod difference;
mod refused;
mod share;
mod state;

pub use change::{Change, ChangeError, Mode, RouteKey};
pub use refused::Refused;
pub use share::{KernelShare, Listed, ShareAction};
pub use state::{
    Interface, MAIN_TABLE, NeighbourEntry, NetworkState, RouteEntry, RuleEntry, contains,
};
