//! The machine's network interfaces, for files that count ports.

use std::path::PathBuf;

/// Finds interfaces by name, PCI address or number.
pub trait Interfaces {
    /// Names of the Ethernet interfaces of this network namespace, those of devices first, in the
    /// order of their PCI addresses.
    fn ethernet(&self) -> Vec<String>;

    /// Returns the interface of the device with this PCI address.
    fn by_pci(&self, address: &str) -> Option<String>;
}

/// The machine that this process runs on.
#[derive(Clone, Copy, Debug)]
pub struct Machine;

impl Interfaces for Machine {
    fn ethernet(&self) -> Vec<String> {
        // /proc shows the interfaces of the process's namespace, /sys those of the mounting
        // process.
        let table = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
        let names = table
            .lines()
            .skip(2)
            .filter_map(|line| line.split_once(':'));
        let names = names.map(|(name, _)| name.trim().to_owned());
        let mut found: Vec<(bool, PathBuf, String)> = names
            .filter(|name| is_ethernet(name))
            .map(|name| {
                let device = std::fs::read_link(entry(&name).join("device")).ok();
                (device.is_none(), device.unwrap_or_default(), name)
            })
            .collect();
        found.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        found.into_iter().map(|(_, _, name)| name).collect()
    }

    fn by_pci(&self, address: &str) -> Option<String> {
        let whole = match address.matches(':').count() {
            1 => format!("0000:{address}"),
            _ => address.to_owned(),
        };
        let folder = PathBuf::from("/sys/bus/pci/devices")
            .join(whole)
            .join("net");
        let first = std::fs::read_dir(folder).ok()?.next()?.ok()?;
        first.file_name().into_string().ok()
    }
}

fn entry(name: &str) -> PathBuf {
    PathBuf::from("/sys/class/net").join(name)
}

/// Returns whether the interface is Ethernet: no loopback, tunnel, bridge or TAP.
fn is_ethernet(name: &str) -> bool {
    const ARPHRD_ETHER: &str = "1";
    let entry = entry(name);
    let has = |file: &str| entry.join(file).exists();
    match std::fs::read_to_string(entry.join("type")) {
        Ok(kind) => kind.trim() == ARPHRD_ETHER && !has("bridge") && !has("tun_flags"),
        Err(_) => name != "lo",
    }
}
