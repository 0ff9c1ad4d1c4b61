//! Check whether the library can be loaded into a program that is about to start.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::{getegid, geteuid, getgid, getuid};
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
    /// Ours, if the program starts as root and the library puts the caller's users back before its
    /// `main`.
    ServedAsRoot,
    /// The kernel's.
    Kernels,
}

/// Looks at the program in `file`. A program into which no library can be loaded is never started
/// silently. `replaces_us`: it takes the place of this one, and may be started as root.
///
/// # Errors
/// EPERM, under `--strict`, if its sockets would be the kernel's.
pub fn judge(file: &CStr, replaces_us: bool) -> Result<Fitness, Errno> {
    let _in_call = InCall::enter();
    let name = file.to_string_lossy();
    let why = match program::check(Path::new(OsStr::from_bytes(file.to_bytes()))) {
        Err(unfit) if unfit.is_kernels() => unfit.to_string(),
        _ if !is_to_be_secure() => return Ok(Fitness::Served),
        _ if replaces_us && is_root_disguised() && is_executable(file) => {
            return Ok(Fitness::ServedAsRoot);
        }
        _ => format!(
            "{name} is started with another effective user or group than its caller: the system \
             loads no library into it, and its sockets are the kernel's"
        ),
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

/// Whether a new program has rights that its caller has not (AT_SECURE, __is_setuid()).
fn is_to_be_secure() -> bool {
    geteuid() != getuid() || getegid() != getgid()
}

/// Whether only the users differ, and one of them is root, which may become the other one at any
/// time: squid starts its workers so.
fn is_root_disguised() -> bool {
    (getuid().is_root() || geteuid().is_root()) && getegid() == getgid()
}

/// Whether the effective user may start the program, as root itself may.
fn is_executable(file: &CStr) -> bool {
    accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}
