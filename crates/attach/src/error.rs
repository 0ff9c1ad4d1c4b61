//! Reasons why an engine is not available, one sentence each.

use std::fmt;
use std::io;
use std::path::PathBuf;

use slipstack_channel::AttachError;
use slipstack_channel::control::{ControlError, Refusal};
use slipstack_channel::report::Why;
use slipstack_device::DeviceError;
use slipstack_keeper::KeeperError;
use slipstack_keeper::runtime::RuntimeError;
use slipstack_mem::process::explained;

#[derive(Debug)]
pub enum Error {
    Runtime(RuntimeError),
    Keeper(KeeperError),
    Device(DeviceError),
    /// The keeper or instance refused, with its reason.
    Refused {
        refusal: Refusal,
        message: String,
    },
    Control(ControlError),
    /// A keeper's message when it could not start.
    Start(String),
    /// Another keeper holds the device, and is not to be reached (yet).
    Elsewhere,
    /// A keeper is there and gives no answer.
    Unresponsive {
        interface: String,
        /// Process of the keeper, where that is sure.
        pid: Option<u32>,
    },
    /// The keeper could not be started.
    Spawn {
        bin: PathBuf,
        error: io::Error,
    },
    /// A service of this process was refused a resource; a sentence.
    Service(String),
    /// The `slipstack` command was not found.
    NoCommand,
    NoInstance {
        name: String,
        interface: Option<String>,
    },
    /// The keeper of this device has another address.
    OtherAddress {
        interface: String,
        has: String,
        wanted: String,
    },
    /// A keeper runs that is in another VLAN.
    OtherVlan {
        interface: String,
        /// 0 = none.
        has: u16,
        wanted: u16,
    },
    /// The device of a running keeper was opened without this switch.
    OtherSwitch {
        interface: String,
        wanted: &'static str,
    },
    /// A running keeper spreads new flows over its engines by another rule.
    OtherSpread {
        interface: String,
        has: String,
        wanted: String,
    },
    /// A running keeper's stack does not have this interface.
    OtherInterfaces {
        interface: String,
        missing: String,
    },
    /// The keeper of this device has one of another kind.
    OtherDevice {
        interface: String,
        has: String,
        wanted: String,
    },
    /// A keeper runs that has other routes or rules.
    OtherRoutes {
        interface: String,
    },
    /// Addresses of the interface are the stack's alone.
    NotShared {
        interface: String,
    },
    /// RLIMIT_AS leaves no room for a stack, which lacks as many bytes at most.
    NoAddresses {
        limit: u64,
        lacking: u64,
    },
    /// An answer that does not belong to the question.
    Confused,
    Io {
        doing: &'static str,
        error: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Runtime(error) => error.fmt(f),
            Error::Keeper(error) => error.fmt(f),
            Error::Device(error) => error.fmt(f),
            Error::Refused { message, .. } | Error::Start(message) => f.write_str(message),
            Error::Control(error) => error.fmt(f),
            Error::Elsewhere => write!(f, "another keeper holds the device and does not answer"),
            Error::Unresponsive { interface, pid } => write_unresponsive(f, interface, *pid),
            Error::Spawn { bin, error } => write!(
                f,
                "the keeper cannot be started with {}: {error}",
                bin.display()
            ),
            Error::NoCommand => f.write_str(
                "no keeper runs and the path of the slipstack command is unknown; start the \
                 program with: slipstack run",
            ),
            Error::Service(sentence) => f.write_str(sentence),
            Error::NoInstance { name, interface } => {
                write_no_instance(f, name, interface.as_deref())
            }
            Error::OtherAddress { .. }
            | Error::OtherInterfaces { .. }
            | Error::OtherVlan { .. }
            | Error::OtherDevice { .. }
            | Error::OtherRoutes { .. }
            | Error::OtherSpread { .. }
            | Error::OtherSwitch { .. }
            | Error::NotShared { .. } => write_other(f, self),
            Error::NoAddresses { limit, lacking } => write_no_addresses(f, *limit, *lacking),
            Error::Confused => write!(
                f,
                "the keeper's answer is not understood; use one version of slipstack"
            ),
            Error::Io { doing, error } => write!(f, "cannot {doing}: {}", explained(error)),
        }
    }
}

