//! Starting a keeper: the starting process's side and the body of `slipstack keeper`.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use slipstack_channel::control::net::{FilterState, NetworkState};
use slipstack_channel::control::{ControlError, ControlSocket, Hello, Welcome};
use slipstack_config::{OPTION, Settings};
use slipstack_device::find;
use slipstack_keeper::process::leave_starters_bounds;
use slipstack_keeper::run;
use slipstack_keeper::runtime::RuntimeDir;
use slipstack_mem::process::Forked;

use crate::door::{by_path, introduce, options};
use crate::error::Error;

/// The text by which a keeper reports its start; any other text is the reason why it could not
/// start.
const READY: &str = "ready";
/// Longest sentence that is read from a keeper.
const SENTENCE_MAX: u64 = 4096;
/// Attempts to meet a keeper that is just starting or ending, and their distance.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// Introduces this process to the keeper of these settings, which is started if there is none. A
/// keeper that is about to end hangs up: then another one is started. A keeper that does not answer
/// is not asked again.
pub fn meet(settings: &Settings, hello: &Hello) -> Result<(ControlSocket, Welcome), Error> {
    let mut attempt = 0;
    loop {
        let met =
            connect_or_start(settings, attempt < ATTEMPTS).and_then(|socket| {
                match introduce(&socket, hello.clone()) {
                    Ok(welcome) => Ok((socket, welcome)),
                    Err(error) => Err(or_unresponsive(error, settings, Some(&socket))),
                }
            });
        match met {
            Err(Error::Control(_) | Error::Elsewhere) if attempt < ATTEMPTS => {
                std::thread::sleep(PAUSE)
            }
            met => return met,
        }
        attempt += 1;
    }
}

fn connect_or_start(settings: &Settings, may_come_again: bool) -> Result<ControlSocket, Error> {
    match by_path(settings) {
        Ok(socket) => return Ok(socket),
        // A keeper is there, and no second one can be started beside it.
        Err(error @ Error::Control(ControlError::TimedOut)) => {
            return Err(or_unresponsive(error, settings, None));
        }
        Err(_) => {}
    }
    match start(settings) {
        // Another starter was faster, or the former keeper is about to leave.
        Err(Error::Start(sentence)) if may_come_again && sentence.starts_with(ELSEWHERE) => {
            Err(Error::Elsewhere)
        }
        Err(error) => Err(error),
        Ok(()) => by_path(settings),
    }
}

/// Explains why a keeper does not answer.
pub fn or_unresponsive(error: Error, settings: &Settings, socket: Option<&ControlSocket>) -> Error {
    match error {
        Error::Control(ControlError::TimedOut) => Error::Unresponsive {
            interface: options(settings)
                .device
                .interface()
                .unwrap_or_default()
                .to_owned(),
            pid: socket.and_then(keeper_behind),
        },
        error => error,
    }
}

/// The process that made the control socket, if it is the keeper still and no successor is.
fn keeper_behind(socket: &ControlSocket) -> Option<u32> {
    let pid = socket.peer().ok()?.pid;
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = words.split(|byte| *byte == 0);
    (words.nth(1) == Some(b"keeper")).then_some(pid)
}

/// Beginning of the sentence of a keeper that found another one.
const ELSEWHERE: &str = "another keeper holds";

fn start(settings: &Settings) -> Result<(), Error> {
    let bin = command(settings)?;
    let mut command = Command::new(&bin);
    // A copy of the command whose file is named `fstack` would read that name as `instance`.
    command
        .arg0("slipstack")
        .arg("keeper")
        .env_clear()
        .envs(environment(settings))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| Error::Spawn {
        bin: bin.clone(),
        error,
    })?;
    let mut sentence = String::new();
    if let Some(stdout) = child.stdout.take() {
        // The keeper closes its end when it is ready or fails.
        let read = stdout.take(SENTENCE_MAX).read_to_string(&mut sentence);
        read.map_err(Error::io("read the keeper's answer"))?;
    }
    // The started process ends at once; the keeper is its child.
    let _ = child.wait();
    match sentence.trim() {
        READY => Ok(()),
        "" => Err(Error::Start(
            "the keeper ended without an error message".to_owned(),
        )),
        sentence => Err(Error::Start(sentence.to_owned())),
    }
}

fn command(settings: &Settings) -> Result<PathBuf, Error> {
    match &settings.bin {
        Some(bin) => Ok(bin.clone()),
        None => Err(Error::NoCommand),
    }
}

/// The settings that concern a keeper, and nothing of the program's environment.
fn environment(settings: &Settings) -> Vec<(&'static str, String)> {
    let mut variables = settings.keeper_environment();
    for (name, value) in &mut variables {
        if *name == OPTION.device.env {
            *value = with_absolute_path(value);
        }
    }
    variables.push(("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".to_owned()));
    if let Ok(directory) = std::env::var("XDG_RUNTIME_DIR") {
        variables.push(("XDG_RUNTIME_DIR", directory));
    }
    variables
}

/// A kind of device with its file, if it has one, as it is found from any directory.
pub(crate) fn with_absolute_path(device: &str) -> String {
    match device.split_once(':') {
        Some((_, name)) if name.starts_with('@') => device.to_owned(),
        Some((name, file)) if find(name).is_ok_and(|(it, _)| it.kind().takes_path) => {
            match std::path::absolute(file) {
                Ok(path) => format!("{name}:{}", path.display()),
                Err(_) => device.to_owned(),
            }
        }
        _ => device.to_owned(),
    }
}

/// The body of `slipstack keeper`: drops everything it inherited, opens the device, reports on its
/// standard output that it is ready, and serves until it is no longer needed. `filter` reads the
/// rules of the packet filter, given the interfaces.
///
/// # Errors
/// The reason why it could not start; the starter has got the sentence as well.
pub fn keeper_main(
    settings: &Settings,
    filter: impl FnOnce(&NetworkState) -> Result<FilterState, String>,
) -> Result<(), Error> {
    slipstack_mem::process::close_inherited().map_err(Error::io("close inherited descriptors"))?;
    leave_starters_bounds();
    // The starter becomes the program: it must not have a child that it does not know.
    match slipstack_mem::process::fork().map_err(Error::io("start a session of its own"))? {
        Forked::Parent(_) => std::process::exit(0),
        Forked::Child => {}
    }
    // A session of its own: no terminal's interrupt or hang-up reaches it. Fails only where it is
    // one already.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/").map_err(|error| Error::io("change to /")(error.into()))?;
    let mut options = options(settings);
    options.filter = match filter(&options.network) {
        Ok(filter) => filter,
        Err(why) => {
            tell(&why);
            return Err(Error::Start(why));
        }
    };
    let directory = options.directory();
    match directory.and_then(|directory| run(options, || announce(&directory))) {
        Ok(()) => Ok(()),
        Err(error) => {
            tell(&error.to_string());
            Err(Error::Keeper(error))
        }
    }
}

/// Says a line to the starter. It may be gone: that is no reason to end.
fn tell(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Reports readiness to the starter, and drops what it passed.
fn announce(directory: &RuntimeDir) {
    tell(READY);
    let null = open(
        Path::new("/dev/null"),
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    );
    if let Ok(null) = &null {
        let _ = rustix::stdio::dup2_stdin(null);
        let _ = rustix::stdio::dup2_stdout(null);
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC;
    if let Ok(log) = open(directory.log_file(), flags, Mode::from_raw_mode(0o644)).or(null) {
        let _ = rustix::stdio::dup2_stderr(&log);
    }
}
