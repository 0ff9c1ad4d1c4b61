//! Readiness notification to the process that started this one (systemd's protocol).

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::group::{DETACHED, MEMBER};

/// Notifies systemd, if it started this process (`Type=notify`).
pub fn ready() {
    if let Some(name) = std::env::var_os("NOTIFY_SOCKET") {
        // Without a listener there is nothing to do.
        let _ = tell(&name, b"READY=1\n");
    }
}

/// Sends a message to the socket of that name: a path, or `@` and an abstract name.
fn tell(name: &OsStr, message: &[u8]) -> io::Result<()> {
    let addr = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message, &addr)?;
    Ok(())
}

/// Leaves the starter's terminal, or binds this process's life to the starter's.
pub fn act_on_starter() {
    if std::env::var_os(DETACHED).is_some() {
        // Fails only where this process leads a session already.
        let _ = rustix::process::setsid();
    }
    if std::env::var_os(MEMBER).is_some() {
        let term = Some(rustix::process::Signal::TERM);
        let _ = rustix::process::set_parent_process_death_signal(term);
    }
}

/// Detaches from the starter's terminal after reporting readiness.
pub fn let_go() {
    if std::env::var_os(DETACHED).is_none() {
        return;
    }
    let null: Option<OwnedFd> = open(
        Path::new("/dev/null"),
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok();
    if let Some(null) = null {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}
