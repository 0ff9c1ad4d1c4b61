//! One table of options ([`OPTIONS`]) and everything that follows from it.
//!
//! A value can come from four places; a later one wins: built-in default, configuration file
//! (`--config`, else `/etc/slipstack.toml`), environment (`SLIPSTACK_*`), command line. F-Stack's
//! adapter variables (`FF_*`) rank between the file and `SLIPSTACK_*`. The command line, the
//! configuration file, the environment and `docs/reference/options.md` are all read off the table.

mod fstack;
mod kind;
mod layers;
mod reference;
mod routing;
mod settings;
mod table;

#[cfg(test)]
mod tests;

pub use kind::{Cidr, CoreList, Kind, Spin, parse_cores};
pub use layers::{ConfigError, Layers, SYSTEM_FILE, Source};
pub use reference::{options_reference, sample_file};
pub use routing::{RouteSpec, RuleSpec};
pub use settings::{Congestion, Ecn, Log, Settings};
pub use table::{OPTIONS, OptionSpec, Scope, find_option};
