//! The library's life cycle in a process: `ff_init`, forks, the end.

pub mod abi;
mod sys;

use std::ffi::CString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use slipstack_abi::raw;
use slipstack_attach::FrameHook;
use slipstack_config as config;
use slipstack_mem::Descriptor;
use slipstack_posix::{Errno, Process, Settings};

use crate::arguments::Arguments;
use crate::dispatcher::{self, ProcessSlot, Program};
use crate::kernel::System;
use crate::zero_copy;

/// F-Stack's default configuration file.
const CONF: &str = "config.ini";

/// Variables by which programs of F-Stack's LD_PRELOAD adapter choose an instance.
const ADAPTER_VARIABLES: [&str; 2] = ["FF_PROC_ID", "FF_NB_FSTACK_INSTANCE"];

static PROCESS: OnceLock<Process> = OnceLock::new();
/// Options of the stack, once `ff_init` has been called.
static SETTINGS: OnceLock<config::Settings> = OnceLock::new();
/// The process that called `ff_init` last.
static BEGUN_BY: AtomicU32 = AtomicU32::new(0);

/// `--proc-id`.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The number of this process among those that share a configuration.
pub fn process_number() -> u32 {
    NUMBER.load(Ordering::Relaxed)
}

/// Number of processes that share a configuration: each is a queue of the dispatcher's.
static QUEUES: AtomicU32 = AtomicU32::new(1);

pub fn queues() -> u16 {
    QUEUES.load(Ordering::Relaxed) as u16
}

/// The process's sockets, once `ff_init` has been called.
#[inline(always)]
pub fn process() -> Option<&'static Process> {
    PROCESS.get()
}

/// Returns whether the engine is an instance's: frames are not this process's then.
pub fn uses_instance() -> bool {
    options().is_some_and(|options| !options.instances.is_empty())
}

/// Options of the stack; `None` before `ff_init`.
pub fn options() -> Option<&'static config::Settings> {
    SETTINGS.get()
}

/// Reasons for which `ff_init` gets no stack.
enum Failure {
    /// The function has been called before.
    Twice,
    Sentence(String),
}

/// Has a stack for this process.
fn begin(words: Vec<String>) -> Result<(), Failure> {
    let own = std::process::id();
    if PROCESS.get().is_some() {
        // A child of a process with a stack has its own with its first socket.
        return match BEGUN_BY.swap(own, Ordering::AcqRel) {
            before if before == own => Err(Failure::Twice),
            _ => Ok(()),
        };
    }
    slipstack_attach::abort_at_panics(|| false);
    let arguments = Arguments::parse(words).map_err(Failure::Sentence)?;
    NUMBER.store(arguments.process.unwrap_or(0), Ordering::Relaxed);
    let mut found = settings(&arguments).map_err(Failure::Sentence)?;
    let sentence = |error: slipstack_attach::Error| Failure::Sentence(error.to_string());
    let launched = slipstack_attach::launch(&found).map_err(sentence)?;
    if found.log >= config::LogLevel::Warn {
        raw::write_stderr(format!("slipstack: {}\n", launched.reach).as_bytes());
    }
    let controls = launched.controls.into_iter();
    found.control_fds = controls.map(IntoRawFd::into_raw_fd).collect();
    for control in &found.control_fds {
        sys::set_cloexec(*control);
        if let Some(control) = Descriptor::new(*control) {
            control.list();
        }
    }
    let family = family_of(conf_file(&arguments));
    let place = ProcessSlot {
        family,
        queue: process_number() as u16,
        queues: queues(),
    };
    let make =
        move |bell, queues| -> Box<dyn FrameHook> { Box::new(Program::new(place, bell, queues)) };
    let attach = slipstack_attach::client_with(&found, Some(Arc::new(make)));
    if arguments.process.is_some() {
        attach.join(family);
    }
    let process = Process::new(Box::new(System), attach, of_process(&found));
    process.attach_now().map_err(Failure::Sentence)?;
    if PROCESS.set(process).is_err() {
        return Err(Failure::Twice);
    }
    if let Some(made) = self::process() {
        made.stay();
    }
    _ = SETTINGS.set(found);
    BEGUN_BY.store(own, Ordering::Release);
    tell_config(&arguments, queues());
    sys::register();
    Ok(())
}

/// Publishes what the arguments say to the program.
fn tell_config(arguments: &Arguments, queues: u16) {
    let text = |text: Option<&str>| text.and_then(|text| CString::new(text).ok());
    let (file, kind) = (conf_file(arguments), arguments.kind.as_deref());
    let number = arguments.process.unwrap_or(0);
    abi::tell_config(text(file), text(kind), number, queues);
}

