//! Readiness notification to the process that started this one (systemd's protocol).

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::group::{DETACHED, MEMBER};

/// Notifies systemd, if it started this process (`Type=notify`).
pub fn ready() {
    // Without NOTIFY_SOCKET, or without a listener, there is nothing to do.
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
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
