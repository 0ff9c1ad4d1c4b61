//! Lending within a process: the owner that lends connections, and the borrower.

mod answering;
mod borrow;
mod datagrams;
mod ended;
mod forking;
mod helper;
mod homing;
mod lingering;
mod owner;
mod passing;
mod starting;
mod succeeding;
mod taking;

pub use helper::Leaving;
pub use passing::{Passing, is_passed};
pub use starting::Gift;
pub(crate) use starting::Ways;
pub use succeeding::Succession;
