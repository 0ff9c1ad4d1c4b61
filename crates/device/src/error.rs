//! Errors of opening or changing a device, each with a sentence for the user.

use core::fmt;
use std::io;

use slipstack_mem::process::explained;

/// Errors at the border to the kernel. [`fmt::Display`] is the sentence to print.
#[derive(Debug)]
pub enum DeviceError {
    /// No interface of this name in this network namespace.
    NoSuchInterface(String),
    /// A name that the kernel would not take.
    BadInterfaceName(String),
    /// The interface exists but is not up.
    InterfaceDown(String),
    /// Only Ethernet-like interfaces carry our frames.
    NotEthernet(String),
    /// A capability is missing for `doing`.
    MissingCapability {
        capability: &'static str,
        doing: &'static str,
    },
    /// `/dev/net/tun` is not there.
    NoTunDevice,
    /// The TAP exists and is held by another process, or has other flags.
    TapBusy(String),
    /// An eBPF program was refused; the log is the verifier's.
    Verifier {
        program: &'static str,
        source: io::Error,
        log: String,
    },
    /// More slots, ports, addresses or groups than the tables hold.
    OutOfRange { what: &'static str, value: usize },
    /// A write through a handle that is for reading.
    ReadOnly,
    /// Descriptors, ring parameters or tables that do not fit together.
    BadParameters(&'static str),
    /// No kind of device of this name.
    NoSuchBackend {
        name: String,
        known: Vec<&'static str>,
    },
    /// The settings contradict each other; a whole sentence.
    Unsuitable(String),
    /// No private /24 is left that no route covers.
    NoFreeSubnet,
    /// Any other error of the kernel.
    System {
        doing: &'static str,
        source: io::Error,
    },
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchInterface(name) => {
                write!(f, "there is no network interface named \"{name}\" here")
            }
            Self::BadInterfaceName(name) => write!(
                f,
                "\"{name}\" is no interface name: 1 to 15 characters, no space, no slash"
            ),
            Self::InterfaceDown(name) => write!(
                f,
                "interface \"{name}\" is down; bring it up with: ip link set {name} up"
            ),
            Self::NotEthernet(name) => {
                write!(f, "interface \"{name}\" does not carry Ethernet frames")
            }
            Self::MissingCapability { capability, doing } => write!(
                f,
                "{doing} needs {capability}; run as root or give that capability"
            ),
            Self::NoTunDevice => f.write_str(
                "/dev/net/tun is missing; load the tun module or pass the device into the \
                 container",
            ),
            Self::TapBusy(name) => write!(
                f,
                "the TAP \"{name}\" exists already and belongs to another program"
            ),
            Self::Verifier {
                program,
                source,
                log,
            } => {
                let reason = explained(source);
                write!(
                    f,
                    "the kernel refused the eBPF program \"{program}\": {reason}"
                )?;
                match log.lines().rev().find(|line| !line.trim().is_empty()) {
                    Some(line) => write!(f, " ({line})"),
                    None => Ok(()),
                }
            }
            Self::OutOfRange { what, value } => write!(f, "{what} {value} is out of range"),
            Self::ReadOnly => f.write_str("this handle of the steering tables is read-only"),
            Self::BadParameters(what) => write!(f, "bad parameters: {what}"),
            Self::NoSuchBackend { name, known } => {
                let known = known.join(", ");
                write!(
                    f,
                    "there is no kind of device \"{name}\"; there are: auto, {known}"
                )
            }
            Self::Unsuitable(sentence) => f.write_str(sentence),
            Self::NoFreeSubnet => {
                f.write_str("no private /24 in 10.254.0.0/16 is free; name one with --ip")
            }
            Self::System { doing, source } => write!(f, "{doing}: {}", explained(source)),
        }
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Verifier { source, .. } | Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl DeviceError {
    /// Turns the kernel's answer into an error; EPERM and EACCES name the capability.
    pub(crate) fn system(
        doing: &'static str,
        capability: &'static str,
        source: io::Error,
    ) -> DeviceError {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                DeviceError::MissingCapability { capability, doing }
            }
            _ => DeviceError::System { doing, source },
        }
    }
}
