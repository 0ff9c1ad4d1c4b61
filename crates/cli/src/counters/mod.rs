//! Counters of engines: `slipstack nstat`, `top`, `traffic` and the interfaces of `netstat`.

pub mod bsd;
pub mod engines;
mod history;
pub mod interfaces;
mod linux;
pub mod locality;
mod meter;
pub mod nstat;
mod pattern;
pub mod top;
pub mod traffic;

use clap::Command;

pub use interfaces::{Counted, of_interfaces};
pub use meter::seconds;

/// The commands that show the counters of engines.
pub fn commands() -> [Command; 4] {
    [
        locality::command(),
        nstat::command(),
        top::command(),
        traffic::command(),
    ]
}
