//! Load generators.

pub mod bench;
pub mod dns;
mod plot;
pub mod queries;
pub mod stress;

pub use plot::{Line, lines, scatter};
