//! The thread that sends the signals of sockets to their owners.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::process::Pid;
use slipstack_mem::thread::spawn_quiet;

use crate::epoll::Target;
use crate::errno::Errno;
use crate::kernel::Kernel;
use crate::kernel::{Owner, OwnerKind};
use crate::outcome::{Divert, Outcome};
use crate::process::Process;
use crate::process::subject::Subject;
use crate::process::wait::Plan;
use crate::socket::description::{Decided, Description};

impl Process {
    /// F_SETOWN_EX. The kernel's part sends its signals by itself.
    pub fn set_owner_of(&self, fd: i32, owner: Owner) -> Outcome<()> {
        let socket = self.table.socket_of(fd)?;
        self.set_owner(&socket, owner)?;
        match socket.kernel_speaks() {
            true => Err(Divert::Kernel),
            false => Ok(()),
        }
    }

    /// F_GETOWN_EX.
    pub fn owner_of(&self, fd: i32) -> Outcome<Owner> {
        Ok(Process::owner(&*self.table.socket_of(fd)?))
    }

    /// F_SETOWN, by its number.
    pub(crate) fn set_owner_number(&self, socket: &Arc<Description>, number: i32) -> Outcome<()> {
        let owner = Owner::from_number(number).ok_or(Errno::EINVAL)?;
        self.set_owner(socket, owner)
    }

    fn set_owner(&self, socket: &Arc<Description>, owner: Owner) -> Outcome<()> {
        exists(owner)?;
        socket.cold.lock().owner = owner;
        if let Some(Decided::Stream(stream)) = socket.decided() {
            stream.set_owned(owner.is_any());
        }
        self.owners.add(socket);
        // The thread that waits for urgent marks reads the list again.
        self.engines.wake_all();
        Ok(())
    }

    /// The socket's owner.
    pub(crate) fn owner(socket: &Description) -> Owner {
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
                ends_when_stopped: false,
                is_part: false,
            };
            let outcome = self.wait(&plan, |_| {
                for socket in &sockets {
                    let owner = Process::owner(socket);
                    signal_mark(&*self.kernel, socket, owner);
                    socket.sigio.tell(&*self.kernel, owner);
                }
                let is_stale = self.owners.version.load(Ordering::Acquire) != version
                    || sockets.iter().any(|socket| socket.is_over());
                Ok(is_stale.then_some(()))
            });
            is_able = outcome.is_ok();
        }
        self.owners.is_served.store(false, Ordering::Release);
        // An owner may have been added since the list was read.
        if is_able {
            self.serve_owners();
        }
    }
}

fn signal_mark(kernel: &dyn Kernel, socket: &Description, owner: Owner) {
    if let Some(Decided::Stream(stream)) = socket.decided()
        && let Some(mark) = stream.unsignalled_mark()
    {
        kernel.signal_owner(owner, libc::SIGURG);
        stream.note_signalled(mark);
    }
}

/// f_setown(): ESRCH if there is no process of this number.
fn exists(owner: Owner) -> Result<(), Errno> {
    let tested = match (Pid::from_raw(owner.id), owner.kind) {
        (Some(group), OwnerKind::Group) => rustix::process::test_kill_process_group(group),
        // The number of any of its threads names a process.
        (Some(pid), _) => rustix::process::test_kill_process(pid),
        (None, _) => Ok(()),
    };
    match tested {
        Err(rustix::io::Errno::SRCH) => Err(Errno::ESRCH),
        _ => Ok(()),
    }
}
