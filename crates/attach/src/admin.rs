//! Requests of `slipstack status`, `why` and `stop` to keepers and instances.

use std::io::ErrorKind;

use slipstack_channel::control::{
    ControlError, ControlSocket, Refusal, Reply, Request, StatusReport, WhyReport, connect,
};
use slipstack_config::Settings;
use slipstack_keeper::runtime::{RuntimeDir, network_namespace_of};
use slipstack_keeper::{KeeperError, find_remaining};

use crate::absent;
use crate::door::{ask, directories, directories_elsewhere, directories_of};
use crate::error::Error;

/// Every keeper of this network namespace with its instances. A keeper that is just ending is left
/// out.
///
/// # Errors
/// A keeper's refusal, or no runtime directory.
pub fn status(settings: &Settings) -> Result<Vec<StatusReport>, Error> {
    let mut reports = Vec::new();
    for directory in chosen(settings)? {
        let Ok(keeper) = connect(&directory.control_socket()) else {
            continue;
        };
        let Reply::Status(mut report) = ask(&keeper, &Request::Status)? else {
            return Err(Error::Confused);
        };
        for (_, socket) in instances(&directory) {
            if let Ok(Reply::Status(of_instance)) = ask(&socket, &Request::Status) {
                report.instances.extend(of_instance.instances);
            }
        }
        reports.push(*report);
    }
    Ok(reports)
}

/// Returns the control socket of the selected keeper: the only one of this network namespace, or
/// that of `--if`.
///
/// # Errors
/// There is none, or the choice is not clear.
pub fn control_socket(settings: &Settings) -> Result<std::path::PathBuf, Error> {
    let mut all = directories(settings)?;
    if let Some(wanted) = &settings.interface {
        all.retain(|directory| directory.is_of(wanted));
    }
    let unclear = |message: String| Error::Refused {
        refusal: Refusal::Unknown,
        message,
    };
    match all.as_slice() {
        [one] => Ok(one.control_socket()),
        [] => Err(unclear("nothing runs on Slipstack here".to_owned())),
        several => {
            let names: Vec<&str> = several.iter().map(RuntimeDir::interface).collect();
            let names = names.join(", ");
            Err(unclear(format!(
                "stacks run on {names}; name one with --if"
            )))
        }
    }
}

/// Devices that have lost their keeper while programs run on: a sentence each.
///
/// # Errors
/// No runtime directory.
pub fn abandoned(settings: &Settings) -> Result<Vec<Error>, Error> {
    let all = chosen(settings)?;
    Ok(all.iter().filter_map(find_abandoned).collect())
}

fn find_abandoned(directory: &RuntimeDir) -> Option<Error> {
    match connect(&directory.control_socket()) {
        // Any other refusal is a keeper's that has no room just now.
        Err(ControlError::Io(error))
            if matches!(
                error.kind(),
                ErrorKind::ConnectionRefused | ErrorKind::NotFound
            ) => {}
        _ => return None,
    }
    let programs = find_remaining(directory);
    let interface = directory.interface().to_owned();
    (!programs.is_empty()).then_some(Error::Keeper(KeeperError::Orphaned {
        interface,
        programs,
    }))
}

/// The keepers of other network namespaces: the interface and the process of each.
///
/// # Errors
/// No runtime directory.
pub fn elsewhere(settings: &Settings) -> Result<Vec<(String, u32)>, Error> {
    let told = |directory: &RuntimeDir| {
        let keeper = connect(&directory.control_socket()).ok()?;
        match ask(&keeper, &Request::Status) {
            Ok(Reply::Status(report)) => {
                Some((directory.interface().to_owned(), report.keeper_pid))
            }
            _ => None,
        }
    };
    Ok(directories_elsewhere(settings)?
        .iter()
        .filter_map(told)
        .collect())
}

