//! The table of options ([`OPTIONS`]) and everything that is generated from it.
//!
//! A value can come from four places; a later one wins: built-in default, configuration file
//! (`--config`, else `/etc/slipstack.toml`), environment (`SLIPSTACK_*`), command line. F-Stack's
//! adapter variables (`FF_*`) rank between the file and `SLIPSTACK_*`. The command line, the
//! configuration file, the environment and `docs/reference/options.md` all follow from the table.

mod addressing;
mod cidr;
mod declare;
mod error;
mod fstack;
pub mod ini;
mod interface;
mod kind;
mod layers;
mod nearest;
mod profile;
mod reference;
mod routing;
mod settings;
mod spread;
pub mod sysctl;
mod table;
mod tuning;
mod value;
mod vlan;

#[cfg(test)]
mod tests;

pub use cidr::Cidr;
pub use declare::{Change, OptionSpec, Reader, Scope};
pub use error::{ConfigError, Source};
pub use fstack::is_adapter;
pub use ini::FstackFile;
pub use interface::InterfaceSpec;
pub use kind::{CoreList, Kind, PortRange, parse_cores, parse_ports};
pub use layers::{Layers, SYSTEM_FILE};
pub use reference::{options_reference, sample_file};
pub use routing::{LOOPBACK, RouteSpec, RuleSpec, RuleTarget, parse_mark};
pub use settings::SLOTS_DEFAULT;
pub use slipstack_terms::{Congestion, EcnMode, LogLevel, Spin, SpreadRule};
pub use spread::SpreadRow;
pub use sysctl::{SysctlSetting, sysctl_reference};
pub use table::{OPTION, OPTIONS, Rows, Settings, find_option};
pub use vlan::VlanSpec;