/// `ff_load_config`: reads arguments and configuration file. Nothing changes once there is a stack.
///
/// # Errors
/// One sentence about the first option or line that cannot be used.
fn load(words: Vec<String>) -> Result<(), String> {
    if PROCESS.get().is_some() {
        return Ok(());
    }
    let arguments = Arguments::parse(words)?;
    let layers = match conf_file(&arguments).map(Path::new) {
        Some(file) => config::Layers::read_with_file(file, arguments.process, |_| None),
        None => Ok(config::Layers::default()),
    };
    let layers = layers.map_err(|error| error.to_string())?;
    let shared = layers.fstack().filter(|_| arguments.process.is_some());
    tell_config(&arguments, shared.map_or(1, |file| file.processes() as u16));
    Ok(())
}

/// Command line, environment, configuration file: the earlier one wins.
fn settings(arguments: &Arguments) -> Result<config::Settings, String> {
    let conf = conf_file(arguments).map(Path::new);
    let variable = |name: &str| {
        // These variables are the adapter's; a process that a configuration numbers has its own
        // engine.
        let is_taken = arguments.process.is_none() || !ADAPTER_VARIABLES.contains(&name);
        let own = || {
            std::env::var(name)
                .ok()
                .filter(|text| is_taken && !text.is_empty())
        };
        arguments.option(name).or_else(own).or_else(|| usual(name))
    };
    let layers = match conf {
        Some(file) => config::Layers::read_with_file(file, arguments.process, variable),
        None => config::Layers::read(variable),
    };
    let layers = layers.map_err(|error| error.to_string())?;
    let found = config::Settings::from_layers(&layers).map_err(|error| error.to_string())?;
    if let (Some(file), Some(_)) = (layers.fstack(), arguments.process) {
        QUEUES.store(file.processes() as u32, Ordering::Relaxed);
    }
    for sentence in layers
        .fstack()
        .iter()
        .flat_map(|file| file.sentences(found.log))
    {
        raw::write_stderr(format!("slipstack: {sentence}\n").as_bytes());
    }
    Ok(found)
}

/// The configuration file, if there is one.
fn conf_file(arguments: &Arguments) -> Option<&str> {
    let usual = || Some(CONF).filter(|file| Path::new(file).exists());
    arguments.conf.as_deref().or_else(usual)
}

/// The processes of one configuration share its ports, as forked ones do.
fn family_of(conf: Option<&str>) -> u64 {
    let file = conf.and_then(|file| std::fs::canonicalize(file).ok());
    let mut hasher = DefaultHasher::new();
    file.hash(&mut hasher);
    hasher.finish()
}

/// Returns the default of a variable: no socket goes to the kernel by itself.
fn usual(variable: &str) -> Option<String> {
    if variable == config::OPTION.is_strict.env {
        return Some("true".to_owned());
    }
    let command = (variable == config::OPTION.bin.env)
        .then(command)
        .flatten()?;
    Some(command.to_string_lossy().into_owned())
}

/// The `slipstack` command: beside the library, in the `bin` beside its folder, or in PATH.
fn command() -> Option<PathBuf> {
    let own = sys::own_file().and_then(|file| Some(file.parent()?.to_owned()));
    let beside = own.iter().map(|dir| dir.join("slipstack"));
    let above = own.iter().map(|dir| dir.join("../bin/slipstack"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let in_path = dirs.iter().map(|dir| dir.join("slipstack"));
    let usual = PathBuf::from("/usr/local/bin/slipstack");
    let mut all = beside.chain(above).chain(in_path).chain([usual]);
    all.find(|file| file.is_file())
}

fn of_process(found: &config::Settings) -> Settings {
    let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    Settings {
        spin: found.spin,
        gather_us: found.gather_us,
        heuristics: slipstack_posix::Heuristics::default(),
        strict: found.is_strict,
        has_ports_per_instance: false,
        verbosity: found.log,
        journal: (found.log >= config::LogLevel::Debug).then_some(crate::kernel::say),
        program: name.to_string_lossy().into_owned(),
    }
}

/// `ff_init`; a failure ends the process, as programs expect.
fn begin_or_exit(words: Vec<String>) -> Result<(), Errno> {
    match begin(words) {
        Ok(()) => Ok(()),
        Err(Failure::Twice) => Err(Errno(libc::EALREADY)),
        Err(Failure::Sentence(sentence)) => {
            raw::write_stderr(format!("slipstack: {sentence}\n").as_bytes());
            std::process::exit(1)
        }
    }
}

extern "C" fn fork_prepare() {
    if let Some(process) = process().filter(|_| !crate::thread::is_inside()) {
        process.fork_prepare();
        zero_copy::fork_prepare();
    }
}

extern "C" fn fork_parent() {
    if let Some(process) = process().filter(|_| !crate::thread::is_inside()) {
        zero_copy::fork_parent();
        if let Some(lending) = process.fork_parent() {
            process.lend(lending);
        }
    }
}

extern "C" fn fork_child() {
    if let Some(process) = process().filter(|_| !crate::thread::is_inside()) {
        zero_copy::fork_child();
        dispatcher::fork_child();
        process.fork_child();
    }
}

extern "C" fn end() {
    if let Some(process) = process() {
        process.exit();
    }
}
