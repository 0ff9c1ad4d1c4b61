//! A setting of the machine: its place, and how it is read and written.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use serde::{Deserialize, Serialize};
use slipstack_device::ethtool::{Ethtool, Field};

use super::rss::Rss;

/// A place of one setting, as it is written down for `--undo`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Location {
    /// A file of /proc or /sys.
    File(PathBuf),
    /// A setting of the interface's driver.
    Driver(Field),
    /// Part of how the card spreads frames over its queues.
    Rss(Rss),
    /// A service of systemd: "active" or "inactive".
    Service(String),
}

impl Location {
    /// For people.
    pub fn name(&self) -> String {
        match self {
            Location::File(path) => path.display().to_string(),
            Location::Driver(field) => field.name().to_owned(),
            Location::Rss(part) => part.name().to_owned(),
            Location::Service(name) => format!("service {name}"),
        }
    }

    /// Returns the present value; `None` if this machine has no such setting.
    pub fn read(&self, interface: &str) -> Option<String> {
        match self {
            Location::File(path) => {
                let text = fs::read_to_string(path).ok()?;
                Some(text.trim().to_owned())
            }
            Location::Driver(field) => {
                let value = Ethtool::new().ok()?.read(interface, *field).ok()?;
                Some(value.to_string())
            }
            Location::Rss(part) => part.read(interface).ok(),
            Location::Service(name) => {
                let output = Command::new("systemctl")
                    .args(["is-active", name])
                    .output()
                    .ok()?;
                let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                matches!(text.as_str(), "active" | "inactive").then_some(text)
            }
        }
    }

    /// # Errors
    /// The kernel or systemd refuses.
    pub fn write(&self, interface: &str, value: &str) -> io::Result<()> {
        match self {
            Location::File(path) => fs::write(path, format!("{value}\n")),
            Location::Driver(field) => {
                let value = value.parse().map_err(io::Error::other)?;
                Ethtool::new()?.write(interface, *field, value)
            }
            Location::Rss(part) => part.write(interface, value),
            Location::Service(name) => {
                let verb = if value == "active" { "start" } else { "stop" };
                let status = Command::new("systemctl").args([verb, name]).status()?;
                match status.success() {
                    true => Ok(()),
                    false => Err(io::Error::other(format!(
                        "systemctl {verb} {name}: {status}"
                    ))),
                }
            }
        }
    }
}