/// Returns the report on one process, which may be in another network namespace.
///
/// # Errors
/// No keeper or instance knows it.
pub fn why(settings: &Settings, pid: u32) -> Result<WhyReport, Error> {
    let mut refused = None;
    let directories = match network_namespace_of(pid) {
        Some(namespace) => directories_of(settings, namespace)?,
        None => directories(settings)?,
    };
    for directory in directories.into_iter().filter(|it| is_chosen(settings, it)) {
        for (_, socket) in instances(&directory) {
            match ask(&socket, &Request::Why { pid }) {
                Ok(Reply::Why(report)) => return Ok(*report),
                Err(Error::Refused {
                    refusal: refusal @ Refusal::NotPermitted,
                    message,
                }) => return Err(Error::Refused { refusal, message }),
                // The process belongs to another instance, or to the keeper.
                _ => {}
            }
        }
        let Ok(keeper) = connect(&directory.control_socket()) else {
            if find_remaining(&directory).iter().any(|it| it.pid == pid) {
                refused = find_abandoned(&directory);
            }
            continue;
        };
        match ask(&keeper, &Request::Why { pid }) {
            Ok(Reply::Why(report)) => return Ok(*report),
            Ok(_) => return Err(Error::Confused),
            Err(error) => refused = Some(error),
        }
    }
    if let None
    | Some(Error::Refused {
        refusal: Refusal::Unknown,
        ..
    }) = refused
        && let Some(report) = absent::describe(pid)
    {
        return Ok(report);
    }
    Err(refused.unwrap_or_else(|| Error::Refused {
        refusal: Refusal::Unknown,
        message: format!(
            "process {pid} does not use Slipstack: nothing runs on it in its network namespace"
        ),
    }))
}

/// The names that `stop` has ended, and why not more.
#[derive(Debug, Default)]
pub struct Stopped {
    pub names: Vec<String>,
    /// The first refusal: a keeper is in use.
    pub refusal: Option<Error>,
}

impl Stopped {
    fn add(&mut self, name: &str, answer: Result<Reply, Error>) -> Result<(), Error> {
        match answer {
            Ok(_) => self.names.push(name.to_owned()),
            Err(error @ Error::Refused { .. }) => {
                self.refusal.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Ends the instance or the keeper of that name (interface), or all: every instance, then every
/// keeper. One that is in use does not prevent the end of the others.
///
/// # Errors
/// There is none of that name, or none can be reached.
pub fn stop(settings: &Settings, target: Option<&str>) -> Result<Stopped, Error> {
    let mut stopped = Stopped::default();
    let is_meant = |name: &str| target.is_none_or(|target| target == name);
    let directories = chosen(settings)?;
    let request = Request::Stop { is_forced: false };
    for directory in &directories {
        for (name, socket) in instances(directory) {
            if is_meant(&name) {
                stopped.add(&name, ask(&socket, &request))?;
                wait_for_end(&socket);
            }
        }
    }
    let is_of = |directory: &&RuntimeDir| target.is_none_or(|target| directory.is_of(target));
    for directory in directories.iter().filter(is_of) {
        if let Ok(keeper) = connect(&directory.control_socket()) {
            stopped.add(directory.interface(), ask(&keeper, &request))?;
        } else if let Some(error) = find_abandoned(directory) {
            stopped.refusal.get_or_insert(error);
        }
    }
    match target {
        Some(name) if stopped.names.is_empty() && stopped.refusal.is_none() => {
            Err(Error::Refused {
                refusal: Refusal::Unknown,
                message: format!("there is no running instance and no used interface named {name}"),
            })
        }
        _ => Ok(stopped),
    }
}

/// Time that an instance may take to end.
const END_MS: u64 = 3000;

fn wait_for_end(socket: &ControlSocket) {
    // Only the hang-up is to be expected.
    let _ = socket.receive::<Reply>(END_MS);
}

/// Control sockets of the keepers of this network namespace, or of the device that is named.
///
/// # Errors
/// No runtime directory.
pub fn control_sockets(settings: &Settings) -> Result<Vec<std::path::PathBuf>, Error> {
    let directories = chosen(settings)?;
    let is_alive = |path: &std::path::PathBuf| connect(path).is_ok();
    Ok(directories
        .iter()
        .map(RuntimeDir::control_socket)
        .filter(is_alive)
        .collect())
}

pub(crate) fn chosen(settings: &Settings) -> Result<Vec<RuntimeDir>, Error> {
    Ok(directories(settings)?
        .into_iter()
        .filter(|it| is_chosen(settings, it))
        .collect())
}

fn is_chosen(settings: &Settings, directory: &RuntimeDir) -> bool {
    let wanted = settings.interface.as_deref();
    wanted.is_none_or(|wanted| directory.is_of(wanted))
}

pub(crate) fn instances(directory: &RuntimeDir) -> Vec<(String, ControlSocket)> {
    let reach = |name: String| {
        let socket = connect(&directory.instance_socket(&name).ok()?).ok()?;
        Some((name, socket))
    };
    directory
        .instances()
        .into_iter()
        .filter_map(reach)
        .collect()
}
