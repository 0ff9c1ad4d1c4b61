//! `slipstack run`: check everything, prepare the device, become the program.

use std::ffi::{OsStr, OsString};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::ArgMatches;
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::thread::CpuSet;
use slipstack_config::{Layers, LogLevel, OPTION, Settings};

use crate::failure::Failure;
use crate::given::settings;
use crate::{host, log, program, topology};

pub const LIBRARY: &str = "libslipstack.so";

pub fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (layers, mut settings) = settings(matches)?;
    let words: Vec<OsString> = matches
        .get_many("program")
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    let Some((name, arguments)) = words.split_first() else {
        return Err(Failure::new("no program is named after --"));
    };
    let file = program::find(name, std::env::var_os("PATH").as_deref())?;
    let library = library(&settings)?;
    let own = own_path()?;
    settings.bin = Some(own.clone());
    for sentence in layers
        .fstack()
        .iter()
        .flat_map(|file| file.sentences(settings.log))
    {
        log::say(&settings, LogLevel::Warn, &sentence);
    }
    host::check(&settings)?;
    look_at_inherited(&settings)?;
    pin(&settings)?;
    let mut command = Command::new(file);
    command
        .arg0(name)
        .args(arguments)
        .env("LD_PRELOAD", preload_value(&library)?);
    set_environment(&mut command, &layers, &own);
    launch(&settings, &mut command)?;
    let error = command.exec();
    Err(Failure::new(format!(
        "{} cannot be started: {error}",
        Path::new(name).display()
    )))
}

/// Reports sockets made by the starter: they are the kernel's, which the program cannot tell.
fn look_at_inherited(settings: &Settings) -> Result<(), Failure> {
    // A program under us passes listeners on with a word about them.
    if std::env::var_os("SLIPSTACK_INHERIT").is_some() {
        return Ok(());
    }
    for (fd, addr) in slipstack_attach::inherited_sockets() {
        let what = format!(
            "descriptor {fd} is a kernel socket for {addr} that was open before the \
             program was started"
        );
        if settings.is_strict {
            return Err(Failure::new(format!(
                "{what}; --strict refuses it: let the program open it itself"
            )));
        }
        let sentence = format!("{what}; it stays with the kernel");
        log::say(settings, LogLevel::Warn, &sentence);
    }
    Ok(())
}

/// Prepares the device and prints where the program will be reached.
fn launch(settings: &Settings, command: &mut Command) -> Result<(), Failure> {
    let launched = slipstack_attach::launch(settings).map_err(|error| {
        host::missing_privilege(settings).unwrap_or_else(|| Failure::new(error.to_string()))
    })?;
    log::say(settings, LogLevel::Warn, &launched.reach);
    if let Some(sentence) = topology::shared_core(settings) {
        log::say(settings, LogLevel::Warn, &sentence);
    }
    let mut numbers = Vec::new();
    for control in launched.controls {
        let control = inheritable(control).map_err(|error| {
            Failure::new(format!(
                "the connection to the keeper cannot be passed to the program: {error}"
            ))
        })?;
        numbers.push(control.into_raw_fd().to_string());
    }
    command.env(OPTION.control_fds.env, numbers.join(","));
    Ok(())
}

/// Kept open across exec: the program's way to the keeper after it has dropped its privileges. High
/// up, where the library has its own descriptors, because programs count on getting the lowest
/// number that is free.
fn inheritable(control: OwnedFd) -> rustix::io::Result<OwnedFd> {
    let raised = [3_968, 900, 200]
        .iter()
        .find_map(|lowest| fcntl_dupfd_cloexec(&control, *lowest).ok());
    let control = raised.unwrap_or(control);
    fcntl_setfd(&control, FdFlags::empty())?;
    Ok(control)
}

fn set_environment(command: &mut Command, layers: &Layers, own: &Path) {
    for (name, text) in layers.environment() {
        command.env(name, text);
    }
    command.env(OPTION.bin.env, own);
    if let Some(number) = slipstack_attach::network_namespace() {
        command.env("SLIPSTACK_NETNS", number.to_string());
    }
}

fn own_path() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| {
        Failure::new(format!(
            "the path of the slipstack command is unknown: {error}"
        ))
    })
}

/// `--lib`, else beside this command, else in `../lib`.
fn library(settings: &Settings) -> Result<PathBuf, Failure> {
    if let Some(named) = &settings.lib {
        return named
            .canonicalize()
            .map_err(|error| Failure::new(format!("{} cannot be used: {error}", named.display())));
    }
    let own = own_path()?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let candidates = [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)];
    candidates
        .iter()
        .find_map(|file| file.canonicalize().ok())
        .ok_or_else(|| {
            Failure::new(format!(
                "{LIBRARY} was found neither beside {} nor in ../lib; name it with --lib",
                own.display()
            ))
        })
}

/// Returns the library, followed by the user's own preloads.
fn preload_value(library: &Path) -> Result<OsString, Failure> {
    let path = library.as_os_str().as_bytes();
    if path
        .iter()
        .any(|byte| byte.is_ascii_whitespace() || *byte == b':')
    {
        return Err(Failure::new(format!(
            "{} has a space or colon in its path, which the system's loader cannot read; move it \
             or name a copy with --lib",
            library.display()
        )));
    }
    let mut value = library.as_os_str().to_owned();
    let before = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let is_other = |entry: &&[u8]| !entry.is_empty() && *entry != path;
    for entry in before
        .as_bytes()
        .split(|byte| *byte == b':' || byte.is_ascii_whitespace())
        .filter(is_other)
    {
        value.push(":");
        value.push(OsStr::from_bytes(entry));
    }
    Ok(value)
}

/// Binds this process, and so the program, to `--cores`.
pub fn pin(settings: &Settings) -> Result<(), Failure> {
    if settings.cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for core in &settings.cores {
        set.set(*core);
    }
    rustix::thread::sched_setaffinity(None, &set).map_err(|error| {
        let cores: Vec<String> = settings.cores.iter().map(usize::to_string).collect();
        let cores = cores.join(",");
        match error {
            Errno::INVAL => Failure::new(format!(
                "this machine has none of the cores {cores} that --cores names"
            )),
            _ => Failure::new(format!("cannot run on cores {cores}: {error}")),
        }
    })
}
