//! The thread that sends the signals of sockets to their owners.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::process::{Pid, Signal};
use slipstack_mem::thread::spawn_quiet;

use crate::epoll::Target;
use crate::errno::Errno;
use crate::outcome::Outcome;
use crate::process::Process;
use crate::process::subject::Subject;
use crate::process::wait::Plan;
use crate::socket::description::{Decided, Description};

impl Process {
    /// F_SETOWN: a process, a negated process group, or 0 for none.
    pub(crate) fn set_owner(&self, socket: &Arc<Description>, owner: i32) -> Outcome<()> {
        exists(owner)?;
        socket.cold.lock().owner = owner;
        if let Some(Decided::Stream(stream)) = socket.decided() {
            stream.set_owned(owner != 0);
        }
        self.owners.add(socket);
        // The thread that waits for urgent marks reads the list again.
        self.engines.wake_all();
        Ok(())
    }

    /// F_GETOWN.
    pub(crate) fn owner(socket: &Description) -> i32 {
        socket.cold.lock().owner
    }

    /// Sees to it that owners get their signals. Called after a call that may have made one.
    pub fn serve_owners(&'static self) {
        if self.owners.living().is_empty() || self.owners.is_served.swap(true, Ordering::AcqRel) {
            return;
        }
        if spawn_quiet("slipstack-urg", move || self.watch_marks()).is_err() {
            self.owners.is_served.store(false, Ordering::Release);
        }
    }

    fn watch_marks(&'static self) {
        let mut is_able = true;
        while is_able {
            let version = self.owners.version.load(Ordering::Acquire);
            let sockets = self.owners.living();
            if sockets.is_empty() {
                break;
            }
            let targets: Vec<Target> = sockets.iter().cloned().map(Target::Socket).collect();
            let plan = Plan {
                subject: Subject::Many(&targets),
                kernel: &[],
                deadline_ns: None,
                mask: None,
                may_restart: true,
            };
            let outcome = self.wait(&plan, |_| {
                for socket in &sockets {
                    signal_owner(socket);
                    let owner = socket.cold.lock().owner;
                    socket.sigio.tell(&*self.kernel, owner);
                }
                let is_stale = self.owners.version.load(Ordering::Acquire) != version
                    || sockets.iter().any(|socket| socket.is_over());
                Ok(is_stale.then_some(()))
            });
            is_able = outcome.is_ok();
        }
        self.owners.is_served.store(false, Ordering::Release);
        // One may have come since the list was read.
        if is_able {
            self.serve_owners();
        }
    }
}

fn signal_owner(socket: &Description) {
    if let Some(Decided::Stream(stream)) = socket.decided()
        && let Some(mark) = stream.unsignalled_mark()
    {
        let owner = socket.cold.lock().owner;
        // An owner that has ended gets nothing.
        let _ = match Pid::from_raw(owner.wrapping_abs()) {
            Some(pid) if owner > 0 => rustix::process::kill_process(pid, Signal::URG),
            Some(group) => rustix::process::kill_process_group(group, Signal::URG),
            None => Ok(()),
        };
        stream.note_signalled(mark);
    }
}

/// f_setown(): ESRCH if there is no process of this number.
fn exists(owner: i32) -> Result<(), Errno> {
    if owner == i32::MIN {
        return Err(Errno::EINVAL);
    }
    let tested = match Pid::from_raw(owner.abs()) {
        Some(pid) if owner > 0 => rustix::process::test_kill_process(pid),
        Some(group) => rustix::process::test_kill_process_group(group),
        None => Ok(()),
    };
    match tested {
        Err(rustix::io::Errno::SRCH) => Err(Errno::ESRCH),
        _ => Ok(()),
    }
}
