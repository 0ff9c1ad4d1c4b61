//! A setting of the machine: its place, and how it is read and written.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use serde::{Deserialize, Serialize};
use slipstack_device::ethtool::{Ethtool, Field};
use slipstack_device::iface::KernelInterface;

use super::machine;
use super::rss::Rss;

/// A place of one setting, as it is written down for `--undo`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Location {
    /// A file of the whole machine.
    File(PathBuf),
    /// A file in the interface's folder of /sys.
    Interface(String),
    /// Cores of an interrupt of the interface's card.
    Interrupt(u32),
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
            Location::Interface(file) => file.clone(),
            Location::Interrupt(number) => format!("interrupt {number}"),
            Location::Driver(field) => field.name().to_owned(),
            Location::Rss(part) => part.name().to_owned(),
            Location::Service(name) => format!("service {name}"),
        }
    }

    /// Returns whether the setting goes with the interface when that is deleted.
    pub fn is_of_interface(&self) -> bool {
        match self {
            Location::Interface(_)
            | Location::Interrupt(_)
            | Location::Driver(_)
            | Location::Rss(_) => true,
            Location::File(_) | Location::Service(_) => false,
        }
    }

    /// The file that holds the setting; `None` if /sys shows another network namespace.
    fn path(&self, interface: &KernelInterface) -> Option<PathBuf> {
        match self {
            Location::File(path) => Some(path.clone()),
            Location::Interface(file) => Some(machine::folder(interface)?.join(file)),
            Location::Interrupt(number) => Some(PathBuf::from(format!(
                "/proc/irq/{number}/smp_affinity_list"
            ))),
            Location::Driver(_) | Location::Rss(_) | Location::Service(_) => None,
        }
    }

    /// Returns the present value; `None` if this machine has no such setting.
    pub fn read(&self, interface: &KernelInterface) -> Option<String> {
        match self {
            Location::File(_) | Location::Interface(_) | Location::Interrupt(_) => {
                let text = fs::read_to_string(self.path(interface)?).ok()?;
                Some(text.trim().to_owned())
            }
            Location::Driver(field) => {
                let value = Ethtool::new().ok()?.read(&interface.name, *field).ok()?;
                Some(value.to_string())
            }
            Location::Rss(part) => part.read(&interface.name).ok(),
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
    pub fn write(&self, interface: &KernelInterface, value: &str) -> io::Result<()> {
        match self {
            Location::File(_) | Location::Interface(_) | Location::Interrupt(_) => {
                let path = self.path(interface).ok_or_else(|| {
                    io::Error::other("/sys shows another network namespace (ip netns exec)")
                })?;
                fs::write(path, format!("{value}\n"))
            }
            Location::Driver(field) => {
                let value = value.parse().map_err(io::Error::other)?;
                Ethtool::new()?.write(&interface.name, *field, value)
            }
            Location::Rss(part) => part.write(&interface.name, value),
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
