//! Zone transfers, outgoing and incoming.

mod incoming;
mod outgoing;
#[cfg(test)]
mod tests;

pub use incoming::{Incoming, Progress};
pub use outgoing::{Outgoing, is_newer};
