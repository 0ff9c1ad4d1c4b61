//! The network of a stack as one value: interfaces with their addresses, routes, rules, neighbours,
//! configuration learnt from routers, and a revision ([`NetworkState`]).
//!
//! Options build it, a [`Change`] derives the next value from it, the keeper publishes it, every
//! stack applies it whole, and programs place their sockets by it. No other type describes the
//! network.
#![no_std]
#![forbid(unsafe_code)]

#[cfg_attr(test, macro_use)]
extern crate alloc;

mod change;
mod difference;
mod numbers;
mod refused;
mod rule;
mod share;
mod state;

pub use change::{Change, ChangeError, Mode, RouteKey};
pub use refused::Refused;
pub use rule::{RuleAction, RuleEntry, RuleInput, RuleQuery};
pub use share::KernelShare;
pub use slipstack_terms::{Listed, ShareAction};
pub use state::{
    Interface, MAIN_TABLE, NeighbourEntry, NetworkState, RouteEntry, STANDARD_TABLES, contains,
};
