//! Lending within a process: the owner that lends connections, and the borrower.

mod answering;
mod borrow;
mod datagrams;
mod ended;
mod following;
mod forking;
mod helper;
mod left_behind;
mod lingering;
mod long_waits;
mod owner;
pub(crate) mod passing;
mod reading;
pub(crate) mod starting;
mod succeeding;
mod takeover;
mod taking;
pub(crate) mod word;

pub use ended::BorrowedEnd;
pub use forking::ForkLending;
pub use helper::HelperHandover;
pub use passing::{Passing, is_passed};
pub(crate) use reading::LentRead;
pub use starting::{LentToShell, SpawnLending};
pub use succeeding::{End, EndHandover};
