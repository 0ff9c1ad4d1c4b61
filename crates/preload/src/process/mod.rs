//! The process: initialisation, forks and its end.

mod end;
mod environment;
mod forks;
mod helper;
mod last;
mod raw;
mod sys;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use slipstack_config as config;
use slipstack_posix::{Heuristics, Process, Settings, at_begin_of_threads};

use crate::cores;
use crate::kernel::{self, Libc};
use crate::lock::Lock;
use crate::raw::write_stderr;
use crate::signals;
use crate::thread::InCall;

pub use end::{before_exec, end_by_signal, end_helper, end_in_order, end_without_handover};
pub use environment::{INHERIT, environment, inherit_name, keep, variable};
pub use forks::{child as fork_child, forked, parent as fork_parent, prepare as fork_prepare};
pub use helper::{become_helper, fork_away};
pub use last::{watch_this_thread, watch_under_filter};

/// The process's sockets, from its first socket or epoll set on.
static PROCESS: OnceLock<Option<Process>> = OnceLock::new();
/// Taken while [`PROCESS`] is made, so that no fork comes in between.
static BEGINNING: Lock = Lock::new();
/// The process, if it has had a socket or an epoll set.
#[inline]
pub fn current() -> Option<&'static Process> {
    PROCESS.get().and_then(Option::as_ref)
}

/// Whether a call on `fd` is ours to answer.
#[inline]
pub fn is_ours(fd: i32) -> bool {
    current().is_some_and(|process| process.is_ours(fd))
}

/// The process, from now on; `None` when we stay out of this program.
pub fn activate() -> Option<&'static Process> {
    match PROCESS.get() {
        Some(process) => process.as_ref(),
        None if environment().is_empty() => None,
        None => {
            let _in_call = InCall::enter();
            BEGINNING.with(|| {
                let process = PROCESS.get_or_init(begin).as_ref();
                process.inspect(|process| process.stay())
            })
        }
    }
}

/// Has every thread that sleeps in a call look again.
pub fn wake_sleepers() {
    if let Some(process) = current() {
        let _in_call = InCall::enter();
        process.wake_all();
    }
}

fn begin() -> Option<Process> {
    if is_slipstack_itself() {
        return None;
    }
    // Calls of our own threads are never the program's: they hold locks that its calls take.
    at_begin_of_threads(|| {
        InCall::begin_long();
        cores::leave_inherited();
    });
    std::panic::set_hook(Box::new(|panic| {
        write_stderr(format!("slipstack: internal error: {panic}\n").as_bytes());
        // Nothing of ours unwinds into the program.
        std::process::abort();
    }));
    let found = match config::Settings::from_variables(variable) {
        Ok(found) => found,
        Err(error) => {
            write_stderr(format!("slipstack: {error}; staying on the kernel\n").as_bytes());
            return None;
        }
    };
    if let Some(file) = &found.log_file {
        kernel::log_to(file);
    }
    let heuristics = Heuristics::of_environment().unwrap_or_else(|sentence| {
        write_stderr(format!("slipstack: {sentence}\n").as_bytes());
        Heuristics::default()
    });
    let settings = Settings {
        spin: found.spin,
        gather_us: found.gather_us,
        heuristics,
        strict: found.is_strict,
        has_ports_per_instance: config::is_adapter(variable),
        verbosity: found.log,
        journal: (found.log >= config::LogLevel::Debug).then_some(kernel::say),
        program: program_name(),
    };
    let attach = slipstack_attach::client(&found);
    let process = Process::new(Box::new(Libc), attach, settings);
    let parts = (0..).map_while(|index| std::env::var(inherit_name(index)).ok());
    let parts: Vec<String> = parts.collect();
    if !parts.is_empty() {
        process.inherit(&parts.join(","));
    }
    signals::start();
    Some(process)
}

/// The keeper and the command line tool always use the kernel.
fn is_slipstack_itself() -> bool {
    let own = std::fs::read_link("/proc/self/exe");
    let bin = variable(config::OPTION.bin.env);
    matches!((own, bin), (Ok(own), Some(bin)) if own == Path::new(&bin))
}

fn program_name() -> String {
    let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let name = path.file_name().unwrap_or_default().as_bytes();
    String::from_utf8_lossy(name).into_owned()
}
