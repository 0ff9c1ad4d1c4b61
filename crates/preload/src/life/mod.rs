//! The process: when we begin to look after it, its forks and its end.

pub mod abi;
mod last;
mod raw;
mod sys;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use slipstack_config as config;
use slipstack_posix::{Exit, Heuristics, Process, Settings};

use crate::kernel::{self, Libc};
use crate::lock::Lock;
use crate::raw::write_stderr;
use crate::thread::InCall;
use crate::{heap, signals};

/// The process's sockets, from its first socket or epoll set on.
static PROCESS: OnceLock<Option<Process>> = OnceLock::new();
/// Taken while [`PROCESS`] is made, so that no fork comes in between.
static BEGINNING: Lock = Lock::new();
/// The environment of a new program under the library: `LD_PRELOAD`, every `SLIPSTACK_` variable
/// and those of F-Stack's adapter, as they were when this program started. Empty: we stay out.
static ENVIRONMENT: OnceLock<Vec<CString>> = OnceLock::new();
/// The inherited connections to the keeper, or to each instance.
static CONTROL_FDS: OnceLock<Vec<i32>> = OnceLock::new();
/// The process is ending; its connections are handed over already.
static IS_ENDED: AtomicBool = AtomicBool::new(false);

/// Describes sockets that survive an exec, to the program that comes after it.
pub const INHERIT: &str = "SLIPSTACK_INHERIT";

/// Names the inherited connection to the keeper.
const CONTROL: &[u8] = b"SLIPSTACK_CONTROL_FD=";

/// The process, if it has had a socket or an epoll set.
#[inline]
pub fn process() -> Option<&'static Process> {
    PROCESS.get().and_then(Option::as_ref)
}

/// Whether a call on `fd` is ours to answer.
#[inline]
pub fn is_ours(fd: i32) -> bool {
    process().is_some_and(|process| process.is_ours(fd))
}

/// Whether `fd` is an inherited connection to the keeper, which programs do not know of.
pub fn is_control_fd(fd: i32) -> bool {
    CONTROL_FDS.get().is_some_and(|fds| fds.contains(&fd))
}

/// The variables that a new program needs.
pub fn environment() -> &'static [CString] {
    ENVIRONMENT.get().map_or(&[], Vec::as_slice)
}

/// A variable of ours. A program may have cleared its environment before its first socket: then it
/// is what it was when the program started.
pub fn variable(name: &str) -> Option<String> {
    if let Some(text) = std::env::var_os(name) {
        return text.into_string().ok();
    }
    let is_it = |kept: &&CString| {
        let rest = kept.as_bytes().strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.first() == Some(&b'='))
    };
    let kept = environment().iter().find(is_it)?;
    String::from_utf8(kept.as_bytes()[name.len() + 1..].to_vec()).ok()
}

/// The process, from now on; `None` when we stay out of this program.
pub fn activate() -> Option<&'static Process> {
    match PROCESS.get() {
        Some(process) => process.as_ref(),
        None if environment().is_empty() => None,
        None => {
            let _in_call = InCall::enter();
            BEGINNING.with(|| PROCESS.get_or_init(begin).as_ref())
        }
    }
}

fn begin() -> Option<Process> {
    if is_slipstack_itself() {
        return None;
    }
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
        verbosity: found.log,
        journal: (found.log >= config::LogLevel::Debug).then_some(kernel::say),
        program: program_name(),
    };
    let attach = slipstack_attach::client(&found);
    let process = Process::new(Box::new(Libc), attach, settings);
    if let Ok(text) = std::env::var(INHERIT) {
        process.inherit(&text);
    }
    signals::start();
    Some(process)
}

/// The keeper and the command line tool use the kernel, whoever starts them.
fn is_slipstack_itself() -> bool {
    let own = std::fs::read_link("/proc/self/exe");
    let bin = variable("SLIPSTACK_BIN");
    matches!((own, bin), (Ok(own), Some(bin)) if own == Path::new(&bin))
}

fn program_name() -> String {
    let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let name = path.file_name().unwrap_or_default().as_bytes();
    String::from_utf8_lossy(name).into_owned()
}

