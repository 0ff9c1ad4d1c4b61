//! The control socket of a keeper or an instance, or an inherited connection to it.

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use slipstack_channel::control::net::FilterState;
use slipstack_channel::control::{
    CONTROL_VERSION, ControlError, ControlSocket, Hello, Reply, Request, Welcome, connect, pair,
};
use slipstack_config::{SLOTS_DEFAULT, Settings, SpreadRow, SpreadRule};
use slipstack_device::{PortSettings, Row};
use slipstack_keeper::runtime::{ROOT_BASE, RuntimeDir, base_directory, network_namespace};
use slipstack_keeper::{DeviceChoice, Options, Spread};
use slipstack_mem::Descriptor;

use crate::error::Error;
use crate::network;

/// Longest wait for an answer.
pub const ANSWER_MS: u64 = 10_000;

/// Identity of this process towards a keeper or instance.
#[derive(Clone, Debug)]
pub struct Identity {
    pub program: String,
    pub family: u64,
    pub heirs: u64,
    pub instance: Option<String>,
}

impl Identity {
    /// Returns the identity of the calling process, with a family of its own.
    pub fn of_this_process() -> Identity {
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        Identity {
            program: name.trim_end().to_owned(),
            family: random_u64(),
            heirs: 0,
            instance: None,
        }
    }

    pub fn hello(&self, capability: Option<u64>, resume: Option<u64>) -> Hello {
        Hello {
            version: CONTROL_VERSION,
            program: self.program.clone(),
            family: self.family,
            heirs: self.heirs,
            instance: self.instance.clone(),
            capability,
            resume,
            is_shared: false,
        }
    }
}

pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_le_bytes(bytes),
        _ => slipstack_mem::now_ns(),
    }
}

/// Returns the options that a keeper of these settings would be started with.
pub fn options(settings: &Settings) -> Options {
    let further = settings.further.iter();
    let vlans = further.map(|spec| spec.vlan.unwrap_or(0));
    let device = DeviceChoice {
        kind: settings.device_with_mode(),
        interface: settings.interface.clone(),
        vlans: [settings.own_vlan()].into_iter().chain(vlans).collect(),
        settings: PortSettings {
            has_no_segmentation: settings.has_no_segmentation,
            has_no_checksum: settings.has_no_checksum,
            is_promiscuous: settings.is_promiscuous,
        },
    };
    Options {
        base: settings.run_dir.clone(),
        network: network::wanted(settings, device.interface().unwrap_or_default()),
        device,
        spread: spread(settings),
        slots: settings.slots.unwrap_or(SLOTS_DEFAULT),
        ports: settings.ports(ports(settings)),
        is_autoconfigured: settings.is_autoconfigured,
        is_persistent: settings.is_persistent,
        filter: FilterState::default(),
        tunables: settings
            .sysctls
            .iter()
            .flat_map(|setting| setting.numbers())
            .map(|(tunable, number)| (tunable.name().to_owned(), number))
            .collect(),
    }
}

fn spread(settings: &Settings) -> Spread {
    match settings.spread.unwrap_or_default() {
        SpreadRule::Hash => Spread::Hash,
        SpreadRule::Port => Spread::Port,
        SpreadRule::Shares => Spread::Shares(settings.spread_shares.clone()),
        SpreadRule::Turns => Spread::Turns,
        SpreadRule::Table => Spread::Table(settings.spread_table.iter().map(row).collect()),
        SpreadRule::Program => Spread::Program(program(settings)),
    }
}

/// The keeper has another working directory.
fn program(settings: &Settings) -> PathBuf {
    let given = settings.spread_program.clone().unwrap_or_default();
    std::path::absolute(&given).unwrap_or(given)
}

fn row(row: &SpreadRow) -> Row {
    Row {
        network: row.network.address,
        prefix_len: row.network.prefix_len,
        engine: row.engine,
    }
}

/// Ports for connections of the stack's own, where no option names others.
fn ports(settings: &Settings) -> (u16, u16) {
    let system = slipstack_keeper::system_ports();
    match settings.kni {
        Some(_) => slipstack_keeper::ports_beside(system),
        None => system,
    }
}

/// The keepers' directories of this network namespace. A user without any sees root's: what is
/// there may not be his to ask, which he is told then.
pub fn directories(settings: &Settings) -> Result<Vec<RuntimeDir>, Error> {
    directories_of(settings, network_namespace()?)
}

