//! Check whether the library can be loaded into a program that is about to start.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use slipstack_attach::program;
use slipstack_config as config;
use slipstack_posix::Errno;

use crate::process;
use crate::raw::write_stderr;
use crate::thread::InCall;

/// The kind of sockets that a new program will have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitness {
    /// Ours: the library is loaded into it.
    Served,
    /// The kernel's.
    Kernels,
}

/// Looks at the program in `file`. A program into which no library can be loaded is never started
/// silently.
///
/// # Errors
/// EPERM, under `--strict`, if its sockets would be the kernel's.
pub fn judge(file: &CStr) -> Result<Fitness, Errno> {
    let _in_call = InCall::enter();
    let why = if is_to_be_secure() {
        let name = file.to_string_lossy();
        format!(
            "{name} is started with another effective user than its caller: the system loads no \
             library into it, and its sockets are the kernel's"
        )
    } else {
        match program::check(Path::new(OsStr::from_bytes(file.to_bytes()))) {
            Err(unfit) if unfit.is_kernels() => unfit.to_string(),
            _ => return Ok(Fitness::Served),
        }
    };
    let settings = config::Settings::from_variables(process::variable);
    let (is_strict, warns) = settings.map_or((false, true), |it| {
        (it.is_strict, it.log >= config::LogLevel::Warn)
    });
    if is_strict {
        write_stderr(format!("slipstack: {why}; --strict refuses it\n").as_bytes());
        return Err(Errno::EPERM);
    }
    if warns {
        write_stderr(format!("slipstack: {why}\n").as_bytes());
    }
    Ok(Fitness::Kernels)
}

/// Whether a new program has rights that its caller has not (AT_SECURE, __is_setuid()): squid
/// starts its workers so.
fn is_to_be_secure() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    geteuid() != getuid() || getegid() != getgid()
}