/// Whether a program with this environment is to be looked after, and what it passes on.
fn start(mut variables: Vec<CString>) {
    let has = |names: &[&[u8]]| {
        let mut all = variables.iter().map(|v| v.as_bytes());
        all.any(|v| names.iter().any(|name| v.starts_with(name)))
    };
    let says_where = has(&sys::ADAPTER) || has(&[b"SLIPSTACK_BIN=", b"SLIPSTACK_INSTANCE="]);
    let is_adapter = !says_where && sys::is_adapter();
    let is_wanted = says_where || is_adapter || has(&[b"SLIPSTACK_"]);
    if is_adapter {
        // F-Stack's default; a program that is linked with the adapter says nothing more.
        variables.push(c"FF_PROC_ID=0".to_owned());
    }
    if is_wanted && !sys::is_secure() {
        let inherits = variables
            .iter()
            .any(|v| v.as_bytes().starts_with(INHERIT.as_bytes()));
        let kept = |v: &CString| !v.as_bytes().starts_with(INHERIT.as_bytes());
        let control = variables
            .iter()
            .find_map(|v| v.as_bytes().strip_prefix(CONTROL));
        let numbers = control
            .and_then(|text| str::from_utf8(text).ok())
            .unwrap_or("");
        let numbers = numbers.split(',').filter_map(|number| number.parse().ok());
        _ = CONTROL_FDS.set(numbers.collect());
        let kept = variables.into_iter().filter(kept).collect();
        if ENVIRONMENT.set(kept).is_ok() {
            sys::register();
            last::watch_this_thread();
        }
        if inherits {
            activate();
        }
    }
}

/// Before a fork, whoever calls it: every lock of ours is held until it is over. A fork
/// from inside our own call starts a helper, which leaves the program's sockets alone.
extern "C" fn fork_prepare() {
    let is_helper = InCall::begin_long();
    if !is_helper {
        BEGINNING.take();
        if let Some(process) = process() {
            process.fork_prepare();
        }
        signals::hold();
    }
    heap::hold();
}

extern "C" fn fork_parent() {
    fork_over(Process::fork_parent);
    if let Some(process) = process().filter(|_| !InCall::is_nested()) {
        process.lend();
    }
}

extern "C" fn fork_child() {
    if !InCall::is_nested() {
        last::watch_this_thread();
    }
    fork_over(|process| {
        // A child ends on its own account.
        IS_ENDED.store(false, Relaxed);
        process.fork_child();
    });
}

fn fork_over(go_on: impl FnOnce(&Process)) {
    heap::release();
    if !InCall::is_nested() {
        signals::release();
        BEGINNING.release();
        if let Some(process) = process() {
            go_on(process);
        }
    }
    InCall::end_long();
}

/// A fork of which libc tells nobody.
pub fn forked(fork: impl FnOnce() -> libc::pid_t) -> libc::pid_t {
    fork_prepare();
    let pid = fork();
    if pid == 0 {
        fork_child();
    } else {
        fork_parent();
    }
    pid
}

/// The process ends in order: its connections go to the keeper, once nobody else uses them.
pub extern "C" fn end_in_order() {
    if let Some(process) = process()
        && process.has_borrowers()
        && !last::has_other_threads()
    {
        let _in_call = InCall::enter();
        raw::with_room(|| process.outlast_borrowers());
    }
    end(Exit::Orderly);
}

/// The end of a process that has moved the bytes of another one, once nobody uses them.
pub fn end_helper() -> ! {
    if let Some(process) = process() {
        let _in_call = InCall::enter();
        raw::with_room(|| process.outlast_borrowers());
    }
    end(Exit::Orderly);
    sys::exit_at_once()
}

/// The process ends by the default action of `signal`.
pub fn end_by_signal(signal: i32) {
    end(Exit::Signal(signal));
}

fn end(how: Exit) {
    let Some(process) = process() else { return };
    if IS_ENDED.swap(true, Relaxed) {
        return;
    }
    // A program that has confined itself may end, and not much else.
    if !process.has_engine() {
        return;
    }
    let _in_call = InCall::enter();
    // A signal's handler may have no more than 8 KiB.
    self::raw::with_room(|| process.exit(how));
}