/// As [`directories`], of other network namespaces than this one.
pub fn directories_elsewhere(settings: &Settings) -> Result<Vec<RuntimeDir>, Error> {
    let namespace = network_namespace()?;
    let base = match &settings.run_dir {
        Some(base) => base.clone(),
        None => base_directory()?,
    };
    Ok(RuntimeDir::all_elsewhere(&base, namespace)?)
}

/// As [`directories`], of the network namespace with this inode.
pub fn directories_of(settings: &Settings, namespace: u64) -> Result<Vec<RuntimeDir>, Error> {
    if let Some(base) = &settings.run_dir {
        return Ok(RuntimeDir::all_below(base, namespace)?);
    }
    let own = base_directory().and_then(|base| RuntimeDir::all_below(&base, namespace));
    if own.as_ref().is_ok_and(|own| !own.is_empty()) {
        return Ok(own?);
    }
    match RuntimeDir::all_below(Path::new(ROOT_BASE), namespace) {
        Ok(roots) if !roots.is_empty() => Ok(roots),
        _ => Ok(own?),
    }
}

/// The directory of the instance that these settings name.
pub fn instance_directory(settings: &Settings, name: &str) -> Result<RuntimeDir, Error> {
    let is_meant = |dir: &RuntimeDir| {
        settings
            .interface
            .as_deref()
            .is_none_or(|wanted| dir.is_of(wanted))
    };
    directories(settings)?
        .into_iter()
        .filter(is_meant)
        .find(|dir| dir.instances().iter().any(|found| found == name))
        .ok_or_else(|| no_instance(settings, name))
}

fn no_instance(settings: &Settings, name: &str) -> Error {
    Error::NoInstance {
        name: name.to_owned(),
        interface: settings.interface.clone(),
    }
}

/// A new connection through one that was inherited. `None`: that one is no use (any more).
pub fn through_inherited(number: RawFd) -> Option<ControlSocket> {
    let inherited = Descriptor::new(number)?;
    let copy = inherited.as_fd().try_clone_to_owned().ok()?;
    let shared = ControlSocket::from_fd(copy).ok()?;
    let (ours, theirs) = pair().ok()?;
    shared.send(&Request::NewClient, &[theirs.as_fd()]).ok()?;
    Some(ours)
}

/// A new connection by path, to the first instance if there are any.
pub fn by_path(settings: &Settings) -> Result<ControlSocket, Error> {
    let instance = settings.instances.first();
    let path = match instance {
        Some(name) => instance_directory(settings, name)?.instance_socket(name)?,
        None => options(settings).directory()?.control_socket(),
    };
    let connected = connect(&path);
    // The socket file is left over from an instance that was killed together with its keeper.
    if let (Some(name), Err(ControlError::Io(error))) = (instance, &connected)
        && error.kind() == std::io::ErrorKind::ConnectionRefused
    {
        return Err(no_instance(settings, name));
    }
    Ok(connected?)
}

/// Introduces this process on a connection.
pub fn introduce(socket: &ControlSocket, hello: Hello) -> Result<Welcome, Error> {
    Ok(introduce_with(socket, hello, None)?.0)
}

/// As [`introduce`], with a ticket of a former instance; an instance gives one, for its successors.
pub fn introduce_with(
    socket: &ControlSocket,
    hello: Hello,
    ticket: Option<&OwnedFd>,
) -> Result<(Welcome, Option<OwnedFd>), Error> {
    let shown = ticket.map(AsFd::as_fd);
    socket.send(&Request::Hello(hello), shown.as_slice())?;
    match socket.receive::<Reply>(ANSWER_MS)? {
        (Reply::Welcome(welcome), fds) => Ok((*welcome, fds.into_iter().next())),
        (Reply::Refused { refusal, message }, _) => Err(Error::Refused { refusal, message }),
        _ => Err(Error::Confused),
    }
}

/// Asks one question on a connection.
pub fn ask(socket: &ControlSocket, request: &Request) -> Result<Reply, Error> {
    socket.send(request, &[])?;
    match socket.receive::<Reply>(ANSWER_MS)?.0 {
        Reply::Refused { refusal, message } => Err(Error::Refused { refusal, message }),
        reply => Ok(reply),
    }
}
