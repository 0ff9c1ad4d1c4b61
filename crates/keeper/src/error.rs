//! Reasons why a keeper could not start, one sentence each.

use std::fmt;
use std::io;
use std::net::IpAddr;

use slipstack_device::DeviceError;

use slipstack_mem::process::{explained, open_file_limit};

use crate::claims::Remaining;
use crate::runtime::RuntimeError;

#[derive(Debug)]
pub enum KeeperError {
    /// Another keeper holds this device.
    AlreadyRunning {
        interface: String,
    },
    /// The keeper and its standby were killed, and engines run on.
    Orphaned {
        interface: String,
        programs: Vec<Remaining>,
    },
    Runtime(RuntimeError),
    Device(DeviceError),
    /// Another station on the link has the address.
    AddressTaken {
        address: IpAddr,
        mac: [u8; 6],
        interface: String,
    },
    /// Every link-local address that was tried belongs to another station.
    NoLinkLocal {
        interface: String,
    },
    /// A configured route cannot work.
    Route {
        route: String,
        why: String,
    },
    /// A rule names an interface that the stack does not have.
    Rule {
        priority: u32,
    },
    /// A further interface cannot have an address.
    Port {
        interface: String,
        address: String,
        why: String,
    },
    /// A VLAN cannot be made.
    Vlan {
        vlan: u16,
        why: String,
    },
    /// Packets for others cannot be passed on.
    Forwarding {
        interface: String,
        why: String,
    },
    /// An existing interface needs an address for the stack.
    NoAddress {
        interface: String,
    },
    /// Devices of this kind are interfaces that exist.
    NoInterface {
        kind: &'static str,
    },
    TooManySlots {
        wanted: u16,
        max: u16,
    },
    /// None would be left for the programs.
    FewDescriptors {
        slots: u16,
        needed: u64,
    },
    Io {
        doing: &'static str,
        error: io::Error,
    },
}

impl fmt::Display for KeeperError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeeperError::AlreadyRunning { interface } => {
                write!(f, "another keeper holds {interface} already")
            }
            KeeperError::Orphaned {
                interface,
                programs,
            } => write_orphaned(f, interface, programs),
            KeeperError::Runtime(error) => error.fmt(f),
            KeeperError::Device(error) => error.fmt(f),
            KeeperError::AddressTaken {
                address,
                mac: [a, b, c, d, e, g],
                interface,
            } => write!(
                f,
                "{address} is in use on {interface} by \
                 {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}; choose another address with --ip"
            ),
            KeeperError::NoLinkLocal { interface } => write!(
                f,
                "other stations claim each link-local address tried on {interface}; use --ip \
                    without --slaac"
            ),
            KeeperError::Route { route, why } => write!(f, "--route {route}: {why}"),
            KeeperError::Rule { priority } => write!(
                f,
                "--rule with priority={priority}: iif= or oif= is no interface of the stack"
            ),
            KeeperError::Port {
                interface,
                address,
                why,
            } => write!(f, "--if {interface} --ip {address}: {why}"),
            KeeperError::Vlan { vlan, why } => write!(f, "--vlan {vlan}: {why}"),
            KeeperError::Forwarding { interface, why } => write!(
                f,
                "--forward needs {interface} for itself: {why}; give the stack an interface of its \
                 own"
            ),
            KeeperError::NoAddress { interface } => {
                write!(
                    f,
                    "the stack needs an address on {interface}: add --ip ADDRESS/LENGTH"
                )
            }
            KeeperError::NoInterface { kind } => write!(
                f,
                "a device of kind \"{kind}\" is an interface that exists: name it with --if"
            ),
            KeeperError::TooManySlots { wanted, max } => {
                write!(f, "{wanted} slots are too many; --slots takes 1 to {max}")
            }
            KeeperError::FewDescriptors { slots, needed } => write!(
                f,
                "a keeper of {slots} slots needs {needed} descriptors, and {}",
                open_file_limit()
            ),
            KeeperError::Io { doing, error } => write!(f, "cannot {doing}: {}", explained(error)),
        }
    }
}

/// Writes which programs run on, and how to end them.
fn write_orphaned(
    f: &mut fmt::Formatter<'_>,
    interface: &str,
    programs: &[Remaining],
) -> fmt::Result {
    write!(
        f,
        "{interface} has no keeper: it and its standby were killed while "
    )?;
    if programs.is_empty() {
        return write!(
            f,
            "programs ran that cannot be seen from here, and another would reset their \
             connections; end them, then start again"
        );
    }
    let names = programs
        .iter()
        .map(|it| format!("{} (pid {})", it.program, it.pid));
    let pids = programs.iter().map(|it| it.pid.to_string());
    write!(
        f,
        "{} ran on, and another would reset their connections; end them (kill {}), then start \
         again",
        names.collect::<Vec<_>>().join(", "),
        pids.collect::<Vec<_>>().join(" ")
    )
}

impl std::error::Error for KeeperError {}

impl From<RuntimeError> for KeeperError {
    fn from(error: RuntimeError) -> KeeperError {
        KeeperError::Runtime(error)
    }
}

impl From<DeviceError> for KeeperError {
    fn from(error: DeviceError) -> KeeperError {
        KeeperError::Device(error)
    }
}

impl KeeperError {
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> KeeperError {
        move |error| KeeperError::Io { doing, error }
    }
}