/// Writes how the running stack differs from the requested one.
fn write_other(f: &mut fmt::Formatter<'_>, error: &Error) -> fmt::Result {
    match error {
        Error::OtherAddress {
            interface,
            has,
            wanted,
        } => write!(
            f,
            "the stack on {interface} has the address {has}, not {wanted}; leave --ip away, or \
                 end the programs that use it"
        ),
        Error::OtherInterfaces { interface, missing } => write!(
            f,
            "the stack on {interface} does not have {missing}; end the programs that use it \
                 first"
        ),
        Error::OtherVlan {
            interface,
            has,
            wanted,
        } => write!(
            f,
            "the stack on {interface} is in {}, not in {}; end the programs that use it first",
            vlan_name(*has),
            vlan_name(*wanted)
        ),
        Error::OtherDevice {
            interface,
            has,
            wanted,
        } => write!(
            f,
            "{interface} is in use as a device of kind {has}, not {wanted}; leave the options of \
                 the device away, name another interface with --if, or end the programs that use it"
        ),
        Error::OtherSwitch { interface, wanted } => write!(
            f,
            "the stack on {interface} was started without --{wanted}; omit it, or end the \
                 programs that use the stack"
        ),
        Error::OtherSpread {
            interface,
            has,
            wanted,
        } => write!(
            f,
            "the stack on {interface} was started with --spread {has}, not {wanted}; omit it, or \
                 end the programs that use the stack"
        ),
        Error::OtherRoutes { interface } => write!(
            f,
            "the stack on {interface} has other routes or rules; leave --route and --rule \
                 away, or end the programs that use it"
        ),
        Error::NotShared { interface } => write!(
            f,
            "the stack on {interface} does not share its addresses; omit --kni, or end the \
                 programs that use it"
        ),
        _ => Ok(()),
    }
}

fn write_no_instance(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    interface: Option<&str>,
) -> fmt::Result {
    write!(f, "no instance named {name} runs")?;
    if let Some(interface) = interface {
        write!(f, " on {interface}")?;
    }
    write!(
        f,
        "; start it with: slipstack instance --name {name}, and if it is just starting wait for it \
         with: slipstack wait --instance {name}"
    )
}

fn write_no_addresses(f: &mut fmt::Formatter<'_>, limit: u64, lacking: u64) -> fmt::Result {
    write!(
        f,
        "the program's address space is too small for a stack: it is limited to {} MB; raise it \
         (ulimit -v {}, LimitAS= of systemd)",
        limit >> 20,
        limit.saturating_add(lacking) >> 10
    )
}

fn write_unresponsive(
    f: &mut fmt::Formatter<'_>,
    interface: &str,
    pid: Option<u32>,
) -> fmt::Result {
    let (which, pid) = match pid {
        Some(pid) => (format!("process {pid}"), pid.to_string()),
        None => ("see ps -C slipstack".to_owned(), "PID".to_owned()),
    };
    write!(
        f,
        "the keeper of {interface} ({which}) does not answer; if it is stopped, let it go on with \
         kill -CONT {pid}, otherwise end it with kill -KILL {pid}: its standby takes over"
    )
}

fn vlan_name(vlan: u16) -> String {
    match vlan {
        0 => "no VLAN".to_owned(),
        id => format!("VLAN {id}"),
    }
}

impl std::error::Error for Error {}

impl From<RuntimeError> for Error {
    fn from(error: RuntimeError) -> Error {
        Error::Runtime(error)
    }
}

impl From<KeeperError> for Error {
    fn from(error: KeeperError) -> Error {
        Error::Keeper(error)
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Error {
        Error::Device(error)
    }
}

impl From<ControlError> for Error {
    fn from(error: ControlError) -> Error {
        Error::Control(error)
    }
}

impl From<Error> for AttachError {
    fn from(error: Error) -> AttachError {
        AttachError {
            sentence: error.to_string(),
            may_pass: error.is_exhaustion(),
            is_known: error.is_known_exhaustion(),
            why: match error {
                Error::NoAddresses { .. } => Why::NoAddresses,
                error if error.is_exhaustion() => Why::NoSlot,
                _ => Why::NoStack,
            },
        }
    }
}

impl Error {
    /// Returns whether every slot is taken, or as many clients are there as may be: another may
    /// end.
    fn is_exhaustion(&self) -> bool {
        let is_it = |it| matches!(it, Refusal::Exhausted | Refusal::StillExhausted);
        matches!(self, Error::Refused { refusal, .. } if is_it(*refusal))
    }

    fn is_known_exhaustion(&self) -> bool {
        let known = Refusal::StillExhausted;
        matches!(self, Error::Refused { refusal, .. } if *refusal == known)
    }

    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |error| Error::Io { doing, error }
    }
}
