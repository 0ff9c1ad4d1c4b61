//! Checks of this machine before anything is changed.

use std::net::IpAddr;
use std::path::Path;

use rustix::fs::{Access, access};
use slipstack_config::Settings;
use slipstack_device::{DeviceError, iface};

use crate::failure::Failure;

const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_BPF: u32 = 39;

/// Refuses settings that cannot work on this machine. Opening a device can still fail; but anything
/// that can be checked without changes is reported here, in one sentence.
///
/// # Errors
/// Missing or down interface, address that the host has itself, missing TUN driver.
pub fn check(settings: &Settings) -> Result<(), Failure> {
    if !settings.instances.is_empty() {
        return Ok(());
    }
    let links = iface::links().map_err(|error| unreadable(&error))?;
    let kind = settings.device_kind();
    let is_shared = kind.is_none_or(|kind| kind.capabilities.takes_interface());
    if let Some(name) = settings.interface.as_ref().filter(|_| is_shared) {
        let Some(link) = links.iter().find(|link| &link.name == name) else {
            return Err(Failure::new(format!(
                "there is no network interface {name}"
            )));
        };
        if link.is_loopback {
            return Err(Failure::new(format!(
                "{name} is the loopback interface: the kernel keeps it"
            )));
        }
        if !link.is_up {
            return Err(Failure::new(format!(
                "interface {name} is down: `ip link set {name} up` first"
            )));
        }
    } else if settings.makes_interface() && !Path::new("/dev/net/tun").exists() {
        return Err(Failure::new(
            "/dev/net/tun is missing: load the tun module, or name an interface with --if",
        ));
    }
    // With --kni the kernel is to have them; a running stack has been checked before.
    let runs = || slipstack_attach::admin::control_sockets(settings).is_ok_and(|it| !it.is_empty());
    if settings.kni.is_none() && !runs() {
        for wanted in &settings.addresses {
            check_address(wanted.address, &links)?;
        }
    }
    settings.pcap.as_deref().map_or(Ok(()), check_capture)
}

/// A capture that cannot be written must not cause a program's sockets to fall back to the kernel.
fn check_capture(file: &Path) -> Result<(), Failure> {
    let folder = file.parent().unwrap_or(file);
    if !folder.is_dir() {
        return Err(Failure::new(format!(
            "--pcap {}: there is no directory {}",
            file.display(),
            folder.display()
        )));
    }
    access(folder, Access::WRITE_OK).map_err(|error| {
        Failure::new(format!(
            "--pcap {}: {} cannot be written to: {error}",
            file.display(),
            folder.display()
        ))
    })
}

fn check_address(wanted: IpAddr, links: &[iface::KernelInterface]) -> Result<(), Failure> {
    let addresses = iface::addresses().map_err(|error| unreadable(&error))?;
    let Some(taken) = addresses.iter().find(|found| found.ip == wanted) else {
        return Ok(());
    };
    let link = links
        .iter()
        .find(|link| link.index == taken.index)
        .map_or("another interface", |link| &link.name);
    Err(Failure::new(format!(
        "address {wanted} is in use: the host has it on {link}; the stack needs one of its own"
    )))
}

/// The sentence for a process that may not open devices; None if it may. A program that joins a
/// running keeper or instance needs no privilege, so this explains a failure, it does not cause
/// one.
pub fn missing_privilege(settings: &Settings) -> Option<Failure> {
    let held = effective_capabilities();
    let has = |bit: u32| held >> bit & 1 == 1;
    let mut missing = Vec::new();
    if !has(CAP_NET_ADMIN) {
        missing.push("CAP_NET_ADMIN");
    }
    if settings.interface.is_some() && !has(CAP_NET_RAW) {
        missing.push("CAP_NET_RAW");
    }
    if !has(CAP_BPF) && !has(CAP_SYS_ADMIN) {
        missing.push("CAP_BPF");
    }
    let is_owner = settings.instances.is_empty() && !missing.is_empty();
    is_owner.then(|| {
        Failure::new(format!(
            "opening the device needs {}: run as root, or join a running instance with --instance",
            missing.join(", ")
        ))
    })
}

fn effective_capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn unreadable(error: &DeviceError) -> Failure {
    Failure::new(format!("the network interfaces cannot be listed: {error}"))
}
